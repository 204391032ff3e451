package admission

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"

	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// A Retrier is the client's policy for a 429: it waits a back-off that doubles
// with each attempt of a request, up to a limit, less a random share of it, and
// gives up after so many attempts or when its retries would exceed their budget.
//
// Each attempt is a request of its own to the proxies and to the record; the
// zero policy retries nothing.
type Retrier struct {
	maxAttempts    int
	backOff, most  simtime.Time
	jitter         uint64 // millionths
	budget         uint64 // millionths of the first attempts
	first, retries uint64
}

// NewRetrier returns a Retrier that has seen no attempt, or every problem of the
// policy. Jitter and Budget are kept to the nearest millionth; a MaxBackOff of 0
// is a day.
func NewRetrier(r scenario.Retry) (*Retrier, error) {
	var problems []error
	if r.MaxAttempts < 0 {
		problems = append(problems, fmt.Errorf("max_attempts %d: must be at least 0", r.MaxAttempts))
	}
	if r.BackOff.Time < 0 || r.BackOff.Time > longest {
		problems = append(problems, fmt.Errorf("back_off %v: must be 0s to %v", r.BackOff, longest))
	}
	if r.MaxBackOff.Time < 0 || r.MaxBackOff.Time > longest {
		problems = append(problems, fmt.Errorf("max_back_off %v: must be 0s to %v", r.MaxBackOff, longest))
	}
	if !(r.Jitter >= 0 && r.Jitter <= 1) {
		problems = append(problems, fmt.Errorf("jitter %v: must be 0 to 1", r.Jitter))
	}
	if !(r.Budget >= 0 && r.Budget <= 1000) {
		problems = append(problems, fmt.Errorf("budget %v: must be 0 to 1000", r.Budget))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	t := &Retrier{
		maxAttempts: r.MaxAttempts,
		backOff:     r.BackOff.Time,
		most:        r.MaxBackOff.Time,
		jitter:      uint64(math.Round(r.Jitter * micro)),
		budget:      uint64(math.Round(r.Budget * micro)),
	}
	if t.most == 0 {
		t.most = longest
	}
	return t, nil
}

// First counts the first attempt of a request, which the budget is a share of.
func (t *Retrier) First() { t.first++ }

// Next says whether a request that was refused at its attempt-th attempt, counted
// from 1, is tried again, and how long after the 429 arrived. A retry is
// charged to the budget. A client that heeds Retry-After waits the longer of the
// two.
//
// The delay is uniform, in ticks, between (1-Jitter) times the back-off and the
// back-off. Chance is drawn only when there is a jitter and a retry.
func (t *Retrier) Next(attempt int, rng *rand.Rand) (delay simtime.Time, ok bool) {
	if attempt >= t.maxAttempts || !t.charge() {
		return 0, false
	}
	delay = t.backOffAfter(attempt)
	hi, lo := bits.Mul64(uint64(delay), t.jitter)
	span, _ := bits.Div64(hi, lo, micro)
	if span > 0 {
		delay -= simtime.Time(rng.Uint64N(span + 1))
	}
	return delay, true
}

// charge takes a retry from the budget if there is one left.
func (t *Retrier) charge() bool {
	if t.budget > 0 && (t.retries+1)*micro > t.budget*t.first {
		return false
	}
	t.retries++
	return true
}

// backOffAfter is the back-off before the attempt after this one.
func (t *Retrier) backOffAfter(attempt int) simtime.Time {
	delay := min(t.backOff, t.most)
	for ; attempt > 1 && delay > 0 && delay < t.most; attempt-- {
		delay = min(2*delay, t.most)
	}
	return delay
}
