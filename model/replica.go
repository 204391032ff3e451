// Package model is one replica: a vLLM V1 engine's scheduler, KV block pool and
// prefix cache, and the cost model that gives each step its duration.
//
// A Replica is a pure state machine. It is told what happens and when, and
// answers when something will next happen; it reads no clock and does no I/O.
package model

import (
	"math/bits"

	"fleetsim/simtime"
)

// A Replica is one engine with its steps in flight.
type Replica struct {
	engine *engine
	cost   CostModel
	slow   Ratio
	jitter *jitter

	lastEnd  simtime.Time // end of the latest scheduled step on the GPU
	hostFree simtime.Time // until then the host is launching a step
	pending  bool         // at hostFree it schedules another, whatever has ended
	ahead    stretch
	quiet    bool         // the step that ends after them completes nothing
	next     simtime.Time // as Next has it

	unseen  int // arrivals since the scheduler last looked at its input
	gauges  Gauges
	peak    Gauges
	skipped int64
}

// A Ratio is an exact factor on step times; the zero value is 1.
type Ratio struct{ Num, Den int64 }

// of is t times the ratio, rounded down, and at most longestSlowStep.
func (r Ratio) of(t simtime.Time) simtime.Time {
	if r.Den == 0 {
		return t
	}
	hi, lo := bits.Mul64(uint64(t), uint64(r.Num))
	if hi >= uint64(r.Den) {
		return longestSlowStep
	}
	q, _ := bits.Div64(hi, lo, uint64(r.Den))
	return simtime.Time(min(q, uint64(longestSlowStep)))
}

// longestSlowStep is so long that the two in flight, each with as much noise as
// there can be, end before the clock does when the first begins by the horizon.
const longestSlowStep = simtime.Horizon / 4

// Gauges are what an engine exports; it refreshes them when it has taken a
// step's results, so between steps they lag and in idle they freeze.
type Gauges struct {
	Running    int // vllm:num_requests_running
	Waiting    int // vllm:num_requests_waiting
	UsedBlocks int // of Limits.Blocks-1: vllm:kv_cache_usage_perc
}

// NewReplica returns an idle replica with an empty cache.
func NewReplica(l Limits, c CostModel) *Replica {
	return &Replica{engine: newEngine(l), cost: c, next: simtime.Never}
}

// Limits are the engine's settings.
func (r *Replica) Limits() Limits { return r.engine.Limits }

// OutputTokens is that of the Stats.
func (r *Replica) OutputTokens() int64 { return r.engine.stats.OutputTokens }

// Stats are the engine's counters.
func (r *Replica) Stats() Stats {
	s := r.engine.stats
	s.Evictions = r.engine.pool.evicts
	return s
}

// Gauges are the engine's gauges as last refreshed.
func (r *Replica) Gauges() Gauges { return r.gauges }

// Peak is, field by field, the highest value that the gauges have had.
func (r *Replica) Peak() Gauges { return r.peak }

// ResetPeak makes Peak begin anew from the gauges as they are.
func (r *Replica) ResetPeak() { r.peak = r.gauges }

// Stepwise makes the replica take every step by itself instead of passing over
// steady ones: slower, with the same results. It is the reference for tests.
func (r *Replica) Stepwise() { r.engine.stepwise = true }

// Skipped is how many of Stats.Steps were passed over, not taken.
func (r *Replica) Skipped() int64 { return r.skipped }

// SetSpeed multiplies the duration of every step scheduled after now.
func (r *Replica) SetSpeed(now simtime.Time, slow Ratio) {
	r.syncBefore(now)
	r.slow = slow
	r.plan()
}

// Fits reports whether a request of prompt and output tokens is within
// max-model-len; the front end refuses a longer one with HTTP 400.
func (r *Replica) Fits(prompt, output int) bool { return prompt+output <= r.engine.MaxModelLen }

// Add queues s, which the engine sees when it next schedules: at once if it is
// idle, else at the first step end at or after now.
func (r *Replica) Add(now simtime.Time, s *Seq) {
	r.syncBefore(now)
	s.reset(now)
	r.engine.waiting.pushBack(s)
	r.unseen++
	if r.engine.flight.n == 0 {
		r.fill(now)
	} else if len(r.engine.running) < r.engine.MaxNumSeqs {
		r.lookAhead(stretch{}) // the scheduler will look at it when the next step ends
	}
}

// Next is when a sequence may next be complete, or something else comes to light
// that steps do beside giving tokens; nothing does before. It is Never in an idle
// replica. Add and Abort may bring it forward, and Sync may put it off.
func (r *Replica) Next() simtime.Time { return r.next }

// lookAhead sets how far the replica can skip, and with it Next.
func (r *Replica) lookAhead(s stretch) {
	r.ahead, r.quiet = s, false
	switch {
	case r.engine.flight.n == 0:
		r.next = simtime.Never
	case r.pending:
		r.next = r.hostFree
	default:
		// Nobody outside can tell when a step has ended that completes nothing: it
		// may be looked at together with the one after it.
		last := s.steps
		if r.quiet = r.engine.endsQuietly(s.steps); r.quiet {
			last++
		}
		r.next = max(r.end(last), r.hostFree)
	}
}

// Advance does what is due at now, which is not after Next: it takes the results
// of the steps that have ended, and schedules further ones. It calls done for each
// sequence that is complete.
func (r *Replica) Advance(now simtime.Time, done func(*Seq)) {
	for r.quiet && (r.next <= now || r.ahead.steps == 0 && r.seen() <= now) {
		r.skip(r.ahead.steps)
		r.take(nil)
	}
	switch {
	case r.next > now: // what was taken has put it off
	case r.pending:
		r.fill(r.hostFree)
	default:
		r.skip(r.ahead.steps)
		r.take(done)
	}
}

// take takes the results of the step that has ended, when the host sees it, and
// schedules further ones.
func (r *Replica) take(done func(*Seq)) {
	now := r.seen()
	r.engine.flight.at(0).end = now
	r.engine.finish(done)
	r.refresh()
	r.fill(now)
}

// seen is when the host takes the results of the oldest step in flight, unless
// something comes between.
func (r *Replica) seen() simtime.Time { return max(r.engine.flight.at(0).end, r.hostFree) }

// fill schedules steps until the pipeline is full or there is nothing to do,
// and looks how many after them need no looking at.
func (r *Replica) fill(now simtime.Time) {
	r.schedule(now)
	r.publish(now)
	r.plan()
}

func (r *Replica) schedule(now simtime.Time) {
	for r.pending = false; !r.engine.flight.full(); {
		if now < r.hostFree {
			r.pending = true
			return
		}
		r.unseen = 0
		st := r.engine.schedule(now)
		if st == nil {
			return
		}
		start := max(now, r.lastEnd)
		end := start + r.jitter.of(r.slow.of(r.cost.Step(&st.work)))
		r.hostFree = r.cost.launched(&st.work, now, start, end)
		st.end = max(end, r.hostFree)
		r.lastEnd = st.end
	}
}

func (r *Replica) refresh() {
	g := Gauges{Running: len(r.engine.running), Waiting: r.engine.waiting.len() - r.unseen, UsedBlocks: r.engine.pool.used()}
	r.gauges = g
	r.peak.Running = max(r.peak.Running, g.Running)
	r.peak.Waiting = max(r.peak.Waiting, g.Waiting)
	r.peak.UsedBlocks = max(r.peak.UsedBlocks, g.UsedBlocks)
}

// Abort ends s at now, freeing its slot and blocks; a step in flight that holds
// it runs on and its output is discarded. It reports whether s was unfinished.
func (r *Replica) Abort(now simtime.Time, s *Seq) bool {
	if s.state == ended {
		return false
	}
	r.syncBefore(now)
	if r.isUnseen(s) {
		r.unseen--
	}
	r.engine.remove(s)
	r.plan()
	return true
}

// isUnseen reports whether s is among the arrivals, last in the queue, that the
// scheduler has not looked at.
func (r *Replica) isUnseen(s *Seq) bool {
	w := &r.engine.waiting
	for i := w.len() - r.unseen; i < w.len(); i++ {
		if w.at(i) == s {
			return true
		}
	}
	return false
}

// Unfinished calls f, which must not change the replica, for every sequence in the engine: the running ones in
// order of admission, then the waiting ones in queue order.
func (r *Replica) Unfinished(f func(*Seq)) {
	for _, s := range r.engine.running {
		f(s)
	}
	for i := range r.engine.waiting.len() {
		f(r.engine.waiting.at(i))
	}
}

// ResetPrefixCache forgets all cached content and reports true, or, while any
// block is held, changes nothing and reports false (POST /reset_prefix_cache).
func (r *Replica) ResetPrefixCache(now simtime.Time) bool {
	if !r.engine.pool.reset() {
		return false
	}
	if l := r.engine.pool.log; l != nil {
		l.watch(now, []CacheEvent{{Cleared: true}})
	}
	return true
}

// Prime leaves the cache as if a request with these block hashes and prompt
// length had been served alone: its blocks cached and idle, its states where
// its chunks ended. Statistics and gauges are as before, and a watcher hears of
// nothing. A request that does not fit leaves nothing. The replica must be idle.
func (r *Replica) Prime(prompt int, hashes []uint64) {
	if !r.Fits(prompt, 1) {
		return
	}
	s := &Seq{Prompt: prompt, Output: 1, Hashes: hashes}
	s.reset(0)
	stats, log := r.engine.stats, r.engine.pool.log
	r.engine.pool.log = nil
	r.engine.waiting.pushBack(s)
	for s.state != ended {
		r.engine.schedule(0)
		r.engine.finish(func(*Seq) {})
	}
	r.engine.stats, r.engine.pool.log = stats, log
}
