package sim

import (
	"strconv"

	"fleetsim/model"
	"fleetsim/random"
	"fleetsim/sim/record"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// engineState is what somebody who connects to a replica's engine meets.
type engineState uint8

const (
	down    engineState = iota // no process: the connection is refused
	up                         // it serves
	closing                    // it finishes what it has and takes nothing new
	lost                       // its node is gone: nothing answers
)

// replica is one pod of the deployment: its engine, and what is recorded of it.
type replica struct {
	*model.Replica
	id     int
	name   string
	state  engineState
	listed bool // in the endpoint list that is on its way to the gateway
	active int  // requests in the engine
	done   func(*model.Seq)

	role, roleSet string // labels for prefill/decode disaggregation
	meter         meter
	probe         *probe // of the gateways' metrics; nil: no policy reads them
	scrapes       *probe // of Prometheus; nil: there is none
	watched       bool   // the engine publishes its cache events

	slowUntil simtime.Time // end of the slowness at work; 0: none
	speed     model.Ratio

	served  bool         // it was up in this phase
	earlier model.Stats  // of its engines before, less what the phase began with
	peak    model.Gauges // of its engines before, in this phase
	sampled model.Gauges // peaks over the snapshots
	chosen  int          // peak of the gateway's in-flight count at selection, the request itself not counted
}

// newReplica adds the replica with the next ID, its engine not running.
func (r *run) newReplica(id int) *replica {
	rep := &replica{id: id, name: r.replicaName(id)}
	rep.role, rep.roleSet = r.role(id)
	rep.done = func(s *model.Seq) { r.done(rep, s) }
	r.replicas = append(r.replicas, rep)
	r.boot(rep)
	return rep
}

// replicaName is the scenario's name for a replica, or pod-0, pod-1, …
func (r *run) replicaName(id int) string {
	if names := r.Scenario.Cluster.Names; id < len(names) {
		return names[id]
	}
	return "pod-" + strconv.Itoa(id)
}

// boot gives the replica a new engine with an empty cache. What the engine
// before has counted stays counted.
func (r *run) boot(rep *replica) {
	if rep.Replica != nil {
		rep.earlier, rep.peak = rep.stats(), rep.peaks()
	}
	limits, err := Limits(r.Profile, r.Scenario)
	if err != nil {
		panic(err) // checked when the run was built
	}
	rep.Replica = model.NewReplica(limits, r.Profile.Cost)
	rep.meter, rep.watched = meter{busySince: simtime.Never}, false
	r.observe(rep)
	r.watchCache(rep)
	rep.SetSpeed(r.now, rep.speed)
	if noise := r.Scenario.Model.Noise; noise != nil && *noise {
		// An engine that is started again scatters anew.
		stream := "noise " + rep.name + " " + strconv.FormatInt(int64(r.now), 10)
		rep.SetNoise(r.Profile.Noise, random.Stream(r.Seed, stream))
	}
	if r.Stepwise {
		rep.Stepwise()
	}
}

// startPhase makes the replica's figures begin anew.
func (rep *replica) startPhase() {
	rep.served = rep.state == up
	rep.earlier = minus(rep.Stats())
	rep.ResetPeak()
	rep.peak, rep.sampled, rep.chosen = model.Gauges{}, model.Gauges{}, 0
}

// stats are the counters of the phase.
func (rep *replica) stats() model.Stats { return plus(rep.earlier, rep.Stats()) }

func plus(a, b model.Stats) model.Stats {
	return model.Stats{
		Steps: a.Steps + b.Steps, QueryTokens: a.QueryTokens + b.QueryTokens, HitTokens: a.HitTokens + b.HitTokens,
		Preemptions: a.Preemptions + b.Preemptions, PromptTokens: a.PromptTokens + b.PromptTokens,
		OutputTokens: a.OutputTokens + b.OutputTokens, Evictions: a.Evictions + b.Evictions,
	}
}

func minus(a model.Stats) model.Stats {
	return model.Stats{
		Steps: -a.Steps, QueryTokens: -a.QueryTokens, HitTokens: -a.HitTokens, Preemptions: -a.Preemptions,
		PromptTokens: -a.PromptTokens, OutputTokens: -a.OutputTokens, Evictions: -a.Evictions,
	}
}

// peaks are the highest gauges of the phase.
func (rep *replica) peaks() model.Gauges { return highest(rep.peak, rep.Peak()) }

// highest is the maximum field by field.
func highest(a, b model.Gauges) model.Gauges {
	return model.Gauges{Running: max(a.Running, b.Running), Waiting: max(a.Waiting, b.Waiting), UsedBlocks: max(a.UsedBlocks, b.UsedBlocks)}
}

// deliver hands the request to its replica.
func (r *run) deliver(q *request) {
	rep := q.replica
	q.seq.Prompt = q.Prompt.Len(workload.Tokens)
	switch {
	case rep.state == lost:
		r.hang(q, 0, errNoAnswer)
	case rep.state == down:
		r.answer(q, 503, errRefused)
	case !rep.Fits(q.seq.Prompt, q.Output):
		r.answer(q, 400, errTooLong)
	case rep.state == closing:
		r.answer(q, 200, errAborted)
	default:
		r.enqueue(rep, q)
	}
}

// enqueue puts the request in the engine's queue.
func (r *run) enqueue(rep *replica, q *request) {
	q.seq.ID, q.seq.Output, q.seq.Received = q.Index, q.wanted(), q.received()
	if r.blocks != nil {
		q.prompt = append(q.prompt[:len(q.Prompt)], answerOf(q))
		q.seq.Hashes = r.blocks.AppendHashes(q.seq.Hashes[:0], q.prompt)
		if q.leg != decoding {
			r.sharing.add(q)
		}
	}
	q.status = 200
	q.seq.Owner = q
	q.inEngine = true
	rep.active++
	rep.Add(r.now, &q.seq)
	r.expect(rep)
}

// answerOf is the content that the model generates for q: unlike any other, but
// for the prompts that repeat it.
func answerOf(q *request) workload.Segment {
	if q.Answer != 0 {
		return workload.Segment{ID: q.Answer, Tokens: q.Output}
	}
	return workload.Segment{ID: 0xff<<56 | uint64(q.serial), Tokens: q.Output}
}

// answer ends a request with a status, and a reason if it is no success, which
// the client has after the response overhead.
func (r *run) answer(q *request, status int, why string) {
	q.status, q.err = status, why
	r.push(r.now+r.Profile.ResponseOverhead, evStreamEnd, q)
}

// hang leaves the client without a further byte. One that would wait for ever
// is taken to notice at once, since the run would never end.
func (r *run) hang(q *request, status int, why string) {
	q.status = status
	if r.client.w.ReadTimeout.Time == 0 {
		r.answer(q, status, why)
	}
}

// expect notes when the replica's next step ends.
func (r *run) expect(rep *replica) { r.ends.set(rep.id, rep.Next()) }

func (r *run) stepEnd(rep *replica) {
	rep.Advance(r.now)
	r.expect(rep)
	r.exitIfDrained(rep)
}

// done ends the request of a sequence that the replica's engine has completed.
func (r *run) done(rep *replica, s *model.Seq) {
	q := s.Owner.(*request)
	q.inEngine = false
	rep.active--
	rep.meter.count(s)
	if !r.prefilled(q) {
		r.push(r.now+r.Profile.ResponseOverhead, evStreamEnd, q)
	}
}

// sync brings all engines up to now.
func (r *run) sync() {
	for _, rep := range r.replicas {
		if rep.answers() {
			rep.SyncGauges(r.now)
		}
	}
}

// snapshot reads the gauges of all engines, as a scraper does.
func (r *run) snapshot() {
	if r.scaling != nil {
		r.scaling.emit(r)
	}
	r.sync()
	var ledgers []LedgerCount
	if r.ledgers != nil {
		ledgers = r.compareLedgers()
	}
	for _, rep := range r.replicas {
		if !rep.answers() {
			continue
		}
		g := rep.Gauges()
		rep.sampled = highest(rep.sampled, g)
		if r.Sample != nil {
			s := r.sample(rep, g)
			if ledgers != nil {
				s.Ledgers = &ledgers[rep.id]
			}
			r.Sample(s)
		}
	}
	r.schedule(r.now+r.Scenario.Observe.SnapshotInterval.Time, evSnapshot, 0)
}

// answers reports whether the engine's metrics can be read.
func (rep *replica) answers() bool { return rep.state == up || rep.state == closing }

func (r *run) sample(rep *replica, g model.Gauges) Sample {
	s := r.clusterSample()
	s.Replica, s.Running, s.Waiting = rep.name, g.Running, g.Waiting
	s.KVUsage, s.InFlight = rep.usage(g), r.gateways.running(rep.id)
	return s
}

// clusterSample is a line of the timeline at now.
func (r *run) clusterSample() Sample {
	return Sample{Phase: r.recorder.phase, Route: r.Policy, Seed: r.Seed, At: r.now - r.begin}
}

// usage is vllm:kv_cache_usage_perc, 0 to 1.
func (rep *replica) usage(g model.Gauges) float64 {
	return float64(g.UsedBlocks) / float64(rep.Limits().Blocks-1)
}

// describe adds what only the engine knows to the replica's record.
func (rep *replica) describe(out *record.Replica) {
	stats, peak := rep.stats(), rep.peaks()
	out.CacheQueriesTokens, out.CacheHitTokens = record.Some(int(stats.QueryTokens)), record.Some(int(stats.HitTokens))
	out.WaitingPeak, out.WaitingMax = record.Some(rep.sampled.Waiting), record.Some(peak.Waiting)
	out.RunningPeak, out.RunningMax = record.Some(rep.sampled.Running), record.Some(peak.Running)
	out.KVUsagePeak, out.KVUsageMax = record.Some(rep.usage(rep.sampled)), record.Some(rep.usage(peak))
	out.Preemptions = record.Some(int(stats.Preemptions))
	out.GatewayOutstandingAtSelectionPeak = record.Some(rep.chosen)
}
