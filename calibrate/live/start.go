package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"fleetsim/calibrate/live/plan"
	"fleetsim/calibrate/live/text"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/workload"
)

// A Start brings a live cluster into the scenario's starting state, as the
// routing study did before each phase: it warms engines up, waits until they are
// idle, empties their prefix caches and makes sure that they are empty, and
// primes documents through the gateway until each family has one where it
// belongs.
type Start struct {
	WarmUp []int         // requests at a time, one round after the other
	Idle   time.Duration // how long to wait for idle engines
	Tries  int           // of a cache reset
}

// StudyStart is the routing study's.
func StudyStart() *Start { return &Start{WarmUp: []int{1, 4, 8}, Idle: 5 * time.Minute, Tries: 3} }

// A Prepared is what a start did.
type Prepared struct {
	// FamilyMap gives each family the number of its document; empty where documents
	// are the families' own.
	FamilyMap map[int]int `json:"family_map,omitempty"`
	// Owners are the documents that each replica was primed with, by number.
	Owners   map[string][]int `json:"initial_owners,omitempty"`
	Requests int              `json:"requests"`
	notes    []string
}

// Numbers of documents that no family gets.
const (
	warmUpDocuments = 1 << 20
	probeDocuments  = 1 << 21
)

// candidatesPerFamily bounds how many documents are primed to find owners: with
// two replicas chosen by chance, 8 families lack one after 32 documents once in
// some 10^4 starts.
const candidatesPerFamily = 4

// primingPolicy fills the gateway's index, whatever is measured afterwards.
const primingPolicy = "prefix-cache"

// MaxRequests is how many requests the start of the scenario takes at most.
func (s *Start) MaxRequests(sc *scenario.Scenario, engines int) int {
	n := 0
	for _, c := range s.WarmUp {
		n += c
	}
	families := sc.Workload.Prompt.Families
	n += engines * s.Tries * probesPerReset * 2
	if sc.Start.RouterIndex == "owners" {
		n += candidatesPerFamily * families
	}
	if sc.Start.EngineCache != "cold" {
		n += engines * families
	}
	return n
}

// A starter is a start under way.
type starter struct {
	*Replayer
	*Start
	families []workload.Prompt
	prepared Prepared
}

// Prepare runs the start. It assigns documents to the replayer's texts.
func (r *Replayer) Prepare(ctx context.Context, s *Start) (*Prepared, error) {
	st := &starter{Replayer: r, Start: s, families: plan.Families(r.Scenario, r.Seed)}
	if err := st.check(); err != nil {
		return nil, err
	}
	left := r.Budget.Left()
	start := r.Scenario.Start
	steps := []func(context.Context) error{st.warmUp, st.idle, st.resetAll}
	switch {
	case start.RouterIndex == "owners":
		steps = append(steps, st.primeGateway, st.idle)
		if start.EngineCache == "cold" {
			steps = append(steps, st.resetAll)
		}
	case start.EngineCache == "owners":
		steps = append(steps, st.primeOwners, st.idle)
	}
	if start.EngineCache == "all" {
		steps = append(steps, st.primeAll, st.idle)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("controlled start: %w", err)
		}
	}
	st.prepared.Requests = left - r.Budget.Left()
	return &st.prepared, nil
}

// check reports starts that cannot be brought about from outside.
func (st *starter) check() error {
	if len(st.Engines) == 0 {
		return errors.New("controlled start: it needs the engines (--engine NAME=URL)")
	}
	start := st.Scenario.Start
	for f, owners := range start.Owners {
		if start.RouterIndex == "owners" && len(owners) != 1 {
			return fmt.Errorf("controlled start: family %d has %d owners; a gateway can be primed for exactly one", f, len(owners))
		}
		for _, owner := range owners {
			if st.engineNamed(owner) == nil {
				return fmt.Errorf("controlled start: no --engine is called %s, an owner of family %d", owner, f)
			}
		}
	}
	return nil
}

func (st *starter) engineNamed(name string) *Engine {
	i := slices.IndexFunc(st.Engines, func(e Engine) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &st.Engines[i]
}

// send sends one request that is no part of the load and returns its attempt,
// which is a success.
func (st *starter) send(ctx context.Context, ask *Ask) (*Attempt, error) {
	if !st.Budget.Take() {
		return nil, errors.New("the limit of requests is reached")
	}
	a := st.transport.Send(ctx, st.Now, ask, st.Silence)
	if a.Result != record.OK {
		return nil, fmt.Errorf("%s: %s %s", ask.URL, a.Category, a.Message)
	}
	return a, nil
}

// document is the text of a document that is no family's.
func (st *starter) document(number int) text.Text {
	shape := sim.Shape(st.Scenario.Workload.Prompt)
	shape.SaltSpread = 0 // nothing is left to chance
	prompt := workload.NewGenerator(shape, 0, 0, nil).Prompt(nil, -1, number, shape.BodyRepeat)
	return st.Texts.Candidate(prompt, number)
}

// warmUp sends rounds of requests through the gateway.
func (st *starter) warmUp(ctx context.Context) error {
	number := warmUpDocuments
	for _, concurrency := range st.WarmUp {
		problems := make([]error, concurrency)
		var round sync.WaitGroup
		for i := range concurrency {
			ask := st.Target.ask(st.document(number), st.Scenario.Workload.Output, "", "")
			number++
			round.Go(func() { _, problems[i] = st.send(ctx, ask) })
		}
		round.Wait()
		if err := errors.Join(problems...); err != nil {
			return fmt.Errorf("warm-up at %d: %w", concurrency, err)
		}
	}
	return nil
}

// idlePoll passes between two looks at the engines, on the wall clock.
const idlePoll = 200 * time.Millisecond

// idle waits until every engine has nothing running and nothing waiting, twice
// in a row: an engine's gauges lag by a step.
func (st *starter) idle(ctx context.Context) error {
	deadline := st.Now().Add(st.Idle)
	for calm := 0; calm < 2; {
		states, err := (&watch{Replayer: st.Replayer}).engines(ctx)
		if err != nil {
			return err
		}
		calm++
		for _, s := range states {
			if s.running+s.waiting > 0 {
				calm = 0
			}
		}
		if st.Now().After(deadline) {
			return fmt.Errorf("the engines are not idle after %v", st.Idle)
		}
		sleepUntil(ctx, st.Now, st.Now().Add(idlePoll))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (st *starter) resetAll(ctx context.Context) error {
	for i := range st.Engines {
		if err := st.reset(ctx, &st.Engines[i]); err != nil {
			return fmt.Errorf("engine %s: %w", st.Engines[i].Name, err)
		}
	}
	return nil
}

// probesPerReset are the requests that confirming one reset takes.
const probesPerReset = 3

// reset empties an engine's prefix cache. vLLM answers 200 whether it did or
// not, so a probe that was cached before must miss afterwards; where the probe
// never hits, that cannot be told, and the notes say so.
func (st *starter) reset(ctx context.Context, e *Engine) error {
	probe := st.document(probeDocuments)
	for range st.Tries {
		if _, err := st.probe(ctx, e, probe); err != nil {
			return err
		}
		cached, err := st.probe(ctx, e, probe)
		if err != nil {
			return err
		}
		if err := st.post(ctx, e); err != nil {
			return err
		}
		if hits, known := cached.Get(); !known || hits == 0 {
			st.prepared.notes = append(st.prepared.notes, "the cache reset of "+e.Name+" could not be confirmed: its prompts never hit")
			return nil
		}
		after, err := st.probe(ctx, e, probe)
		if err != nil {
			return err
		}
		if after.Or(0) == 0 {
			return st.post(ctx, e) // the probe's own content goes too
		}
	}
	return fmt.Errorf("its prefix cache still holds what it held, after %d resets", st.Tries)
}

// probe asks an engine past the gateway and returns by how many tokens its hits
// grew.
func (st *starter) probe(ctx context.Context, e *Engine, prompt text.Text) (record.Float, error) {
	before, err := st.engine(ctx, e)
	if err != nil {
		return record.Float{}, err
	}
	if _, err := st.send(ctx, st.Target.askAt(e.URL, prompt, 1, "", "")); err != nil {
		return record.Float{}, err
	}
	if err := st.idle(ctx); err != nil {
		return record.Float{}, err
	}
	after, err := st.engine(ctx, e)
	if err != nil || !before.hits.Valid() || !after.hits.Valid() {
		return record.Float{}, err
	}
	return record.Some(after.hits.Or(0) - before.hits.Or(0)), nil
}

// post asks an idle engine to reset its prefix cache.
func (st *starter) post(ctx context.Context, e *Engine) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(e.URL, "/")+"/reset_prefix_cache", nil)
	if err != nil {
		return err
	}
	resp, err := st.transport.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxMessage)) // for the connection to be used again
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/reset_prefix_cache: HTTP status %d (vLLM has it with VLLM_SERVER_DEV_MODE=1)", resp.StatusCode)
	}
	return nil
}

// primeGateway primes documents through the gateway, which sends each where it
// likes, until every family has one with its owner.
func (st *starter) primeGateway(ctx context.Context) error {
	st.prepared.FamilyMap, st.prepared.Owners = make(map[int]int), make(map[string][]int)
	owners := st.Scenario.Start.Owners
	for number := range candidatesPerFamily * len(st.families) {
		family := number % len(st.families)
		a, err := st.send(ctx, st.Target.ask(st.Texts.Candidate(st.families[family], number), 1, primingPolicy, ""))
		if err != nil {
			return fmt.Errorf("priming: %w", err)
		}
		pod := st.alias(a.TargetPod)
		st.prepared.Owners[pod] = append(st.prepared.Owners[pod], number)
		for f, names := range owners {
			if _, has := st.prepared.FamilyMap[f]; !has && slices.Contains(names, pod) {
				st.prepared.FamilyMap[f] = number
				st.Texts.Assign(st.families[f][0], number)
				break
			}
		}
		if len(st.prepared.FamilyMap) == len(owners) {
			return nil
		}
	}
	return fmt.Errorf("priming: %d of %d families have a document with their owner after %d documents; they went to %v",
		len(st.prepared.FamilyMap), len(owners), candidatesPerFamily*len(st.families), st.prepared.Owners)
}

// primeOwners primes each family's document at its owners, past the gateway.
func (st *starter) primeOwners(ctx context.Context) error {
	for f, names := range st.Scenario.Start.Owners {
		for _, name := range names {
			if err := st.primeEngine(ctx, st.engineNamed(name), f); err != nil {
				return err
			}
		}
	}
	return nil
}

// primeAll primes every family's document at every engine.
func (st *starter) primeAll(ctx context.Context) error {
	for f := range st.families {
		for i := range st.Engines {
			if err := st.primeEngine(ctx, &st.Engines[i], f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (st *starter) primeEngine(ctx context.Context, e *Engine, family int) error {
	if _, err := st.send(ctx, st.Target.askAt(e.URL, st.Texts.Text(st.families[family]), 1, "", "")); err != nil {
		return fmt.Errorf("priming family %d at %s: %w", family, e.Name, err)
	}
	return nil
}

// Describe adds the start to a phase's record.
func (p *Prepared) Describe(r *Result) {
	r.Phase.Notes = append(r.Phase.Notes, p.notes...)
	if err := r.Phase.Extend("start", p); err != nil {
		panic(err) // "start" is no member of the schema, and p has a JSON form
	}
}
