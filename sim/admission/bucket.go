package admission

import (
	"math"
	"math/bits"

	"fleetsim/simtime"
)

// A bucket is a token bucket in integers, so that it neither drifts nor depends
// on how often it is looked at: after any span it holds exactly rate times span
// tokens more, up to the burst.
//
// Rate and burst are kept in millionths of a token. In a tick of time the bucket
// gains rate millionths of a second's tick, so with a token divided into as many
// parts as there are millionths times ticks a second, it gains a whole number of
// parts: the rate itself.
type bucket struct {
	rate  uint64       // parts a tick, which is millionths of a token a second
	full  tokenCount   // capacity
	level tokenCount   // at the time below
	at    simtime.Time // never goes back
}

// A tokenCount is whole tokens and parts of one, fewer than partsPerToken.
type tokenCount struct{ tokens, parts uint64 }

const (
	micro         = 1e6
	partsPerMicro = uint64(simtime.Second)
	partsPerToken = micro * partsPerMicro
	// mostRate, in tokens a second, keeps the product of a rate and any span below
	// 2^128 and its quotient by partsPerToken below 2^64.
	mostRate  = 1e6
	mostBurst = 1e9
)

// newBucket returns a full bucket, nil for a rate of 0. The values are those that
// check allows.
func newBucket(rate, burst float64) *bucket {
	if rate == 0 {
		return nil
	}
	if burst == 0 {
		burst = math.Max(rate, 1)
	}
	millionths := uint64(math.Round(burst * micro))
	full := tokenCount{millionths / micro, millionths % micro * partsPerMicro}
	return &bucket{rate: uint64(math.Round(rate * micro)), full: full, level: full}
}

// fill brings the level to now; an earlier time changes nothing.
func (b *bucket) fill(now simtime.Time) {
	if now <= b.at {
		return
	}
	hi, lo := bits.Mul64(uint64(now-b.at), b.rate)
	tokens, parts := bits.Div64(hi, lo, partsPerToken)
	b.at = now
	b.level.tokens += tokens
	b.level.parts += parts
	if b.level.parts >= partsPerToken {
		b.level.parts -= partsPerToken
		b.level.tokens++
	}
	if b.level.tokens > b.full.tokens || b.level.tokens == b.full.tokens && b.level.parts > b.full.parts {
		b.level = b.full
	}
}

// ready is the first time, at or after now, at which the bucket has a whole token
// if none is taken.
func (b *bucket) ready(now simtime.Time) simtime.Time {
	b.fill(now)
	if b.level.tokens > 0 {
		return max(now, b.at)
	}
	lacking := partsPerToken - b.level.parts
	return b.at + simtime.Time((lacking+b.rate-1)/b.rate)
}

// take removes a token, which must be there.
func (b *bucket) take(now simtime.Time) {
	b.fill(now)
	b.level.tokens--
}
