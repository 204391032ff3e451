package autoscale

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
)

const second = simtime.Second

func newScaler(t testing.TB, cfg Config) *Scaler {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

// reported is n pods with the same value each.
func reported(n int, value float64) []Sample {
	pods := make([]Sample, n)
	for i := range pods {
		pods[i] = Sample{Pod: i, Value: value}
	}
	return pods
}

// TestFirstReconcile has one sample in each window, so that stable and panic
// value are the mean over the pods.
func TestFirstReconcile(t *testing.T) {
	wide := map[string]string{"max-scale-up-rate": "10", "max-scale-down-rate": "10"}
	fixed := []string{FixKPATimesReplicas}
	tests := []struct {
		name     string
		strategy Strategy
		current  int
		value    float64 // target 10
		set      map[string]string
		fixed    []string
		want     int
	}{
		{"kpa does not multiply by the replicas", KPA, 4, 20, nil, nil, 2},
		{"kpa fixed multiplies: ceil(4*20/10)", KPA, 4, 20, nil, fixed, 8},
		{"kpa fixed still tolerates", KPA, 4, 10.9, nil, fixed, 4},
		{"kpa on the upper tolerance holds: 11 is not above 10*1.1", KPA, 4, 11, nil, nil, 4},
		{"kpa above the tolerance: ceil(1.11)=2, limit floor(4/2)=2", KPA, 4, 11.1, nil, nil, 2},
		{"kpa on the lower tolerance holds", KPA, 4, 9, nil, nil, 4},
		{"kpa up to ceil(2*2)=4 at most", KPA, 2, 95, nil, nil, 4},
		{"kpa ceil(9.5)=10 within a rate of 10", KPA, 2, 95, wide, nil, 10},
		{"kpa down to floor(5/2)=2 at least", KPA, 5, 1, nil, nil, 2},
		{"kpa down from 5 with rate 10: ceil(0.1)=1", KPA, 5, 1, wide, nil, 1},
		{"kpa stable value 0 panics; floor(5/2)", KPA, 5, 0, nil, nil, 2},
		{"kpa up from 1: ceil(2*1)", KPA, 1, 1000, nil, nil, 2},
		{"apa multiplies: ceil(4*1.5)", APA, 4, 15, nil, nil, 6},
		{"apa up limit ceil(2*4)", APA, 4, 100, nil, nil, 8},
		{"apa down: ceil(4*0.6)=3", APA, 4, 6, nil, nil, 3},
		{"apa down limit floor(5/2)", APA, 5, 0, nil, nil, 2},
		{"apa on the lower tolerance holds: 0.9 is not below 1-0.1", APA, 4, 9, nil, nil, 4},
		{"apa rounding up can hold: ceil(4*0.85)=4", APA, 4, 8.5, nil, nil, 4},
		{"bounded by max 20", APA, 15, 100, nil, nil, 20},
		{"bounded by min 1", APA, 1, 0, nil, nil, 1},
		{"hpa: ceil(4*1.5)", HPA, 4, 15, nil, nil, 6},
		{"hpa: up by 100% a minute", HPA, 4, 100, nil, nil, 8},
		{"hpa holds down for its window", HPA, 4, 0, nil, nil, 4},
		{"hpa on the tolerance", HPA, 4, 11, nil, nil, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScaler(t, Config{Strategy: tt.strategy, Min: 1, Max: 20, Target: 10, Annotations: tt.set, UpstreamFixed: tt.fixed})
			d := s.Reconcile(0, tt.current, reported(tt.current, tt.value))
			assert.Equal(t, tt.want, d.Desired)
			assert.Equal(t, Computed, d.Reason)
			assert.Equal(t, tt.value, d.Stable)
		})
	}
}

func TestShortcuts(t *testing.T) {
	for _, strategy := range []Strategy{KPA, APA, HPA} {
		t.Run(string(strategy), func(t *testing.T) {
			s := newScaler(t, Config{Strategy: strategy, Min: 2, Max: 5, Target: 10})
			assert.Equal(t, Decision{Desired: 0, Reason: Disabled}, s.Reconcile(0, 0, nil))
			assert.Equal(t, Decision{Desired: 5, Reason: AboveMax}, s.Reconcile(0, 9, reported(9, 1)))
			assert.Equal(t, Decision{Desired: 2, Reason: BelowMin}, s.Reconcile(0, 1, reported(1, 999)))
			assert.Equal(t, Decision{Desired: 3, Reason: NoMetric}, s.Reconcile(0, 3, nil))
			noAddress := []Sample{{State: NoAddress}, {Pod: 1, State: NoAddress}}
			assert.Equal(t, Decision{Desired: 3, Reason: NoMetric}, s.Reconcile(0, 3, noAddress))

			// Nothing of the above was recorded: the mean is that of this sample.
			assert.Equal(t, 10.0, s.Reconcile(second, 3, reported(3, 10)).Stable)

			require.NoError(t, s.SetMin(4))
			assert.Equal(t, Decision{Desired: 4, Reason: BelowMin}, s.Reconcile(2*second, 3, reported(3, 10)))
			assert.Error(t, s.SetMin(6))
		})
	}
}

// TestPodStates: of one pod at 30, one silent and one without an address, KPA and
// APA see the mean 15, HPA works with what is documented for it.
func TestPodStates(t *testing.T) {
	pods := []Sample{
		{Pod: 0, Value: 30},
		{Pod: 1, State: Silent, Value: 77},
		{Pod: 2, State: NoAddress, Value: 77},
	}
	for _, strategy := range []Strategy{KPA, APA} {
		s := newScaler(t, Config{Strategy: strategy, Min: 1, Max: 9, Target: 10})
		assert.Equal(t, 15.0, s.Reconcile(0, 3, pods).Stable, strategy)
	}
}

func TestWorkloadWithoutPodsKeepsOldValues(t *testing.T) {
	s := newScaler(t, Config{Strategy: APA, Min: 0, Max: 9, Target: 10})
	s.Reconcile(0, 4, reported(4, 20))
	d := s.Reconcile(1000*second, 4, nil)
	assert.Equal(t, Decision{Desired: 8, Stable: 20, Panic: 20, Recommended: 8, Stabilized: 8, Reason: Computed}, d)
	assert.Equal(t, 0, s.Reconcile(1010*second, 0, nil).Desired, "apa never leaves 0")

	s = newScaler(t, Config{Strategy: KPA, Min: 0, Max: 9, Target: 10})
	s.Reconcile(0, 4, reported(4, 70))
	assert.Equal(t, 1, s.Reconcile(10*second, 0, nil).Desired, "kpa leaves 0, with one")
}

func TestWindow(t *testing.T) {
	w := window{length: 60 * second}
	w.record(0, 6)
	w.record(10*second, 1)
	w.record(10*second+900*simtime.Millisecond, 2) // the same second: replaces
	assert.Equal(t, 4.0, w.mean())
	w.record(60*second, 4) // both ends are inside
	assert.Equal(t, 4.0, w.mean())
	w.record(60*second+999*simtime.Millisecond, 7) // counted in whole seconds
	assert.Equal(t, 5.0, w.mean())
	w.record(61*second, 3) // 0 is out: (2+7+3)/3
	assert.Equal(t, 4.0, w.mean())

	full := window{length: 60 * second}
	for i := range 20 {
		full.record(simtime.Time(i)*10*second, 1)
	}
	assert.Len(t, full.values, 7)
}

func TestKPAPanic(t *testing.T) {
	s := newScaler(t, Config{Strategy: KPA, Min: 1, Max: 100, Target: 10, Annotations: map[string]string{"scale-down-cooldown-window": "0s"}})
	for i := range 18 {
		s.Reconcile(simtime.Time(i)*10*second, 2, reported(2, 10))
	}
	// 160 at 180 s: stable (18*10+160)/19 = 17.9 asks for 2, panic (6*10+160)/7 =
	// 31.4 asks for 4, but 31.4/17.9 is below 2.
	d := s.Reconcile(180*second, 2, reported(2, 160))
	assert.False(t, d.PanicMode)
	assert.Equal(t, 2, d.Desired)
	// 160 at 190 s: stable (17*10+320)/19 = 25.8, panic (50+320)/7 = 52.9: panic,
	// ceil(5.29)=6 but at most 2*2.
	d = s.Reconcile(190*second, 2, reported(2, 160))
	assert.True(t, d.PanicMode)
	assert.Equal(t, 4, d.Desired)
	// Panic has no memory and may scale down: from 50 replicas, still panicking at
	// (40+480)/7 = 74.3 over (160+480)/19 = 33.7, to max(ceil(3.4), ceil(7.4),
	// floor(50/2)).
	d = s.Reconcile(200*second, 50, reported(50, 160))
	assert.True(t, d.PanicMode)
	assert.Equal(t, 25, d.Desired)
}

// TestCooldown pins the semantics that are the reverse of Kubernetes'.
func TestCooldown(t *testing.T) {
	type step struct{ at, want, current, picked int }
	tests := []struct {
		name     string
		up, down simtime.Time
		steps    []step
	}{
		{"no windows: the recommendation itself", 0, 0, []step{{0, 9, 4, 9}, {10, 2, 4, 2}, {20, 4, 4, 4}}},
		{"down takes the lowest of the past, without delay", 0, 60 * second, []step{{0, 3, 8, 3}, {10, 5, 8, 3}}},
		{"younger is strict: one of exactly the window is out", 0, 60 * second, []step{{0, 3, 8, 3}, {60, 5, 8, 5}}},
		{"just younger is in", 0, 60 * second, []step{{0, 3, 8, 3}, {59, 5, 8, 3}}},
		{"up takes the highest of the past", 30 * second, 0, []step{{0, 9, 4, 9}, {10, 5, 4, 9}, {30, 5, 4, 5}}},
		{"an old one may lie on the other side of current", 0, 300 * second, []step{{0, 1, 1, 1}, {10, 6, 2, 6}, {20, 5, 6, 1}}},
		{"equal is left alone whatever the past", 30 * second, 300 * second, []step{{0, 1, 4, 1}, {10, 4, 4, 4}}},
		{"each direction has its own window", 20 * second, 60 * second, []step{{0, 9, 4, 9}, {30, 6, 5, 6}, {40, 4, 5, 4}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := cooldown{up: tt.up, down: tt.down}
			for _, s := range tt.steps {
				assert.Equal(t, s.picked, c.pick(simtime.Time(s.at)*second, s.want, s.current), "at %d s", s.at)
			}
		})
	}
}

// TestF47LoadEnds lets the load end at t = 60 s with four replicas that were at
// their target, and reconciles every 10 s from 0. The expectations are the times
// at which desired changes, worked out by hand.
//
// APA: 6 samples of 10 before the end, so the stable mean at 60, 70, ... is
// 60/7, 60/8, ... At 60: ratio 0.857, ceil(4*0.857) = 4. At 70: ceil(4*0.75) = 3.
// At 80 the mean is 6.67: ceil(3*0.667) = 2; cooldown's lowest is 2. At 90: 6.0:
// ceil(1.2) = 2. 100: 5.45, ceil(1.09) = 2. At 110: 5.0, ceil(1.0) = 1.
//
// KPA, with a metric that is a total of 40: at 60 ceil(240/7/10) = 4, at 70
// ceil(3.0) = 3, at 80 ceil(26.7/10) = 3, at 90 ceil(2.4) = 3, at 100 ceil(2.18)
// = 3, at 110 ceil(2.0) = 2, at 120 ceil(1.85) = 2. 180 s after the last sample
// it would see 0, but at 170 the mean of 18 samples is 13.3: 2, and at 180 all 19
// are inside: 12.6: 2. From 190 on the first leaves: 190: 200/19 = 10.5, within
// the tolerance; 200: 160/19 = 8.4, ceil = 1.
//
// HPA: asks for 0 at 60, and remembers asking for 4 until that is 300 s old: the
// last 4 was at 50, so at 350. Then half a minute's replicas a minute: 2 at 350,
// 1 when that step is 60 s old, at 410.
func TestF47LoadEnds(t *testing.T) {
	tests := []struct {
		strategy Strategy
		value    float64 // before the end, of each pod
		delay    simtime.Time
		want     string
	}{
		{APA, 10, 0, "3@70s 2@80s 1@110s"},
		{KPA, 40, 0, "3@70s 2@110s 1@200s"},
		{HPA, 10, 0, "2@350s 1@410s"},
		// Seen 25 s late and scraped each 15 s: the value of 60 s is there from 85
		// on, so first at the reconcile of 90, where HPA's last 4 is that of 80.
		{HPA, 10, 25 * second, "2@380s 1@440s"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s delay %v", tt.strategy, tt.delay), func(t *testing.T) {
			s := newScaler(t, Config{Strategy: tt.strategy, Min: 1, Max: 8, Target: 10})
			interval := simtime.Time(0)
			if tt.delay > 0 {
				interval = 15 * second
			}
			p, err := NewPipeline(interval, tt.delay)
			require.NoError(t, err)
			pods := func(n int, at simtime.Time) []Sample {
				if at >= 60*second {
					return reported(n, 0)
				}
				return reported(n, tt.value)
			}
			current, changes := 4, []string{}
			for now := simtime.Time(0); now <= 600*second; now += 10 * second {
				for p.NextScrape() <= now {
					p.Scrape(p.NextScrape(), pods(current, p.NextScrape()))
				}
				if interval == 0 {
					p.Scrape(now, pods(current, now))
				}
				d := s.Reconcile(now, current, p.View(now, pods(current, now)))
				if d.Desired != current {
					changes = append(changes, fmt.Sprintf("%d@%v", d.Desired, now))
				}
				current = d.Desired
			}
			assert.Equal(t, tt.want, strings.Join(changes, " "))
		})
	}
}

func TestPipeline(t *testing.T) {
	p, err := NewPipeline(15*second, 20*second)
	require.NoError(t, err)
	listed := []Sample{{Pod: 7}, {Pod: 3}, {Pod: 9}, {Pod: 4, State: NoAddress}}
	scrapes := map[simtime.Time][]Sample{
		0:           {{Pod: 7, Value: 1}, {Pod: 3, Value: 2}},
		15 * second: {{Pod: 7, Value: 3}, {Pod: 3, State: Silent}, {Pod: 9, Value: 4}},
		30 * second: {{Pod: 7, Value: 5}},
	}
	for range 3 {
		at := p.NextScrape()
		p.Scrape(at, scrapes[at])
	}
	assert.Equal(t, 45*second, p.NextScrape())

	silent := func(pod int) Sample { return Sample{Pod: pod, State: Silent} }
	pending := Sample{Pod: 4, State: NoAddress}
	tests := []struct {
		now  simtime.Time
		want []Sample
	}{
		{20*second - 1, []Sample{silent(7), silent(3), silent(9), pending}},
		{20 * second, []Sample{{Pod: 7, Value: 1}, {Pod: 3, Value: 2}, silent(9), pending}},
		{35*second - 1, []Sample{{Pod: 7, Value: 1}, {Pod: 3, Value: 2}, silent(9), pending}},
		{35 * second, []Sample{{Pod: 7, Value: 3}, silent(3), {Pod: 9, Value: 4}, pending}},
		{500 * second, []Sample{{Pod: 7, Value: 5}, silent(3), silent(9), pending}},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, p.View(tt.now, listed), "at %v", tt.now)
	}
	assert.Equal(t, []Sample{{Pod: 7}, {Pod: 3}, {Pod: 9}, pending}, listed, "the caller's list is left alone")

	_, err = NewPipeline(-1, 0)
	assert.Error(t, err)
}

// TestPipelineNeverSeesTheFuture scrapes the scrape's own time as the value.
func TestPipelineNeverSeesTheFuture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := simtime.Time(rapid.IntRange(1, 50).Draw(t, "interval")) * second
		delay := simtime.Time(rapid.IntRange(0, 100).Draw(t, "delay")) * second
		p, err := NewPipeline(interval, delay)
		require.NoError(t, err)
		now := simtime.Time(0)
		for range 30 {
			now += simtime.Time(rapid.IntRange(0, 40).Draw(t, "step")) * second
			for p.NextScrape() <= now {
				at := p.NextScrape()
				p.Scrape(at, []Sample{{Value: at.Seconds()}})
			}
			got := p.View(now, []Sample{{}})[0]
			if now < delay {
				assert.Equal(t, Silent, got.State)
				continue
			}
			assert.Equal(t, ((now - delay) / interval * interval).Seconds(), got.Value)
		}
	})
}

func TestNewReportsEveryProblem(t *testing.T) {
	_, err := New(Config{
		Strategy:      "kpaa",
		Min:           5,
		Max:           4,
		Target:        math.NaN(),
		Annotations:   map[string]string{"panic-treshold": "2", "max-scale-up-rate": "fast"},
		UpstreamFixed: []string{"kpa-times-replica"},
	})
	require.Error(t, err)
	for _, want := range []string{
		`strategy "kpaa": unknown; allowed: kpa, apa, hpa`,
		`max_replicas 4: must be at least min_replicas, 5`,
		`target NaN: must be a number above 0`,
		`annotation "panic-treshold": unknown; did you mean "panic-threshold"?`,
		`annotation "max-scale-up-rate": "fast" is not a number from 1 to`,
		`upstream_fixed "kpa-times-replica": unknown; did you mean "kpa-times-replicas"?`,
	} {
		assert.ErrorContains(t, err, want)
	}
}

func TestHPARefusesWhatKubernetesWould(t *testing.T) {
	_, err := New(Config{Strategy: HPA, Min: 1, Max: 4, Target: 0.9, Annotations: map[string]string{
		"max-scale-up-rate": "1.005", "max-scale-down-rate": "1", "scale-up-cooldown-window": "2h", "scale-down-cooldown-window": "61m",
	}})
	require.Error(t, err)
	for _, want := range []string{"target 0.9", "max-scale-up-rate 1.005", "max-scale-down-rate 1", "scale-up-cooldown-window", "scale-down-cooldown-window"} {
		assert.ErrorContains(t, err, want)
	}
	s := newScaler(t, Config{Strategy: HPA, Min: 0, Max: 4, Target: 10.9})
	assert.Equal(t, Disabled, s.Reconcile(0, 0, nil).Reason, "no minimum below 1")
	// The target is truncated to 10: 12/10 is out of the tolerance.
	assert.Equal(t, 2, s.Reconcile(0, 1, reported(1, 12)).Desired)
}

func TestAnnotations(t *testing.T) {
	got, err := ParseAnnotations(map[string]string{
		"max-scale-up-rate":                         "3.5",
		"autoscaling.aibrix.ai/max-scale-down-rate": "1",
		"scale-up-tolerance":                        "0",
		"scale-down-tolerance":                      "1",
		"panic-threshold":                           "1.2",
		"scale-up-cooldown-window":                  "1m30s",
		"scale-down-cooldown-window":                "0s",
		"scale-to-zero":                             "true",
	})
	require.NoError(t, err)
	assert.Equal(t, Settings{UpRate: 3.5, DownRate: 1, DownTolerance: 1, PanicThreshold: 1.2, UpWindow: 90 * second, ScaleToZero: true}, got)

	got, err = ParseAnnotations(nil)
	require.NoError(t, err)
	assert.Equal(t, Settings{UpRate: 2, DownRate: 2, UpTolerance: 0.1, DownTolerance: 0.1, PanicThreshold: 2, DownWindow: 300 * second}, got)

	for key, value := range map[string]string{
		"max-scale-up-rate": "0.5", "max-scale-down-rate": "0", "scale-up-tolerance": "-1", "scale-down-tolerance": "1.1",
		"panic-threshold": "Inf", "scale-up-cooldown-window": "30", "scale-down-cooldown-window": "-1s", "scale-to-zero": "yes",
		"kubectl.kubernetes.io/restart": "x", "": "",
	} {
		got, err := ParseAnnotations(map[string]string{key: value})
		assert.ErrorContains(t, err, fmt.Sprintf("annotation %q: ", key))
		assert.Equal(t, DefaultSettings(), got)
	}
	_, err = ParseAnnotations(map[string]string{"scale-to-zero": "true", AnnotationPrefix + "scale-to-zero": "true"})
	assert.ErrorContains(t, err, "given twice")
}

// FuzzAnnotations: never a panic, an error names the key, and what is accepted
// makes a scaler that stays within its bounds.
func FuzzAnnotations(f *testing.F) {
	for i, name := range annotationNames {
		f.Add(name, []string{"2", "300s", "true", "-1", "1e300", "NaN", "0x1p-2", "9999999h"}[i])
		f.Add(AnnotationPrefix+name, "1")
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		annotations := map[string]string{key: value}
		_, err := ParseAnnotations(annotations)
		if err != nil {
			assert.ErrorContains(t, err, fmt.Sprintf("annotation %q: ", key))
			return
		}
		for _, strategy := range []Strategy{KPA, APA, HPA} {
			s, err := New(Config{Strategy: strategy, Min: 1, Max: 6, Target: 10, Annotations: annotations})
			if err != nil {
				assert.Equal(t, HPA, strategy)
				continue
			}
			for i, v := range []float64{0, 1e12, 5, 0, 30} {
				d := s.Reconcile(simtime.Time(i)*10*second, i+1, reported(i+1, v))
				assert.True(t, d.Desired >= 1 && d.Desired <= 6, "%+v", d)
			}
		}
	})
}

// TestDesiredWithinBounds: whatever the pods say, and whoever sets the replicas.
func TestDesiredWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.IntRange(0, 5).Draw(t, "min")
		hi := rapid.IntRange(max(lo, 1), 12).Draw(t, "max")
		strategy := rapid.SampledFrom([]Strategy{KPA, APA, HPA}).Draw(t, "strategy")
		s, err := New(Config{
			Strategy: strategy, Min: lo, Max: hi, Target: 10,
			Annotations: map[string]string{
				"max-scale-up-rate":          rapid.SampledFrom([]string{"1.01", "1.5", "2", "10"}).Draw(t, "up"),
				"max-scale-down-rate":        rapid.SampledFrom([]string{"1.1", "2", "100"}).Draw(t, "down"),
				"scale-up-cooldown-window":   rapid.SampledFrom([]string{"0s", "45s"}).Draw(t, "upWindow"),
				"scale-down-cooldown-window": rapid.SampledFrom([]string{"0s", "60s", "300s"}).Draw(t, "downWindow"),
			},
		})
		require.NoError(t, err)
		if strategy == HPA {
			lo = max(lo, 1)
		}
		current := rapid.IntRange(0, 15).Draw(t, "current")
		now := simtime.Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += simtime.Time(rapid.IntRange(1, 30).Draw(t, "step")) * second
			pods := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Sample {
				return Sample{
					Value:       rapid.Float64Range(0, 1e6).Draw(t, "value"),
					State:       rapid.SampledFrom([]State{Reported, Reported, Silent, NoAddress}).Draw(t, "state"),
					Terminating: rapid.IntRange(0, 9).Draw(t, "terminating") == 0,
				}
			}), 0, 15).Draw(t, "pods")
			d := s.Reconcile(now, current, pods)
			if d.Reason == Disabled {
				assert.Equal(t, 0, d.Desired)
			} else if d.Desired < lo || d.Desired > hi {
				t.Fatalf("desired %d out of [%d, %d]: %+v", d.Desired, lo, hi, d)
			}
			current = d.Desired
			if rapid.IntRange(0, 19).Draw(t, "by hand") == 0 {
				current = rapid.IntRange(0, 15).Draw(t, "current")
			}
		}
	})
}
