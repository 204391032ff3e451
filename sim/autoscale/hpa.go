package autoscale

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"fleetsim/simtime"
)

// An hpa is the Kubernetes HorizontalPodAutoscaler (autoscaling/v2) that AIBrix
// v0.7.0 creates (hpa_resources.go): one Pods metric with an average value, and
// for each direction one percentage policy a minute.
//
// The algorithm is the one documented at
// kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale; its details
// follow pkg/controller/podautoscaler of Kubernetes 1.33 (replica_calculator.go,
// horizontal.go).
type hpa struct {
	target    int64 // thousandths, as the metrics API counts
	up, down  scalingRule
	recent    []recommendation // before stabilisation
	scaledUp  []recommendation // replicas added, by time
	scaledOff []recommendation // replicas removed, by time
}

// A scalingRule limits one direction.
type scalingRule struct {
	window  simtime.Time // stabilisation
	percent float64      // of the replicas at the start of policyPeriod
}

const (
	policyPeriod = 60 * simtime.Second
	// tolerance is that of the controller manager. AIBrix hands its own
	// tolerances to no HPA.
	tolerance        = 0.1
	longestHPAWindow = 3600 * simtime.Second // the API server refuses more
)

func newHPA(target float64, set Settings) (*hpa, error) {
	h := &hpa{
		up:   scalingRule{wholeSeconds(set.UpWindow), math.Trunc((set.UpRate - 1) * 100)},
		down: scalingRule{wholeSeconds(set.DownWindow), math.Trunc((1 - 1/set.DownRate) * 100)},
	}
	var problems []error
	if whole := math.Trunc(target); whole < 1 || whole > math.MaxInt32 {
		problems = append(problems, fmt.Errorf("target %v: hpa truncates it to an integer, which must be 1 to %d", target, math.MaxInt32))
	} else {
		h.target = int64(whole) * 1000
	}
	if h.up.percent < 1 {
		problems = append(problems, fmt.Errorf("max-scale-up-rate %v: hpa makes a policy of (rate-1)*100 percent of it, which must be at least 1", set.UpRate))
	}
	if h.down.percent < 1 {
		problems = append(problems, fmt.Errorf("max-scale-down-rate %v: hpa makes a policy of (1-1/rate)*100 percent of it, which must be at least 1", set.DownRate))
	}
	if h.up.window > longestHPAWindow {
		problems = append(problems, fmt.Errorf("scale-up-cooldown-window %v: hpa allows at most %v", set.UpWindow, longestHPAWindow))
	}
	if h.down.window > longestHPAWindow {
		problems = append(problems, fmt.Errorf("scale-down-cooldown-window %v: hpa allows at most %v", set.DownWindow, longestHPAWindow))
	}
	return h, errors.Join(problems...)
}

func wholeSeconds(t simtime.Time) simtime.Time { return t / simtime.Second * simtime.Second }

func (h *hpa) reconcile(now simtime.Time, current, lo, hi int, pods []Sample) Decision {
	if len(h.recent) == 0 {
		// The first reconcile counts as a recommendation of what is there, so a
		// new HPA does not scale down within its first window.
		h.recent = append(h.recent, recommendation{now, current})
	}
	d, done := boundsOnly(current, lo, hi)
	if !done {
		d = h.compute(now, current, lo, hi, pods)
	}
	h.remember(now, d.Desired-current)
	return d
}

func (h *hpa) compute(now simtime.Time, current, lo, hi int, pods []Sample) Decision {
	want, use, ok := h.want(current, pods)
	if !ok {
		return Decision{Desired: current, Reason: NoMetric}
	}
	stabilized := h.stabilize(now, want, current)
	return Decision{
		Desired:     h.limit(now, stabilized, current, lo, hi),
		Stable:      float64(use) / 1000,
		Recommended: want,
		Stabilized:  stabilized,
		Reason:      Computed,
	}
}

// want is the number of replicas the metric asks for, and the mean it rests on in
// thousandths. Pods without a value are counted so as to dampen the change:
// as 0 when scaling up, as exactly the target when scaling down; pending pods
// as 0 when scaling up, and not at all when scaling down.
func (h *hpa) want(current int, pods []Sample) (replicas int, use int64, ok bool) {
	var total int64
	var reported, missing, pending int
	for _, p := range pods {
		switch {
		case p.Terminating:
		case p.State == NoAddress:
			pending++
		case p.State == Silent:
			missing++
		default:
			total += thousandths(p.Value)
			reported++
		}
	}
	if reported == 0 {
		return 0, 0, false
	}

	use = total / int64(reported)
	ratio := float64(use) / float64(h.target)
	countPending := pending > 0 && ratio > 1
	if missing == 0 && !countPending {
		if withinTolerance(ratio) {
			return current, use, true
		}
		return count(math.Ceil(ratio * float64(reported))), use, true
	}

	counted := reported + missing
	if ratio < 1 {
		total += int64(missing) * h.target
	}
	if countPending {
		counted += pending
	}
	damped := float64(total/int64(counted)) / float64(h.target)
	turned := ratio < 1 && damped > 1 || ratio > 1 && damped < 1
	if withinTolerance(damped) || turned {
		return current, use, true
	}
	replicas = count(math.Ceil(damped * float64(counted)))
	// The pods counted may be more or fewer than those asked for; that alone
	// must not turn the direction either.
	if damped < 1 && replicas > current || damped > 1 && replicas < current {
		return current, use, true
	}
	return replicas, use, true
}

// thousandths is a metric's value as adapters hand it to Kubernetes: truncated.
// It saturates far below where the sum over the pods could overflow.
func thousandths(v float64) int64 {
	const most = math.MaxInt32 * 1000
	return int64(math.Max(-most, math.Min(v*1000, most)))
}

func withinTolerance(ratio float64) bool { return 1-tolerance <= ratio && ratio <= 1+tolerance }

// stabilize moves from current no further than every recommendation of the up
// window allows upwards, and of the down window downwards.
func (h *hpa) stabilize(now simtime.Time, want, current int) int {
	lowest, highest := want, want
	for _, r := range h.recent {
		if r.at > now-h.up.window {
			lowest = min(lowest, r.replicas)
		}
		if r.at > now-h.down.window {
			highest = max(highest, r.replicas)
		}
	}
	longest := max(h.up.window, h.down.window)
	h.recent = slices.DeleteFunc(h.recent, func(r recommendation) bool { return r.at < now-longest })
	h.recent = append(h.recent, recommendation{now, want})
	return min(max(current, lowest), highest)
}

// limit applies the policies: so many percent of the replicas there were at the
// start of the period, rounded up when scaling up, down when scaling down, and
// the bounds.
func (h *hpa) limit(now simtime.Time, want, current, lo, hi int) int {
	atStart := current - changes(h.scaledUp, now) + changes(h.scaledOff, now)
	switch {
	case want > current:
		most := count(math.Ceil(float64(atStart) * (1 + h.up.percent/100)))
		return min(want, hi, max(most, current))
	case want < current:
		least := count(float64(atStart) * (1 - h.down.percent/100))
		return max(want, lo, min(least, current))
	}
	return want
}

func changes(events []recommendation, now simtime.Time) int {
	n := 0
	for _, e := range events {
		if e.at > now-policyPeriod {
			n += e.replicas
		}
	}
	return n
}

// remember keeps a change for as long as the policies look back.
func (h *hpa) remember(now simtime.Time, change int) {
	old := func(e recommendation) bool { return e.at <= now-policyPeriod }
	h.scaledUp = slices.DeleteFunc(h.scaledUp, old)
	h.scaledOff = slices.DeleteFunc(h.scaledOff, old)
	switch {
	case change > 0:
		h.scaledUp = append(h.scaledUp, recommendation{now, change})
	case change < 0:
		h.scaledOff = append(h.scaledOff, recommendation{now, -change})
	}
}
