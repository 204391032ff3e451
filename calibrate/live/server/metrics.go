package server

import (
	"maps"
	"slices"
	"strings"

	"fleetsim/model"
	"fleetsim/router"
	"fleetsim/sim/metrics"
	"fleetsim/simtime"
)

// podMetrics are an engine's metrics beyond its gauges and counters.
type podMetrics struct {
	finished                             []finished
	ttft, itl, tpot, e2e                 *metrics.Histogram
	queue, prefill, decode               *metrics.Histogram
	requests, promptTokens, outputTokens int64 // of the requests that ended well
}

// finished is the number of requests that ended for one reason; vLLM has all
// series from the start.
type finished struct {
	reason string
	n      int
}

func newPodMetrics() podMetrics {
	h := func(d *metrics.Def) *metrics.Histogram { return metrics.NewHistogram(d.Bounds) }
	m := podMetrics{
		ttft: h(&metrics.TTFT), itl: h(&metrics.ITL), tpot: h(&metrics.TPOT), e2e: h(&metrics.E2E),
		queue: h(&metrics.Queue), prefill: h(&metrics.Prefill), decode: h(&metrics.Decode),
	}
	for _, reason := range []string{"stop", finishLength, finishAbort, "error", "repetition"} {
		m.finished = append(m.finished, finished{reason: reason})
	}
	return m
}

// step observes that n tokens of a call have come.
func (m *podMetrics) step(call *Call, s *model.Seq, n int) {
	if call.heard == 0 {
		m.ttft.Observe((s.First - s.Queued).Seconds())
		return
	}
	m.itl.ObserveN((s.Last-call.lastStep).Seconds()/float64(n), n)
}

// finish observes that a sequence has ended.
func (m *podMetrics) finish(s *model.Seq, reason string) {
	i := slices.IndexFunc(m.finished, func(f finished) bool { return f.reason == reason })
	m.finished[i].n++
	if reason != finishLength {
		return
	}
	m.requests++
	m.promptTokens += int64(s.Prompt)
	m.outputTokens += int64(s.Outputs)
	m.e2e.Observe((s.Last - s.Queued).Seconds())
	m.queue.Observe((s.Scheduled - s.Queued).Seconds())
	m.prefill.Observe((s.First - s.Scheduled).Seconds())
	m.decode.Observe((s.Last - s.First).Seconds())
	if s.Outputs > 1 {
		m.tpot.Observe((s.Last - s.First).Seconds() / float64(s.Outputs-1))
	}
}

// forRouter are the metrics that routing policies read.
func (m *podMetrics) forRouter(g model.Gauges, l model.Limits) router.Metrics {
	out := router.Metrics{
		KVCacheUsage:  router.Some(usage(g, l)),
		GPUCacheUsage: router.Some(usage(g, l)),
		CPUCacheUsage: router.Some(0),
		EngineRunning: router.Some(float64(g.Running)),
		QueueTime:     router.Some(0), // a histogram, which AIBrix reads as 0
	}
	if n := float64(m.requests); n > 0 {
		out.PromptTokens = router.Some(float64(m.promptTokens) / n)
		out.OutputTokens = router.Some(float64(m.outputTokens) / n)
		out.PrefillTime = router.Some(m.prefill.Sum / n)
		out.DecodeTime = router.Some(m.decode.Sum / n)
	}
	return out
}

func usage(g model.Gauges, l model.Limits) float64 {
	return float64(g.UsedBlocks) / float64(l.Blocks-1)
}

// Metrics are the metrics at now: the engine's of one pod, or, if pod is "", all
// engines' told apart by node_alias, and the gateway's.
func (c *Cluster) Metrics(now simtime.Time, model, pod string) []metrics.Family {
	c.Advance(now)
	var p page
	for _, each := range c.pods {
		switch {
		case pod == "":
			p.engine(each, c.limits, []metrics.Label{{Name: "model_name", Value: model}, {Name: "engine", Value: "0"}, {Name: "node_alias", Value: each.name}})
			p.value(&metrics.InFlight, float64(c.inFlight(each)), metrics.Label{Name: "node_alias", Value: each.name})
		case pod == each.name:
			p.engine(each, c.limits, []metrics.Label{{Name: "model_name", Value: model}, {Name: "engine", Value: "0"}})
		}
	}
	if pod == "" {
		p.gateway(c.counters(), model)
	}
	return p
}

// counters are the counters of all policies, summed.
func (c *Cluster) counters() []router.Counter {
	var out []router.Counter
	for _, policy := range slices.Sorted(maps.Keys(c.gateways)) {
		for _, counter := range c.gateways[policy].Counters() {
			i := slices.IndexFunc(out, func(o router.Counter) bool { return o.Name == counter.Name && slices.Equal(o.Labels, counter.Labels) })
			if i < 0 {
				out = append(out, counter)
			} else {
				out[i].Value += counter.Value
			}
		}
	}
	return out
}

// A page is families in the order in which they first came.
type page []metrics.Family

func (p *page) add(d *metrics.Def, labels []metrics.Label, point metrics.Point) {
	i := slices.IndexFunc(*p, func(f metrics.Family) bool { return f.Name == d.Name })
	if i < 0 {
		i = len(*p)
		*p = append(*p, d.Family())
	}
	f := &(*p)[i]
	f.Series = append(f.Series, metrics.Series{Labels: labels, Points: []metrics.Point{point}})
}

func (p *page) value(d *metrics.Def, v float64, labels ...metrics.Label) {
	p.add(d, labels, metrics.Point{Value: v})
}

func (p *page) engine(e *pod, l model.Limits, labels []metrics.Label) {
	g, s, m := e.Gauges(), e.Stats(), &e.metrics
	p.value(&metrics.Running, float64(g.Running), labels...)
	p.value(&metrics.Waiting, float64(g.Waiting), labels...)
	p.value(&metrics.KVUsage, usage(g, l), labels...)
	p.value(&metrics.CacheQueries, float64(s.QueryTokens), labels...)
	p.value(&metrics.CacheHits, float64(s.HitTokens), labels...)
	p.value(&metrics.Preemptions, float64(s.Preemptions), labels...)
	p.value(&metrics.PromptTokens, float64(s.PromptTokens), labels...)
	p.value(&metrics.OutputTokens, float64(s.OutputTokens), labels...)
	for _, f := range m.finished {
		p.value(&metrics.Finished, float64(f.n), append(labels[:len(labels):len(labels)], metrics.Label{Name: "finished_reason", Value: f.reason})...)
	}
	for _, h := range []struct {
		def *metrics.Def
		h   *metrics.Histogram
	}{
		{&metrics.TTFT, m.ttft}, {&metrics.ITL, m.itl}, {&metrics.TPOT, m.tpot}, {&metrics.E2E, m.e2e},
		{&metrics.Queue, m.queue}, {&metrics.Prefill, m.prefill}, {&metrics.Decode, m.decode},
	} {
		p.add(h.def, labels, metrics.Point{Histogram: h.h.Clone()})
	}
}

func (p *page) gateway(counters []router.Counter, model string) {
	for _, c := range counters {
		name := strings.TrimSuffix(c.Name, "_total")
		labels := []metrics.Label{{Name: "model", Value: model}}
		for _, l := range c.Labels {
			labels = append(labels, metrics.Label(l))
		}
		p.value(&metrics.Def{Name: name, Type: metrics.Counter, Help: metrics.CounterHelp(name)}, float64(c.Value), labels...)
	}
}
