// Package random gives every source of chance in a run its own generator, so
// that drawing more from one (say, routing ties) never shifts another (say,
// arrivals).
package random

import (
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"
)

// Stream returns the generator of the named stream of a run. The same seed and
// name give the same sequence on every machine; different names give
// independent sequences.
func Stream(seed uint64, name string) *rand.Rand {
	return rand.New(rand.NewPCG(seed, xxhash.Sum64String(name)))
}
