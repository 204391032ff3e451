package sim

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model/profiles"
)

// A run's cost by what it is made of. Each benchmark reports it a request, so that
// runs of different lengths compare; -count 10 and benchstat tell two versions
// apart.

// benchmark reports the cost of one request of hot90 with the overrides.
func benchmark(b *testing.B, policy string, sets ...string) {
	benchmarkSetup(b, Setup{Policy: policy}, sets...)
}

func benchmarkSetup(b *testing.B, s Setup, sets ...string) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(b, err)
	s.Scenario, s.Profile, s.Seed = load(b, sets...), p, 1
	requests, steps, skipped, events := 0, 0, 0, 0
	before := allocated()
	for b.Loop() {
		r, err := newRun(s)
		require.NoError(b, err)
		phase, err := r.simulate(b.Context())
		require.NoError(b, err)
		for _, rep := range r.replicas {
			skipped += int(rep.Skipped())
		}
		requests += phase.Planned.Or(0)
		steps += phase.Steps.Or(0)
		events += phase.Events.Or(0)
	}
	each := func(n float64) float64 { return n / float64(requests) }
	b.ReportMetric(each(float64(b.Elapsed().Nanoseconds())), "ns/request")
	b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(each(float64(allocated()-before)), "B/request")
	b.ReportMetric(each(float64(skipped)), "skipped/request")
	b.ReportMetric(each(float64(steps-skipped)), "taken/request")
	b.ReportMetric(each(float64(events)), "events/request")
	b.ReportMetric(0, "ns/op") // says nothing beside ns/request
}

// allocated is the bytes that have been allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Overrides of hot90.
var (
	coldStart = []string{"start.engine_cache=cold", "start.router_index=cold", "start.owners=[]", "start.spare={}"}
	// The production study's load: unique prompts of about 518 tokens, 128 output
	// tokens.
	wave = append([]string{"workload.prompt.families=0", "workload.prompt.hot_fraction=0", "workload.prompt.body_repeat=30",
		"workload.prompt.salt_tokens=0", "workload.prompt.salt_tokens_spread=0"}, coldStart...)
	fleet64 = append([]string{"workload.requests=20000", "cluster.names=[]", "cluster.replicas=64", "workload.in_flight_cap=0",
		"workload.arrivals.rate_per_second=51", "workload.prompt.families=1000", "workload.prompt.hot_fraction=0"}, coldStart...)
	// The same load on each of 1,000 replicas, for long enough that building them is
	// forgotten.
	fleet1000 = append([]string{"workload.requests=500000", "cluster.names=[]", "cluster.replicas=1000", "workload.in_flight_cap=0",
		"workload.arrivals.rate_per_second=800"}, wave...)
)

// of is the overrides with more of them.
func of(sets []string, more ...string) []string {
	return append(sets[:len(sets):len(sets)], more...)
}

// The study's 96 requests of about 5,047 tokens: most of it is building the cluster.
func BenchmarkHot90PrefixCache(b *testing.B) { benchmark(b, "prefix-cache") }

func BenchmarkHot90Long(b *testing.B) { benchmark(b, "prefix-cache", "workload.requests=10000") }

func BenchmarkWave(b *testing.B) {
	benchmark(b, "least-request", of(wave, "workload.requests=10000")...)
}

// A request must not cost more, nor memory, because there are many of them.
func BenchmarkWaveTenMillion(b *testing.B) {
	if testing.Short() {
		b.Skip("ten million requests take some ten seconds")
	}
	benchmarkSetup(b, Setup{Policy: "least-request", Sketch: true}, of(wave, "workload.requests=10000000")...)
}

func BenchmarkReplicas64PrefixCache(b *testing.B) { benchmark(b, "prefix-cache", fleet64...) }

func BenchmarkReplicas1000LeastRequest(b *testing.B) { benchmark(b, "least-request", fleet1000...) }

func BenchmarkReplicas1000PrefixCache(b *testing.B) { benchmark(b, "prefix-cache", fleet1000...) }

// A hundred documents of about 5,047 tokens on 1,000 replicas, most of which come to
// hold most of them.
func BenchmarkReplicas1000Documents(b *testing.B) {
	benchmark(b, "prefix-cache", of(coldStart, "workload.requests=200000", "cluster.names=[]", "cluster.replicas=1000",
		"workload.in_flight_cap=0", "workload.arrivals.rate_per_second=600", "workload.prompt.families=100",
		"workload.prompt.hot_fraction=0")...)
}

// Prompts of 227 blocks that share nothing: the router's index is full after 881 of
// them, and every further one takes the place of the oldest.
func BenchmarkFullIndex(b *testing.B) {
	benchmark(b, "prefix-cache", of(coldStart, "workload.requests=10000", "workload.arrivals.rate_per_second=0.5",
		"workload.prompt.families=0", "workload.prompt.hot_fraction=0")...)
}

// A policy that reads engine metrics, which reach it at once or later.
func BenchmarkMetrics(b *testing.B) {
	for _, delay := range []string{"0s", "20ms", "1s", "5s", "30s"} {
		b.Run("delay="+delay, func(b *testing.B) {
			benchmark(b, "least-kv-cache", of(wave, "workload.requests=10000", "router.metrics_delay="+delay)...)
		})
	}
}

// How the cost of a request grows with what there is of everything.
func BenchmarkGrowth(b *testing.B) {
	grow := func(name string, values []int, policy string, sets func(n int) []string) {
		for _, n := range values {
			b.Run(name+"="+strconv.Itoa(n), func(b *testing.B) {
				benchmarkSetup(b, Setup{Policy: policy, Sketch: true}, sets(n)...)
			})
		}
	}
	set := func(key string, n int) string { return key + "=" + strconv.Itoa(n) }
	grow("requests", []int{1_000, 10_000, 100_000, 1_000_000}, "least-request", func(n int) []string {
		return of(wave, set("workload.requests", n))
	})
	// The load of the wave on each replica, 200 requests.
	grow("replicas", []int{2, 16, 128, 1_000}, "least-request", func(n int) []string {
		return of(wave, "cluster.names=[]", "workload.in_flight_cap=0", set("cluster.replicas", n), set("workload.requests", 200*n),
			fmt.Sprintf("workload.arrivals.rate_per_second=%g", 0.8*float64(n)))
	})
	grow("families", []int{8, 64, 512, 4_096}, "prefix-cache", func(n int) []string {
		return of(coldStart, "cluster.names=[]", "cluster.replicas=8", "workload.in_flight_cap=0", "workload.requests=50000",
			"workload.arrivals.rate_per_second=2", "workload.prompt.hot_fraction=0", set("workload.prompt.families", n))
	})
	// Half a lane's worth of arrivals, so that about as many run at a time.
	grow("output", []int{8, 128, 2_048, 16_384}, "least-request", func(n int) []string {
		return of(wave, "workload.requests=10000", set("workload.output_tokens", n),
			fmt.Sprintf("workload.arrivals.rate_per_second=%g", 200/float64(n+100)))
	})
}
