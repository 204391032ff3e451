package model

import "fleetsim/simtime"

// A CostModel gives the duration of one engine step from the work in it. It is
// additive:
//
//	base + PerDecode·decodes + PerDecodeContext·Σcontext
//	     + PrefillStep (if the step holds prefill tokens)
//	     + PerPrefillToken·tokens + PerPrefillTokenContext·Σ(tokens·context)
//
// Decode coefficients are whole ticks, so that a run of decode steps sums
// exactly in integers. Prefill coefficients, which enter a step once, are kept
// in femtoseconds and rounded to ticks per step.
type CostModel struct {
	Base                   simtime.Time // every step: weights read, kernel launches, sampling
	PerDecode              simtime.Time // each decoding sequence
	PerDecodeContext       simtime.Time // each context token of each decoding sequence
	PrefillStep            simtime.Time // extra of a step that holds any prefill token
	PerPrefillToken        int64        // fs, each prefill token
	PerPrefillTokenContext int64        // fs, each pair of a prefill token and a token that it attends to
}

// femtosPerTick converts femtoseconds to ticks.
const femtosPerTick = 10_000

// Work is what one step computes.
type Work struct {
	Decodes        int   // sequences that decode one token
	DecodeContext  int64 // tokens they attend to, summed
	PrefillTokens  int64 // prompt tokens
	PrefillContext int64 // for each prompt token the tokens before it, summed
}

// AddPrefill adds a chunk of n prompt tokens that starts after start tokens.
func (w *Work) AddPrefill(start, n int) {
	w.PrefillTokens += int64(n)
	w.PrefillContext += int64(n)*int64(start) + int64(n)*int64(n-1)/2
}

// AddDecode adds one decoding sequence that attends to context tokens.
func (w *Work) AddDecode(context int) {
	w.Decodes++
	w.DecodeContext += int64(context)
}

// Step is the duration of a step that does w.
func (c *CostModel) Step(w Work) simtime.Time {
	t := c.Base + simtime.Time(w.Decodes)*c.PerDecode + simtime.Time(w.DecodeContext)*c.PerDecodeContext
	if w.PrefillTokens > 0 {
		fs := w.PrefillTokens*c.PerPrefillToken + w.PrefillContext*c.PerPrefillTokenContext
		t += c.PrefillStep + simtime.Time((fs+femtosPerTick/2)/femtosPerTick)
	}
	return t
}
