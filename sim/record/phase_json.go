package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// phaseNames and replicaNames are the members that the schema gives the two
// records: an extension cannot have their names.
var (
	phaseNames = []string{
		"phase", "round", "scenario", "route", "seed",
		"planned", "requests", "success", "errors", "dropped", "rejected", "failed", "good",
		"started_relative_seconds", "finished_relative_seconds", "elapsed",
		"output_tokens_per_second", "ttft", "tpot", "e2e",
		"families", "tenants", "replicas", "cache_hit_ratio", "input_tokens_range",
		"routing_counter_deltas", "error_categories", "simulated", "steps", "events", "notes",
	}
	replicaNames = []string{
		"requests", "cache_queries_tokens", "cache_hit_tokens",
		"waiting_peak", "running_peak", "kv_usage_peak", "waiting_max", "running_max", "kv_usage_max",
		"family_counts", "preemptions", "gateway_outstanding_at_selection_peak",
	}
)

// WritePhase writes p as one JSON line. Members have a fixed order; families,
// tenants, replicas and counts keep theirs; labels and extensions are sorted.
func WritePhase(w io.Writer, p *Phase) error {
	line, err := p.AppendJSON(nil)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// MarshalJSON is AppendJSON for encoding/json.
func (p Phase) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil) }

// AppendJSON appends the record as one JSON object without a newline. It fails
// only when an extension is not JSON or has a name of the schema.
func (p *Phase) AppendJSON(dst []byte) ([]byte, error) {
	if err := p.checkExtensions(); err != nil {
		return dst, err
	}
	o := newObject(dst)
	o.text("phase", p.Phase)
	o.int("round", p.Round)
	o.text("scenario", p.Scenario)
	o.text("route", p.Route)
	o.uint("seed", p.Seed)
	o.int("planned", p.Planned)
	o.int("requests", p.Requests)
	o.int("success", p.Success)
	o.int("errors", p.Errors)
	o.int("dropped", p.Dropped)
	o.int("rejected", p.Rejected)
	o.int("failed", p.Failed)
	o.int("good", p.Good)
	o.float("started_relative_seconds", p.Started)
	o.float("finished_relative_seconds", p.Finished)
	o.float("elapsed", p.Elapsed)
	o.float("output_tokens_per_second", p.OutputTokensPerSecond)
	o.percentiles("ttft", p.TTFT)
	o.percentiles("tpot", p.TPOT)
	o.percentiles("e2e", p.E2E)
	appendMembers(&o, "families", p.Families, (*Family).append)
	appendMembers(&o, "tenants", p.Tenants, (*Tenant).append)
	appendMembers(&o, "replicas", p.Replicas, (*Replica).append)
	o.float("cache_hit_ratio", p.CacheHitRatio)
	o.span("input_tokens_range", p.InputTokensRange)
	o.deltas("routing_counter_deltas", p.RoutingCounterDeltas)
	if p.ErrorCategories != nil {
		o.counts("error_categories", p.ErrorCategories)
	}
	if p.Simulated {
		o.bool("simulated", Some(true))
		o.int("steps", p.Steps)
		o.int("events", p.Events)
	}
	if len(p.Notes) > 0 {
		o.texts("notes", p.Notes)
	}
	o.extensions(p.Other)
	return o.end(), nil
}

func (f *Family) append(o *object) {
	o.name(f.Name)
	m := newObject(o.dst)
	m.int("requests", f.Requests)
	m.float("ttft_p95", f.TTFTP95)
	o.dst = m.end()
}

func (t *Tenant) append(o *object) {
	o.name(t.Name)
	m := newObject(o.dst)
	m.int("planned", t.Planned)
	m.int("requests", t.Requests)
	m.int("success", t.Success)
	m.int("errors", t.Errors)
	m.int("dropped", t.Dropped)
	m.int("rejected", t.Rejected)
	m.int("failed", t.Failed)
	m.int("good", t.Good)
	m.float("output_tokens_per_second", t.OutputTokensPerSecond)
	m.counts("status_counts", t.StatusCounts)
	m.span("input_tokens_range", t.InputTokensRange)
	m.percentiles("ttft", t.TTFT)
	m.percentiles("tpot", t.TPOT)
	m.percentiles("e2e", t.E2E)
	// The production study's names for the same two figures.
	m.float("ttft_p95_seconds", t.TTFT.P95)
	m.float("tpot_p95_seconds", t.TPOT.P95)
	o.dst = m.end()
}

func (r *Replica) append(o *object) {
	o.name(r.Name)
	m := newObject(o.dst)
	m.int("requests", r.Requests)
	m.int("cache_queries_tokens", r.CacheQueriesTokens)
	m.int("cache_hit_tokens", r.CacheHitTokens)
	m.int("waiting_peak", r.WaitingPeak)
	m.int("running_peak", r.RunningPeak)
	m.float("kv_usage_peak", r.KVUsagePeak)
	if r.WaitingMax.Valid() || r.RunningMax.Valid() || r.KVUsageMax.Valid() {
		m.int("waiting_max", r.WaitingMax)
		m.int("running_max", r.RunningMax)
		m.float("kv_usage_max", r.KVUsageMax)
	}
	m.counts("family_counts", r.FamilyCounts)
	m.int("preemptions", r.Preemptions)
	m.int("gateway_outstanding_at_selection_peak", r.GatewayOutstandingAtSelectionPeak)
	m.extensions(r.Other)
	o.dst = m.end()
}

// appendMembers writes a list of named things as one object, in the list's order;
// a nil list is null.
func appendMembers[T any](o *object, name string, list []T, member func(*T, *object)) {
	o.key(name)
	if list == nil {
		o.dst = append(o.dst, "null"...)
		return
	}
	m := newObject(o.dst)
	for i := range list {
		member(&list[i], &m)
	}
	o.dst = m.end()
}

func (o *object) percentiles(name string, p Percentiles) {
	o.key(name)
	m := newObject(o.dst)
	m.float("p50", p.P50)
	m.float("p95", p.P95)
	m.float("p99", p.P99)
	if p.N.Valid() {
		m.int("n", p.N)
	}
	o.dst = m.end()
}

func (o *object) span(name string, r Range) {
	o.key(name)
	if !r.Min.Valid() || !r.Max.Valid() {
		o.dst = append(o.dst, "null"...)
		return
	}
	o.dst = appendOpt(append(o.dst, '['), r.Min)
	o.dst = appendOpt(append(o.dst, ','), r.Max)
	o.dst = append(o.dst, ']')
}

func (o *object) counts(name string, c Counts) {
	appendMembers(o, name, c, func(c *Count, m *object) {
		m.name(c.Name)
		m.dst = appendOpt(m.dst, Some(c.N))
	})
}

func (o *object) texts(name string, list []string) {
	o.key(name)
	o.dst = append(o.dst, '[')
	for i, s := range list {
		if i > 0 {
			o.dst = append(o.dst, ',')
		}
		o.dst = appendString(o.dst, s)
	}
	o.dst = append(o.dst, ']')
}

func (o *object) deltas(name string, list []CounterDelta) {
	o.key(name)
	if list == nil {
		o.dst = append(o.dst, "null"...)
		return
	}
	o.dst = append(o.dst, '[')
	for i := range list {
		if i > 0 {
			o.dst = append(o.dst, ',')
		}
		m := newObject(o.dst)
		m.key("name")
		m.dst = appendString(m.dst, list[i].Name)
		m.key("labels")
		labels := newObject(m.dst)
		for _, label := range slices.Sorted(maps.Keys(list[i].Labels)) {
			labels.name(label)
			labels.dst = appendString(labels.dst, list[i].Labels[label])
		}
		m.dst = labels.end()
		m.float("delta", Some(list[i].Delta))
		o.dst = m.end()
	}
	o.dst = append(o.dst, ']')
}

// extensions writes further members, which checkExtensions has passed, by name.
func (o *object) extensions(other map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(other)) {
		var b bytes.Buffer
		if json.Compact(&b, other[name]) != nil {
			panic("record: unreachable: extensions are checked before they are written")
		}
		o.name(name)
		o.dst = append(o.dst, b.Bytes()...)
	}
}

func (p *Phase) checkExtensions() error {
	if err := checkExtensions(p.Other, phaseNames); err != nil {
		return fmt.Errorf("record: phase %q: %w", p.Phase, err)
	}
	for i := range p.Replicas {
		if err := checkExtensions(p.Replicas[i].Other, replicaNames); err != nil {
			return fmt.Errorf("record: phase %q: replica %q: %w", p.Phase, p.Replicas[i].Name, err)
		}
	}
	return nil
}

func checkExtensions(other map[string]json.RawMessage, schema []string) error {
	for _, name := range slices.Sorted(maps.Keys(other)) {
		switch {
		case slices.Contains(schema, name):
			return fmt.Errorf("extension %q has the name of a member of the schema", name)
		case !json.Valid(other[name]):
			return fmt.Errorf("extension %q is not JSON", name)
		}
	}
	return nil
}
