package model

import (
	"slices"

	"fleetsim/simtime"
)

// A CostModel gives the duration of one engine step from the work in it, and
// how long the host is busy launching it. docs/calibration.md has the
// measurements behind each term.
//
// A step that only decodes n sequences replays a CUDA graph and takes
//
//	Decode[n-1] + PerDecodeContext·tokens + PerSharedContext·shared
//
// where tokens are those that the sequences attend to, each KV block counted
// once however many sequences share it: it is read from memory once, and then,
// for shared tokens, from the GPU's L2 cache. A step that holds prompt tokens
// takes
//
//	Base + PerPrefillToken·n + PerLongToken·max(n-LongTokens, 0)
//	     + PerPrefillTokenContext·Σ(prompt tokens·context)
//	     + PerDecodeContext·tokens + PerSharedContext·shared
//
// where n counts prompt tokens and decoding sequences alike.
//
// Decode coefficients are whole ticks, so that a run of decode steps sums
// exactly in integers. Prefill coefficients, which enter a step once, are kept
// in femtoseconds and rounded to ticks per step.
type CostModel struct {
	// Decode is by the number of sequences: the GPU's matrix kernels are chosen
	// by it, and a batch of 1 can take longer than one of 8. Beyond its end a
	// sequence adds PerDecode; an empty table begins at Base.
	Decode           []simtime.Time
	PerDecode        simtime.Time
	PerDecodeContext simtime.Time
	PerSharedContext simtime.Time

	Base                   simtime.Time
	PerPrefillToken        int64 // fs
	PerLongToken           int64 // fs; what each token beyond LongTokens takes more than PerPrefillToken
	LongTokens             int64
	PerPrefillTokenContext int64 // fs, each pair of a prompt token and a token that it attends to

	// Launch is how long the host takes to launch a step that holds prompt
	// tokens, kernel by kernel since no CUDA graph fits it. Meanwhile it takes no
	// results and schedules nothing, and the step cannot end.
	Launch simtime.Time
	// LaunchLag is the part of such a step, in thousandths, that must have run
	// before its last kernel can be launched: the queue to the GPU is bounded. 0
	// is no bound.
	LaunchLag int64
}

// femtosPerTick converts femtoseconds to ticks.
const femtosPerTick = 10_000

// Work is what one step computes.
type Work struct {
	Decodes        int   // sequences that decode one token
	DecodeContext  int64 // distinct tokens they attend to
	SharedContext  int64 // tokens they attend to beside these, which others of them do too
	PrefillTokens  int64 // prompt tokens
	PrefillContext int64 // for each prompt token the tokens before it, summed
}

// AddPrefill adds a chunk of n prompt tokens that starts after start tokens.
func (w *Work) AddPrefill(start, n int) {
	w.PrefillTokens += int64(n)
	w.PrefillContext += int64(n)*int64(start) + int64(n)*int64(n-1)/2
}

// AddDecode adds one decoding sequence that attends to context tokens, of which
// sequences added before attend to shared.
func (w *Work) AddDecode(context, shared int) {
	w.Decodes++
	w.DecodeContext += int64(context - shared)
	w.SharedContext += int64(shared)
}

// Step is the duration of a step that does w.
func (c *CostModel) Step(w *Work) simtime.Time {
	t := simtime.Time(w.DecodeContext)*c.PerDecodeContext + simtime.Time(w.SharedContext)*c.PerSharedContext
	if w.PrefillTokens == 0 {
		return t + c.decode(w.Decodes)
	}
	n := w.PrefillTokens + int64(w.Decodes)
	fs := n*c.PerPrefillToken + max(n-c.LongTokens, 0)*c.PerLongToken + w.PrefillContext*c.PerPrefillTokenContext
	return t + c.Base + simtime.Time((fs+femtosPerTick/2)/femtosPerTick)
}

// MaxStep is the longest that a step may take with a profile under an engine's
// limits: prefill costs are summed in femtoseconds, which 64 bits hold for 2.5 hours.
const MaxStep = 2 * simtime.Hour

// LongestStep bounds the duration of a step, in seconds, for any work that the
// limits allow.
func (c *CostModel) LongestStep(l Limits) float64 {
	const femto = 1e-15
	decodes, tokens := float64(l.MaxNumSeqs), float64(l.MaxBatchedTokens)
	attended := decodes * float64(l.MaxModelLen)
	decode := c.Base.Seconds() + decodes*c.PerDecode.Seconds() + attended*max(c.PerDecodeContext, c.PerSharedContext).Seconds()
	if len(c.Decode) > 0 {
		decode += slices.Max(c.Decode).Seconds()
	}
	prefill := tokens*femto*float64(c.PerPrefillToken+c.PerLongToken) + tokens*float64(l.MaxModelLen)*femto*float64(c.PerPrefillTokenContext)
	return decode + prefill
}

// decode is the duration of a step in which n sequences decode, without what
// their contexts add.
func (c *CostModel) decode(n int) simtime.Time {
	listed := len(c.Decode)
	switch {
	case n == 0:
		return c.Base
	case n <= listed:
		return c.Decode[n-1]
	case listed == 0:
		return c.Base + simtime.Time(n)*c.PerDecode
	}
	return c.Decode[listed-1] + simtime.Time(n-listed)*c.PerDecode
}

// launched is when the host has launched a step that does w and is scheduled
// at now, given when the GPU starts and ends it.
func (c *CostModel) launched(w *Work, now, start, end simtime.Time) simtime.Time {
	if w.PrefillTokens == 0 {
		return now
	}
	free := now + c.Launch
	if c.LaunchLag > 0 {
		free = max(free, start+(end-start)/1000*simtime.Time(c.LaunchLag))
	}
	return free
}
