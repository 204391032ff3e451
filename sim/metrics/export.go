package metrics

import (
	"fmt"
	"io"
	"math"

	"fleetsim/sim/record"
)

// Options of an export.
type Options struct {
	Start float64 // Unix time of the first phase's start, s
	Step  float64 // s between two points of a counter or histogram; at least 1 ms
	Gap   float64 // s of nothing between two phases
	Model string  // model_name
	Dir   string  // for a temporary file of what does not fit into memory; "" is the system's
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

// An Export turns phases with the records behind them into time series, the phases
// one after the other as they would have run on one cluster. Every series has the
// labels phase and route. It takes the records one by one and of each only the few
// numbers that the series are made of; those it keeps in a file when there are many,
// so that its memory does not grow with them.
//
// The gauges are the timeline's. The counters and histograms follow from the
// request records, each request counted where it happened: at the client when
// its stream ended, at the gateway when it was sent, at the engine when it had
// waited its queue_seconds. The last point of the engine's cache counters is the
// phase record's figure, so that lookups which no single request shows (vLLM
// 0.26 counts each attempt to admit) are in it.
type Export struct {
	Options
	phases []*phase
	spool  spool
}

// NewExport begins an export of the phases. Close ends it.
func NewExport(phases []record.Phase, o Options) (*Export, error) {
	if !(o.Step >= 0.001) || math.IsInf(o.Step, 0) {
		return nil, fmt.Errorf("step %g s: allowed is 0.001 or more", o.Step)
	}
	x := &Export{Options: o, spool: spool{dir: o.Dir, limit: spoolEvents}}
	for i := range phases {
		x.phases = append(x.phases, newPhase(&phases[i], o.Model))
	}
	return x, nil
}

// Close removes the file.
func (x *Export) Close() error { return x.spool.close() }

// Sample takes a line of the timeline of phase number i, in order of time and
// before the phase's first request.
func (x *Export) Sample(i int, s *Sample) {
	e := x.phases[i].engines[s.Replica]
	if e == nil {
		return
	}
	for _, g := range e.gauges {
		if v, ok := g.sampled(s); ok {
			x.spool.add(&g.track, event{s.At, v})
		}
	}
	for _, c := range e.cache {
		if v, ok := c.sampled(s); ok {
			more := v - c.sum
			x.spool.add(&c.track, event{s.At, more})
			c.sum += more
			c.sources = nil // the requests have nothing to add
		}
	}
}

// Request takes a request record of phase number i.
func (x *Export) Request(i int, r *record.Request) {
	p := x.phases[i]
	p.lastEnd = max(p.lastEnd, endOf(r))
	if e := p.engines[r.Replica]; e != nil {
		x.count(e.cache, r)
		x.count(e.counters, r)
	}
	x.count(p.gateway, r)
	x.count(p.client, r)
	x.spool.add(&p.ofResult(r.Result).track, event{endOf(r), 1})
	if r.Replica != "" {
		x.spool.add(&p.ofReplica(r.Replica).track, event{sent(r), 1})
	}
}

// count adds to the series what the request does to them.
func (x *Export) count(of []*series, r *record.Request) {
	for _, s := range of {
		for _, from := range s.sources {
			if v, ok := from.amount(r); ok {
				x.spool.add(&s.track, event{from.at(r), v})
			}
		}
	}
}

// Spans are where the phases lie, after all of their requests. It fails when one is
// too long for the step.
func (x *Export) Spans() ([]Span, error) {
	var spans []Span
	begin := x.Start
	for _, p := range x.phases {
		length := max(p.record.Elapsed.Or(0), p.lastEnd)
		steps := math.Ceil(length/x.Step) + 1
		if steps > maxPoints {
			return nil, fmt.Errorf("phase %s: %g s in steps of %g s are over %d points", p.record.Phase, length, x.Step, maxPoints)
		}
		p.begin, p.steps = begin, int(steps)
		end := begin + steps*x.Step
		spans = append(spans, Span{p.record.Phase, p.record.Route, begin, end})
		begin = math.Ceil((end+x.Gap)/60) * 60
	}
	return spans, nil
}

// WriteOpenMetrics writes every point of every series with its timestamp in
// OpenMetrics text, as `promtool tsdb create-blocks-from openmetrics` reads it.
func (x *Export) WriteOpenMetrics(w io.Writer) error {
	if _, err := x.Spans(); err != nil {
		return err
	}
	if x.spool.err != nil {
		return fmt.Errorf("temporary file: %w", x.spool.err)
	}
	out := lineWriter{w: w}
	for _, f := range x.families() {
		out.text = appendHead(out.text, f.def.Name, f.def.Help, f.def.Type)
		for _, s := range f.series {
			if err := x.write(&out, s); err != nil {
				return err
			}
		}
	}
	out.text = append(out.text, "# EOF\n"...)
	return out.flush()
}

// A family is the series of one metric: it is written in one piece, whatever phases
// add to it.
type family struct {
	def    *Def
	series []placed
}

// A placed series knows the phase that it belongs to.
type placed struct {
	*series
	phase *phase
}

func (x *Export) families() []family {
	var families []family
	place := make(map[string]int)
	for _, p := range x.phases {
		for _, s := range p.all() {
			i, ok := place[s.def.Name]
			if !ok {
				i = len(families)
				place[s.def.Name] = i
				families = append(families, family{def: s.def})
			}
			families[i].series = append(families[i].series, placed{s, p})
		}
	}
	return families
}

// write writes the points of a series.
func (x *Export) write(out *lineWriter, s placed) error {
	out.starts = lineStarts(s.def.Name, s.def.Type, s.def.Bounds, s.labels)
	events := x.spool.events(&s.track)
	points := x.values
	switch {
	case s.def.Type == HistogramType:
		points = x.histogram
	case s.sampled != nil && s.def.Type == Gauge:
		points = x.samples
	}
	if err := points(out, s, events); err != nil {
		return err
	}
	if events.err != nil {
		return fmt.Errorf("temporary file: %w", events.err)
	}
	return nil
}

// samples writes a gauge as the timeline has it.
func (x *Export) samples(out *lineWriter, s placed, events *cursor) error {
	for e, ok := events.until(math.Inf(1)); ok; e, ok = events.until(math.Inf(1)) {
		if err := out.point(s.phase.begin+e.at, e.amount); err != nil {
			return err
		}
	}
	return nil
}

// values writes the running sum of the events at each of the phase's points. It
// ends on the total where that is known, and is nowhere above it.
func (x *Export) values(out *lineWriter, s placed, events *cursor) error {
	sum := 0.0
	for k := range s.phase.steps + 1 {
		t := float64(k) * x.Step
		for e, ok := events.until(t); ok; e, ok = events.until(t) {
			sum += e.amount
		}
		v := sum
		if total, ok := s.total.Get(); ok {
			v = min(v, total)
			if k == s.phase.steps {
				v = total
			}
		}
		if err := out.point(s.phase.begin+t, v); err != nil {
			return err
		}
	}
	return nil
}

// histogram writes what has been observed until each of the phase's points.
func (x *Export) histogram(out *lineWriter, s placed, events *cursor) error {
	h := NewHistogram(s.def.Bounds)
	var values []float64
	for k := range s.phase.steps + 1 {
		t := float64(k) * x.Step
		for e, ok := events.until(t); ok; e, ok = events.until(t) {
			h.Observe(e.amount)
		}
		values = h.appendValues(values[:0])
		if err := out.point(s.phase.begin+t, values...); err != nil {
			return err
		}
	}
	return nil
}
