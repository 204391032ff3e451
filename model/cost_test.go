package model

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
	"fleetsim/simtime"
)

func TestStepCost(t *testing.T) {
	c := CostModel{
		Decode: []simtime.Time{900, 700, 800}, PerDecode: 50, PerDecodeContext: 3, PerSharedContext: 1,
		Base: 400, PerPrefillToken: 20_000, PerLongToken: 10_000, LongTokens: 100, PerPrefillTokenContext: 1000,
	}
	for _, k := range []struct {
		name string
		work Work
		want simtime.Time
	}{
		{"one decode", Work{Decodes: 1, DecodeContext: 10}, 900 + 30},
		{"a larger batch can be faster", Work{Decodes: 2, DecodeContext: 10}, 700 + 30},
		{"beyond the table", Work{Decodes: 5, DecodeContext: 10}, 800 + 2*50 + 30},
		{"shared context", Work{Decodes: 3, DecodeContext: 10, SharedContext: 7}, 800 + 30 + 7},
		{"prompt alone", Work{PrefillTokens: 60, PrefillContext: 50}, 400 + 60*2 + 5},
		{"decodes count as tokens", Work{Decodes: 3, DecodeContext: 10, PrefillTokens: 60}, 400 + 63*2 + 30},
		{"long", Work{PrefillTokens: 130}, 400 + 130*2 + 30},
		{"rounded to ticks", Work{PrefillTokens: 1, PrefillContext: 5}, 400 + 3},
	} {
		require.Equal(t, k.want, c.Step(&k.work), k.name)
	}
	require.EqualValues(t, 400+2*50, (&CostModel{Base: 400, PerDecode: 50}).Step(&Work{Decodes: 2}), "no table")
}

func TestAddDecode(t *testing.T) {
	var w Work
	w.AddDecode(5000, 0)
	w.AddDecode(5100, 4704)
	require.Equal(t, Work{Decodes: 2, DecodeContext: 5396, SharedContext: 4704}, w)
}

// The stretches of steady steps rest on it: with the batch the same, a step's
// duration grows by the same for each token.
func TestDecodeStepsAreAffineInContext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := CostModel{Decode: []simtime.Time{9, 7}, PerDecode: 5, Base: 4, PerSharedContext: 2,
			PerDecodeContext: simtime.Time(rapid.IntRange(0, 10000).Draw(t, "per token"))}
		w := Work{Decodes: rapid.IntRange(1, 64).Draw(t, "decodes"), DecodeContext: rapid.Int64Range(0, 1e6).Draw(t, "context")}
		more := w
		more.DecodeContext += int64(w.Decodes)
		require.Equal(t, simtime.Time(w.Decodes)*c.PerDecodeContext, c.Step(&more)-c.Step(&w))
	})
}

// Four prompts that arrive together at an idle engine, by hand: the first is
// computed alone, since the host launches it at once and sees nothing until
// then; the others come in the step after it, whose launch ends at 200 and keeps
// the first token, ready at 100, back until then.
func TestHostIsBusyLaunching(t *testing.T) {
	l := l20()
	r := NewReplica(l, CostModel{Base: 60, Launch: 100, Decode: []simtime.Time{7, 7, 7, 7}, PerPrefillToken: 10_000})
	var seqs [4]Seq
	for i := range seqs {
		seqs[i] = Seq{ID: i, Prompt: 10, Output: 2}
		r.Add(0, &seqs[i])
		if i == 0 {
			require.EqualValues(t, 100, r.Next(), "the first is being launched")
		}
	}
	ended := map[int]simtime.Time{}
	for r.Next() != simtime.Never {
		at := r.Next()
		r.Advance(r.Next(), func(s *Seq) { ended[s.ID] = at })
	}
	require.EqualValues(t, 200, seqs[0].First)
	require.EqualValues(t, 200, seqs[1].First) // 60 + 31 tokens, but not before its launch
	require.EqualValues(t, 200, seqs[3].First)
	require.EqualValues(t, 207, seqs[1].Last)
	require.Equal(t, map[int]simtime.Time{0: 200, 1: 207, 2: 207, 3: 207}, ended)
}

// A bounded queue to the GPU holds the host back behind a long step.
func TestLaunchLag(t *testing.T) {
	c := CostModel{Launch: 100, LaunchLag: 250}
	w := Work{PrefillTokens: 1}
	require.EqualValues(t, 1100, c.launched(&w, 1000, 1000, 1300))
	require.EqualValues(t, 1500, c.launched(&w, 1000, 1000, 3000))
	require.EqualValues(t, 2500, c.launched(&w, 1000, 2000, 4000), "the GPU is busy until 2000")
	require.EqualValues(t, 1000, c.launched(&Work{Decodes: 8}, 1000, 2000, 4000), "a graph is launched at once")
}

// Sequences that share cached blocks bring them into a step once.
func TestSharedBlocksAreCountedOnce(t *testing.T) {
	l := l20()
	e := newEngine(l)
	hashes := []uint64{1, 2, 3}
	var st step
	a := &Seq{Prompt: 5000, Output: 10, Hashes: hashes}
	b := &Seq{Prompt: 5100, Output: 10, Hashes: hashes}
	for _, s := range []*Seq{a, b} {
		s.reset(0)
		e.waiting.pushBack(s)
	}
	for range 6 {
		st = *e.schedule(0)
		e.finish(func(*Seq) {})
		e.settleAll()
	}
	require.Equal(t, 2, st.work.Decodes)
	require.EqualValues(t, 3*l.BlockTokens, st.work.SharedContext)
	require.EqualValues(t, a.computed+b.computed-3*l.BlockTokens, st.work.DecodeContext)
}

// An answer whose first token shows nothing is seen with the second.
func TestHiddenToken(t *testing.T) {
	r := NewReplica(l20(), CostModel{Base: 10, Decode: []simtime.Time{5}})
	s := Seq{Prompt: 10, Output: 40, Hidden: 1}
	r.Add(0, &s)
	for r.Next() != simtime.Never {
		r.Advance(r.Next(), func(*Seq) {})
	}
	require.EqualValues(t, 10, s.First)
	require.EqualValues(t, 15, s.Shown)
	require.EqualValues(t, 10+39*5, s.Last)
}

// Over many steps the deviations have the standard deviation and correlation
// that were asked for.
func TestNoise(t *testing.T) {
	n := Noise{StepSD: 0.01, StepCorrelation: 0.9}
	j := newJitter(n, random.Stream(1, "noise"))
	const steps, base = 200_000, 5_000_000
	var sum, square, product, before float64
	for i := range steps {
		e := float64(j.of(base)-base) / base
		if i > 0 {
			product += e * before
		}
		sum, square, before = sum+e, square+e*e, e
	}
	require.InDelta(t, 0, sum/steps, 0.0005)
	require.InDelta(t, n.StepSD, math.Sqrt(square/steps), 0.0005)
	require.InDelta(t, n.StepCorrelation, product/square, 0.01)
	require.EqualValues(t, base, (*jitter)(nil).of(base))
}

func TestNoiseDiffersByReplicaAndIsOffByDefault(t *testing.T) {
	end := func(n Noise, seed uint64) simtime.Time {
		r := NewReplica(l20(), CostModel{Base: 1_000_000})
		r.SetNoise(n, random.Stream(seed, "noise"))
		s := Seq{Prompt: 10, Output: 100}
		r.Add(0, &s)
		for r.Next() != simtime.Never {
			r.Advance(r.Next(), func(*Seq) {})
		}
		return s.Last
	}
	require.EqualValues(t, 100_000_000, end(Noise{}, 1))
	slow := Noise{ReplicaSD: 0.01}
	require.NotEqual(t, end(slow, 1), end(slow, 2))
	require.Equal(t, end(slow, 1), end(slow, 1))
	require.InDelta(t, 1e8, float64(end(slow, 3)), 5e6)
}

// Passing over steady steps changes nothing, with launches, shared blocks and
// hidden tokens too.
func TestSkippingUnderTheFullCostModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := CostModel{
			Decode: []simtime.Time{900, 700, 750, 800}, PerDecode: 20, PerDecodeContext: 2, PerSharedContext: 1,
			Base: 600, PerPrefillToken: 30_000, PerPrefillTokenContext: 10,
			Launch:    simtime.Time(rapid.IntRange(0, 5000).Draw(t, "launch")),
			LaunchLag: rapid.Int64Range(0, 1000).Draw(t, "lag"),
		}
		n := rapid.IntRange(1, 12).Draw(t, "requests")
		type arrival struct {
			at     simtime.Time
			family int
			own    int
			output int
			hidden int
		}
		var arrivals []arrival
		at := simtime.Time(0)
		for range n {
			at += simtime.Time(rapid.IntRange(0, 60_000).Draw(t, "gap"))
			arrivals = append(arrivals, arrival{at, rapid.IntRange(0, 2).Draw(t, "family"), rapid.IntRange(1, 2000).Draw(t, "own"),
				rapid.IntRange(1, 200).Draw(t, "output"), rapid.IntRange(0, 1).Draw(t, "hidden")})
		}
		times := func(stepwise bool) (out [][4]simtime.Time) {
			r := NewReplica(l20(), cost)
			if stepwise {
				r.Stepwise()
			}
			var seqs []*Seq
			for i, a := range arrivals {
				for r.Next() < a.at {
					r.Advance(r.Next(), func(*Seq) {})
				}
				s := prompt(i, a.family, 3200, a.own, a.output)
				s.Hidden = a.hidden
				r.Add(a.at, s)
				seqs = append(seqs, s)
			}
			for r.Next() != simtime.Never {
				r.Advance(r.Next(), func(*Seq) {})
			}
			for _, s := range seqs {
				out = append(out, [4]simtime.Time{s.Scheduled, s.First, s.Shown, s.Last})
			}
			return out
		}
		require.Equal(t, times(true), times(false))
	})
}
