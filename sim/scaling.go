package sim

import (
	"fleetsim/sim/autoscale"
	"fleetsim/sim/autoscale/lifecycle"
	"fleetsim/simtime"
)

// scaler is the autoscaler as the event loop sees it. It is as new as the phase:
// its windows begin empty.
type scaler struct {
	*autoscale.Scaler
	pipeline *autoscale.Pipeline
	read     func(*run, *replica) float64
	interval simtime.Time
}

// newScaler is nil when the scenario has no autoscaler.
func newScaler(s Setup) (*scaler, error) {
	a := s.Scenario.Autoscale
	if a.Strategy == "" {
		return nil, nil
	}
	algorithm, err := autoscale.New(autoscale.Config{
		Strategy: autoscale.Strategy(a.Strategy), Min: a.Min, Max: a.Max, Target: a.Target,
		Annotations: a.Annotations, UpstreamFixed: scalerFixes(s.Scenario.Router.UpstreamFixed),
	})
	if err != nil {
		return nil, err
	}
	pipeline, err := autoscale.NewPipeline(a.ScrapeInterval.Time, a.MetricDelay.Time)
	if err != nil {
		return nil, err
	}
	return &scaler{Scaler: algorithm, pipeline: pipeline, read: metricReader(a.Metric), interval: a.Interval.Time}, nil
}

// scalerFixes are those of the fixes that are the autoscaler's; the scenario has
// one list for both.
func scalerFixes(fixes []string) []string {
	var own []string
	for _, name := range fixes {
		for _, known := range autoscale.Fixes() {
			if name == known {
				own = append(own, name)
			}
		}
	}
	return own
}

// metricReader reads the named metric of one pod.
func metricReader(name string) func(*run, *replica) float64 {
	switch name {
	case "in_flight":
		return func(r *run, rep *replica) float64 { return float64(r.gateways.running(rep.id)) }
	case "kv_cache_usage_perc":
		return func(_ *run, rep *replica) float64 { return rep.usage(rep.Gauges()) }
	case "num_requests_running":
		return func(_ *run, rep *replica) float64 { return float64(rep.Gauges().Running) }
	}
	return func(_ *run, rep *replica) float64 { return float64(rep.Gauges().Waiting) }
}

// startScaling puts the autoscaler's first events in the queue and begins the
// timeline, if anything can change the replicas.
func (r *run) startScaling() {
	sc := r.Scenario
	r.scaling = nil
	if r.scaler != nil || len(sc.Faults) > 0 || sc.Rollout.At.Time > 0 {
		r.scaling = &scaling{}
		r.scaling.record(r)
	}
	if r.scaler == nil {
		return
	}
	r.reconcileLater()
	if r.scaler.pipeline.NextScrape() != simtime.Never {
		r.schedule(r.begin, evScrape, 0)
	}
	for i, p := range sc.Autoscale.PreScale {
		r.schedule(r.begin+p.At.Time, evPreScale, i)
	}
}

func (r *run) reconcileLater() {
	r.schedule(r.now+r.scaler.interval, evReconcile, 0)
}

// scrape reads the metrics of all pods.
func (r *run) scrape() {
	r.scaler.pipeline.Scrape(r.now, r.podSamples())
	r.schedule(r.scaler.pipeline.NextScrape(), evScrape, 0)
}

// preScale changes the minimum. The controller hears of the changed object and
// reconciles at once, beside its usual times.
func (r *run) preScale(i int) {
	if err := r.scaler.SetMin(r.Scenario.Autoscale.PreScale[i].Replicas); err != nil {
		panic(err) // the scenario's check allows none above the maximum
	}
	r.reconcile()
}

// reconcile lets the autoscaler decide and the deployment follow.
func (r *run) reconcile() {
	pods := r.podSamples()
	if r.scaler.pipeline.NextScrape() == simtime.Never {
		r.scaler.pipeline.Scrape(r.now, pods)
	}
	current := r.deployment.Counts().Desired
	decision := r.scaler.Reconcile(r.now, current, r.scaler.pipeline.View(r.now, pods))
	if decision.Desired != current {
		r.follow(r.deployment.Scale(r.now, decision.Desired))
	}
}

// podSamples are what the pods answer now, ready or not.
func (r *run) podSamples() []autoscale.Sample {
	var samples []autoscale.Sample
	for _, pod := range r.deployment.Replicas() {
		s := autoscale.Sample{Pod: pod.ID, State: pod.Stage.MetricState(), Terminating: pod.Stage == lifecycle.Terminating}
		rep := r.replicas[pod.ID]
		switch {
		case rep.answers():
			rep.SyncGauges(r.now)
			s.State, s.Value = autoscale.Reported, r.scaler.read(r, rep)
		case s.State == autoscale.Reported:
			s.State = autoscale.Silent // deleted before it ran, or its engine has ended
		}
		samples = append(samples, s)
	}
	return samples
}

// scaling is how the numbers of replicas went over a phase.
type scaling struct {
	changes []ScalingPoint
	emitted int // of them, on the timeline
}

// A ScalingPoint is the numbers of replicas from a time on. Created ones are
// those pending, starting, ready or crashed; terminating ones are no longer
// among them.
type ScalingPoint struct {
	At          float64 `json:"relative_seconds"`
	Desired     int     `json:"desired"`
	Created     int     `json:"created"`
	Pending     int     `json:"pending"`
	Starting    int     `json:"starting"`
	Ready       int     `json:"ready"`
	Crashed     int     `json:"crashed"`
	Terminating int     `json:"terminating"`
}

// A ScalingSummary is the scaling member of a phase record.
type ScalingSummary struct {
	DesiredPeak  int            `json:"desired_peak"`
	DesiredFinal int            `json:"desired_final"`
	ReadyPeak    int            `json:"ready_peak"`
	ReadyLeast   int            `json:"ready_least"`
	ReadyFinal   int            `json:"ready_final"`
	PendingPeak  int            `json:"pending_peak"`
	Changes      []ScalingPoint `json:"changes"`
}

// record adds the numbers as they are now, if they have changed. Of several
// changes at one instant the last stays.
func (s *scaling) record(r *run) {
	c := r.deployment.Counts()
	p := ScalingPoint{
		At: (r.now - r.begin).Seconds(), Desired: c.Desired, Created: c.Created, Pending: c.Pending,
		Starting: c.Starting, Ready: c.Ready, Crashed: c.Crashed, Terminating: c.Terminating,
	}
	if n := len(s.changes); n > s.emitted && s.changes[n-1].At == p.At {
		s.changes = s.changes[:n-1]
	}
	if n := len(s.changes); n == 0 || !s.changes[n-1].sameNumbers(p) {
		s.changes = append(s.changes, p)
	}
}

func (p ScalingPoint) sameNumbers(o ScalingPoint) bool {
	p.At = o.At
	return p == o
}

// emit hands the changes since the last call to the timeline.
func (s *scaling) emit(r *run) {
	for ; s.emitted < len(s.changes); s.emitted++ {
		if r.Sample != nil {
			sample := r.clusterSample()
			sample.Scaling = &s.changes[s.emitted]
			r.Sample(sample)
		}
	}
}

// summary is the phase record's.
func (s *scaling) summary() ScalingSummary {
	last := s.changes[len(s.changes)-1]
	sum := ScalingSummary{
		DesiredFinal: last.Desired, ReadyFinal: last.Ready, ReadyLeast: last.Ready, Changes: s.changes,
	}
	for _, p := range s.changes {
		sum.DesiredPeak = max(sum.DesiredPeak, p.Desired)
		sum.ReadyPeak = max(sum.ReadyPeak, p.Ready)
		sum.ReadyLeast = min(sum.ReadyLeast, p.Ready)
		sum.PendingPeak = max(sum.PendingPeak, p.Pending)
	}
	return sum
}
