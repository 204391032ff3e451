package admission

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

const (
	second      = simtime.Second
	millisecond = simtime.Millisecond
)

func newProxies(t testing.TB, cfg Config) *Proxies {
	t.Helper()
	if cfg.Proxies == 0 {
		cfg.Proxies = 1
	}
	p, err := New(cfg, random.Stream(1, "admission"))
	require.NoError(t, err)
	return p
}

func offer(t testing.TB, p *Proxies, now simtime.Time, tenant, id int) Verdict {
	t.Helper()
	v, resolved, err := p.Offer(now, tenant, id)
	require.NoError(t, err)
	require.Empty(t, resolved)
	return v
}

func release(t testing.TB, p *Proxies, now simtime.Time, id int) []Resolution {
	t.Helper()
	resolved, err := p.Release(now, id)
	require.NoError(t, err)
	return resolved
}

func TestQuota(t *testing.T) {
	p := newProxies(t, Config{Quotas: []int{2, NoLimit, 0}, RejectLatency: millisecond})
	admitted := Verdict{Outcome: Admitted}
	assert.Equal(t, admitted, offer(t, p, 0, 0, 1))
	assert.Equal(t, admitted, offer(t, p, 0, 0, 2))
	rejected := Verdict{Outcome: Rejected, Cause: OverQuota, Answer: 5*second + millisecond}
	assert.Equal(t, rejected, offer(t, p, 5*second, 0, 3))
	for id := 10; id < 20; id++ {
		assert.Equal(t, admitted, offer(t, p, 5*second, 1, id), "no quota")
	}
	assert.Equal(t, rejected, offer(t, p, 5*second, 2, 4), "a quota of 0 refuses all")
	assert.Equal(t, []int{2, 10, 0}, []int{p.InFlight(0), p.InFlight(1), p.InFlight(2)})

	// The place is held until the stream ends, and only once.
	assert.Empty(t, release(t, p, 6*second, 1))
	assert.Equal(t, 1, p.InFlight(0))
	for _, id := range []int{1, 3, 99} {
		_, err := p.Release(6*second, id)
		assert.ErrorContains(t, err, fmt.Sprintf("request %d is not in flight", id))
	}
	assert.Equal(t, 1, p.InFlight(0))
	assert.Equal(t, admitted, offer(t, p, 6*second, 0, 3), "a refused request may come again")
	assert.Equal(t, simtime.Never, p.NextDeadline())

	_, _, err := p.Offer(7*second, 0, 3)
	assert.ErrorContains(t, err, "request 3 is already in flight or waiting")
	_, _, err = p.Offer(7*second, 3, 50)
	assert.ErrorContains(t, err, "tenant 3: there are 3")
}

// TestProxiesMultiplyTheQuota: three proxies with their own counters, quota 2.
func TestProxiesMultiplyTheQuota(t *testing.T) {
	p := newProxies(t, Config{Quotas: []int{2}, Proxies: 3})
	proxies, rejected := []int{}, 0
	for id := range 9 {
		v := offer(t, p, 0, 0, id)
		proxies = append(proxies, v.Proxy)
		if v.Outcome == Rejected {
			rejected++
		}
	}
	assert.Equal(t, []int{0, 1, 2, 0, 1, 2, 0, 1, 2}, proxies)
	assert.Equal(t, 3, rejected)
	assert.Equal(t, 6, p.InFlight(0))

	// The place is freed where it was taken: request 1 is proxy 1's.
	release(t, p, 1, 1)
	assert.Equal(t, Rejected, offer(t, p, 1, 0, 10).Outcome)
	assert.Equal(t, Verdict{Outcome: Admitted, Proxy: 1}, offer(t, p, 1, 0, 11))
}

func TestRandomChoice(t *testing.T) {
	p := newProxies(t, Config{Quotas: []int{NoLimit}, Proxies: 3, Choice: Random})
	met := [3]int{}
	for id := range 3000 {
		met[offer(t, p, 0, 0, id).Proxy]++
	}
	for _, n := range met {
		assert.InDelta(t, 1000, n, 120)
	}
}

func TestQueue(t *testing.T) {
	p := newProxies(t, Config{Quotas: []int{1, 1}, QueueLength: 2, QueueTimeout: 10 * second, RejectLatency: millisecond})
	queued := Verdict{Outcome: Queued, Cause: OverQuota}
	offer(t, p, 0, 0, 1)
	assert.Equal(t, queued, offer(t, p, 1*second, 0, 2))
	assert.Equal(t, queued, offer(t, p, 2*second, 0, 3))
	full := Verdict{Outcome: Rejected, Cause: QueueFull, Answer: 3*second + millisecond}
	assert.Equal(t, full, offer(t, p, 3*second, 0, 4))
	assert.Equal(t, Admitted, offer(t, p, 3*second, 1, 5).Outcome, "another tenant has its own")
	assert.Equal(t, []int{2, 0}, []int{p.Waiting(0), p.Waiting(1)})
	assert.Equal(t, 11*second, p.NextDeadline())

	// First in, first out.
	admitted := func(id int, at simtime.Time) Resolution { return Resolution{ID: id, Outcome: Admitted, At: at} }
	assert.Equal(t, []Resolution{admitted(2, 4*second)}, release(t, p, 4*second, 1))
	assert.Equal(t, 12*second, p.NextDeadline())
	assert.Empty(t, p.Expire(12*second-1))
	timedOut := Resolution{ID: 3, Outcome: TimedOut, At: 12 * second, Answer: 12*second + millisecond}
	assert.Equal(t, []Resolution{timedOut}, p.Expire(12*second))
	assert.Equal(t, simtime.Never, p.NextDeadline())

	// Freed at the very moment of the timeout: timed out.
	offer(t, p, 20*second, 0, 6)
	timedOut = Resolution{ID: 6, Outcome: TimedOut, At: 30 * second, Answer: 30*second + millisecond}
	assert.Equal(t, []Resolution{timedOut}, release(t, p, 30*second, 2))
	assert.Zero(t, p.InFlight(0))

	// A late call gives each wait its own time, before the offer it comes with.
	offer(t, p, 40*second, 0, 7)
	offer(t, p, 41*second, 0, 8)
	offer(t, p, 42*second, 0, 9)
	v, resolved, err := p.Offer(100*second, 0, 10)
	require.NoError(t, err)
	assert.Equal(t, queued, v)
	assert.Equal(t, []simtime.Time{51 * second, 52 * second}, []simtime.Time{resolved[0].At, resolved[1].At})
}

func TestWithdraw(t *testing.T) {
	p := newProxies(t, Config{Quotas: []int{1}, QueueLength: 3})
	offer(t, p, 0, 0, 1)
	offer(t, p, 0, 0, 2)
	offer(t, p, 0, 0, 3)
	assert.Equal(t, simtime.Never, p.NextDeadline(), "no timeout, no end")
	ok, _ := p.Withdraw(second, 2)
	assert.True(t, ok)
	for _, id := range []int{1, 2, 99} {
		ok, _ = p.Withdraw(second, id)
		assert.False(t, ok)
	}
	assert.Equal(t, 3, release(t, p, 2*second, 1)[0].ID)
	assert.Zero(t, p.Waiting(0))
}

// TestRate: 2 tokens a second, burst 2.
func TestRate(t *testing.T) {
	p := newProxies(t, Config{Quotas: []int{NoLimit, NoLimit}, Rate: 2, Burst: 2, RejectLatency: millisecond})
	assert.Equal(t, Admitted, offer(t, p, 0, 0, 1).Outcome)
	assert.Equal(t, Admitted, offer(t, p, 0, 0, 2).Outcome)
	over := Verdict{Outcome: Rejected, Cause: OverRate, RetryAfter: 400 * millisecond, Answer: 101 * millisecond}
	assert.Equal(t, over, offer(t, p, 100*millisecond, 0, 3))
	assert.Equal(t, Rejected, offer(t, p, 500*millisecond-1, 0, 3).Outcome)
	assert.Equal(t, Admitted, offer(t, p, 500*millisecond, 0, 3).Outcome)
	assert.Equal(t, Admitted, offer(t, p, 500*millisecond, 1, 4).Outcome, "another tenant has its own bucket")

	// It never holds more than the burst.
	at := 1000 * second
	assert.Equal(t, Admitted, offer(t, p, at, 0, 5).Outcome)
	assert.Equal(t, Admitted, offer(t, p, at, 0, 6).Outcome)
	assert.Equal(t, Rejected, offer(t, p, at, 0, 7).Outcome)
}

func TestRateAndQueue(t *testing.T) {
	p := newProxies(t, Config{Quotas: []int{2}, Rate: 1, QueueLength: 5, QueueTimeout: 3 * second})
	offer(t, p, 0, 0, 1) // takes the only token
	assert.Equal(t, Verdict{Outcome: Queued, Cause: OverRate}, offer(t, p, second/2, 0, 2))
	offer(t, p, second/2, 0, 3)
	offer(t, p, second/2, 0, 4)
	// The tokens of 1 s, and 2 s would do, but of two in flight one must end first.
	assert.Equal(t, second, p.NextDeadline())
	assert.Equal(t, []Resolution{{ID: 2, Outcome: Admitted, At: second}}, p.Expire(second))
	assert.Equal(t, second/2+3*second, p.NextDeadline())
	// At 3 s the bucket holds no more than the one token since 2 s.
	assert.Equal(t, []Resolution{{ID: 3, Outcome: Admitted, At: 3 * second}}, release(t, p, 3*second, 1))
	release(t, p, 3*second, 2)
	// The next token comes at 4 s, after the timeout.
	assert.Equal(t, []Resolution{{ID: 4, Outcome: TimedOut, At: 3*second + second/2, Answer: 3*second + second/2}}, p.Expire(9*second))
}

// TestBucketDoesNotDrift takes each token at the first tick it is there. With
// three a second, no third of which is a whole tick, the n-th still comes at the
// tick at or after n/3 s, as long as the bucket does not run full.
func TestBucketDoesNotDrift(t *testing.T) {
	for _, millionths := range []uint64{3_000_000, 700_000, 1_600_000, 333_333_333, 1, 7} {
		b := newBucket(float64(millionths)/1e6, 2)
		b.take(0)
		b.take(0)
		at := simtime.Time(0)
		for n := uint64(1); n <= 60; n++ {
			at = b.ready(at)
			b.take(at)
			hi, lo := bits.Mul64(n*1_000_000, uint64(second))
			ticks, rest := bits.Div64(hi, lo, millionths)
			if rest > 0 {
				ticks++
			}
			require.Equal(t, simtime.Time(ticks), at, "token %d at %d millionths a second", n, millionths)
		}
	}
	b := newBucket(3, 0) // a second's worth
	for range 3 {
		b.take(0)
	}
	assert.Equal(t, simtime.Time(33_333_333_334), b.ready(0))
	for at := simtime.Time(0); at < second; at += 7_777_777 {
		b.fill(at)
	}
	b.fill(second)
	assert.Equal(t, tokenCount{tokens: 3}, b.level)
}

// TestBucketLooks: looking at a bucket any number of times on the way changes
// nothing, and a token is there exactly from ready on.
func TestBucketLooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1e-6, mostRate).Draw(t, "rate")
		burst := rapid.Float64Range(1, 50).Draw(t, "burst")
		watched, left := newBucket(rate, burst), newBucket(rate, burst)
		for left.level.tokens > 0 {
			left.take(0)
			watched.take(0)
		}
		now := simtime.Time(0)
		for range rapid.IntRange(0, 30).Draw(t, "looks") {
			now += simtime.Time(rapid.Int64Range(0, int64(second)).Draw(t, "step"))
			watched.fill(now)
		}
		ready := left.ready(0)
		left.fill(now)
		assert.Equal(t, left.level, watched.level)

		fresh := newBucket(rate, burst)
		for fresh.level.tokens > 0 {
			fresh.take(0)
		}
		fresh.fill(ready - 1)
		assert.Zero(t, fresh.level.tokens)
		fresh.fill(ready)
		assert.Equal(t, uint64(1), fresh.level.tokens)
	})
}

func TestFromScenario(t *testing.T) {
	four, two := 4, 2
	tenants := []scenario.Tenant{{Name: "a", Quota: &four}, {Name: "b"}, {Name: "c", Quota: &two}}
	assert.Equal(t, []int{4, NoLimit, 2}, FromScenario(scenario.Admission{}, tenants).Quotas)
	assert.Equal(t, []int{4, 9, 2}, FromScenario(scenario.Admission{Quota: 9}, tenants).Quotas)
	got := FromScenario(scenario.Admission{
		Quota: 3, Proxies: 2, QueueLength: 5, QueueTimeout: scenario.Duration{Time: second},
		Rate: 1.5, Burst: 4, RejectLatency: scenario.Duration{Time: millisecond},
	}, nil)
	assert.Equal(t, Config{
		Quotas: []int{3}, Proxies: 2, QueueLength: 5, QueueTimeout: second, Rate: 1.5, Burst: 4, RejectLatency: millisecond,
	}, got)
}

func TestNewReportsEveryProblem(t *testing.T) {
	_, err := New(Config{Quotas: []int{1, -2}, Proxies: -1, QueueLength: -1, QueueTimeout: -1, Rate: math.NaN(), Burst: 0.5, RejectLatency: -1}, nil)
	require.Error(t, err)
	for _, want := range []string{
		"quota -2 of tenant 1: must be at least 0, or -1 for none", "proxies -1", "queue_length -1", "queue_timeout", "rate_per_second NaN", "burst 0.5", "reject_latency",
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err = New(Config{Proxies: 1}, nil)
	assert.ErrorContains(t, err, "at least one tenant")
}

// TestEveryOfferEndsOnce drives proxies at random against an independent account:
// every offer is admitted, rejected, timed out or withdrawn exactly once, the
// quota of a proxy is never exceeded, no admission is beyond what the bucket
// allowed, a lane admits in order of arrival, and times do not go back.
func TestEveryOfferEndsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Quotas:       rapid.SliceOfN(rapid.IntRange(NoLimit, 3), 1, 3).Draw(t, "quotas"),
			Proxies:      rapid.IntRange(1, 3).Draw(t, "proxies"),
			Choice:       rapid.SampledFrom([]Choice{RoundRobin, Random}).Draw(t, "choice"),
			QueueLength:  rapid.IntRange(0, 3).Draw(t, "queue"),
			QueueTimeout: simtime.Time(rapid.IntRange(0, 5).Draw(t, "timeout")) * second,
			Rate:         rapid.SampledFrom([]float64{0, 0, 0.3, 1, 1.7}).Draw(t, "rate"),
			Burst:        rapid.SampledFrom([]float64{0, 1, 2.5}).Draw(t, "burst"),
		}
		p, err := New(cfg, rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))))
		require.NoError(t, err)

		type laneKey struct{ proxy, tenant int }
		type account struct {
			lane    laneKey
			offered simtime.Time
		}
		waiting, inFlight := map[int]account{}, map[int]account{}
		held, admissions := map[laneKey]int{}, map[laneKey]int{}
		newest := map[laneKey]int{} // the youngest request admitted, by ID
		ended := map[Outcome]int{}
		now, last, offered, withdrawn := simtime.Time(0), simtime.Time(0), 0, 0

		admit := func(id int, a account, at simtime.Time) {
			inFlight[id] = a
			held[a.lane]++
			admissions[a.lane]++
			ended[Admitted]++
			if quota := cfg.Quotas[a.lane.tenant]; quota != NoLimit && held[a.lane] > quota {
				t.Fatalf("%d in flight in %+v, quota %d", held[a.lane], a.lane, quota)
			}
			burst := cfg.Burst
			if burst == 0 {
				burst = math.Max(cfg.Rate, 1)
			}
			if most := burst + cfg.Rate*at.Seconds() + 1e-9; cfg.Rate > 0 && float64(admissions[a.lane]) > most {
				t.Fatalf("%d admissions by %v, at most %v", admissions[a.lane], at, most)
			}
			if id < newest[a.lane] {
				t.Fatalf("%d admitted after %d", id, newest[a.lane])
			}
			newest[a.lane] = id
		}
		resolve := func(resolved []Resolution) {
			for _, r := range resolved {
				a, ok := waiting[r.ID]
				if !ok || a.lane != (laneKey{r.Proxy, r.Tenant}) || r.At < last || r.At > now {
					t.Fatalf("resolution %+v at %v after %v of a request not waiting", r, now, last)
				}
				last = r.At
				delete(waiting, r.ID)
				if r.Outcome == TimedOut {
					ended[TimedOut]++
					if r.At != a.offered+cfg.QueueTimeout {
						t.Fatalf("offered at %v, timed out at %v", a.offered, r.At)
					}
					continue
				}
				if cfg.QueueTimeout > 0 && r.At >= a.offered+cfg.QueueTimeout {
					t.Fatalf("offered at %v, admitted after its timeout, at %v", a.offered, r.At)
				}
				admit(r.ID, a, r.At)
			}
		}
		pick := func(from map[int]account) int {
			ids := []int{}
			for id := range offered {
				if _, ok := from[id]; ok {
					ids = append(ids, id)
				}
			}
			if len(ids) == 0 {
				return -1
			}
			return rapid.SampledFrom(ids).Draw(t, "id")
		}

		for range rapid.IntRange(1, 120).Draw(t, "calls") {
			now += simtime.Time(rapid.SampledFrom([]int{0, 1, 250, 1000, 1500}).Draw(t, "wait")) * millisecond
			switch rapid.IntRange(0, 9).Draw(t, "call") {
			case 0, 1, 2, 3, 4:
				tenant := rapid.IntRange(0, len(cfg.Quotas)-1).Draw(t, "tenant")
				id := offered
				offered++
				v, resolved, err := p.Offer(now, tenant, id)
				require.NoError(t, err)
				resolve(resolved)
				a := account{laneKey{v.Proxy, tenant}, now}
				switch v.Outcome {
				case Admitted:
					admit(id, a, now)
				case Queued:
					waiting[id] = a
				case Rejected:
					ended[Rejected]++
				}
			case 5, 6, 7:
				id := pick(inFlight)
				if id < 0 {
					continue
				}
				// The place is free before those who wait for it move.
				resolved, err := p.Release(now, id)
				require.NoError(t, err)
				held[inFlight[id].lane]--
				delete(inFlight, id)
				resolve(resolved)
			case 8:
				id := pick(waiting)
				if id < 0 {
					continue
				}
				a := waiting[id]
				ok, resolved := p.Withdraw(now, id)
				resolve(resolved)
				if ok {
					if _, still := waiting[id]; !still {
						t.Fatalf("%d both withdrawn and resolved: %+v", id, a)
					}
					delete(waiting, id)
					withdrawn++
				}
			case 9:
				resolve(p.Expire(now))
			}
			for tenant := range cfg.Quotas {
				flying, queued := 0, 0
				for _, a := range inFlight {
					if a.lane.tenant == tenant {
						flying++
					}
				}
				for _, a := range waiting {
					if a.lane.tenant == tenant {
						queued++
					}
				}
				if flying != p.InFlight(tenant) || queued != p.Waiting(tenant) {
					t.Fatalf("tenant %d: %d in flight, %d waiting; account has %d, %d", tenant, p.InFlight(tenant), p.Waiting(tenant), flying, queued)
				}
			}
			if sum := ended[Admitted] + ended[Rejected] + ended[TimedOut] + withdrawn + len(waiting); sum != offered {
				t.Fatalf("%d offered, %d accounted for", offered, sum)
			}
		}

		// NextDeadline is enough to drive the rest: no wait is forgotten.
		resolve(p.Expire(now))
		for p.NextDeadline() < simtime.Never {
			if p.NextDeadline() < now {
				t.Fatalf("deadline %v in the past, now %v", p.NextDeadline(), now)
			}
			now = p.NextDeadline()
			resolved := p.Expire(now)
			if len(resolved) == 0 {
				t.Fatalf("nothing happened at the deadline %v", now)
			}
			resolve(resolved)
		}
		if cfg.QueueTimeout > 0 && len(waiting) > 0 {
			t.Fatalf("still waiting: %v", waiting)
		}
	})
}
