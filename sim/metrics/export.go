package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"fleetsim/sim/record"
)

// Options of an export.
type Options struct {
	Start float64 // Unix time of the first phase's start, s
	Step  float64 // s between two points of a counter or histogram; at least 1 ms
	Gap   float64 // s of nothing between two phases
	Model string  // model_name
}

// The defaults of Options.
const (
	DefaultStart = 1_767_225_600 // 2026-01-01T00:00:00Z
	DefaultStep  = 5             // s, the studies' scrape interval
	DefaultGap   = 600           // s, beyond Prometheus' look-back of 5 minutes
	maxPoints    = 10_000_000    // of a series
)

// A Span is where an exported phase lies in time, in Unix seconds.
type Span struct {
	Phase, Route string
	Start, End   float64 // the first and the last points
}

// Export turns runs into time series, the phases one after the other as they
// would have run on one cluster. Every series has the labels phase and route.
//
// The gauges are the timeline's. The counters and histograms follow from the
// request records, each request counted where it happened: at the client when
// its stream ended, at the gateway when it was sent, at the engine when it had
// waited its queue_seconds. The last point of the engine's cache counters is the
// phase record's figure, so that lookups which no single request shows (vLLM
// 0.26 counts each attempt to admit) are in it.
func Export(runs []Run, o Options) ([]Family, []Span, error) {
	if !(o.Step >= 0.001) || math.IsInf(o.Step, 0) {
		return nil, nil, fmt.Errorf("step %g s: allowed is 0.001 or more", o.Step)
	}
	x := exporter{Options: o}
	var spans []Span
	begin := o.Start
	for i := range runs {
		r := &runs[i]
		length := max(r.Phase.Elapsed.Or(0), lastEnd(r.Requests))
		steps := int(math.Ceil(length/o.Step)) + 1
		if steps > maxPoints {
			return nil, nil, fmt.Errorf("phase %s: %g s in steps of %g s are over %d points", r.Phase.Phase, length, o.Step, maxPoints)
		}
		p := phase{Run: r, begin: begin, times: make([]float64, steps+1), labels: []Label{{"phase", r.Phase.Phase}, {"route", r.Phase.Route}}}
		for k := range p.times {
			p.times[k] = float64(k) * o.Step
		}
		x.phase(&p)
		end := begin + p.times[steps]
		spans = append(spans, Span{r.Phase.Phase, r.Phase.Route, begin, end})
		begin = math.Ceil((end+o.Gap)/60) * 60
	}
	return x.families, spans, nil
}

// lastEnd is when the last of the requests ended.
func lastEnd(requests []record.Request) float64 {
	end := 0.0
	for i := range requests {
		end = max(end, endOf(&requests[i]))
	}
	return end
}

func endOf(r *record.Request) float64 { return r.Started.Or(0) + r.E2E.Or(0) }

// An exporter collects families; each is in one piece, whatever phases add.
type exporter struct {
	Options
	families []Family
}

// A phase is a run with its place in time.
type phase struct {
	*Run
	begin  float64
	times  []float64 // of the points, since begin
	labels []Label
}

func (x *exporter) add(d *Def, s Series) {
	i := slices.IndexFunc(x.families, func(f Family) bool { return f.Name == d.Name })
	if i < 0 {
		i = len(x.families)
		x.families = append(x.families, d.Family())
	}
	x.families[i].Series = append(x.families[i].Series, s)
}

func (x *exporter) phase(p *phase) {
	for _, rep := range p.Phase.Replicas {
		x.gauges(p, rep.Name)
		x.cache(p, &rep)
		x.engine(p, rep.Name)
	}
	x.gateway(p)
	x.client(p)
}

// with is the phase's labels behind the given ones.
func (p *phase) with(labels ...Label) []Label { return append(labels, p.labels...) }

func (x *exporter) engineLabels(p *phase, replica string, more ...Label) []Label {
	return p.with(append([]Label{{"model_name", x.Model}, {"engine", "0"}, {"node_alias", replica}}, more...)...)
}

// gauges are the timeline's samples of one replica.
func (x *exporter) gauges(p *phase, replica string) {
	series := func(d *Def, value func(*Sample) (float64, bool)) {
		s := Series{Labels: x.engineLabels(p, replica)}
		for i := range p.Timeline {
			if v, ok := value(&p.Timeline[i]); ok && p.Timeline[i].Replica == replica {
				s.Points = append(s.Points, Point{At: p.begin + p.Timeline[i].At, Value: v})
			}
		}
		if len(s.Points) > 0 {
			x.add(d, s)
		}
	}
	series(&Running, func(s *Sample) (float64, bool) { return s.Running, true })
	series(&Waiting, func(s *Sample) (float64, bool) { return s.Waiting, true })
	series(&KVUsage, func(s *Sample) (float64, bool) { return s.KVUsage, true })
	series(&InFlight, func(s *Sample) (float64, bool) { return value(s.InFlight) })
}

func value(v *float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}

// cache are the prefix-cache counters of one replica: the timeline's where it
// has them, else the requests'; the last point is the phase record's.
func (x *exporter) cache(p *phase, rep *record.Replica) {
	for _, c := range []struct {
		def     *Def
		total   record.Int
		sampled func(*Sample) *float64
		request func(*record.Request) record.Int
	}{
		{&CacheQueries, rep.CacheQueriesTokens, func(s *Sample) *float64 { return s.CacheQueries }, func(r *record.Request) record.Int { return r.InputTokens }},
		{&CacheHits, rep.CacheHitTokens, func(s *Sample) *float64 { return s.CacheHits }, func(r *record.Request) record.Int { return r.CachedTokens }},
	} {
		total, ok := c.total.Get()
		if !ok {
			continue
		}
		var events []event
		for i := range p.Timeline {
			if v := c.sampled(&p.Timeline[i]); v != nil && p.Timeline[i].Replica == rep.Name {
				events = append(events, event{at: p.Timeline[i].At, amount: *v - sum(events)})
			}
		}
		if events == nil {
			events = p.events(rep.Name, admitted, func(r *record.Request) float64 { return float64(c.request(r).Or(0)) })
		}
		s := p.sums(x.engineLabels(p, rep.Name), events)
		for i := range s.Points {
			s.Points[i].Value = min(s.Points[i].Value, float64(total))
		}
		s.Points[len(s.Points)-1].Value = float64(total)
		x.add(c.def, s)
	}
}

// engine are the counters and histograms of one replica that follow from the
// requests which it answered.
func (x *exporter) engine(p *phase, replica string) {
	ended := func(amount func(*record.Request) float64) []event { return p.events(replica, endOf, amount) }
	counter := func(d *Def, events []event, more ...Label) {
		x.add(d, p.sums(x.engineLabels(p, replica, more...), events))
	}
	counter(&PromptTokens, p.events(replica, firstToken, func(r *record.Request) float64 { return float64(r.InputTokens.Or(0)) }))
	counter(&OutputTokens, ended(func(r *record.Request) float64 { return float64(r.OutputTokens.Or(0)) }))
	counter(&Finished, ended(func(r *record.Request) float64 { return one(r.Outcome() == record.Success) }), Label{"finished_reason", "length"})

	served := func(r *record.Request) bool { return r.Replica == replica }
	histogram := func(d *Def, at func(*record.Request) float64, v func(*record.Request) record.Float) {
		x.add(d, p.histogram(d, x.engineLabels(p, replica), at, served, v))
	}
	histogram(&TTFT, firstToken, func(r *record.Request) record.Float { return r.TTFT })
	histogram(&TPOT, endOf, func(r *record.Request) record.Float { return r.MeanTokenTime() })
	histogram(&E2E, endOf, func(r *record.Request) record.Float { return r.E2E })
	histogram(&Queue, endOf, func(r *record.Request) record.Float { return r.QueueSeconds })
}

// gateway are the counters of the prefix-cache policy.
func (x *exporter) gateway(p *phase) {
	for _, c := range p.Phase.RoutingCounterDeltas {
		name, total := strings.TrimSuffix(c.Name, "_total"), c.Delta
		labels := []Label{{"model", x.Model}}
		for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
			labels = append(labels, Label{k, c.Labels[k]})
		}
		events := p.events("", sent, func(r *record.Request) float64 { return one(counts(r, name, c.Labels)) })
		s := p.sums(p.with(labels...), events)
		for i := range s.Points {
			s.Points[i].Value = min(s.Points[i].Value, total)
		}
		s.Points[len(s.Points)-1].Value = total
		x.add(&Def{Name: name, Type: Counter, Help: CounterHelp(name)}, s)
	}
}

// counts reports whether the request moved the gateway's counter.
func counts(r *record.Request, name string, labels map[string]string) bool {
	if r.Selection == "" {
		return false
	}
	switch name {
	case "aibrix_prefix_cache_routing_selection":
		return labels["selection"] == r.Selection
	case "aibrix_prefix_cache_routing_decisions":
		return labels["match_percent_bucket"] == percentBucket(r.MatchPercent.Or(0))
	case "aibrix_prefix_cache_load_imbalance":
		return r.Imbalanced.Or(false)
	}
	return false
}

// percentBucket is AIBrix's label for a match percentage.
func percentBucket(percent int) string {
	if percent <= 0 {
		return "0"
	}
	top := (percent + 24) / 25 * 25
	low := max(top-24, 1)
	return strconv.Itoa(low) + "-" + strconv.Itoa(top)
}

// client is what the load generator itself exports.
func (x *exporter) client(p *phase) {
	sendings, ends := p.events("", sent, func(r *record.Request) float64 { return one(r.Result != record.Dropped) }),
		p.events("", endOf, func(r *record.Request) float64 { return -one(r.Result != record.Dropped) })
	x.add(&ClientInFlight, p.sums(p.with(), append(sendings, ends...)))
	var results, replicas []string
	for i := range p.Requests {
		r := &p.Requests[i]
		results, replicas = append(results, r.Result), append(replicas, r.Replica)
	}
	for _, result := range distinct(results) {
		x.add(&ClientRequests, p.sums(p.with(Label{"result", result}),
			p.events("", endOf, func(r *record.Request) float64 { return one(r.Result == result) })))
	}
	for _, name := range distinct(replicas) {
		if name != "" {
			x.add(&ClientByReplica, p.sums(p.with(Label{"node_alias", name}),
				p.events(name, sent, func(*record.Request) float64 { return 1 })))
		}
	}
	x.add(&ClientGood, p.sums(p.with(), p.events("", endOf, func(r *record.Request) float64 { return one(r.Good.Or(false)) })))
	success := func(r *record.Request) bool { return r.Outcome() == record.Success }
	for _, h := range []struct {
		def *Def
		at  func(*record.Request) float64
		v   func(*record.Request) record.Float
	}{
		{&ClientTTFT, firstToken, func(r *record.Request) record.Float { return r.TTFT }},
		{&ClientTPOT, endOf, func(r *record.Request) record.Float { return r.MeanTokenTime() }},
		{&ClientE2E, endOf, func(r *record.Request) record.Float { return r.E2E }},
	} {
		x.add(h.def, p.histogram(h.def, p.with(), h.at, success, h.v))
	}
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// An event adds an amount to a counter, or observes it.
type event struct{ at, amount float64 }

func sum(events []event) float64 {
	total := 0.0
	for _, e := range events {
		total += e.amount
	}
	return total
}

// Where in a request's life something happened, in seconds since the phase began.
func sent(r *record.Request) float64       { return r.Started.Or(0) }
func admitted(r *record.Request) float64   { return r.Started.Or(0) + r.QueueSeconds.Or(0) }
func firstToken(r *record.Request) float64 { return r.Started.Or(0) + r.TTFT.Or(r.E2E.Or(0)) }

// events are the amounts of the requests on the replica, or on any if it is "".
func (p *phase) events(replica string, at, amount func(*record.Request) float64) []event {
	events := []event{}
	for i := range p.Requests {
		r := &p.Requests[i]
		if replica == "" || r.Replica == replica {
			if v := amount(r); v != 0 {
				events = append(events, event{at(r), v})
			}
		}
	}
	return events
}

// sums is the running sum of the events at the phase's points.
func (p *phase) sums(labels []Label, events []event) Series {
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	s := Series{Labels: labels}
	total, i := 0.0, 0
	for _, t := range p.times {
		for ; i < len(events) && events[i].at <= t; i++ {
			total += events[i].amount
		}
		s.Points = append(s.Points, Point{At: p.begin + t, Value: total})
	}
	return s
}

// histogram has observed, at each of the phase's points, the requests so far.
func (p *phase) histogram(d *Def, labels []Label, at func(*record.Request) float64, wanted func(*record.Request) bool, v func(*record.Request) record.Float) Series {
	var events []event
	for i := range p.Requests {
		r := &p.Requests[i]
		if value, ok := v(r).Get(); ok && wanted(r) {
			events = append(events, event{at(r), value})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	s := Series{Labels: labels}
	h, i := NewHistogram(d.Bounds), 0
	for _, t := range p.times {
		for ; i < len(events) && events[i].at <= t; i++ {
			h.Observe(events[i].amount)
		}
		s.Points = append(s.Points, Point{At: p.begin + t, Histogram: h.Clone()})
	}
	return s
}
