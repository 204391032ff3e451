package calibrate

import (
	"cmp"
	"slices"

	"fleetsim/sim"
	"fleetsim/sim/record"
)

// phaseTraces are what the requests of one phase say beyond its records; empty
// when no requests were kept.
type phaseTraces struct {
	measured  *trace   // nil: no request records
	simulated []*trace // one a run
}

// A trace is one run seen request by request.
type trace struct {
	groups  []groupTimes // the whole run's, then each tenant's, sorted by name
	spans   []interval
	prompts tokenMean // input tokens of the requests sent
	first   int       // families whose first request says what it hit
	warm    int       // of those, the ones that found most of their prompt in the cache
	gauges  gauges    // as scraped
}

// A groupTimes is the times of the successes of one group, in seconds.
type groupTimes struct {
	tenant string
	times  [len(timeMetrics)][]float64
}

// An interval is one request in flight, in seconds.
type interval struct{ start, end float64 }

// A tokenMean sums what it is the mean of.
type tokenMean struct {
	sum float64
	n   int
}

func (m *tokenMean) add(v int) { m.sum, m.n = m.sum+float64(v), m.n+1 }

// of is the mean; absent over nothing.
func (m tokenMean) of() record.Float {
	if m.n == 0 {
		return record.Float{}
	}
	return record.Some(m.sum / float64(m.n))
}

// timeMetrics are the times that distributions are compared of, each with its
// percentiles in a record and its value of one request.
var timeMetrics = [...]struct {
	name    string
	of      func(*record.Phase) *record.Percentiles
	ofGroup func(*record.Tenant) *record.Percentiles
	value   func(*record.Request) record.Float
}{
	{
		"ttft",
		func(p *record.Phase) *record.Percentiles { return &p.TTFT },
		func(t *record.Tenant) *record.Percentiles { return &t.TTFT },
		func(r *record.Request) record.Float { return r.TTFT },
	}, {
		"tpot",
		func(p *record.Phase) *record.Percentiles { return &p.TPOT },
		func(t *record.Tenant) *record.Percentiles { return &t.TPOT },
		(*record.Request).MeanTokenTime,
	}, {
		"e2e",
		func(p *record.Phase) *record.Percentiles { return &p.E2E },
		func(t *record.Tenant) *record.Percentiles { return &t.E2E },
		func(r *record.Request) record.Float { return r.E2E },
	},
}

// traceOf is the trace of request records, in any order.
func traceOf(requests []record.Request) *trace {
	t := &trace{}
	for i := range requests {
		t.add(&requests[i])
	}
	t.first, t.warm = record.FirstSightings(requests)
	return t
}

// add takes one request; not its family.
func (t *trace) add(r *record.Request) {
	outcome := r.Outcome()
	if outcome == record.DroppedArrival {
		return
	}
	if n, ok := r.InputTokens.Get(); ok {
		t.prompts.add(n)
	}
	start, started := r.Started.Get()
	length, ended := r.E2E.Get()
	if started && ended {
		t.spans = append(t.spans, interval{start, start + length})
	}
	whole, own := t.group(""), t.group(r.Tenant) // the whole comes first and stays there
	if outcome != record.Success {
		return
	}
	for m := range timeMetrics {
		v, ok := timeMetrics[m].value(r).Get()
		if !ok {
			continue
		}
		t.groups[whole].times[m] = append(t.groups[whole].times[m], v)
		if own != whole {
			t.groups[own].times[m] = append(t.groups[own].times[m], v)
		}
	}
}

// group is the place of the tenant's times, made when it is new; "" is the whole.
func (t *trace) group(tenant string) int {
	at, found := slices.BinarySearchFunc(t.groups, tenant, func(s groupTimes, name string) int { return cmp.Compare(s.tenant, name) })
	if !found {
		t.groups = slices.Insert(t.groups, at, groupTimes{tenant: tenant})
	}
	return at
}

// of is the times of the tenant; nil when it has none. "" is the whole.
func (t *trace) of(tenant string) *groupTimes {
	if t == nil {
		return nil
	}
	for i := range t.groups {
		if t.groups[i].tenant == tenant {
			return &t.groups[i]
		}
	}
	return nil
}

// pooled are the times of one metric and group over all runs.
func pooled(traces []*trace, tenant string, metric int) []float64 {
	var all []float64
	for _, t := range traces {
		if s := t.of(tenant); s != nil {
			all = append(all, s.times[metric]...)
		}
	}
	return all
}

// gauges are the replicas' gauges summed at each scrape, in the order of time.
type gauges []gauge

// A gauge is one scrape of all replicas.
type gauge struct {
	at               float64 // s since the phase began
	running, waiting float64
}

// add sums a replica's sample into the scrape of its time; samples come in the
// order of time.
func (g *gauges) add(s *sim.Sample) {
	if s.Scaling != nil {
		return
	}
	at := s.At.Seconds()
	if n := len(*g); n == 0 || (*g)[n-1].at != at {
		*g = append(*g, gauge{at: at})
	}
	last := &(*g)[len(*g)-1]
	last.running += float64(s.Running)
	last.waiting += float64(s.Waiting)
}
