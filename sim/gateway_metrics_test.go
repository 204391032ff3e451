package sim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/model/profiles"
	"fleetsim/router"
	"fleetsim/simtime"
)

// A policy sees exactly the gauges that a scraper at the refreshes before
// now - delay would have read, whatever the engines did since, and nothing before
// the first has arrived. The timeline, whose snapshots are events, is the scraper.
func TestPoliciesSeeWhatHasArrived(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.SampledFrom([]int{7, 50, 1000}).Draw(t, "interval")
		delay := rapid.SampledFrom([]int{0, 1, 49, 50, 51, 400}).Draw(t, "delay")
		sc := load(t,
			fmt.Sprintf("router.metrics_interval=\"%dms\"", interval), fmt.Sprintf("router.metrics_delay=\"%dms\"", delay),
			fmt.Sprintf("observe.snapshot_interval=\"%dms\"", interval),
			fmt.Sprintf("workload.requests=%d", rapid.IntRange(1, 60).Draw(t, "requests")),
			fmt.Sprintf("workload.arrivals.rate_per_second=%d", rapid.SampledFrom([]int{1, 5, 40}).Draw(t, "rate")),
			fmt.Sprintf("workload.output_tokens=%d", rapid.SampledFrom([]int{1, 30, 300}).Draw(t, "output")),
			`workload.arrivals.process="poisson"`,
		)
		type key struct {
			refresh int64
			replica string
		}
		scraped := map[key]Sample{}
		_, saw := spied(t, Setup{Scenario: sc, Profile: p, Seed: rapid.Uint64().Draw(t, "seed"), Stepwise: rapid.Bool().Draw(t, "stepwise"),
			Sample: func(s Sample) {
				scraped[key{int64(s.At) / int64(interval) / int64(simtime.Millisecond), s.Replica}] = s
			}})
		every, late := simtime.Time(interval)*simtime.Millisecond, simtime.Time(delay)*simtime.Millisecond
		for _, l := range saw[0].looks {
			last := int64(-1) // of the refreshes whose values arrived before the look
			for simtime.Time(last+1)*every+late < l.at {
				last++
			}
			for _, pod := range l.pods {
				running, ok := pod.Metrics.EngineRunning.Get()
				require.Equal(t, last >= 0, ok)
				if !ok {
					continue
				}
				s := scraped[key{last, pod.Name}]
				require.EqualValues(t, s.Running, running)
				require.Equal(t, s.KVUsage, pod.Metrics.KVCacheUsage.Or(-1))
			}
		}
	})
}

// What vLLM 0.26 does not export is missing, and so are Prometheus' averages
// without one; the plain value of the queue-time histogram is 0.
func TestWhatTheEngineExports(t *testing.T) {
	sc := onTwo(t, append(burst(2), "workload.closed_loop.think_time=1s", "workload.requests=6")...)
	_, saw := spied(t, Setup{Scenario: sc, Profile: plain(t)})
	m := saw[0].looks[5].pods[0].Metrics
	for name, v := range map[string]router.Value{
		"gpu_cache_usage_perc": m.GPUCacheUsage, "cpu_cache_usage_perc": m.CPUCacheUsage, "engine_utilization": m.Utilization,
		"gpu_busy_time_ratio": m.BusyTimeRatio, "avg_generation_throughput_toks_per_s": m.OutputRate, "drain rate": m.DrainRate,
		"avg_prompt_toks_per_req": m.PromptTokens, "avg_generation_toks_per_req": m.OutputTokens,
	} {
		_, ok := v.Get()
		require.False(t, ok, name)
	}
	for _, v := range []router.Value{m.KVCacheUsage, m.EngineRunning, m.QueueTime, m.PrefillTime, m.DecodeTime} {
		_, ok := v.Get()
		require.True(t, ok)
	}
	require.Zero(t, m.QueueTime.Or(-1))
}

// Two lanes with a second between their requests: all of one second apart, each
// request alone on its replica. A request is prefilled in one step and decoded in
// two more, so it keeps its engine busy for 30 ms. Prometheus scrapes every
// 100 ms, the gateway fetches every 20 ms, and the values take 10 ms.
func TestAveragesAndExtras(t *testing.T) {
	sc := onTwo(t, append(burst(2), "workload.closed_loop.think_time=1s", "workload.requests=4", "workload.output_tokens=3",
		"router.prometheus_interval=100ms", "router.metrics_interval=20ms", "router.metrics_delay=10ms",
		`router.extra_metrics=["gpu_cache_usage_perc","cpu_cache_usage_perc","engine_utilization","gpu_busy_time_ratio"]`)...)
	_, saw := spied(t, Setup{Scenario: sc, Profile: plain(t)})
	look := saw[0].looks[2] // the second requests, at 0.033 + 1 + 0.001 s
	require.Equal(t, 1034*simtime.Millisecond, look.at)
	m := look.pods[0].Metrics
	require.InDelta(t, 0.010, m.PrefillTime.Or(-1), 1e-12, "from 1 to 11 ms")
	require.InDelta(t, 0.020, m.DecodeTime.Or(-1), 1e-12, "from 11 to 31 ms")
	require.Equal(t, 3.0, m.OutputTokens.Or(-1))
	require.InDelta(t, 10*16+211+8+26+1, m.PromptTokens.Or(-1), 5)
	require.Zero(t, m.CPUCacheUsage.Or(-1))
	require.Equal(t, m.KVCacheUsage, m.GPUCacheUsage)
	require.Zero(t, m.BusyTimeRatio.Or(-1), "between 1,000 and 1,020 ms")
	require.Equal(t, m.BusyTimeRatio, m.Utilization)

	// At 21 ms + 10 ms the fetch of 20 ms has arrived: 19 of its 20 ms were busy.
	r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: "spy"})
	require.NoError(t, err)
	r.start()
	for r.upcoming() <= 30*simtime.Millisecond {
		r.step()
	}
	p := r.gateways.processes[0]
	at := func(ms simtime.Time) (m router.Metrics, ok bool) {
		r.now = ms * simtime.Millisecond
		view := p.views[0]
		r.replicas[0].read(r.now)
		return r.metrics(r.replicas[0], &view, lastBefore(r.now-10*simtime.Millisecond, 20*simtime.Millisecond))
	}
	m, ok := at(30)
	require.True(t, ok)
	require.Zero(t, m.EngineRunning.Or(-1), "at 30 ms that of 20 ms has not arrived")
	m, _ = at(31)
	require.Equal(t, 1.0, m.EngineRunning.Or(-1))
	require.InDelta(t, 19.0/20, m.BusyTimeRatio.Or(-1), 1e-12)
	require.Zero(t, m.PrefillTime.Or(-1), "a histogram has a request when it has finished")
}

// A pod's metrics are missing until the gateway has fetched them since the pod is
// on its list; while its engine does not answer, the last ones stay.
func TestMetricsOfPodsThatComeAndGo(t *testing.T) {
	sc := onTwo(t, append(burst(2), "workload.closed_loop.think_time=100ms", "workload.requests=60", "workload.output_tokens=2",
		"router.endpoint_delay=300ms", "lifecycle.model_load.mean=200ms",
		`faults=[{at="1s",kind="crash",replica="L20-B",duration="500ms"}]`)...)
	_, saw := spied(t, Setup{Scenario: sc, Profile: plain(t)})
	known := map[bool]int{}
	for _, l := range saw[0].looks {
		for _, pod := range l.pods {
			if pod.ID == 1 && l.at > simtime.Second {
				_, ok := pod.Metrics.EngineRunning.Get()
				known[ok]++
				back := l.at > 1500*simtime.Millisecond // on the list again after the restart
				if !ok {
					require.True(t, back)
				}
			}
		}
	}
	require.NotZero(t, known[true])
}

// The drain rate compares with the count of the 5-second mark nearest to a minute
// ago; it needs 10 seconds.
func TestDrainRate(t *testing.T) {
	const refresh = 50 * simtime.Millisecond
	var v podView
	v.since = 2 * simtime.Second
	for i := range 100 { // one a second, from 3 s on
		v.completed.add(simtime.Time(3+i)*simtime.Second, i+1, drainHistory)
		now := simtime.Time(3+i) * simtime.Second
		rate, ok := v.drainRate(now, refresh).Get()
		require.Equal(t, now-v.since >= 10*simtime.Second, ok, now)
		if !ok {
			continue
		}
		// Marks at 2, 7, 12, …: up to 64.5 s the first is the nearest to a minute ago.
		base := v.since
		if target := now - simtime.Minute; target > v.since {
			base += (target - v.since + 2*simtime.Second) / (5 * simtime.Second) * 5 * simtime.Second
		}
		since := int64((now - base) / simtime.Second)
		require.InDelta(t, float64(since)/float64(since), rate, 1e-12)
	}
	v = podView{}
	require.Equal(t, router.Value{}, v.drainRate(4*simtime.Second, refresh))
	v.completed.add(simtime.Second, 7, drainHistory)
	require.Equal(t, router.Some(7.0/20), v.drainRate(20*simtime.Second, refresh))
	v.completed.add(61*simtime.Second, 8, drainHistory)
	require.Equal(t, router.Some(8.0/62), v.drainRate(62*simtime.Second, refresh), "2 s is nearer to 0 than to 5")
	require.Equal(t, router.Some(1.0/58), v.drainRate(63*simtime.Second, refresh), "3 s is nearer to 5")
}

// A probe keeps to the multiples of its interval, reads only while the engine
// answers, and forgets what is too old to be asked for.
func TestProbe(t *testing.T) {
	r, err := newRun(Setup{Scenario: onTwo(t, burst(1)...), Profile: plain(t), Policy: "spy"})
	require.NoError(t, err)
	rep := r.replicas[0]
	p := newProbe(0, 10, 20)
	p.read(rep, 0)
	require.Nil(t, p.upTo(1000))
	p.read(rep, 10)
	require.EqualValues(t, 0, p.upTo(1000).number, "not yet that of 10")
	p.read(rep, 11)
	require.EqualValues(t, 1, p.upTo(1000).number)
	require.EqualValues(t, 0, p.upTo(0).number)
	rep.state = down
	p.read(rep, 55)
	rep.state = up
	p.read(rep, 61)
	require.EqualValues(t, 6, p.upTo(1000).number)
	require.EqualValues(t, 1, p.upTo(5).number, "nothing was read meanwhile")
	p.read(rep, 10_001)
	require.EqualValues(t, 1000, p.upTo(1000).number)
	require.EqualValues(t, 998, p.upTo(998).number)
	require.Less(t, len(p.readings), 20)
}

// Metrics and several gateways cost nothing that nobody asks for, and little when
// somebody does.
func TestNoReadingsWithoutAReader(t *testing.T) {
	r, err := newRun(Setup{Scenario: onTwo(t, burst(1)...), Profile: plain(t), Policy: "least-request"})
	require.NoError(t, err)
	require.Nil(t, r.replicas[0].probe)
}

func BenchmarkHot90Metrics(b *testing.B) { benchmark(b, "least-kv-cache") }

func BenchmarkHot90Random(b *testing.B) { benchmark(b, "random") }

func BenchmarkHot90StaleCounts(b *testing.B) {
	benchmark(b, "prefix-cache", "router.gateways=2", "router.state_sync=true", "router.choice_to_count_delay=5ms")
}

// The reading up to a number is found however many were not taken, and a count at
// a time however often it has changed.
func TestLookingBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p probe
		var h history
		number, at := int64(-1), simtime.Time(0)
		for range rapid.IntRange(0, 30).Draw(t, "readings") {
			number += rapid.SampledFrom([]int64{1, 1, 1, 2, 7}).Draw(t, "step")
			at += simtime.Time(rapid.IntRange(0, 3).Draw(t, "dt"))
			p.readings = append(p.readings, reading{number: number})
			h.changes = append(h.changes, change{at, len(h.changes) + 1})
		}
		for k := int64(-2); k <= number+2; k++ {
			var want *reading
			for i := range p.readings {
				if p.readings[i].number <= k {
					want = &p.readings[i]
				}
			}
			require.Same(t, want, p.upTo(k), "up to %d", k)
		}
		for look := simtime.Time(-1); look <= at+1; look++ {
			want := 0
			for _, c := range h.changes {
				if c.at <= look {
					want = c.to
				}
			}
			require.Equal(t, want, h.at(look), "at %d", look)
		}
	})
}
