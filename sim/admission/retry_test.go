package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

func seconds(s float64) scenario.Duration {
	return scenario.Duration{Time: simtime.FromSeconds(s)}
}

func newRetrier(t testing.TB, r scenario.Retry) *Retrier {
	t.Helper()
	retrier, err := NewRetrier(r)
	require.NoError(t, err)
	return retrier
}

// TestF29NoHiddenRetries: the default retries nothing.
func TestF29NoHiddenRetries(t *testing.T) {
	for attempts := range 2 {
		r := newRetrier(t, scenario.Retry{MaxAttempts: attempts, BackOff: seconds(1)})
		r.First()
		_, ok := r.Next(1, nil)
		assert.False(t, ok)
	}
}

func TestBackOff(t *testing.T) {
	r := newRetrier(t, scenario.Retry{MaxAttempts: 7, BackOff: seconds(0.5), MaxBackOff: seconds(3)})
	r.First()
	for i, want := range []simtime.Time{second / 2, second, 2 * second, 3 * second, 3 * second, 3 * second} {
		delay, ok := r.Next(i+1, nil)
		assert.True(t, ok)
		assert.Equal(t, want, delay, "after attempt %d", i+1)
	}
	_, ok := r.Next(7, nil)
	assert.False(t, ok, "seven attempts in all")

	unlimited := newRetrier(t, scenario.Retry{MaxAttempts: 1 << 40, BackOff: seconds(1)})
	delay, ok := unlimited.Next(1<<39, nil)
	assert.True(t, ok)
	assert.Equal(t, 24*simtime.Hour, delay)
	atOnce := newRetrier(t, scenario.Retry{MaxAttempts: 1 << 40})
	delay, ok = atOnce.Next(1<<39, nil)
	assert.True(t, ok)
	assert.Zero(t, delay)
}

func TestJitter(t *testing.T) {
	r := newRetrier(t, scenario.Retry{MaxAttempts: 2, BackOff: seconds(4), Jitter: 0.25})
	rng := random.Stream(3, "retry")
	const n = 20_000
	sum, least, most := 0.0, simtime.Never, simtime.Time(0)
	for range n {
		delay, ok := r.Next(1, rng)
		require.True(t, ok)
		sum += delay.Seconds()
		least, most = min(least, delay), max(most, delay)
	}
	assert.InDelta(t, 3.5, sum/n, 0.01) // uniform in [3, 4]
	assert.True(t, least >= 3*second && least < 3*second+10*millisecond, "%v", least)
	assert.True(t, most <= 4*second && most > 4*second-10*millisecond, "%v", most)
}

// TestJitterReachesBothEnds: of a back-off of one tick, full jitter leaves it all
// or nothing.
func TestJitterReachesBothEnds(t *testing.T) {
	r := newRetrier(t, scenario.Retry{MaxAttempts: 2, BackOff: scenario.Duration{Time: simtime.Tick}, Jitter: 1})
	rng := random.Stream(3, "retry")
	seen := map[simtime.Time]int{}
	for range 1000 {
		delay, _ := r.Next(1, rng)
		seen[delay]++
	}
	assert.InDelta(t, 500, seen[0], 80)
	assert.Equal(t, 1000, seen[0]+seen[1])
}

// TestBudget: retries of at most a fifth of the first attempts.
func TestBudget(t *testing.T) {
	r := newRetrier(t, scenario.Retry{MaxAttempts: 9, Budget: 0.2})
	first := func(n int) {
		for range n {
			r.First()
		}
	}
	granted := func() bool { _, ok := r.Next(1, nil); return ok }
	first(4)
	assert.False(t, granted(), "1 of 4 is more than a fifth")
	first(1)
	assert.True(t, granted(), "1 of 5")
	assert.False(t, granted(), "2 of 5")
	first(5)
	assert.True(t, granted(), "2 of 10")
	assert.False(t, granted(), "a refused retry is not charged, a granted one is")
}

func TestBudgetHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.IntRange(1, 300).Draw(t, "hundredths")
		r, err := NewRetrier(scenario.Retry{MaxAttempts: 5, Budget: float64(budget) / 100})
		require.NoError(t, err)
		first, retries := 0, 0
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			if rapid.Bool().Draw(t, "first") {
				r.First()
				first++
				continue
			}
			_, ok := r.Next(rapid.IntRange(1, 4).Draw(t, "attempt"), nil)
			if fits := (retries+1)*100 <= budget*first; ok != fits {
				t.Fatalf("%d first, %d retries, budget %d%%: got %v", first, retries, budget, ok)
			}
			if ok {
				retries++
			}
		}
	})
}

func TestNewRetrierReportsEveryProblem(t *testing.T) {
	_, err := NewRetrier(scenario.Retry{MaxAttempts: -1, BackOff: seconds(-1), MaxBackOff: seconds(1e6), Jitter: 1.5, Budget: -1})
	require.Error(t, err)
	for _, want := range []string{"max_attempts -1", "back_off -1s", "max_back_off 1e+06s", "jitter 1.5: must be 0 to 1", "budget -1"} {
		assert.ErrorContains(t, err, want)
	}
}
