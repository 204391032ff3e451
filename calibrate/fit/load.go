package fit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fleetsim/gunzip"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// An Input says what measured files there are and how to simulate them.
type Input struct {
	// Files are request records, phase records (JSON lines, plain or gzip), or
	// results of vllm bench serve.
	Files []string
	// Scenario is a scenario, whose only phase the records are of, or a study,
	// whose phases are found by name. Results of vllm bench serve need none.
	Scenario string
	// Sets are overrides of it: path.to.key=value.
	Sets []string
	// Policy is the routing policy that was measured; "" is the scenario's first.
	Policy string
	// Phases are the only phases to take; none: all.
	Phases []string
}

// Load reads the measured runs. Where a phase has request records its phase
// record is not used. A run of several replicas is compared by distribution:
// chance decides which of them a request goes to. The scenario of a run with request
// records is made to begin warm, and its prompts as long, as theirs; its Notes say so.
func Load(in Input) ([]Run, error) {
	var (
		runs     []Run
		requests []record.Request
		phases   []record.Phase
		problems []error
	)
	for _, name := range in.Files {
		data, err := os.ReadFile(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		switch kindOf(data) {
		case benchFile:
			run, err := BenchRun(filepath.Base(name), data)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			runs = append(runs, *run)
		case phaseFile:
			p, err := record.ReadPhases(name, bytes.NewReader(data))
			problems, phases = append(problems, err), append(phases, p...)
		default:
			q, err := record.ReadRequests(name, bytes.NewReader(data))
			problems, requests = append(problems, err), append(requests, q...)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(requests)+len(phases) == 0 {
		return runs, nil
	}
	setups, err := setupsOf(in)
	if err != nil {
		return nil, err
	}
	measured, err := gather(setups, requests, phases, in)
	return append(runs, measured...), err
}

type fileKind int

const (
	requestFile fileKind = iota
	phaseFile
	benchFile
)

// kindOf tells a file by its first object. What is compressed holds records.
func kindOf(data []byte) fileKind {
	if gunzip.Is(bufio.NewReader(bytes.NewReader(data))) {
		return compressedKind(data)
	}
	return plainKind(data)
}

func compressedKind(data []byte) fileKind {
	phases, err := record.ReadPhases("", bytes.NewReader(data))
	if err == nil && len(phases) > 0 {
		return phaseFile
	}
	return requestFile
}

func plainKind(data []byte) fileKind {
	var head map[string]json.RawMessage
	if json.NewDecoder(bytes.NewReader(data)).Decode(&head) != nil {
		return requestFile
	}
	if _, ok := head["mean_ttft_ms"]; ok {
		return benchFile
	}
	if first := bytes.TrimSpace(head["ttft"]); len(first) > 0 && first[0] == '{' {
		return phaseFile
	}
	return requestFile
}

// setup is a phase that can be simulated.
type setup struct {
	name string
	sim.Setup
}

// setupsOf are the phases of the study, or the scenario's one, without a name.
func setupsOf(in Input) ([]setup, error) {
	if in.Scenario == "" {
		return nil, errors.New("records need --scenario: the scenario, or the study, that they were measured under")
	}
	study, err := scenario.LoadStudyWith(in.Scenario, in.Sets)
	if err == nil {
		if in.Policy != "" {
			return nil, fmt.Errorf("%s: a study names the policy of each phase itself: no --policy may be given", in.Scenario)
		}
		var all []setup
		for i := range study.Phases {
			ph := &study.Phases[i]
			sc := ph.Scenario
			if ph.Continue {
				sc = afterOthers(sc)
			}
			all = append(all, setup{ph.Name, sim.Setup{Phase: ph.Name, Scenario: sc, Policy: ph.Policy, Seed: sc.Seed}})
		}
		return all, nil
	}
	sets := in.Sets
	if in.Policy != "" {
		sets = scenario.WithPolicies(sets, in.Policy)
	}
	sc, scErr := scenario.LoadWith(in.Scenario, sets)
	if scErr != nil {
		var problems scenario.Problems
		if errors.As(err, &problems) && !strings.Contains(err.Error(), "no study") {
			return nil, err
		}
		return nil, scenario.PoliciesAt("--policy", scErr)
	}
	return []setup{{"", sim.Setup{Scenario: sc, Policy: sc.Policies[0], Seed: sc.Seed}}}, nil
}

// afterOthers is the scenario of a phase that continues others, which a fit
// simulates alone: by then every engine holds every family.
func afterOthers(sc *scenario.Scenario) *scenario.Scenario {
	warm := *sc
	warm.Start.EngineCache = "all"
	return &warm
}

// A collector sorts records into the runs of their phases.
type collector struct {
	in       Input
	setups   []setup
	runs     []Run
	at       map[string]int // of each phase in runs
	problems []error
}

// gather makes a run of each phase that has records.
func gather(setups []setup, requests []record.Request, phases []record.Phase, in Input) ([]Run, error) {
	c := &collector{in: in, setups: setups, at: map[string]int{}}
	for i := range requests {
		if run := c.run(requests[i].Phase); run != nil {
			run.Requests = append(run.Requests, requests[i])
		}
	}
	for i := range phases {
		if run := c.run(phases[i].Phase); run != nil && len(run.Requests) == 0 {
			run.Figures = figuresOf(&phases[i])
		}
	}
	if len(c.runs) == 0 && len(c.problems) == 0 {
		c.problems = append(c.problems, fmt.Errorf("none of the records is of phase %s", strings.Join(in.Phases, ", ")))
	}
	for i := range c.runs {
		if err := c.runs[i].align(); err != nil {
			c.problems = append(c.problems, err)
		}
	}
	return c.runs, errors.Join(c.problems...)
}

// run is the run of the phase; nil if the phase is not wanted, or unknown,
// which is noted once.
func (c *collector) run(phase string) *Run {
	if len(c.in.Phases) > 0 && !slices.Contains(c.in.Phases, phase) {
		return nil
	}
	at, ok := c.at[phase]
	if !ok {
		at = -1
		known := slices.IndexFunc(c.setups, func(s setup) bool { return s.name == phase || s.name == "" })
		if known >= 0 {
			at = len(c.runs)
			c.runs = append(c.runs, newRun(phase, &c.setups[known]))
		} else {
			c.problems = append(c.problems, fmt.Errorf("%s has no phase %q", c.in.Scenario, phase))
		}
		c.at[phase] = at
	}
	if at < 0 {
		return nil
	}
	return &c.runs[at]
}

func newRun(phase string, s *setup) Run {
	r := Run{Name: phase, Setup: s.Setup, Sorted: s.Scenario.Cluster.Replicas > 1}
	r.Setup.Phase = phase
	return r
}

// figuresOf are the quantiles of a phase record.
func figuresOf(p *record.Phase) []Figure {
	var all []Figure
	for _, q := range []struct {
		metric Latency
		level  float64
		value  record.Float
	}{
		{TTFT, 0.5, p.TTFT.P50}, {TTFT, 0.95, p.TTFT.P95}, {TTFT, 0.99, p.TTFT.P99},
		{TPOT, 0.5, p.TPOT.P50}, {TPOT, 0.95, p.TPOT.P95}, {TPOT, 0.99, p.TPOT.P99},
	} {
		if v, ok := q.value.Get(); ok {
			all = append(all, Figure{q.metric, q.level, v})
		}
	}
	return all
}
