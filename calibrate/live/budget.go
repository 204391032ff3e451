package live

import "sync/atomic"

// A Budget is how many requests a replay may still send, whatever for.
type Budget struct{ left atomic.Int64 }

// NewBudget allows n requests.
func NewBudget(n int) *Budget {
	b := &Budget{}
	b.left.Store(int64(n))
	return b
}

// Take allows one more request, or reports that there is none left.
func (b *Budget) Take() bool { return b.left.Add(-1) >= 0 }

// Left is the number of requests that are left.
func (b *Budget) Left() int { return int(max(b.left.Load(), 0)) }
