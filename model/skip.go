package model

import "fleetsim/simtime"

// In a steady batch nothing happens between two engine steps but that every
// sequence gains a token: no arrival can be admitted, no prompt is being
// computed, no sequence ends, no block is taken, registered or released. Such
// steps differ only in their context, which grows by one token a sequence, so
// that their durations form an arithmetic series and their ends have a closed
// form in integers. The replica passes over them in one go; the result is the
// same, to the last tick, as stepping through them.

// A stretch is a run of steady steps ahead of the replica.
type stretch struct {
	steps int          // ends that can be passed over; 0: none
	cost  simtime.Time // duration of the next step to be scheduled
	slope simtime.Time // by which each further one is longer
}

// plan looks how far the replica can skip from its present state.
func (r *Replica) plan() {
	r.ahead = stretch{}
	if r.stepwise || !r.steady() {
		return
	}
	steps := int(^uint(0) >> 1)
	var w Work
	r.engine.pool.newStep()
	for _, s := range r.engine.running {
		steps = min(steps, r.engine.quiet(s))
		r.engine.addDecode(&w, s, s.computed+1)
	}
	if steps <= 0 {
		return
	}
	cost := r.cost.Step(w)
	w.DecodeContext += int64(w.Decodes)
	r.ahead = stretch{steps: steps, cost: cost, slope: r.cost.Step(w) - cost}
}

// steady reports whether the pipeline is full of steps that each decode one
// token of every running sequence, none of them the first to be seen, and the scheduler
// would look at no waiting one.
func (r *Replica) steady() bool {
	e := r.engine
	if r.inFlight < len(r.steps) || r.slow.Den != 0 || r.jitter != nil || e.MaxBatchedTokens < len(e.running) ||
		e.waiting.len() > 0 && len(e.running) < e.MaxNumSeqs {
		return false
	}
	for i := range r.steps {
		st := &r.steps[i]
		if st.work.PrefillTokens > 0 || len(st.items) != len(e.running) {
			return false
		}
		for _, it := range st.items {
			if it.seq.state != running || it.epoch != it.seq.epoch || it.seq.Outputs <= it.seq.Hidden {
				return false
			}
		}
	}
	return true
}

// quiet is for how many further schedule calls a decoding sequence needs
// nothing but a token: it has more outputs to schedule, its last block has
// room, no block of it fills and no state of it is dropped. The j-th call,
// from 0, comes after j+1 more outputs have arrived.
func (e *engine) quiet(s *Seq) int {
	b := e.BlockTokens
	n := min(s.Output-s.scheduled, len(s.attn)*b-s.computed)
	if len(s.states) > 1 {
		n = min(n, (s.states[0].pos+1)*b-s.processed)
	}
	if e.PrefixCaching && s.cached < len(s.Hashes) {
		n = min(n, (s.cached+1)*b-min(s.computed, s.known())-1)
	}
	return n
}

// end is when the i-th step from the oldest in flight ends, counted from 0,
// for i up to the steps ahead and those in flight behind them.
func (r *Replica) end(i int) simtime.Time {
	if i < r.inFlight {
		return r.steps[(r.first+i)%len(r.steps)].end
	}
	n := simtime.Time(i - r.inFlight + 1)
	return r.lastEnd + n*r.ahead.cost + n*(n-1)/2*r.ahead.slope
}

// Sync brings the replica's gauges and sequences up to now: to the steps that
// end at or before it, but not past the one that Next announces. A replica
// that nobody looks at need not be synced.
func (r *Replica) Sync(now simtime.Time) { r.syncBefore(now + simtime.Tick) }

// syncBefore passes over the steady steps that end before t.
func (r *Replica) syncBefore(t simtime.Time) {
	low, high := 0, r.ahead.steps
	for low < high {
		mid := int(uint(low+high) >> 1)
		if r.end(mid) < t {
			low = mid + 1
		} else {
			high = mid
		}
	}
	r.skip(low)
}

// skip passes over the next n steady steps.
func (r *Replica) skip(n int) {
	if n == 0 {
		return
	}
	latest := r.end(n - 1)
	for _, s := range r.engine.running {
		s.Outputs += n
		s.scheduled += n
		s.computed += n
		s.processed += n
		s.Last = latest
	}
	r.engine.stats.Steps += int64(n)
	r.engine.stats.OutputTokens += int64(n) * int64(len(r.engine.running))
	// The steps in flight afterwards hold the same sequences as those before.
	var ends [maxDepth]simtime.Time
	for i := range r.inFlight {
		ends[i] = r.end(n + i)
	}
	for i := range r.inFlight {
		r.steps[(r.first+i)%len(r.steps)].end = ends[i]
	}
	r.lastEnd = ends[r.inFlight-1]
	r.ahead.cost += simtime.Time(n) * r.ahead.slope
	r.ahead.steps -= n
	// The first of the steps ended before the scheduler saw the latest arrivals.
	r.refresh()
	if r.unseen = 0; n > 1 {
		r.refresh()
	}
}
