// Package calibrate fits profiles to measured runs and says how far a
// simulation agrees with what was measured.
package calibrate

import (
	"maps"
	"slices"

	"fleetsim/sim/record"
)

// A Metric is one figure of a phase record.
type Metric struct {
	Name  string // path in the record, e.g. "ttft.p95"
	Value func(*record.Phase) record.Float
}

// phaseMetrics are the figures of a phase as a whole.
var phaseMetrics = []Metric{
	{"ttft.p50", func(p *record.Phase) record.Float { return p.TTFT.P50 }},
	{"ttft.p95", func(p *record.Phase) record.Float { return p.TTFT.P95 }},
	{"ttft.p99", func(p *record.Phase) record.Float { return p.TTFT.P99 }},
	{"tpot.p50", func(p *record.Phase) record.Float { return p.TPOT.P50 }},
	{"tpot.p95", func(p *record.Phase) record.Float { return p.TPOT.P95 }},
	{"tpot.p99", func(p *record.Phase) record.Float { return p.TPOT.P99 }},
	{"e2e.p50", func(p *record.Phase) record.Float { return p.E2E.P50 }},
	{"e2e.p95", func(p *record.Phase) record.Float { return p.E2E.P95 }},
	{"e2e.p99", func(p *record.Phase) record.Float { return p.E2E.P99 }},
	{"cache_hit_ratio", func(p *record.Phase) record.Float { return p.CacheHitRatio }},
	{"requests", func(p *record.Phase) record.Float { return number(p.Requests) }},
	{"success", func(p *record.Phase) record.Float { return number(p.Success) }},
	{"good", func(p *record.Phase) record.Float { return number(p.Good) }},
	{"dropped", func(p *record.Phase) record.Float { return number(p.Dropped) }},
	{"rejected", func(p *record.Phase) record.Float { return number(p.Rejected) }},
	{"failed", func(p *record.Phase) record.Float { return number(p.Failed) }},
	{"elapsed", func(p *record.Phase) record.Float { return p.Elapsed }},
	{"output_tokens_per_second", func(p *record.Phase) record.Float { return p.OutputTokensPerSecond }},
}

// replicaMetrics are the figures of one replica.
var replicaMetrics = []struct {
	name  string
	value func(*record.Replica) record.Float
}{
	{"requests", func(r *record.Replica) record.Float { return number(r.Requests) }},
	{"waiting_peak", func(r *record.Replica) record.Float { return number(r.WaitingPeak) }},
	{"running_peak", func(r *record.Replica) record.Float { return number(r.RunningPeak) }},
	{"kv_usage_peak", func(r *record.Replica) record.Float { return r.KVUsagePeak }},
	{"gateway_outstanding_at_selection_peak", func(r *record.Replica) record.Float { return number(r.GatewayOutstandingAtSelectionPeak) }},
}

// Metrics are the figures that p may have, in a fixed order: those of the
// phase, then those of each of its replicas ("replicas.L20-A.requests"), then
// its routing counters.
func Metrics(p *record.Phase) []Metric {
	metrics := append([]Metric(nil), phaseMetrics...)
	for i := range p.Replicas {
		for _, m := range replicaMetrics {
			name := p.Replicas[i].Name
			metrics = append(metrics, Metric{"replicas." + name + "." + m.name, func(p *record.Phase) record.Float {
				for i := range p.Replicas {
					if p.Replicas[i].Name == name {
						return m.value(&p.Replicas[i])
					}
				}
				return record.Float{}
			}})
		}
	}
	for _, d := range p.RoutingCounterDeltas {
		metrics = append(metrics, Metric{CounterName(d), func(p *record.Phase) record.Float { return counter(p, &d) }})
	}
	return metrics
}

// sameMetrics reports whether Metrics names the same figures for both.
func sameMetrics(a, b *record.Phase) bool {
	return slices.EqualFunc(a.Replicas, b.Replicas, func(a, b record.Replica) bool { return a.Name == b.Name }) &&
		slices.EqualFunc(a.RoutingCounterDeltas, b.RoutingCounterDeltas, func(a, b record.CounterDelta) bool { return sameCounter(&a, &b) })
}

func sameCounter(a, b *record.CounterDelta) bool {
	return a.Name == b.Name && maps.Equal(a.Labels, b.Labels)
}

// CounterName is the counter with its labels in the order of their names.
func CounterName(d record.CounterDelta) string {
	name := d.Name
	for _, label := range sortedKeys(d.Labels) {
		name += "," + label + "=" + d.Labels[label]
	}
	return name
}

// counter is by how much the counter moved: 0 when others were captured and
// this did not move, absent when none were.
func counter(p *record.Phase, which *record.CounterDelta) record.Float {
	if p.RoutingCounterDeltas == nil {
		return record.Float{}
	}
	for i := range p.RoutingCounterDeltas {
		if d := &p.RoutingCounterDeltas[i]; sameCounter(d, which) {
			return record.Some(d.Delta)
		}
	}
	return record.Some(0.0)
}

func number(i record.Int) record.Float {
	v, ok := i.Get()
	if !ok {
		return record.Float{}
	}
	return record.Some(float64(v))
}
