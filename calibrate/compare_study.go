package calibrate

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"fleetsim/model"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// A StudyComparison is a study's phases, measured beside simulated.
type StudyComparison struct {
	Study   string            `json:"study"`
	Profile string            `json:"profile"`
	Seeds   int               `json:"seeds"`
	Phases  []PhaseComparison `json:"phases"`
	// Pairs are the policies that ran on the same load, two by two.
	Pairs []Pair `json:"pairs"`
	// Rankings are the policies of each load, the best first.
	Rankings []Ranking `json:"rankings"`
}

// A PhaseComparison is one phase, measured beside simulated.
type PhaseComparison struct {
	Phase     string        `json:"phase"`
	Measured  *record.Phase `json:"measured"`
	Simulated *record.Phase `json:"simulated"` // under the study's own seed
	Band      Bands         `json:"band"`      // over the seeds
	// Groups are the phase as a whole and then, if it has several, its tenants.
	Groups []Group `json:"groups"`
	// Warnings are what makes the two sides unlike, in words.
	Warnings []string `json:"warnings"`
	// Plan is the phase as it was simulated.
	Plan scenario.Phase `json:"-"`
	// UsableBlocks is the engine's KV pool without the null block: kv_usage 1.
	UsableBlocks int `json:"-"`
	// Runs are the simulated records of all seeds, the study's own first.
	Runs []*record.Phase `json:"-"`

	traces phaseTraces
}

// Bands are the 5-95% bands of the metrics, by name.
type Bands []NamedBand

// A NamedBand is a metric's band over the seeds.
type NamedBand struct {
	Metric string
	record.Band
}

// Of is the named metric's band; the zero Band when there is none.
func (b Bands) Of(metric string) record.Band {
	for _, nb := range b {
		if nb.Metric == metric {
			return nb.Band
		}
	}
	return record.Band{}
}

// MarshalJSON writes an object with a member a metric, in the bands' order.
func (b Bands) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, nb := range b {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(nb.Metric)
		if err != nil {
			return nil, err
		}
		band, err := json.Marshal(nb.Band)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, name...), ':'), band...)
	}
	return append(out, '}'), nil
}

// CompareStudy simulates every phase of the study under repeat seeds, from the
// phase's own on, and sets the results beside what was measured; a phase that
// continues the one before does so under each seed. profile is asked for the
// profile of each scenario. done is called after each run.
func CompareStudy(ctx context.Context, study *scenario.Study, profile func(*scenario.Scenario) (*model.Profile, error), repeat, workers int, done func()) (*StudyComparison, error) {
	c, err := compareStudy(ctx, study, profile, repeat, workers, done, func(int, int, *sim.Setup) {})
	if err != nil {
		return nil, err
	}
	c.assess()
	return c, nil
}

// compareStudy is CompareStudy without the assessment. It calls prepare with
// each setup before it runs, by phase and number of the run.
func compareStudy(ctx context.Context, study *scenario.Study, profile func(*scenario.Scenario) (*model.Profile, error), repeat, workers int, done func(), prepare func(phase, run int, s *sim.Setup)) (*StudyComparison, error) {
	c := &StudyComparison{Study: study.Name, Seeds: repeat}
	own := make([]sim.Setup, len(study.Phases)) // under the phases' own seeds
	for i := range study.Phases {
		ph := &study.Phases[i]
		p, err := profile(ph.Scenario)
		if err != nil {
			return nil, err
		}
		limits, err := sim.Limits(p, ph.Scenario)
		if err != nil {
			return nil, err
		}
		c.Profile = p.Name
		own[i] = sim.Setup{Phase: ph.Name, Scenario: ph.Scenario, Profile: p, Policy: ph.Policy, Seed: ph.Scenario.Seed, Continue: ph.Continue}
		c.Phases = append(c.Phases, PhaseComparison{Phase: ph.Name, Measured: ph.Measured, UsableBlocks: limits.Blocks - 1, Plan: *ph})
	}
	setups, phaseOf := underSeeds(own, repeat)
	prepared := make([]int, len(own))
	for i, phase := range phaseOf {
		prepare(phase, prepared[phase], &setups[i])
		prepared[phase]++
	}
	runs, err := sim.RunAll(ctx, setups, workers, done)
	if err != nil {
		return nil, err
	}
	for i, run := range runs {
		p := &c.Phases[phaseOf[i]]
		p.Runs = append(p.Runs, run)
	}
	for i := range c.Phases {
		p := &c.Phases[i]
		p.Simulated, p.Band = p.Runs[0], bandsOf(p.Runs)
	}
	return c, nil
}

// underSeeds repeats setups under further seeds, a setup together with those
// that continue it, and says which of them each of the results is.
func underSeeds(own []sim.Setup, repeat int) (setups []sim.Setup, of []int) {
	for first := 0; first < len(own); {
		end := first + 1
		for end < len(own) && own[end].Continue {
			end++
		}
		for seed := range uint64(repeat) {
			for i := first; i < end; i++ {
				s := own[i]
				s.Seed += seed
				setups, of = append(setups, s), append(of, i)
			}
		}
		first = end
	}
	return setups, of
}

// bandsOf are the bands of every metric that some run has.
func bandsOf(runs []*record.Phase) Bands {
	var bands Bands
	for _, m := range allMetrics(runs) {
		var values []float64
		for _, p := range runs {
			if v, ok := m.Value(p).Get(); ok {
				values = append(values, v)
			}
		}
		if len(values) > 0 {
			bands = append(bands, NamedBand{m.Name, record.BandOf(values)})
		}
	}
	return bands
}

// allMetrics are the metrics of any of the runs, each once.
func allMetrics(runs []*record.Phase) []Metric {
	var metrics []Metric
	seen := map[string]bool{}
	for i, p := range runs {
		if i > 0 && sameMetrics(p, runs[i-1]) {
			continue
		}
		for _, m := range Metrics(p) {
			if !seen[m.Name] {
				seen[m.Name] = true
				metrics = append(metrics, m)
			}
		}
	}
	return metrics
}

// A Coverage is how often the measured value lies inside the simulated band.
type Coverage struct {
	Metric        string
	Inside, Known int
}

// Coverage counts, for each of the metrics, the phases whose measured value
// lies inside the band widened by slack, a share of its bounds.
func (c *StudyComparison) Coverage(slack float64, metrics ...string) []Coverage {
	var out []Coverage
	for _, name := range metrics {
		cov := Coverage{Metric: name}
		for i := range c.Phases {
			inside, known := c.Phases[i].Inside(name, slack)
			if known {
				cov.Known++
			}
			if inside {
				cov.Inside++
			}
		}
		out = append(out, cov)
	}
	return out
}

// Inside reports whether the measured value of the metric lies inside the
// simulated band widened by slack; known is false when one of them is absent.
func (p *PhaseComparison) Inside(metric string, slack float64) (inside, known bool) {
	if p.Measured == nil {
		return false, false
	}
	return p.Band.Of(metric).Holds(p.value(p.Measured, metric), slack)
}

func (p *PhaseComparison) value(of *record.Phase, metric string) record.Float {
	named := func(m Metric) bool { return m.Name == metric }
	for _, known := range append([]*record.Phase{of}, p.Runs...) {
		metrics := Metrics(known)
		if i := slices.IndexFunc(metrics, named); i >= 0 {
			return metrics[i].Value(of)
		}
	}
	return record.Float{}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
