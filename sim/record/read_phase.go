package record

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
)

// ReadPhases reads phase records from r: JSON lines, or one JSON document (a
// record or a list of them) over any number of lines, plain or gzip; name stands for
// r in messages. It takes the names of this package and those of both studies. With
// an error it returns the good records too; the error lists every problem, up to a
// hundred.
//
// What a source does not say but its other counts imply is filled in by the
// definitions in the package comment: planned arrivals, errors, rejected, failed.
// Everything else that is absent stays absent. Members outside the schema are kept
// in Other.
func ReadPhases(name string, r io.Reader) ([]Phase, error) {
	in := newLines(name, r, maxPhaseLine)
	if in.err == nil && isDocument(in.r) {
		return readDocument(in)
	}
	var (
		phases []Phase
		p      parser
	)
	err := in.each(func(line []byte) (err error) {
		phases, err = p.appendPhase(phases, line, in)
		return err
	})
	return phases, err
}

// Read is ReadPhases of an input that may hold request records too, or only: each
// record is taken for what its members show. A record with a result or an HTTP status
// and no count of successes is a request.
func Read(name string, r io.Reader) ([]Phase, []Request, error) {
	in := newLines(name, r, maxPhaseLine)
	if in.err == nil && isDocument(in.r) {
		phases, err := readDocument(in)
		return phases, nil, err
	}
	var (
		phases []Phase
		reqs   []Request
		p      parser
	)
	err := in.each(func(line []byte) (err error) {
		if !p.isRequest(line) {
			phases, err = p.appendPhase(phases, line, in)
			return err
		}
		req, err := p.request(line, in)
		if err == nil {
			reqs = append(reqs, req)
		}
		return err
	})
	return phases, reqs, err
}

// isRequest reports whether a line is a request record rather than a phase record.
func (p *parser) isRequest(line []byte) bool {
	if checkObject(line) != nil {
		return false
	}
	request, phase := false, false
	p.members(line, func(name string, _ []byte) {
		switch name {
		case "result", "http_status":
			request = true
		case "success":
			phase = true
		}
	})
	return request && !phase
}

// isDocument reports whether r begins like one JSON document rather than JSON
// lines: with a list, or an object whose first line is its brace alone.
func isDocument(r *bufio.Reader) bool {
	head, _ := r.Peek(1 << 10) // shorter at the end of the input
	head = bytes.TrimLeft(head, " \t\r\n")
	if len(head) == 0 || head[0] == '[' {
		return len(head) > 0
	}
	first, _, found := bytes.Cut(head, []byte("\n"))
	return found && string(bytes.TrimSpace(first)) == "{"
}

// readDocument reads a list of records, or records one after another, that may
// span lines. Problems with a record have the line where it begins.
func readDocument(in *lines) ([]Phase, error) {
	var (
		phases   []Phase
		problems problemList
		p        parser
	)
	complain := func(line int, format string, args ...any) ([]Phase, error) {
		in.line = line
		problems.add(in.problem(format, args...))
		return phases, problems.err(in.file)
	}
	data, broken := io.ReadAll(io.LimitReader(in.r, maxPhaseLine+1))
	if len(data) > maxPhaseLine {
		return complain(1, "the document is longer than %d bytes", maxPhaseLine)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	isList := bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("["))
	if isList {
		_, _ = dec.Token() // the bracket just seen
	}
	in.line = 1
	counted := 0 // how far in.line has counted
	for dec.More() {
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			begin := valueBegin(data, int(dec.InputOffset()))
			at, problem := syntaxProblem(data[begin:])
			if broken != nil {
				problem = in.broken(broken).Problem
			}
			return complain(lineAt(data, begin+at), "%s", problem)
		}
		begin := int(dec.InputOffset()) - len(value)
		in.line += bytes.Count(data[counted:begin], []byte("\n"))
		counted = begin
		var err error
		if phases, err = p.appendPhase(phases, value, in); err != nil {
			problems.add(err)
		}
	}
	if isList && broken == nil {
		if _, err := dec.Token(); err != nil {
			return complain(lineAt(data, len(data)), "the list is unfinished: cut off here?")
		}
	}
	if broken != nil {
		return complain(lineAt(data, len(data)), "%s", in.broken(broken).Problem)
	}
	if end := valueBegin(data, int(dec.InputOffset())); end < len(data) {
		return complain(lineAt(data, end), "something follows the last record")
	}
	return phases, problems.err(in.file)
}

// valueBegin is where the next value begins at or after at.
func valueBegin(data []byte, at int) int {
	for at < len(data) && bytes.IndexByte([]byte(" \t\r\n,"), data[at]) >= 0 {
		at++
	}
	return at
}

// lineAt is the number of the line that holds the byte at offset.
func lineAt(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }

// appendPhase parses one record.
func (p *parser) appendPhase(phases []Phase, data []byte, in *lines) ([]Phase, error) {
	p.problems = p.problems[:0]
	var ph Phase
	if err := checkObject(data); err != nil {
		p.problems = append(p.problems, err)
	} else {
		ph = p.phase(data)
	}
	if len(p.problems) > 0 {
		return phases, p.at(in)
	}
	return append(phases, ph), nil
}

// aliases are what the studies call things of the schema, or where they put them;
// the schema's own name comes first.
type aliases struct {
	count            Int    // planned
	droppedArrivals  Int    // dropped
	configPhase      string // phase
	configRoute      string // route
	extraPlanned     Int
	extraRequests    Int
	extraErrors      Int
	looksLikeRequest bool
}

func (p *parser) phase(data []byte) Phase {
	var (
		ph Phase
		a  aliases
	)
	seen := make(map[string]bool)
	p.members(data, func(name string, value []byte) {
		if seen[name] {
			p.complain(name, isTwice)
		}
		seen[name] = true
		if !p.phaseMember(&ph, name, value) && !p.phaseAlias(&a, name, value) {
			keep(&ph.Other, name, value)
		}
	})
	ph.Phase = cmp.Or(ph.Phase, a.configPhase)
	ph.Route = cmp.Or(ph.Route, a.configRoute)
	ph.Planned = cmp.Or(ph.Planned, a.count, a.extraPlanned)
	ph.Dropped = cmp.Or(ph.Dropped, a.droppedArrivals)
	ph.Requests = cmp.Or(ph.Requests, a.extraRequests)
	ph.Errors = cmp.Or(ph.Errors, a.extraErrors)
	ph.complete()
	p.checkPhase(&ph, &a)
	return ph
}

// phaseMember takes a member of the schema; it reports whether it is one.
func (p *parser) phaseMember(ph *Phase, name string, value []byte) bool {
	switch name {
	case "phase":
		ph.Phase = p.text(name, value)
	case "round":
		ph.Round = p.count(name, value)
	case "scenario":
		ph.Scenario = p.text(name, value)
	case "route":
		ph.Route = p.text(name, value)
	case "seed":
		ph.Seed = p.uint(name, value)
	case "planned":
		ph.Planned = p.count(name, value)
	case "requests":
		ph.Requests = p.count(name, value)
	case "success":
		ph.Success = p.count(name, value)
	case "errors":
		ph.Errors = p.count(name, value)
	case "dropped":
		ph.Dropped = p.count(name, value)
	case "rejected":
		ph.Rejected = p.count(name, value)
	case "failed":
		ph.Failed = p.count(name, value)
	case "good":
		ph.Good = p.count(name, value)
	case "started_relative_seconds":
		ph.Started = p.float(name, value)
	case "finished_relative_seconds":
		ph.Finished = p.float(name, value)
	case "elapsed":
		ph.Elapsed = p.float(name, value)
	case "output_tokens_per_second":
		ph.OutputTokensPerSecond = p.float(name, value)
	case "ttft":
		ph.TTFT = p.percentiles(name, value)
	case "tpot":
		ph.TPOT = p.percentiles(name, value)
	case "e2e":
		ph.E2E = p.percentiles(name, value)
	case "families":
		ph.Families = namedList(p, name, value, (*parser).familyStats)
	case "tenants":
		ph.Tenants = namedList(p, name, value, (*parser).tenant)
	case "replicas":
		ph.Replicas = namedList(p, name, value, (*parser).replica)
	case "cache_hit_ratio":
		ph.CacheHitRatio = p.ratio(name, value)
	case "input_tokens_range":
		ph.InputTokensRange = p.span(name, value)
	case "routing_counter_deltas":
		ph.RoutingCounterDeltas = p.deltas(name, value)
	case "error_categories":
		ph.ErrorCategories = p.counts(name, value)
	case "simulated":
		ph.Simulated = p.bool(name, value).Or(false)
	case "steps":
		ph.Steps = p.count(name, value)
	case "events":
		ph.Events = p.count(name, value)
	case "notes":
		ph.Notes = nil
		p.list(name, value, func(note []byte) { ph.Notes = append(ph.Notes, p.text(name, note)) })
	default:
		return false
	}
	return true
}

// phaseAlias notes what else may say a member of the schema. It reports whether
// nothing of the member is left to keep.
func (p *parser) phaseAlias(a *aliases, name string, value []byte) bool {
	switch name {
	case "count":
		a.count = p.count(name, value)
		return true
	case "dropped_arrivals":
		a.droppedArrivals = p.count(name, value)
		return true
	case "config":
		p.aliasObject(name, value, func(name string, value []byte) {
			switch name {
			case "phase":
				a.configPhase = p.text("config.phase", value)
			case "route":
				a.configRoute = p.text("config.route", value)
			}
		})
	case "extra":
		p.aliasObject(name, value, func(name string, value []byte) {
			switch name {
			case "planned":
				a.extraPlanned = p.count("extra.planned", value)
			case "requests":
				a.extraRequests = p.count("extra.requests", value)
			case "errors":
				a.extraErrors = p.count("extra.errors", value)
			}
		})
	case "result", "http_status":
		a.looksLikeRequest = true
	}
	return false
}

// aliasObject is members of a value that may be anything: another tool's member
// of the same name is none of our business.
func (p *parser) aliasObject(name string, value []byte, f func(name string, value []byte)) {
	if value[0] == '{' {
		p.object(name, value, f)
	}
}

// complete fills in the counts that others imply.
func (ph *Phase) complete() {
	for i := range ph.Tenants {
		t := &ph.Tenants[i]
		if t.StatusCounts != nil && !t.Rejected.Valid() {
			t.Rejected = Some(t.StatusCounts.Of("429"))
		}
		completeCounts(t.Requests, t.Success, &t.Errors, &t.Rejected, &t.Failed)
	}
	if !ph.Rejected.Valid() {
		ph.Rejected = rejectedByTenants(ph.Tenants)
	}
	completeCounts(ph.Requests, ph.Success, &ph.Errors, &ph.Rejected, &ph.Failed)
	requests, sent := ph.Requests.Get()
	dropped, counted := ph.Dropped.Get()
	if !ph.Planned.Valid() && sent && counted {
		ph.Planned = Some(requests + dropped)
	}
}

// completeCounts uses errors = requests − success = rejected + failed.
func completeCounts(requests, success Int, errs, rejected, failed *Int) {
	n, haveRequests := requests.Get()
	s, haveSuccess := success.Get()
	if !errs.Valid() && haveRequests && haveSuccess && n >= s {
		*errs = Some(n - s)
	}
	e, haveErrors := errs.Get()
	if !haveErrors {
		return
	}
	if e == 0 && !rejected.Valid() {
		*rejected = Some(0)
	}
	if r, ok := rejected.Get(); ok && !failed.Valid() && e >= r {
		*failed = Some(e - r)
	}
}

// rejectedByTenants is absent unless every tenant says it.
func rejectedByTenants(tenants []Tenant) Int {
	sum := 0
	for i := range tenants {
		n, ok := tenants[i].Rejected.Get()
		if !ok {
			return Int{}
		}
		sum += n
	}
	if len(tenants) == 0 {
		return Int{}
	}
	return Some(sum)
}

// checkPhase complains of records that are none or cannot be.
func (p *parser) checkPhase(ph *Phase, a *aliases) {
	complain := func(format string, args ...any) {
		p.problems = append(p.problems, fmt.Errorf(format, args...))
	}
	if a.looksLikeRequest && !ph.Success.Valid() {
		p.problems = p.problems[:0] // they are of no interest then
		complain("a request record, where phase records are wanted")
		return
	}
	if ph.Phase == "" {
		complain("no phase: a phase record has a name")
	}
	good, haveGood := ph.Good.Get()
	success, haveSuccess := ph.Success.Get()
	requests, haveRequests := ph.Requests.Get()
	if haveGood && haveSuccess && good > success {
		complain("good: %d of %d successes", good, success)
	}
	if haveSuccess && haveRequests && success > requests {
		complain("success: %d of %d requests", success, requests)
	}
}

// namedList takes an object whose members are things of one kind; null is nil.
func namedList[T any](p *parser, name string, value []byte, member func(p *parser, place, name string, value []byte) T) []T {
	list := []T{}
	if !p.object(name, value, func(key string, value []byte) {
		list = append(list, member(p, name+"."+key, key, value))
	}) {
		return nil
	}
	return list
}

func (p *parser) familyStats(place, name string, value []byte) Family {
	f := Family{Name: name}
	p.object(place, value, func(key string, value []byte) {
		switch at := place + "." + key; key {
		case "requests":
			f.Requests = p.count(at, value)
		case "ttft_p95":
			f.TTFTP95 = p.float(at, value)
		}
	})
	return f
}

func (p *parser) tenant(place, name string, value []byte) Tenant {
	t := Tenant{Name: name}
	var ttft, tpot Float
	p.object(place, value, func(key string, value []byte) {
		switch at := place + "." + key; key {
		case "planned":
			t.Planned = p.count(at, value)
		case "requests":
			t.Requests = p.count(at, value)
		case "success":
			t.Success = p.count(at, value)
		case "errors":
			t.Errors = p.count(at, value)
		case "dropped":
			t.Dropped = p.count(at, value)
		case "rejected":
			t.Rejected = p.count(at, value)
		case "failed":
			t.Failed = p.count(at, value)
		case "good":
			t.Good = p.count(at, value)
		case "output_tokens_per_second":
			t.OutputTokensPerSecond = p.float(at, value)
		case "status_counts":
			t.StatusCounts = p.counts(at, value)
		case "input_tokens_range":
			t.InputTokensRange = p.span(at, value)
		case "ttft":
			t.TTFT = p.percentiles(at, value)
		case "tpot":
			t.TPOT = p.percentiles(at, value)
		case "e2e":
			t.E2E = p.percentiles(at, value)
		case "ttft_p95_seconds":
			ttft = p.float(at, value)
		case "tpot_p95_seconds":
			tpot = p.float(at, value)
		}
	})
	if !t.TTFT.P95.Valid() {
		t.TTFT.P95 = ttft
	}
	if !t.TPOT.P95.Valid() {
		t.TPOT.P95 = tpot
	}
	return t
}

func (p *parser) replica(place, name string, value []byte) Replica {
	r := Replica{Name: name}
	p.object(place, value, func(key string, value []byte) {
		switch at := place + "." + key; key {
		case "requests":
			r.Requests = p.count(at, value)
		case "cache_queries_tokens":
			r.CacheQueriesTokens = p.count(at, value)
		case "cache_hit_tokens":
			r.CacheHitTokens = p.count(at, value)
		case "waiting_peak":
			r.WaitingPeak = p.count(at, value)
		case "running_peak":
			r.RunningPeak = p.count(at, value)
		case "kv_usage_peak":
			r.KVUsagePeak = p.ratio(at, value)
		case "waiting_max":
			r.WaitingMax = p.count(at, value)
		case "running_max":
			r.RunningMax = p.count(at, value)
		case "kv_usage_max":
			r.KVUsageMax = p.ratio(at, value)
		case "family_counts":
			r.FamilyCounts = p.counts(at, value)
		case "preemptions":
			r.Preemptions = p.count(at, value)
		case "gateway_outstanding_at_selection_peak":
			r.GatewayOutstandingAtSelectionPeak = p.count(at, value)
		default:
			keep(&r.Other, key, value)
		}
	})
	return r
}

func (p *parser) percentiles(name string, value []byte) Percentiles {
	var q Percentiles
	p.object(name, value, func(key string, value []byte) {
		switch at := name + "." + key; key {
		case "p50":
			q.P50 = p.float(at, value)
		case "p95":
			q.P95 = p.float(at, value)
		case "p99":
			q.P99 = p.float(at, value)
		case "n":
			q.N = p.count(at, value)
		}
	})
	return q
}

// span takes a list of a smallest and a largest count.
func (p *parser) span(name string, value []byte) Range {
	var ends []Int
	if !p.list(name, value, func(value []byte) { ends = append(ends, p.count(name, value)) }) {
		return Range{}
	}
	if len(ends) != 2 || !ends[0].Valid() || !ends[1].Valid() || ends[0].Or(0) > ends[1].Or(0) {
		p.complain(name, "%s; allowed is [smallest, largest], or null", clip(value))
		return Range{}
	}
	return Range{Min: ends[0], Max: ends[1]}
}

func (p *parser) counts(name string, value []byte) Counts {
	return namedList(p, name, value, func(p *parser, place, name string, value []byte) Count {
		return Count{Name: name, N: p.count(place, value).Or(0)}
	})
}

func (p *parser) deltas(name string, value []byte) []CounterDelta {
	list := []CounterDelta{}
	if !p.list(name, value, func(value []byte) {
		var d CounterDelta
		p.object(name, value, func(key string, value []byte) {
			switch at := name + "." + key; key {
			case "name":
				d.Name = p.text(at, value)
			case "labels":
				d.Labels = make(map[string]string)
				p.object(at, value, func(label string, value []byte) { d.Labels[label] = p.text(at+"."+label, value) })
			case "delta":
				d.Delta, _ = p.number(at, value)
			}
		})
		list = append(list, d)
	}) {
		return nil
	}
	return list
}
