package model

import (
	"math"

	"fleetsim/simtime"
)

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
	e := r.engine
	if r.slow.Den != 0 || r.jitter != nil || !e.steady() {
		r.lookAhead(stretch{})
		return
	}
	var w Work
	e.stride.addTo(&w)
	// Whoever is complete before it needs a look is so with a step that has to be taken.
	steps := min(e.stride.due-1-e.stride.formed, e.stride.done-1-e.stride.ended)
	s := stretch{steps: steps, cost: r.cost.Step(&w), slope: simtime.Time(w.Decodes) * r.cost.PerDecodeContext}
	s.limit()
	r.lookAhead(s)
}

// limit cuts the stretch to what the clock has room for behind the horizon.
func (s *stretch) limit() {
	const bits = 18 // that many steps of up to 2.7 s, each up to 2.6 µs longer, have
	if (simtime.Time(s.steps)|s.slope)>>bits|s.cost>>(2*bits+2) == 0 {
		return
	}
	const room = float64(simtime.Horizon / 16) // for the costs, and as much for what they grow by
	most := min(room/float64(s.cost), math.Sqrt(2*room/float64(s.slope)))
	if float64(s.steps) > most {
		s.steps = int(most)
	}
}

// end is when the i-th step from the oldest in flight ends, counted from 0,
// for i up to the steps ahead and those in flight behind them.
func (r *Replica) end(i int) simtime.Time {
	if i < r.engine.flight.n {
		return r.engine.flight.at(i).end
	}
	n := simtime.Time(i - r.engine.flight.n + 1)
	return r.lastEnd + n*r.ahead.cost + n*(n-1)/2*r.ahead.slope
}

// SyncGauges brings the replica's gauges and counters up to now: to the steps that
// end at or before it, but not past the one that Next announces. A replica that
// nobody looks at need not be synced.
func (r *Replica) SyncGauges(now simtime.Time) { r.syncBefore(now + simtime.Tick) }

// Sync brings the sequences up to now, too.
func (r *Replica) Sync(now simtime.Time) {
	r.SyncGauges(now)
	r.engine.settleAll()
}

// syncBefore takes or passes over the steps that end before t and complete
// nothing.
func (r *Replica) syncBefore(t simtime.Time) {
	r.skip(r.steadyBefore(t))
	for r.quiet && r.ahead.steps == 0 && r.seen() < t {
		r.take(nil)
		r.skip(r.steadyBefore(t))
	}
}

// steadyBefore is how many of the steady steps ahead end before t.
func (r *Replica) steadyBefore(t simtime.Time) int {
	low, high := 0, r.ahead.steps
	if high == 0 || r.end(0) >= t {
		return 0
	}
	if after := t - r.lastEnd; after > 0 && r.ahead.cost > 0 {
		// Of the steps to be scheduled none is shorter than the first.
		high = min(high, int(after/r.ahead.cost)+r.engine.flight.n)
	}
	if r.end(high-1) < t {
		return high
	}
	for low < high {
		mid := int(uint(low+high) >> 1)
		if r.end(mid) < t {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// skip passes over the next n steady steps.
func (r *Replica) skip(n int) {
	if n > 0 {
		r.passOver(n)
	}
}

func (r *Replica) passOver(n int) {
	e := r.engine
	latest := r.end(n - 1)
	// The steps in flight afterwards hold the same sequences as those before.
	var ends [maxDepth]simtime.Time
	for i := range e.flight.n {
		ends[i] = r.end(n + i)
	}
	for i := range e.flight.n {
		e.flight.at(i).end = ends[i]
	}
	r.lastEnd = ends[e.flight.n-1]
	e.pass(n, latest)
	r.skipped += int64(n)
	r.ahead.cost += simtime.Time(n) * r.ahead.slope
	r.ahead.steps -= n
	// The first of the steps ended before the scheduler saw the latest arrivals.
	r.refresh()
	if r.unseen > 0 && n > 1 {
		r.unseen = 0
		r.refresh()
	}
	r.unseen = 0
}
