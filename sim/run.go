// Package sim is the event loop: a clock, a queue of events, and the wiring of
// clients, admission proxies, gateway, replicas and autoscaler into a cluster,
// with the faults that befall it.
package sim

import (
	"context"
	"fmt"

	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/sim/autoscale/lifecycle"
	"fleetsim/sim/record"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// Bases that keep apart the contents of prompts of different origin.
const (
	arrivalContents = iota
	spareContents
)

// run is one phase being simulated: the cluster, which outlives the phase when
// another continues it, and what belongs to the phase alone.
type run struct {
	Setup
	now   simtime.Time
	queue eventQueue
	ends  stepEnds

	blocks     *workload.Hasher // of the engines' blocks; nil: they cache no prefix
	gateways   *gateways
	kvEvents   kvEvents
	ledgersOf  map[*router.Gateway]*ledgers
	deployment *lifecycle.Deployment
	replicas   []*replica // by ID, those that are gone too
	endpoints  []endpointChange
	expected   simtime.Time // of the evLifecycle that is in the queue; Never: none

	begin    simtime.Time
	client   *client
	gate     *gate    // nil: no admission proxies
	scaler   *scaler  // nil: no autoscaler
	scaling  *scaling // nil: nothing can change the replicas
	recorder recorder
	sharing  *sharing         // nil: nothing to watch
	counters []router.Counter // of the gateways at the beginning
	index    *IndexSummary    // at the beginning
	ledgers  *ledgers         // nil: the ledgers are not compared
	pd       disaggregation
	events   int64
	notes    []string
	err      error // ends the phase: its load cannot be read
}

// Run simulates the setup and returns its phase record. It fails on a setup that
// cannot be run, before anything has happened, and on a trace that cannot be read
// to its end.
func Run(s Setup) (*record.Phase, error) { return new(Runner).Run(s) }

// A Runner runs setups one after the other and hands on from each run to the next
// the memory that it leaves. The zero Runner is ready; results do not depend on what it
// has run before.
type Runner struct {
	spare []*request
}

// Run is the function Run.
func (n *Runner) Run(s Setup) (phase *record.Phase, err error) {
	err = n.runChain(context.Background(), []Setup{s}, func(_ int, p *record.Phase) { phase = p })
	return phase, err
}

// newRun builds the cluster and the load of the setup.
func newRun(s Setup) (*run, error) {
	r := &run{Setup: s, expected: simtime.Never, ledgersOf: make(map[*router.Gateway]*ledgers)}
	if err := r.build(); err != nil {
		return nil, err
	}
	if err := r.begins(0); err != nil {
		return nil, err
	}
	r.prime()
	return r, nil
}

// build makes the cluster.
func (r *run) build() error {
	limits, err := Limits(r.Profile, r.Scenario)
	if err != nil {
		return err
	}
	if limits.PrefixCaching {
		r.blocks = workload.NewHasher(0, limits.BlockTokens, workload.Tokens)
	}
	if r.gateways, err = newGateways(r.Setup); err != nil {
		return err
	}
	sc := r.Scenario
	r.ends = newStepEnds(sc.Cluster.Replicas)
	r.deployment, err = lifecycle.New(lifecycle.Config{
		Replicas: sc.Cluster.Replicas, GPUs: sc.Cluster.GPUs, Stages: sc.Lifecycle,
		MaxSurge: sc.Rollout.MaxSurge, MaxUnavailable: sc.Rollout.MaxUnavailable,
	}, random.Stream(r.Seed, "lifecycle"))
	if err != nil {
		return err
	}
	for id := range sc.Cluster.Replicas {
		rep := r.newReplica(id)
		rep.state, rep.listed = up, true
		r.gateways.addPod(r.now, id, rep.name, rep.role, rep.roleSet)
	}
	return nil
}

// begins prepares a phase that begins now, whose questions begin with serial.
func (r *run) begins(serial int) error {
	r.begin, r.events, r.notes = r.now, 0, nil
	r.recorder = newRecorder(r.Setup, r.begin)
	var err error
	if r.gate, err = newGate(r.Setup); err != nil {
		return err
	}
	if r.scaler, err = newScaler(r.Setup); err != nil {
		return err
	}
	var spare []*request
	if r.client != nil {
		spare = r.client.spare()
	}
	if r.client, err = newClient(r.Setup, arrivalContents, r.begin, serial); err != nil {
		return err
	}
	r.client.free = spare
	r.sharing = newSharing(r.Setup)
	r.counters, r.index = r.gateways.counters(), r.gateways.indexStats(r.now)
	r.pd = disaggregation{Prefills: make(map[string]int)}
	r.openLedgers()
	for _, rep := range r.replicas {
		r.observe(rep)
		r.watchCache(rep)
		rep.startPhase()
	}
	return nil
}

// simulate runs the phase to its end.
func (r *run) simulate(ctx context.Context) (*record.Phase, error) {
	const between = 4096 // events, so that looking whether ctx has ended costs nothing
	defer r.client.close()
	r.start()
	for n := 0; !r.over(); n++ {
		if n%between == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.step()
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.finish(), nil
}

// errHorizon ends a run whose clock would overflow.
var errHorizon = fmt.Errorf("the run is not over after %.3g s (1.46 years), the longest that is simulated: its requests take too long, or too many wait", simtime.Horizon.Seconds())

// start puts the phase's first events in the queue.
func (r *run) start() {
	r.startScaling()
	r.planFaults()
	r.startLoad()
	r.schedule(r.begin+r.Scenario.Observe.SnapshotOffset.Time, evSnapshot, 0)
}

// over reports whether every arrival has ended and the load's own time is over:
// what else happens in the cluster concerns nobody.
func (r *run) over() bool {
	if r.err != nil {
		return true
	}
	return r.client.live == 0 && r.upcoming() > r.client.end()
}

// upcoming is when something next happens; Never if nothing will.
func (r *run) upcoming() simtime.Time {
	at := r.ends.first().at
	if len(r.queue) > 0 {
		at = min(at, r.queue[0].at)
	}
	return at
}

// step takes what happens next: an event of the queue or the end of an engine's step.
func (r *run) step() {
	r.events++
	if end := r.ends.first(); end.at != simtime.Never {
		next := newEvent(end.at, evStepEnd, end.replica, nil)
		if len(r.queue) == 0 || next.before(&r.queue[0]) {
			if r.reach(end.at) {
				r.stepEnd(r.replicas[end.replica])
			}
			return
		}
	}
	e := r.queue.pop()
	if !r.reach(e.at) {
		return
	}
	if q := e.req; q != nil {
		q.events--
		if q.ended {
			r.client.recycle(q)
			return
		}
	}
	r.handle(e)
}

// reach sets the clock, unless that ends the run.
func (r *run) reach(t simtime.Time) bool {
	if t > simtime.Horizon {
		r.fail(errHorizon)
		return false
	}
	r.now = t
	return true
}

// fail ends the run with an error of its load.
func (r *run) fail(err error) {
	r.err = fmt.Errorf("%s under %s, seed %d: %w", r.Scenario.Name, r.Policy, r.Seed, err)
}

// push puts an event of the request in the queue.
func (r *run) push(at simtime.Time, k kind, q *request) {
	q.events++
	r.queue.push(newEvent(at, k, q.Index, q))
}

// schedule puts any other event in the queue.
func (r *run) schedule(at simtime.Time, k kind, id int) {
	r.queue.push(newEvent(at, k, id, nil))
}

func (r *run) handle(e event) {
	switch e.kind() {
	case evStreamEnd:
		r.streamEnd(e.req)
	case evAdmission:
		r.waitsEnd()
	case evLifecycle:
		r.nextStage()
	case evEndpoint:
		r.endpoint(r.endpoints[e.id()])
	case evArrival:
		r.arrive(e.req)
	case evRetry:
		r.tryAgain(e.req)
	case evRoute:
		r.route(e.req)
	case evForward:
		r.forward(e.req)
	case evKVEvents:
		r.hearKV(e.id())
	case evDeliver:
		r.deliver(e.req)
	case evPrefillTimeout:
		r.prefillTimesOut(e.req)
	case evSilence:
		r.silence(e.req)
	case evCancel:
		r.cancel(e.req)
	case evFault:
		r.fault(e.id())
	case evRecovery:
		r.speedUp(r.replicas[e.id()])
	case evTerminate:
		r.terminate(r.replicas[e.id()])
	case evShutdown, evKill:
		r.exit(r.replicas[e.id()], cut)
	case evRollout:
		r.follow(r.deployment.Rollout(r.now))
	case evScrape:
		r.scrape()
	case evPreScale:
		r.preScale(e.id())
	case evReconcile:
		r.reconcileLater()
		r.reconcile()
	case evSnapshot:
		r.snapshot()
	}
}

// finish sums the phase up.
func (r *run) finish() *record.Phase {
	r.sync()
	var names []string
	var known []*replica
	for _, rep := range r.replicas {
		if rep.served {
			names, known = append(names, rep.name), append(known, rep)
		}
	}
	p := r.recorder.summary.Phase(record.Meta{
		Phase: r.recorder.phase, Scenario: r.Scenario.Name, Route: r.Policy, Seed: record.Some(r.Seed),
		Planned: record.Some(r.client.planned), Elapsed: seconds(r.recorder.last - r.begin),
		Replicas: names, Simulated: true,
	})
	var steps int64
	for i, rep := range known {
		steps += rep.stats().Steps
		rep.describe(&p.Replicas[i])
	}
	p.Steps, p.Events = record.Some(int(steps)), record.Some(int(r.events))
	p.CacheHitRatio = record.CacheHitRatio(p.Replicas)
	p.RoutingCounterDeltas = counterDeltas(r.counters, r.gateways.counters())
	if r.client.planned == 0 {
		p.Notes = append(p.Notes, "nothing arrived: the rates are 0 all along, or nothing of the trace is selected")
	}
	p.Notes = append(append(p.Notes, r.notes...), r.warnings()...)
	p.Notes = append(p.Notes, r.sharing.notes(p.Replicas)...)
	if n := p.ErrorCategories.Of(errTooLong); n > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d requests asked for more than the engine's max_model_len, prompt and output together: answered 400", n))
	}
	r.extend(&p)
	return &p
}

// extend adds what the schema has no member for.
func (r *run) extend(p *record.Phase) {
	add := func(name string, v any) {
		if err := p.Extend(name, v); err != nil {
			panic(err) // a name of the schema, or a value that JSON cannot hold
		}
	}
	if r.client.trace != nil {
		summary := r.traceSummary()
		add("trace", summary)
		p.Notes = append(p.Notes, summary.notes(p, r.load())...)
	}
	if r.gate != nil {
		add("admission", &r.gate.tally)
	}
	if r.scaling != nil {
		r.scaling.emit(r)
		add("scaling", r.scaling.summary())
	}
	if index := r.gateways.indexStats(r.now); index != nil {
		add("router_index", index.since(r.index))
	}
	if r.ledgers != nil {
		add("ledgers", r.ledgerSummary())
	}
	if len(r.gateways.processes) > 1 {
		add("gateway_requests", r.gateways.requests())
	}
	if len(r.pd.Prefills) > 0 || r.pd.Timeouts > 0 {
		add("disaggregation", &r.pd)
	}
}
