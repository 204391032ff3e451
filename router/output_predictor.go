package router

import (
	"math"
	"math/rand/v2"

	"fleetsim/simtime"
)

// An outputPredictor guesses a request's output length as AIBrix's slo policies
// do: it draws from the output lengths of requests with about as long an input
// that ended in the last 4 minutes, both rounded to powers of two. Without such a
// request it guesses 1.
type outputPredictor struct {
	recent []outputTrace // oldest first
	seen   [predictorBuckets][predictorBuckets]int
}

type outputTrace struct {
	slot          simtime.Time
	input, output int // powers of two
}

const (
	predictorBuckets = 21 // up to 2^20 tokens
	predictorSlot    = 10 * simtime.Second
	predictorSlots   = 24
)

func powerOf(tokens int) int {
	if tokens < 1 {
		return 0
	}
	return min(int(math.Round(math.Log2(float64(tokens)))), predictorBuckets-1)
}

func (o *outputPredictor) add(now simtime.Time, input, output int) {
	o.forget(now)
	t := outputTrace{now / predictorSlot, powerOf(input), powerOf(output)}
	o.recent = append(o.recent, t)
	o.seen[t.input][t.output]++
}

func (o *outputPredictor) predict(now simtime.Time, input int, rng *rand.Rand) int {
	o.forget(now)
	row := &o.seen[powerOf(input)]
	total := 0
	for _, n := range row {
		total += n
	}
	if total == 0 {
		return 1
	}
	at := rng.IntN(total)
	power := 0
	for at >= row[power] {
		at -= row[power]
		power++
	}
	return 1 << power
}

// forget drops what has left the window.
func (o *outputPredictor) forget(now simtime.Time) {
	old := 0
	for old < len(o.recent) && now/predictorSlot-o.recent[old].slot > predictorSlots {
		o.seen[o.recent[old].input][o.recent[old].output]--
		old++
	}
	o.recent = append(o.recent[:0], o.recent[old:]...)
}
