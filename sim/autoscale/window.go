package autoscale

import (
	"slices"

	"fleetsim/simtime"
)

// A window is a sliding mean over one value a second
// (pkg/controller/podautoscaler/types/metrics.go at v0.7.0): a second value in the
// same second replaces the first, and a value leaves when another is recorded
// and it lies strictly more than length back, counted in whole seconds. A window
// that nothing is recorded into keeps its old values.
type window struct {
	length simtime.Time
	values []secondValue // by rising second
}

type secondValue struct {
	second simtime.Time
	value  float64
}

func (w *window) record(now simtime.Time, value float64) {
	second := now / simtime.Second
	if n := len(w.values); n > 0 && w.values[n-1].second == second {
		w.values[n-1].value = value
	} else {
		w.values = append(w.values, secondValue{second, value})
	}
	oldest := (now - w.length) / simtime.Second
	w.values = slices.DeleteFunc(w.values, func(v secondValue) bool { return v.second < oldest })
}

func (w *window) empty() bool { return len(w.values) == 0 }

// mean adds in order of time, as the original does: the order decides the last
// digit. The window must not be empty.
func (w *window) mean() float64 {
	sum := 0.0
	for _, v := range w.values {
		sum += v.value
	}
	return sum / float64(len(w.values))
}

// A cooldown is AIBrix' history of recommendations
// (stabilizeRecommendation, podautoscaler_controller.go:1129 at v0.7.0).
type cooldown struct {
	up, down simtime.Time
	recent   []recommendation
}

type recommendation struct {
	at       simtime.Time
	replicas int
}

// pick returns the highest recommendation younger than the up window when want
// is above current, the lowest one younger than the down window when it is
// below. So a longer window scales further, not later, and the answer may come
// from a time when the recommendation lay on the other side of current.
func (c *cooldown) pick(now simtime.Time, want, current int) int {
	c.recent = append(c.recent, recommendation{now, want})
	longest := max(c.up, c.down)
	c.recent = slices.DeleteFunc(c.recent, func(r recommendation) bool { return r.at <= now-longest })
	switch {
	case want > current:
		return c.extreme(now-c.up, want, func(a, b int) int { return max(a, b) })
	case want < current:
		return c.extreme(now-c.down, want, func(a, b int) int { return min(a, b) })
	}
	return current
}

// extreme folds the recommendations made after cutoff; want, the newest of them,
// is the answer of a window of length 0.
func (c *cooldown) extreme(cutoff simtime.Time, want int, better func(a, b int) int) int {
	for _, r := range c.recent {
		if r.at > cutoff {
			want = better(want, r.replicas)
		}
	}
	return want
}
