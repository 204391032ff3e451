package sim

import (
	"slices"

	"fleetsim/model"
	"fleetsim/router"
	"fleetsim/simtime"
)

// What a policy sees of the engines. A gateway fetches the metrics of every pod
// on its list at each refresh, and the policy has them after the metrics delay.
// Nothing is fetched that no policy asks for: when one does, the refresh that it
// would have the values of lies in the past, and the engines have been read
// then. See probe.

// Prometheus' averages are over the last day; a run is shorter, so they are over
// everything since the engine started, up to the last scrape. The drain rate is
// over about a minute: AIBrix keeps the count of completed requests from every 5
// seconds and compares with the one nearest to a minute ago.
const (
	drainWindow  = simtime.Minute
	drainStep    = 5 * simtime.Second
	drainLeast   = 10 * simtime.Second
	drainHistory = drainWindow + 2*drainStep
)

// readMetrics gives p's policy the metrics that have arrived by now.
func (r *run) readMetrics(p *gateway) {
	g := r.gateways
	k := lastBefore(r.now-g.config.MetricsDelay.Time, g.refresh)
	if k == p.read {
		return
	}
	p.read = k
	for id := range g.pods {
		view := &p.views[id]
		if !g.pods[id].listed || view.refreshed == k {
			continue
		}
		view.refreshed = k
		rep := r.replicas[id]
		rep.read(r.now)
		if m, ok := r.metrics(rep, view, k); ok {
			p.SetMetrics(id, m)
		}
	}
}

// metrics are what the gateway has fetched of a pod at the k-th refresh, or at
// the last before it at which the pod answered. It reports false when the pod
// has not answered since it is on the list.
//
// vLLM 0.26 has no gpu_cache_usage_perc, cpu_cache_usage_perc, engine_utilization,
// gpu_busy_time_ratio or avg_generation_throughput_toks_per_s, so these are
// missing unless the scenario adds them, or the gateway derives them (decode
// pods' throughput, from two fetches of generation_tokens_total). It has a
// histogram of queue times, of which the plain value that is read is 0.
func (r *run) metrics(rep *replica, view *podView, k int64) (router.Metrics, bool) {
	refresh := r.gateways.refresh
	now := rep.probe.upTo(k)
	if now == nil || simtime.Time(now.number)*refresh < view.since {
		return router.Metrics{}, false
	}
	usage := rep.usage(now.gauges)
	m := router.Metrics{
		KVCacheUsage:  router.Some(usage),
		EngineRunning: router.Some(float64(now.gauges.Running)),
		QueueTime:     router.Some(0),
		PrefillTime:   router.Some(meanSeconds(now.prefill, now.finished)),
		DecodeTime:    router.Some(meanSeconds(now.decode, now.finished)),
	}
	if every := r.gateways.config.PrometheusInterval.Time; every > 0 {
		scrape := rep.scrapes.upTo(int64(simtime.Time(k) * refresh / every))
		if scrape != nil && scrape.finished > 0 {
			m.PromptTokens = router.Some(float64(scrape.prompts) / float64(scrape.finished))
			m.OutputTokens = router.Some(float64(scrape.outputs) / float64(scrape.finished))
		}
	}
	before := rep.probe.upTo(now.number - 1)
	if before != nil && simtime.Time(before.number)*refresh < view.since {
		before = nil
	}
	addExtras(&m, r.gateways.config.ExtraMetrics, usage, busyShare(before, now, refresh))
	if r.gateways.pods[rep.id].role == router.RoleDecode {
		if before != nil {
			span := simtime.Time(now.number-before.number) * refresh
			m.OutputRate = router.Some(float64(now.tokens-before.tokens) / span.Seconds())
		}
		m.DrainRate = view.drainRate(simtime.Time(k)*refresh, refresh)
	}
	return m, true
}

// addExtras sets the metrics that the scenario's engines export although vLLM
// 0.26 does not. There is no cache in the CPU's memory, so its usage is 0.
func addExtras(m *router.Metrics, names []string, usage float64, busy router.Value) {
	if slices.Contains(names, "gpu_cache_usage_perc") {
		m.GPUCacheUsage = router.Some(usage)
	}
	if slices.Contains(names, "cpu_cache_usage_perc") {
		m.CPUCacheUsage = router.Some(0)
	}
	if slices.Contains(names, "engine_utilization") {
		m.Utilization = busy
	}
	if slices.Contains(names, "gpu_busy_time_ratio") {
		m.BusyTimeRatio = busy
	}
}

// busyShare is the share of the time between two readings in which a step ran.
func busyShare(before, now *reading, refresh simtime.Time) router.Value {
	if before == nil {
		return router.Value{}
	}
	span := simtime.Time(now.number-before.number) * refresh
	return router.Some(float64(now.busy-before.busy) / float64(span))
}

// drainRate is realtime_running_requests_drain_rate_1m at a refresh: requests a
// second that the gateway has seen completed.
func (v *podView) drainRate(now, refresh simtime.Time) router.Value {
	step := (drainStep + refresh - 1) / refresh * refresh
	first := (v.since + refresh - 1) / refresh * refresh // the first refresh that knows the pod
	if now-first < step {
		return router.Value{} // there is only one count
	}
	latest := first + (now-first)/step*step
	base := first
	if target := now - drainWindow; target > first {
		base = first + (target-first+(step-1)/2)/step*step // the earlier of two as near
	}
	base = min(base, max(latest-step, first))
	if now-base < drainLeast {
		return router.Value{}
	}
	return router.Some(float64(v.completed.at(now)-v.completed.at(base)) / (now - base).Seconds())
}

// meanSeconds is the mean that a histogram gives, 0 for an empty one as AIBrix
// has it.
func meanSeconds(sum simtime.Time, n int64) float64 {
	if n == 0 {
		return 0
	}
	return sum.Seconds() / float64(n)
}

// A meter counts what an engine's metrics count since it started, beside its
// Stats. vLLM enters a request into its histograms when it has finished.
type meter struct {
	finished         int64
	prompts, outputs int64        // their tokens
	prefill, decode  simtime.Time // from scheduling to first token, and from there to the last
	busy             simtime.Time // up to the last idle moment
	busySince        simtime.Time // Never: idle
}

func (m *meter) count(s *model.Seq) {
	m.finished++
	m.prompts += int64(s.Prompt)
	m.outputs += int64(s.Outputs)
	m.prefill += s.First - s.Scheduled
	m.decode += s.Last - s.First
}

// busyUntil is how long the engine was busy up to now.
func (m *meter) busyUntil(now simtime.Time) simtime.Time {
	if m.busySince == simtime.Never {
		return m.busy
	}
	return m.busy + now - m.busySince
}

// A reading is an engine's metrics at the number-th of some regular times.
type reading struct {
	number int64
	gauges model.Gauges
	tokens int64 // vllm:generation_tokens_total
	meter
}

// A probe reads an engine at the multiples of an interval. It keeps to the
// engine's own pace: before anything happens to the engine, or is asked about
// it, the probe reads it as it was at the times that have passed since; in
// between nothing but decode steps can have happened, which the engine passes
// over in one go. So a reading costs as much as there is to see, not as much as
// time has passed, and is the same whenever it is taken.
type probe struct {
	every    simtime.Time
	keep     int64 // so many of the latest readings can be asked for
	next     int64 // number of the next reading
	readings []reading
}

// newProbe reads every so often from now on; values as old as age can be asked
// for, and the reading before.
func newProbe(now, every, age simtime.Time) *probe {
	return &probe{every: every, keep: int64(age/every) + 3, next: lastBefore(now, every) + 1}
}

// read takes the readings that are due before now. An engine that does not
// answer is not read.
func (p *probe) read(rep *replica, now simtime.Time) {
	last := lastBefore(now, p.every)
	if last < p.next {
		return
	}
	if rep.answers() {
		p.forget()
		for k := max(p.next, last-p.keep+1); k <= last; k++ {
			at := simtime.Time(k) * p.every
			rep.Replica.SyncGauges(at)
			p.readings = slices.Grow(p.readings, 1)[:len(p.readings)+1]
			q := &p.readings[len(p.readings)-1] // a reading made and then copied takes twice as long
			q.number, q.gauges, q.tokens, q.meter = k, rep.Gauges(), rep.OutputTokens(), rep.meter
			q.busy = rep.meter.busyUntil(at)
		}
	}
	p.next = last + 1
}

// forget drops readings that nobody can ask for any more.
func (p *probe) forget() {
	if n := int64(len(p.readings)); n > 2*p.keep {
		p.readings = append(p.readings[:0], p.readings[n-p.keep:]...)
	}
}

// upTo is the latest reading up to the k-th, nil when there is none. Readings that
// were not taken leave gaps: so many places before the last as the numbers are
// apart lies a reading that is not too late, and mostly the one.
func (p *probe) upTo(k int64) *reading {
	last := len(p.readings) - 1
	if last < 0 || p.readings[0].number > k {
		return nil
	}
	i := int(max(0, min(int64(last), int64(last)-(p.readings[last].number-k))))
	for i < last && p.readings[i+1].number <= k {
		i++
	}
	return &p.readings[i]
}

// observe prepares the replica's engine for the policies' questions, from now on.
func (r *run) observe(rep *replica) {
	rep.probe, rep.scrapes = nil, nil
	g := r.gateways
	if !g.reads {
		return
	}
	rep.probe = newProbe(r.now, g.refresh, g.config.MetricsDelay.Time)
	if every := g.config.PrometheusInterval.Time; every > 0 {
		rep.scrapes = newProbe(r.now, every, g.config.MetricsDelay.Time+g.refresh)
	}
}

// read brings the replica's probes, if it has any, up to now.
func (rep *replica) read(now simtime.Time) {
	if rep.probe != nil {
		rep.readProbes(now)
	}
}

func (rep *replica) readProbes(now simtime.Time) {
	rep.probe.read(rep, now)
	if rep.scrapes != nil {
		rep.scrapes.read(rep, now)
	}
}

// The methods of the engine that change what can be read of it.

// SyncGauges is the engine's, once it has been read.
func (rep *replica) SyncGauges(now simtime.Time) {
	rep.read(now)
	rep.Replica.SyncGauges(now)
}

// Sync is the engine's, once it has been read.
func (rep *replica) Sync(now simtime.Time) {
	rep.read(now)
	rep.Replica.Sync(now)
}

// Add is the engine's, once it has been read.
func (rep *replica) Add(now simtime.Time, s *model.Seq) {
	rep.read(now)
	if rep.meter.busySince == simtime.Never {
		rep.meter.busySince = now
	}
	rep.Replica.Add(now, s)
}

// Abort is the engine's, once it has been read.
func (rep *replica) Abort(now simtime.Time, s *model.Seq) bool {
	rep.read(now)
	return rep.Replica.Abort(now, s)
}

// SetSpeed is the engine's, once it has been read.
func (rep *replica) SetSpeed(now simtime.Time, slow model.Ratio) {
	rep.read(now)
	rep.Replica.SetSpeed(now, slow)
}

// Advance is the engine's, once it has been read.
func (rep *replica) Advance(now simtime.Time) {
	rep.read(now)
	rep.Replica.Advance(now, rep.done)
	if rep.Next() == simtime.Never {
		rep.meter.busy, rep.meter.busySince = rep.meter.busyUntil(now), simtime.Never
	}
}
