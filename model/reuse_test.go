package model

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
)

// A sequence that has ended may be used for another at once, even if a step in
// flight was formed with it, which happens to one that was preempted with a token
// under way: lanes that take the next one from those that have ended go as lanes
// that make a new one. The pool is so small that there are preemptions all the time.
func TestReusedSequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{MaxModelLen: 16, MaxNumSeqs: rapid.IntRange(2, 5).Draw(t, "max_num_seqs"), MaxBatchedTokens: rapid.IntRange(4, 20).Draw(t, "budget"),
			BlockTokens: 4, Blocks: rapid.IntRange(5, 8).Draw(t, "blocks"), AsyncScheduling: true}
		cost := CostModel{Base: 100, PerDecode: 10, PerPrefillToken: 30_000, Launch: simtime.Time(rapid.IntRange(0, 300).Draw(t, "launch"))}
		type request struct{ prompt, output, hidden int }
		var requests []request
		for range rapid.IntRange(5, 60).Draw(t, "requests") {
			requests = append(requests, request{rapid.IntRange(1, 8).Draw(t, "prompt"), rapid.IntRange(1, 8).Draw(t, "output"), rapid.IntRange(0, 1).Draw(t, "hidden")})
		}
		lanes := min(rapid.IntRange(2, 6).Draw(t, "lanes"), len(requests))

		run := func(reuse, stepwise bool) (ends [][4]simtime.Time) {
			r := NewReplica(l, cost)
			if stepwise {
				r.Stepwise()
			}
			ends = make([][4]simtime.Time, len(requests))
			var free []*Seq
			arrivals := make([]simtime.Time, lanes) // of lanes that wait for theirs, in order
			done := func(s *Seq) {
				ends[s.ID] = [4]simtime.Time{s.Scheduled, s.First, s.Shown, s.Last}
				arrivals = append(arrivals, s.Last+7)
				if reuse {
					free = append(free, s)
				}
			}
			for n := 0; ; {
				if n < len(requests) && len(arrivals) > 0 && arrivals[0] <= r.Next() {
					s := new(Seq)
					if len(free) > 0 {
						s, free = free[0], free[1:]
					}
					q := requests[n]
					s.ID, s.Prompt, s.Output, s.Hidden = n, q.prompt, q.output, q.hidden
					r.Add(arrivals[0], s)
					arrivals = arrivals[1:]
					n++
					continue
				}
				if r.Next() == simtime.Never {
					return ends
				}
				r.Advance(r.Next(), done)
			}
		}
		want := run(false, true)
		require.Equal(t, want, run(false, false), "skipping")
		require.Equal(t, want, run(true, true), "reuse, stepwise")
		require.Equal(t, want, run(true, false), "reuse, skipping")
	})
}

// A sequence whose prompt another engine has computed decodes in the very step that
// admits it, and then shares its cached blocks with one that decodes already, though
// that one alone held them when the step was begun.
func TestDecodeOnArrivalShares(t *testing.T) {
	e := newEngine(l20())
	a := prompt(0, 0, 5030, 15, 128)
	e.waiting.pushBack(a)
	for range 8 {
		e.schedule(0)
		e.finish(func(*Seq) {})
	}
	b := prompt(1, 0, 5030, 15, 128)
	b.Received = 5044
	e.waiting.pushBack(b)
	st := e.schedule(0)
	e.settleAll()
	require.Equal(t, Work{Decodes: 2, DecodeContext: int64(a.computed + b.computed - 3*1568), SharedContext: 3 * 1568}, st.work)
}
