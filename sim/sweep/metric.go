package sweep

import (
	"encoding/json"
	"math"

	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// A Metric is one figure of a run: a column of the results.
type Metric struct {
	Name   string // also the column's name
	Unit   string // s, tokens/s, …; "" for counts and shares
	Higher bool   // higher is better
	value  func(*record.Phase) record.Float
	trials string // of a share, the metric that counts its trials; "" for all else
}

// Value is the metric of the run, NaN when it is absent.
func (m *Metric) Value(p *record.Phase) float64 {
	if v, ok := m.value(p).Get(); ok {
		return v
	}
	return math.NaN()
}

// metricsOf are the metrics of the scenarios' runs: the general ones, and those
// of each of their tenants.
func metricsOf(scenarios []*scenario.Scenario) []Metric {
	metrics := append([]Metric(nil), general...)
	seen := map[string]bool{}
	for _, sc := range scenarios {
		for _, t := range sc.Workload.Tenants {
			if !seen[t.Name] {
				seen[t.Name] = true
				metrics = append(metrics, ofTenant(t.Name)...)
			}
		}
	}
	return metrics
}

var general = []Metric{
	{Name: "good_share", Higher: true, value: (*record.Phase).GoodShare, trials: "planned"},
	{Name: "success_share", Higher: true, value: (*record.Phase).SuccessShare, trials: "planned"},
	{Name: "ttft_p50", Unit: "s", value: func(p *record.Phase) record.Float { return p.TTFT.P50 }},
	{Name: "ttft_p95", Unit: "s", value: func(p *record.Phase) record.Float { return p.TTFT.P95 }},
	{Name: "ttft_p99", Unit: "s", value: func(p *record.Phase) record.Float { return p.TTFT.P99 }},
	{Name: "tpot_p50", Unit: "s", value: func(p *record.Phase) record.Float { return p.TPOT.P50 }},
	{Name: "tpot_p95", Unit: "s", value: func(p *record.Phase) record.Float { return p.TPOT.P95 }},
	{Name: "tpot_p99", Unit: "s", value: func(p *record.Phase) record.Float { return p.TPOT.P99 }},
	{Name: "e2e_p50", Unit: "s", value: func(p *record.Phase) record.Float { return p.E2E.P50 }},
	{Name: "e2e_p95", Unit: "s", value: func(p *record.Phase) record.Float { return p.E2E.P95 }},
	{Name: "e2e_p99", Unit: "s", value: func(p *record.Phase) record.Float { return p.E2E.P99 }},
	{Name: "cache_hit_ratio", Higher: true, value: func(p *record.Phase) record.Float { return p.CacheHitRatio }},
	{Name: "good_per_second", Unit: "1/s", Higher: true, value: func(p *record.Phase) record.Float { return over(number(p.Good), p.Elapsed) }},
	{Name: "output_tokens_per_second", Unit: "tokens/s", Higher: true, value: func(p *record.Phase) record.Float { return p.OutputTokensPerSecond }},
	{Name: "planned", Higher: true, value: func(p *record.Phase) record.Float { return number(p.Planned) }},
	{Name: "requests", Higher: true, value: func(p *record.Phase) record.Float { return number(p.Requests) }},
	{Name: "success", Higher: true, value: func(p *record.Phase) record.Float { return number(p.Success) }},
	{Name: "good", Higher: true, value: func(p *record.Phase) record.Float { return number(p.Good) }},
	{Name: "dropped", value: func(p *record.Phase) record.Float { return number(p.Dropped) }},
	{Name: "rejected", value: func(p *record.Phase) record.Float { return number(p.Rejected) }},
	{Name: "failed", value: func(p *record.Phase) record.Float { return number(p.Failed) }},
	{Name: "elapsed", Unit: "s", value: func(p *record.Phase) record.Float { return p.Elapsed }},
	{Name: "waiting_max", value: mostOf(func(r *record.Replica) record.Float { return number(r.WaitingMax) })},
	{Name: "running_max", value: mostOf(func(r *record.Replica) record.Float { return number(r.RunningMax) })},
	{Name: "kv_usage_max", value: mostOf(func(r *record.Replica) record.Float { return r.KVUsageMax })},
	{Name: "preemptions", value: preemptions},
	{Name: "imbalance", value: imbalance},
	{Name: "imbalanced_choices", value: imbalancedChoices},
	{Name: "gpu_seconds", Unit: "s", value: gpuSeconds},
	{Name: "ready_peak", value: readyPeak},
	{Name: "input_tokens_max", Unit: "tokens", value: func(p *record.Phase) record.Float { return number(p.InputTokensRange.Max) }},
	{Name: "steps", value: func(p *record.Phase) record.Float { return number(p.Steps) }},
	{Name: "events", value: func(p *record.Phase) record.Float { return number(p.Events) }},
}

// ofTenant are the metrics of one tenant.
func ofTenant(name string) []Metric {
	of := func(f func(*record.Tenant) record.Float) func(*record.Phase) record.Float {
		return func(p *record.Phase) record.Float {
			if t := tenant(p, name); t != nil {
				return f(t)
			}
			return record.Float{}
		}
	}
	prefix := "tenant_" + name + "_"
	return []Metric{
		{Name: prefix + "good_share", Higher: true,
			value: of(func(t *record.Tenant) record.Float { return record.Ratio(t.Good, t.Planned) }), trials: prefix + "planned"},
		{Name: prefix + "planned", Higher: true, value: of(func(t *record.Tenant) record.Float { return number(t.Planned) })},
		{Name: prefix + "ttft_p95", Unit: "s", value: of(func(t *record.Tenant) record.Float { return t.TTFT.P95 })},
		{Name: prefix + "success", Higher: true, value: of(func(t *record.Tenant) record.Float { return number(t.Success) })},
		{Name: prefix + "rejected", value: of(func(t *record.Tenant) record.Float { return number(t.Rejected) })},
		{Name: prefix + "dropped", value: of(func(t *record.Tenant) record.Float { return number(t.Dropped) })},
	}
}

func tenant(p *record.Phase, name string) *record.Tenant {
	for i := range p.Tenants {
		if p.Tenants[i].Name == name {
			return &p.Tenants[i]
		}
	}
	return nil
}

func number(i record.Int) record.Float {
	v, ok := i.Get()
	if !ok {
		return record.Float{}
	}
	return record.Some(float64(v))
}

// over is a over b; absent when either is, or b is 0.
func over(a, b record.Float) record.Float {
	n, haveA := a.Get()
	d, haveB := b.Get()
	if !haveA || !haveB {
		return record.Float{}
	}
	return record.Some(n / d) // x/0 is no number: absent
}

// mostOf is the largest of a figure over the replicas that have it.
func mostOf(f func(*record.Replica) record.Float) func(*record.Phase) record.Float {
	return func(p *record.Phase) record.Float {
		var most record.Float
		for i := range p.Replicas {
			if v, ok := f(&p.Replicas[i]).Get(); ok && v >= most.Or(v) {
				most = record.Some(v)
			}
		}
		return most
	}
}

func preemptions(p *record.Phase) record.Float {
	sum, any := 0.0, false
	for i := range p.Replicas {
		if n, ok := p.Replicas[i].Preemptions.Get(); ok {
			sum, any = sum+float64(n), true
		}
	}
	if !any {
		return record.Float{}
	}
	return record.Some(sum)
}

// imbalance is the requests of the replica with the most over the mean of all:
// 1 when all had as many.
func imbalance(p *record.Phase) record.Float {
	most, sum := 0.0, 0.0
	for i := range p.Replicas {
		n, ok := p.Replicas[i].Requests.Get()
		if !ok {
			return record.Float{}
		}
		most, sum = max(most, float64(n)), sum+float64(n)
	}
	return record.Some(most * float64(len(p.Replicas)) / sum)
}

// imbalancedChoices is how often prefix-cache found the load imbalanced; absent
// when the gateway's counters were not captured.
func imbalancedChoices(p *record.Phase) record.Float {
	if p.RoutingCounterDeltas == nil {
		return record.Float{}
	}
	n := 0.0
	for _, d := range p.RoutingCounterDeltas {
		if d.Name == "aibrix_prefix_cache_load_imbalance_total" {
			n += d.Delta
		}
	}
	return record.Some(n)
}

// gpuSeconds is how long replicas held their GPUs: from being scheduled to being
// gone where the number of replicas changes, else all of them for as long as the
// run took.
func gpuSeconds(p *record.Phase) record.Float {
	elapsed, ok := p.Elapsed.Get()
	if !ok || len(p.Replicas) == 0 {
		return record.Float{}
	}
	scaling := scalingOf(p)
	if scaling == nil {
		return record.Some(elapsed * float64(len(p.Replicas)))
	}
	sum := 0.0
	for i, c := range scaling.Changes {
		end := elapsed
		if i+1 < len(scaling.Changes) {
			end = min(end, scaling.Changes[i+1].At)
		}
		held := float64(c.Starting + c.Ready + c.Crashed + c.Terminating)
		sum += float64(held * max(end-c.At, 0)) // no fused operation: they differ between machines
	}
	return record.Some(sum)
}

// readyPeak is the most replicas that were ready at once.
func readyPeak(p *record.Phase) record.Float {
	if scaling := scalingOf(p); scaling != nil {
		return record.Some(float64(scaling.ReadyPeak))
	}
	return record.Some(float64(len(p.Replicas)))
}

// scalingOf is how the number of replicas changed; nil when it could not.
func scalingOf(p *record.Phase) *sim.ScalingSummary {
	raw, ok := p.Other["scaling"]
	if !ok {
		return nil
	}
	s := &sim.ScalingSummary{}
	if err := json.Unmarshal(raw, s); err != nil || len(s.Changes) == 0 {
		return nil // not the simulator's own: a member that another tool calls so
	}
	return s
}
