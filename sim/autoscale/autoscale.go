// Package autoscale decides how many replicas a deployment should have: KPA and
// APA as AIBrix v0.7.0 computes them, and the Kubernetes HPA that AIBrix
// creates for the strategy of that name.
//
// A Scaler is a pure state machine: it is handed the time of each reconcile, the
// replicas the workload asks for at that moment and one sample a pod, and
// answers with a Decision. It reads no clock and draws no chance. What a
// replica goes through once it is asked for is package lifecycle.
//
// Three properties of v0.7.0 surprise and are kept, since they are what a
// cluster does:
//
//   - KPA compares a mean over the pods with the target and does not multiply
//     by the number of replicas: four pods at twice the target become two
//     (switch: FixKPATimesReplicas).
//   - The scale-down cooldown does not delay a scale-down as Kubernetes'
//     stabilisation does; it takes the lowest recommendation of the past window.
//   - A pod that has an address but does not answer counts as a pod with value
//     0, so a replica that is still loading its model pulls the mean down.
package autoscale

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"fleetsim/simtime"
	"fleetsim/spelling"
)

// A Strategy names a scaling algorithm.
type Strategy string

// The strategies of a PodAutoscaler.
const (
	KPA Strategy = "kpa"
	APA Strategy = "apa"
	HPA Strategy = "hpa"
)

// FixKPATimesReplicas makes KPA multiply the mean by the current replicas before
// it divides by the target, as a per-pod metric needs. v0.7.0 does not.
const FixKPATimesReplicas = "kpa-times-replicas"

// Fixes lists the names Config.UpstreamFixed may hold.
func Fixes() []string { return []string{FixKPATimesReplicas} }

// Config describes one PodAutoscaler with one metric.
type Config struct {
	Strategy Strategy
	// Min and Max bound the replicas: 0 <= Min <= Max, 1 <= Max. HPA has no
	// minimum below 1: AIBrix leaves a 0 out of the HPA, and Kubernetes then
	// takes 1.
	Min, Max int
	// Target is the metric's value per pod to aim at, above 0. HPA truncates it
	// to an integer, which must be at least 1.
	Target float64
	// Annotations are read by ParseAnnotations.
	Annotations map[string]string
	// UpstreamFixed names v0.7.0 surprises to switch off; see Fixes.
	UpstreamFixed []string
}

// A State says what the autoscaler can learn of a pod.
type State uint8

const (
	// Reported: the pod answered with Sample.Value.
	Reported State = iota
	// Silent: the pod has an address but gave no value, say because its engine
	// is still loading. KPA and APA count it as 0; HPA as a pod with a missing
	// metric.
	Silent
	// NoAddress: the pod is not running yet (pending, pulling its image). KPA
	// and APA leave it out; to HPA it is a pending pod.
	NoAddress
)

// A Sample is what the autoscaler sees of one pod. All pods of the workload
// belong in the list, ready or not, as the selector finds them all.
type Sample struct {
	Pod   int     // the replica's number, for Pipeline
	Value float64 // finite; of a Reported pod
	State State
	// Terminating pods still count for KPA and APA; HPA ignores them.
	Terminating bool
}

// A Reason says how a decision came about.
type Reason string

const (
	// Computed: from the metric.
	Computed Reason = "computed"
	// Disabled: the workload has 0 replicas though the minimum is not 0.
	Disabled Reason = "disabled"
	// AboveMax and BelowMin: put back within the bounds without asking the metric.
	AboveMax Reason = "above-max"
	BelowMin Reason = "below-min"
	// NoMetric: no pod gave a value, so nothing changes.
	NoMetric Reason = "no-metric"
)

// A Decision is the outcome of one reconcile. Unless Reason is Computed, only
// Desired is meaningful.
type Decision struct {
	// Desired replicas, to be applied to the workload. Within [Min, Max], but for
	// a Disabled workload, which stays at 0.
	Desired int
	// Stable is the mean of the 180 s window (KPA, APA), or the mean value a
	// pod HPA computed with, in whole thousandths.
	Stable float64
	// Panic is the mean of the 60 s window; KPA alone uses it.
	Panic     float64
	PanicMode bool // KPA
	// Recommended is the algorithm's answer; for KPA and APA within [Min, Max].
	Recommended int
	// Stabilized is Recommended after the cooldown window (KPA, APA) or the
	// stabilisation windows (HPA), before rates of HPA and bounds.
	Stabilized int
	Reason     Reason
}

// Window lengths of the original; no annotation changes them.
const (
	stableWindow = 180 * simtime.Second
	panicWindow  = 60 * simtime.Second
)

// A Scaler is the state of one autoscaler. The zero value is not usable.
type Scaler struct {
	strategy Strategy
	min, max int
	target   float64
	set      Settings
	timesR   bool // FixKPATimesReplicas

	stable, panic window
	history       cooldown
	hpa           *hpa
}

// New returns the Scaler of a configuration, or every problem it has.
func New(cfg Config) (*Scaler, error) {
	set, err := ParseAnnotations(cfg.Annotations)
	problems := []error{err}
	if !slices.Contains([]Strategy{KPA, APA, HPA}, cfg.Strategy) {
		problems = append(problems, fmt.Errorf("strategy %q: unknown; allowed: %s, %s, %s", cfg.Strategy, KPA, APA, HPA))
	}
	problems = append(problems, checkBounds(cfg.Min, cfg.Max))
	if !(cfg.Target > 0) || math.IsInf(cfg.Target, 0) {
		problems = append(problems, fmt.Errorf("target %v: must be a number above 0", cfg.Target))
	}
	for _, name := range cfg.UpstreamFixed {
		if !slices.Contains(Fixes(), name) {
			problems = append(problems, fmt.Errorf("upstream_fixed %q: unknown%s", name, spelling.Suggest(name, Fixes())))
		}
	}
	s := &Scaler{
		strategy: cfg.Strategy,
		min:      cfg.Min,
		max:      cfg.Max,
		target:   cfg.Target,
		set:      set,
		timesR:   slices.Contains(cfg.UpstreamFixed, FixKPATimesReplicas),
		stable:   window{length: stableWindow},
		panic:    window{length: panicWindow},
		history:  cooldown{up: set.UpWindow, down: set.DownWindow},
	}
	if cfg.Strategy == HPA {
		s.min = max(s.min, 1)
		s.hpa, err = newHPA(cfg.Target, set)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return s, nil
}

func checkBounds(lo, hi int) error {
	switch {
	case lo < 0:
		return fmt.Errorf("min_replicas %d: must be at least 0", lo)
	case hi < 1 || hi > math.MaxInt32:
		return fmt.Errorf("max_replicas %d: must be 1 to %d", hi, math.MaxInt32)
	case hi < lo:
		return fmt.Errorf("max_replicas %d: must be at least min_replicas, %d", hi, lo)
	}
	return nil
}

// Settings are the annotations the Scaler works with.
func (s *Scaler) Settings() Settings { return s.set }

// SetMin changes the minimum, as pre-scaling does; what was observed stays. The
// next reconcile raises a workload below it without asking the metric.
func (s *Scaler) SetMin(n int) error {
	if err := checkBounds(n, s.max); err != nil {
		return err
	}
	if s.strategy == HPA {
		n = max(n, 1)
	}
	s.min = n
	return nil
}

// Reconcile runs the controller once: now must not be before the previous
// call's, current is the number of replicas the workload asks for, pods the
// samples of all its pods.
func (s *Scaler) Reconcile(now simtime.Time, current int, pods []Sample) Decision {
	if s.hpa != nil {
		return s.hpa.reconcile(now, current, s.min, s.max, pods)
	}
	if d, done := boundsOnly(current, s.min, s.max); done {
		return d
	}
	if !s.record(now, pods) {
		return Decision{Desired: current, Reason: NoMetric}
	}
	d := Decision{Stable: s.stable.mean(), Panic: s.panic.mean(), Reason: Computed}
	if s.strategy == KPA {
		d.Recommended, d.PanicMode = s.kpa(d.Stable, d.Panic, current)
	} else {
		d.Recommended = s.apa(d.Stable, current)
	}
	d.Recommended = clamp(d.Recommended, s.min, s.max)
	d.Stabilized = s.history.pick(now, d.Recommended, current)
	d.Desired = clamp(d.Stabilized, s.min, s.max)
	return d
}

// boundsOnly is the part of a reconcile that AIBrix and Kubernetes do before
// they look at any metric.
func boundsOnly(current, lo, hi int) (Decision, bool) {
	switch {
	case current <= 0 && lo != 0:
		return Decision{Desired: 0, Reason: Disabled}, true
	case current > hi:
		return Decision{Desired: hi, Reason: AboveMax}, true
	case current < lo:
		return Decision{Desired: lo, Reason: BelowMin}, true
	}
	return Decision{}, false
}

// record adds the mean over the pods to both windows. It reports false when the
// metric failed: no pod could be asked, or none ever gave a value. A workload
// without pods is no failure; its old values stay.
func (s *Scaler) record(now simtime.Time, pods []Sample) bool {
	sum, n := 0.0, 0
	for _, p := range pods {
		switch p.State {
		case Reported:
			sum += p.Value
			n++
		case Silent:
			n++
		}
	}
	if n == 0 {
		return len(pods) == 0 && !s.stable.empty()
	}
	mean := sum / float64(n)
	s.stable.record(now, mean)
	s.panic.record(now, mean)
	return true
}

func clamp(n, lo, hi int) int { return min(max(n, lo), hi) }

// count turns a computed number of replicas into an int, saturating at the
// int32 that Kubernetes keeps it in.
func count(x float64) int {
	switch {
	case x >= math.MaxInt32:
		return math.MaxInt32
	case x > 0:
		return int(x)
	default: // NaN too
		return 0
	}
}
