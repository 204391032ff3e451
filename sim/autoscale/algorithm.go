package autoscale

import "math"

// kpa is the recommendation of AIBrix' KPA before the bounds, and whether it was
// made in panic mode (pkg/controller/podautoscaler/algorithm/kpa.go at v0.7.0).
//
// Panic mode has no memory: it holds when the short window exceeds the long one
// by the threshold, or the long one is 0. The original also means to keep the
// highest count of a panic, but remembers it nowhere, so a panic may scale down.
func (s *Scaler) kpa(stable, panic float64, current int) (n int, panicMode bool) {
	replicas := float64(current)
	upLimit := math.Max(1, math.Ceil(s.set.UpRate*replicas))
	downLimit := math.Floor(replicas / s.set.DownRate)
	limited := func(x float64) int {
		return count(math.Min(math.Max(s.kpaWant(x, replicas), downLimit), upLimit))
	}

	n = limited(stable)
	panicMode = stable <= 0 || panic/stable > s.set.PanicThreshold
	if panicMode {
		n = max(n, limited(panic))
	}
	return n, panicMode
}

// kpaWant is the pods that the value x asks for; within the tolerance, those
// there are.
func (s *Scaler) kpaWant(x, replicas float64) float64 {
	if x <= s.target*(1+s.set.UpTolerance) && x >= s.target*(1-s.set.DownTolerance) {
		return replicas
	}
	if s.timesR {
		return math.Ceil(replicas * x / s.target)
	}
	return math.Ceil(x / s.target)
}

// apa is the recommendation of AIBrix' APA before the bounds
// (pkg/controller/podautoscaler/algorithm/apa.go at v0.7.0). Unlike KPA, it never
// leaves 0 replicas.
func (s *Scaler) apa(use float64, current int) int {
	replicas := float64(current)
	ratio := use / s.target
	want := math.Ceil(replicas * ratio)
	switch {
	case ratio > 1+s.set.UpTolerance:
		return count(math.Min(want, math.Ceil(s.set.UpRate*replicas)))
	case ratio < 1-s.set.DownTolerance:
		return count(math.Max(want, math.Floor(replicas/s.set.DownRate)))
	}
	return current
}
