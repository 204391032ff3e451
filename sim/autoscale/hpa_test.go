package autoscale

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
)

// mixed is reported pods at one value, then silent, pending and terminating ones.
func mixed(n int, value float64, silent, pending, terminating int) []Sample {
	pods := reported(n, value)
	for range silent {
		pods = append(pods, Sample{State: Silent})
	}
	for range pending {
		pods = append(pods, Sample{State: NoAddress})
	}
	for range terminating {
		pods = append(pods, Sample{Value: 1e6, Terminating: true})
	}
	return pods
}

// TestHPAWant is the metric's part alone, target 10, before stabilisation and
// limits: what Kubernetes documents for missing and not yet ready pods.
func TestHPAWant(t *testing.T) {
	h, err := newHPA(10, DefaultSettings())
	require.NoError(t, err)
	tests := []struct {
		name    string
		current int
		pods    []Sample
		want    int
		use     int64
	}{
		{"all reported: ceil(3*1.5)", 3, mixed(3, 15, 0, 0, 0), 5, 15_000},
		{"values are truncated to thousandths", 3, mixed(3, 11.0009, 0, 0, 0), 3, 11_000},
		{"just above the tolerance: ceil(3*1.1001)", 3, mixed(3, 11.001, 0, 0, 0), 4, 11_001},
		{"exactly 0.9 holds", 9, mixed(9, 9, 0, 0, 0), 9, 9_000},
		{"just below: ceil(9*0.8999)=9", 9, mixed(9, 8.999, 0, 0, 0), 9, 8_999},
		{"down: ceil(9*0.5)", 9, mixed(9, 5, 0, 0, 0), 5, 5_000},
		{"to 0", 4, mixed(4, 0, 0, 0, 0), 0, 0},
		{"terminating ones are ignored", 3, mixed(3, 15, 0, 0, 2), 5, 15_000},
		{"up with missing as 0: (2*30)/3 = 20, ceil(3*2)", 3, mixed(2, 30, 1, 0, 0), 6, 30_000},
		{"up damped into the tolerance: 2*15/3 = 10", 3, mixed(2, 15, 1, 0, 0), 3, 15_000},
		{"up turned by the missing: 13/2 = 6.5", 2, mixed(1, 13, 1, 0, 0), 2, 13_000},
		{"down with missing at target: (2*2+10)/3 = 4.666, ceil(3*0.4666)", 3, mixed(2, 2, 1, 0, 0), 2, 2_000},
		{"up with pending as 0: (2*30)/4 = 15, ceil(4*1.5)", 4, mixed(2, 30, 0, 2, 0), 6, 30_000},
		{"up with missing and pending: 120/4 = 30", 4, mixed(2, 60, 1, 1, 0), 12, 60_000},
		{"down leaves pending out: ceil(2*0.4)", 4, mixed(2, 4, 0, 2, 0), 1, 4_000},
		{"more counted than asked for does not turn down into up: ceil(6*0.5667) = 4", 3, mixed(4, 3.5, 2, 0, 0), 3, 3_500},
		{"within the tolerance no pending counts", 3, mixed(2, 10, 0, 1, 0), 3, 10_000},
		{"at exactly the target missing ones count as 0: 20/3 = 6.666", 3, mixed(2, 10, 1, 0, 0), 2, 10_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, use, ok := h.want(tt.current, tt.pods)
			require.True(t, ok)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.use, use)
		})
	}
	_, _, ok := h.want(3, mixed(0, 0, 2, 1, 3))
	assert.False(t, ok, "nobody reported")
}

func TestHPAStabilize(t *testing.T) {
	type step struct{ at, want, current, stabilized int }
	tests := []struct {
		name     string
		up, down simtime.Time
		steps    []step
	}{
		{"no windows", 0, 0, []step{{0, 9, 4, 9}, {10, 1, 9, 1}}},
		{"down waits for the highest to be old", 0, 60 * second, []step{{0, 5, 5, 5}, {30, 3, 5, 5}, {59, 2, 5, 5}, {60, 2, 5, 3}, {90, 2, 3, 2}}},
		{"up waits for the lowest to be old", 30 * second, 0, []step{{0, 4, 4, 4}, {10, 9, 4, 4}, {29, 8, 4, 4}, {30, 9, 4, 8}}},
		{"between both stays", 30 * second, 60 * second, []step{{0, 4, 4, 4}, {10, 2, 4, 4}, {20, 8, 4, 4}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := &hpa{up: scalingRule{window: tt.up}, down: scalingRule{window: tt.down}}
			for _, s := range tt.steps {
				assert.Equal(t, s.stabilized, h.stabilize(simtime.Time(s.at)*second, s.want, s.current), "at %d s", s.at)
			}
		})
	}
}

// TestHPARates follows desired with all pods at 100 (up), then at 0 (down),
// without stabilisation, each 15 s.
func TestHPARates(t *testing.T) {
	tests := []struct {
		name     string
		up, down string
		value    float64
		start    int
		want     []int
	}{
		// 3 at the start of the minute: at most 6 within it; at 60 s the change of
		// 0 s is no longer younger than the period.
		{"doubling a minute", "2", "2", 100, 3, []int{6, 6, 6, 6, 12, 12, 12, 12, 24}},
		{"half as many more, rounded up: ceil(4.5), ceil(7.5)", "1.5", "2", 100, 3, []int{5, 5, 5, 5, 8, 8, 8, 8, 12}},
		{"halving a minute, rounded down, to the minimum", "2", "2", 0, 9, []int{4, 4, 4, 4, 2, 2, 2, 2, 1, 1}},
		// (1-1/1.25)*100 is 19.99..., truncated to 19%.
		{"19% of 10 off: 8.1, then 8*0.81 = 6.48", "2", "1.25", 0, 10, []int{8, 8, 8, 8, 6}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScaler(t, Config{Strategy: HPA, Min: 1, Max: 100, Target: 10, Annotations: map[string]string{
				"max-scale-up-rate": tt.up, "max-scale-down-rate": tt.down, "scale-down-cooldown-window": "0s",
			}})
			current, got := tt.start, []int{}
			for i := range tt.want {
				current = s.Reconcile(simtime.Time(i)*15*second, current, reported(current, tt.value)).Desired
				got = append(got, current)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestHPARatesCountBothDirections: what was added within the minute may be taken
// off on top of the percentage of what there was before.
func TestHPARatesCountBothDirections(t *testing.T) {
	s := newScaler(t, Config{Strategy: HPA, Min: 1, Max: 100, Target: 10, Annotations: map[string]string{"scale-down-cooldown-window": "0s"}})
	assert.Equal(t, 8, s.Reconcile(0, 4, reported(4, 100)).Desired)
	// The minute began with 8-4 = 4, of which half may go.
	assert.Equal(t, 2, s.Reconcile(15*second, 8, reported(8, 0)).Desired)
	// It began with 2-4+6 = 4: up to 8 again.
	assert.Equal(t, 8, s.Reconcile(30*second, 2, reported(2, 100)).Desired)
	// A change made for the bounds counts as well: 8 to the new minimum 10, so
	// the minute of 50 s began with 10-(4+6+2)+6 = 4 and allows no more than 8.
	require.NoError(t, s.SetMin(10))
	assert.Equal(t, Decision{Desired: 10, Reason: BelowMin}, s.Reconcile(45*second, 8, reported(8, 100)))
	assert.Equal(t, 10, s.Reconcile(50*second, 10, reported(10, 100)).Desired)
}
