// Package sim is the event loop: a clock, a queue of events, and the wiring of
// client, gateway and replicas into a cluster.
package sim

import (
	"fleetsim/model"
	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/sim/record"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// replica is one engine of the cluster with what is recorded of it.
type replica struct {
	*model.Replica
	id       int
	name     string
	sampled  model.Gauges // peaks over the snapshots
	expected simtime.Time // of the step end that is in the queue; Never: none
	chosen   int          // peak of the gateway's in-flight count at selection, the request itself not counted
}

// Bases that keep apart the contents of prompts of different origin.
const (
	arrivalContents = iota
	spareContents
)

// run is one phase being simulated.
type run struct {
	Setup
	now      simtime.Time
	queue    eventQueue
	client   *client
	gateways *gateways
	replicas []*replica
	hashes   [][]uint64 // spare hash buffers
	recorder recorder
	events   int64
}

// Run simulates the setup and returns its phase record. It fails only on a
// setup that cannot be run, before anything has happened.
func Run(s Setup) (*record.Phase, error) {
	r, err := newRun(s)
	if err != nil {
		return nil, err
	}
	r.start()
	for len(r.queue) > 0 {
		e := r.queue.pop()
		r.now = e.at
		r.events++
		r.handle(e)
	}
	return r.finish(), nil
}

func newRun(s Setup) (*run, error) {
	limits, err := Limits(s.Profile, s.Scenario.Engine)
	if err != nil {
		return nil, err
	}
	r := &run{Setup: s, recorder: newRecorder(s)}
	if r.client, err = newClient(s, arrivalContents); err != nil {
		return nil, err
	}
	names := replicaNames(s.Scenario.Cluster)
	if r.gateways, err = newGateways(s, names); err != nil {
		return nil, err
	}
	for id, name := range names {
		r.replicas = append(r.replicas, &replica{Replica: model.NewReplica(limits, s.Profile.Cost),
			id: id, name: name, expected: simtime.Never})
	}
	if s.Stepwise {
		for _, rep := range r.replicas {
			rep.Stepwise()
		}
	}
	r.prime()
	return r, nil
}

// start puts the first events in the queue.
func (r *run) start() {
	if r.client.arrivals != nil {
		r.planArrival()
	} else {
		for lane := range r.client.w.ClosedLoop.Concurrency {
			r.arriveAt(0, lane)
		}
	}
	if interval := r.Scenario.Observe.SnapshotInterval.Time; interval > 0 && len(r.queue) > 0 {
		r.queue.push(event{at: r.Scenario.Observe.SnapshotOffset.Time, kind: evSnapshot})
	}
}

// planArrival puts the next arrival of the open loop in the queue.
func (r *run) planArrival() {
	if at, ok := r.client.arrivals.Next(); ok {
		r.arriveAt(at, -1)
	}
}

func (r *run) arriveAt(at simtime.Time, lane int) {
	q := r.client.next(at, lane)
	r.queue.push(event{at: at, kind: evArrival, id: q.Index, req: q})
}

func (r *run) handle(e event) {
	switch e.kind {
	case evArrival:
		r.arrive(e.req)
	case evRoute:
		r.route(e.req)
	case evDeliver:
		r.deliver(e.req)
	case evStepEnd:
		r.stepEnd(r.replicas[e.id])
	case evStreamEnd:
		r.streamEnd(e.req)
	case evSnapshot:
		r.snapshot()
	}
}

// arrive sends the request, or drops it when too many are in flight.
func (r *run) arrive(q *request) {
	if q.lane < 0 {
		r.planArrival()
	}
	q.sent = r.now
	if r.client.drops() {
		r.recorder.dropped(q)
		r.client.recycle(q)
		return
	}
	r.client.inFlight++
	r.queue.push(event{at: r.now + r.Profile.RequestOverhead, kind: evRoute, id: q.Index, req: q})
}

// route lets the gateway pick a pod and counts the request there.
func (r *run) route(q *request) {
	pod, outstanding, err := r.gateways.route(r.now, q)
	if err != nil {
		r.answer(q, 503, "no_routable_pod")
		return
	}
	q.replica = r.replicas[pod]
	q.replica.chosen = max(q.replica.chosen, outstanding)
	r.deliver(q)
}

// deliver hands the request to its engine.
func (r *run) deliver(q *request) {
	rep := q.replica
	q.seq.ID, q.seq.Prompt, q.seq.Output = q.Index, q.Prompt.Len(workload.Tokens), q.Output
	if !rep.Fits(q.seq.Prompt, q.Output) {
		r.answer(q, 400, "prompt_too_long")
		return
	}
	limits := rep.Limits()
	if limits.PrefixCaching {
		q.prompt = append(q.prompt, answerOf(q))
		q.seq.Hashes = q.prompt.AppendHashes(q.seq.Hashes[:0], 0, limits.BlockTokens, workload.Tokens)
	}
	q.status = 200
	q.seq.Owner = q
	rep.Add(r.now, &q.seq)
	r.expect(rep)
}

// expect puts the replica's next step end in the queue, unless it is there. An
// earlier event for a later end stays and is passed over when its time comes.
func (r *run) expect(rep *replica) {
	if at := rep.Next(); at != rep.expected {
		rep.expected = at
		if at != simtime.Never {
			r.queue.push(event{at: at, kind: evStepEnd, id: rep.id})
		}
	}
}

// answerOf is the content that the model generates for q: unlike any other.
func answerOf(q *request) workload.Segment {
	return workload.Segment{ID: 0xff<<56 | uint64(q.Index), Tokens: q.Output}
}

// answer ends a request that no engine serves.
func (r *run) answer(q *request, status int, why string) {
	q.status, q.err = status, why
	r.queue.push(event{at: r.now + r.Profile.ResponseOverhead, kind: evStreamEnd, id: q.Index, req: q})
}

func (r *run) stepEnd(rep *replica) {
	if rep.expected != r.now {
		return
	}
	rep.Advance(func(s *model.Seq) {
		q := s.Owner.(*request)
		r.queue.push(event{at: r.now + r.Profile.ResponseOverhead, kind: evStreamEnd, id: q.Index, req: q})
	})
	r.expect(rep)
}

// streamEnd is the client's end of a request: the gateway stops counting it
// and a closed-loop lane sends its next.
func (r *run) streamEnd(q *request) {
	r.client.inFlight--
	if q.replica != nil {
		r.gateways.ended(q.replica.id)
	}
	r.recorder.ended(q, r.now)
	if loop := r.client.w.ClosedLoop; q.lane >= 0 {
		if at := r.now + loop.ThinkTime.Time; at < loop.Duration.Time {
			r.arriveAt(at, q.lane)
		}
	}
	r.client.recycle(q)
}

// snapshot reads the gauges of all engines, as a scraper does.
func (r *run) snapshot() {
	for _, rep := range r.replicas {
		rep.Sync(r.now)
		g := rep.Gauges()
		rep.sampled.Running = max(rep.sampled.Running, g.Running)
		rep.sampled.Waiting = max(rep.sampled.Waiting, g.Waiting)
		rep.sampled.UsedBlocks = max(rep.sampled.UsedBlocks, g.UsedBlocks)
		if r.Sample != nil {
			r.Sample(r.sample(rep, g))
		}
	}
	if len(r.queue) > 0 {
		r.queue.push(event{at: r.now + r.Scenario.Observe.SnapshotInterval.Time, kind: evSnapshot})
	}
}

func (r *run) sample(rep *replica, g model.Gauges) Sample {
	return Sample{
		Phase: r.recorder.phase, Route: r.Policy, Seed: r.Seed, At: r.now, Replica: rep.name,
		Running: g.Running, Waiting: g.Waiting, KVUsage: float64(g.UsedBlocks) / float64(rep.Limits().Blocks-1),
		InFlight: r.gateways.running(rep.id),
	}
}

// prime brings caches and index into the scenario's starting state.
func (r *run) prime() {
	start := r.Scenario.Start
	r.primeSpares()
	for f := range r.client.prompts.Families() {
		for id, rep := range r.replicas {
			owns := r.owns(f, id)
			if start.EngineCache == "all" || start.EngineCache == "owners" && owns {
				rep.prime(r.primingPrompt(f))
			}
			if start.RouterIndex == "owners" && owns {
				r.gateways.remember(&router.Request{Prompt: r.primingPrompt(f)}, id)
			}
		}
	}
}

// owns reports whether the replica is an owner of the family at the start.
func (r *run) owns(family, id int) bool {
	owners := r.Scenario.Start.Owners
	if owners == nil {
		return family%len(r.replicas) == id
	}
	if family >= len(owners) {
		return false
	}
	for _, name := range owners[family] {
		if name == r.replicas[id].name {
			return true
		}
	}
	return false
}

// primingPrompt is a prompt of the family with a question that no arrival asks.
func (r *run) primingPrompt(family int) workload.Prompt {
	const beyondAnyIndex = 1 << 30
	return r.client.prompts.Prompt(nil, family, beyondAnyIndex+family, r.client.w.Prompt.BodyRepeat)
}

// primeSpares fills engines with further prefixes that no arrival uses.
func (r *run) primeSpares() {
	spares := workload.NewGenerator(shape(r.client.w.Prompt), 0, spareContents, random.Stream(r.Seed, "spares"))
	for _, rep := range r.replicas {
		for i := range r.Scenario.Start.Spare[rep.name] {
			rep.prime(spares.Prompt(nil, -1, rep.id<<20+i, r.client.w.Prompt.BodyRepeat))
		}
	}
}

func (rep *replica) prime(p workload.Prompt) {
	rep.Prime(p.Len(workload.Tokens), p.AppendHashes(nil, 0, rep.Limits().BlockTokens, workload.Tokens))
}

// finish sums the run up.
func (r *run) finish() *record.Phase {
	names := make([]string, len(r.replicas))
	for i, rep := range r.replicas {
		names[i] = rep.name
	}
	p := record.Summarize(r.recorder.requests, r.recorder.slo, record.Meta{
		Phase: r.recorder.phase, Scenario: r.Scenario.Name, Route: r.Policy, Seed: record.Some(r.Seed),
		Planned: record.Some(r.client.planned), Elapsed: seconds(r.recorder.last),
		Replicas: names, Simulated: true,
	})
	var steps int64
	for i, rep := range r.replicas {
		steps += rep.Stats().Steps
		rep.describe(&p.Replicas[i])
	}
	p.Steps, p.Events = record.Some(int(steps)), record.Some(int(r.events))
	p.CacheHitRatio = record.CacheHitRatio(p.Replicas)
	p.RoutingCounterDeltas = counterDeltas(r.gateways.counters())
	return &p
}

// describe adds what only the engine knows to the replica's record.
func (rep *replica) describe(out *record.Replica) {
	stats, peak, usable := rep.Stats(), rep.Peak(), float64(rep.Limits().Blocks-1)
	out.CacheQueriesTokens, out.CacheHitTokens = record.Some(int(stats.QueryTokens)), record.Some(int(stats.HitTokens))
	out.WaitingPeak, out.WaitingMax = record.Some(rep.sampled.Waiting), record.Some(peak.Waiting)
	out.RunningPeak, out.RunningMax = record.Some(rep.sampled.Running), record.Some(peak.Running)
	out.KVUsagePeak = record.Some(float64(rep.sampled.UsedBlocks) / usable)
	out.KVUsageMax = record.Some(float64(peak.UsedBlocks) / usable)
	out.Preemptions = record.Some(int(stats.Preemptions))
	out.GatewayOutstandingAtSelectionPeak = record.Some(rep.chosen)
}
