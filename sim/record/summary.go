package record

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Meta is what a summary cannot know from the request records.
type Meta struct {
	Phase, Scenario, Route string
	Round                  Int
	Seed                   Uint
	// Planned is the number of planned arrivals. Sources that keep no record of a
	// dropped arrival must give it; absent means that every arrival has a record.
	Planned Int
	// Elapsed is the length of the phase in seconds, the drain included; absent means
	// from the first start to the last end on record.
	Elapsed Float
	// Replicas are the names in replica order, also of those without a request; nil
	// means the names on record, sorted.
	Replicas  []string
	Simulated bool
}

// Summarize makes the phase record of reqs, in any order: everything that follows
// from request records. Engine figures (cache, peaks, preemptions) and routing
// counters are absent in it; Replicas has what the requests tell of each.
//
// Quantiles are over successes. Good is decided anew by slo, whatever the records
// say. Throughput is the successes' received tokens over the elapsed time; it is
// absent when a success does not say its tokens. Notes names what the figures leave
// out.
func Summarize(reqs []Request, slo SLO, meta Meta) Phase {
	var (
		all      tally
		tenants  ordered[string, tally]
		families ordered[int, tally]
	)
	for i := range reqs {
		r := &reqs[i]
		all.add(r, slo)
		tenants.at(r.Tenant).add(r, slo)
		if f, ok := r.Family.Get(); ok {
			families.at(f).add(r, slo)
		}
	}
	elapsed := meta.Elapsed
	if !elapsed.Valid() {
		elapsed = span(reqs)
	}
	planned := max(len(reqs), meta.Planned.Or(0))
	unrecorded := planned - len(reqs)

	p := Phase{
		Phase: meta.Phase, Scenario: meta.Scenario, Route: meta.Route,
		Round: meta.Round, Seed: meta.Seed,

		Planned:  Some(planned),
		Requests: Some(all.sent()),
		Success:  Some(all.success),
		Errors:   Some(all.rejected + all.failed),
		Dropped:  Some(all.dropped + unrecorded),
		Rejected: Some(all.rejected),
		Failed:   Some(all.failed),
		Good:     Some(all.good),

		Elapsed:               elapsed,
		OutputTokensPerSecond: all.throughput(elapsed),
		TTFT:                  PercentilesOf(all.ttft),
		TPOT:                  PercentilesOf(all.tpot),
		E2E:                   PercentilesOf(all.e2e),

		Families:         familiesOf(&families),
		Tenants:          tenantsOf(&tenants, elapsed, unrecorded),
		Replicas:         replicasOf(reqs, meta.Replicas),
		InputTokensRange: all.inputs,
		ErrorCategories:  sortedCounts(all.categories),
		Simulated:        meta.Simulated,
		Notes:            all.notes(),
	}
	if said, ok := meta.Planned.Get(); ok && said < len(reqs) {
		p.Notes = append(p.Notes, fmt.Sprintf("%d records of %d planned arrivals: taken as %d planned", len(reqs), said, len(reqs)))
	}
	return p
}

// A tally counts requests and collects the times of the successes among them.
type tally struct {
	success, dropped, rejected, failed, good int

	tokens        int // received by successes
	unknownTokens int // successes that do not say theirs
	emptyOK       int // called ok without a token
	unstreamed    int // successes without TTFT

	ttft, tpot, e2e []float64
	inputs          Range
	statuses        []statusCount
	categories      Counts
}

func (t *tally) sent() int { return t.success + t.rejected + t.failed }

func (t *tally) add(r *Request, slo SLO) {
	outcome := r.Outcome()
	if outcome == DroppedArrival {
		t.dropped++
		return
	}
	if n, ok := r.InputTokens.Get(); ok {
		t.inputs = t.inputs.with(n)
	}
	if status, ok := r.HTTPStatus.Get(); ok {
		t.countStatus(status)
	}
	switch outcome {
	case Success:
		t.addSuccess(r, slo)
		return
	case RejectedRequest:
		t.rejected++
	default:
		t.failed++
		if r.Result == OK && r.emptyAnswer() {
			t.emptyOK++
		}
	}
	t.categories = t.categories.add(category(r, outcome))
}

// A statusCount is the number of answers with one HTTP status.
type statusCount struct{ status, n int }

func (t *tally) countStatus(status int) {
	for i := range t.statuses {
		if t.statuses[i].status == status {
			t.statuses[i].n++
			return
		}
	}
	t.statuses = append(t.statuses, statusCount{status, 1})
}

// statusCounts are the answers by status, ascending.
func (t *tally) statusCounts() Counts {
	slices.SortFunc(t.statuses, func(a, b statusCount) int { return cmp.Compare(a.status, b.status) })
	counts := make(Counts, 0, len(t.statuses))
	for _, s := range t.statuses {
		counts = append(counts, Count{Name: strconv.Itoa(s.status), N: s.n})
	}
	return counts
}

func (t *tally) addSuccess(r *Request, slo SLO) {
	t.success++
	if slo.Good(r) {
		t.good++
	}
	if n, ok := r.OutputTokens.Get(); ok {
		t.tokens += n
	} else {
		t.unknownTokens++
	}
	if !r.TTFT.Valid() {
		t.unstreamed++
	}
	t.ttft = appendPresent(t.ttft, r.TTFT)
	t.tpot = appendPresent(t.tpot, r.MeanTokenTime())
	t.e2e = appendPresent(t.e2e, r.E2E)
}

func appendPresent(values []float64, v Float) []float64 {
	if f, ok := v.Get(); ok {
		return append(values, f)
	}
	return values
}

// category is why a request is no success: the source's category, or else its
// word for the result, or else what was found wrong here.
func category(r *Request, outcome Outcome) string {
	switch {
	case r.ErrorCategory != "":
		return r.ErrorCategory
	case outcome == RejectedRequest:
		return Rejected
	case r.Result == OK && r.emptyAnswer():
		return "empty_answer"
	case r.Result == OK:
		return "http_status_" + strconv.Itoa(r.HTTPStatus.Or(0))
	case r.Result == "":
		return Failed
	}
	return r.Result
}

func (t *tally) throughput(elapsed Float) Float {
	e, ok := elapsed.Get()
	if !ok || e <= 0 || t.unknownTokens > 0 {
		return Float{}
	}
	return Some(float64(t.tokens) / e)
}

func (t *tally) notes() []string {
	var notes []string
	if t.emptyOK > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d requests say ok but hold no tokens: counted as failed", t.emptyOK, t.sent()))
	}
	if t.unknownTokens > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d successes do not say their output tokens: no throughput", t.unknownTokens, t.success))
	}
	switch {
	case t.unstreamed > 0 && t.unstreamed == t.success:
		notes = append(notes, "no TTFT: the source did not stream")
	case t.unstreamed > 0:
		notes = append(notes, fmt.Sprintf("%d of %d successes have no TTFT", t.unstreamed, t.success))
	}
	return notes
}

// with is the range widened to hold n.
func (r Range) with(n int) Range {
	return Range{Min: Some(min(n, r.Min.Or(n))), Max: Some(max(n, r.Max.Or(n)))}
}

// span is the time from the first start to the last end; absent when no request
// that was sent says when.
func span(reqs []Request) Float {
	first, last := math.Inf(1), math.Inf(-1)
	for i := range reqs {
		start, ok := reqs[i].Started.Get()
		if !ok || reqs[i].Outcome() == DroppedArrival {
			continue
		}
		first = min(first, start)
		last = max(last, start+reqs[i].E2E.Or(0))
	}
	return Some(last - first) // absent when nothing was found: -Inf
}

// familiesOf is nil when no request names a family.
func familiesOf(families *ordered[int, tally]) []Family {
	var out []Family
	for _, number := range slices.Sorted(slices.Values(families.keys)) {
		t := families.at(number)
		slices.Sort(t.ttft)
		out = append(out, Family{
			Name:     strconv.Itoa(number),
			Requests: Some(t.sent()),
			TTFTP95:  Quantile(t.ttft, 0.95),
		})
	}
	return out
}

// tenantsOf is nil when no request names a tenant. Arrivals without a record
// belong to nobody when there are several tenants, so what is planned for each is
// then unknown.
func tenantsOf(tenants *ordered[string, tally], elapsed Float, unrecorded int) []Tenant {
	names := slices.Sorted(slices.Values(tenants.keys))
	if len(names) == 0 || len(names) == 1 && names[0] == "" {
		return nil
	}
	out := make([]Tenant, 0, len(names))
	for _, name := range names {
		t := tenants.at(name)
		tenant := Tenant{
			Name:                  name,
			Requests:              Some(t.sent()),
			Success:               Some(t.success),
			Errors:                Some(t.rejected + t.failed),
			Rejected:              Some(t.rejected),
			Failed:                Some(t.failed),
			Good:                  Some(t.good),
			OutputTokensPerSecond: t.throughput(elapsed),
			StatusCounts:          t.statusCounts(),
			InputTokensRange:      t.inputs,
			TTFT:                  PercentilesOf(t.ttft),
			TPOT:                  PercentilesOf(t.tpot),
			E2E:                   PercentilesOf(t.e2e),
		}
		if unrecorded == 0 || len(names) == 1 {
			tenant.Dropped = Some(t.dropped + unrecorded)
			tenant.Planned = Some(t.sent() + t.dropped + unrecorded)
		}
		out = append(out, tenant)
	}
	return out
}

// replicasOf counts the requests of each replica and their families in the order
// in which they first reached it.
func replicasOf(reqs []Request, names []string) []Replica {
	type seen struct {
		requests int
		families ordered[int, int]
	}
	var replicas ordered[string, seen]
	for _, i := range byStart(reqs) {
		r := &reqs[i]
		if r.Replica == "" || r.Outcome() == DroppedArrival {
			continue
		}
		s := replicas.at(r.Replica)
		s.requests++
		if f, ok := r.Family.Get(); ok {
			*s.families.at(f)++
		}
	}
	var out []Replica
	for _, name := range replicaOrder(names, replicas.keys) {
		s := replicas.at(name)
		counts := make(Counts, 0, len(s.families.keys))
		for i, f := range s.families.keys {
			counts = append(counts, Count{Name: strconv.Itoa(f), N: s.families.values[i]})
		}
		out = append(out, Replica{Name: name, Requests: Some(s.requests), FamilyCounts: counts})
	}
	return out
}

// replicaOrder is the given names, then those on record beyond them, sorted.
func replicaOrder(given, onRecord []string) []string {
	order := slices.Clone(given)
	for _, name := range slices.Sorted(slices.Values(onRecord)) {
		if !slices.Contains(given, name) {
			order = append(order, name)
		}
	}
	return order
}

// byStart is the order in which the requests began: by start time, by index
// where that is equal or absent, and as they come where that is too.
func byStart(reqs []Request) []int {
	order := make([]int, len(reqs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		ra, rb := &reqs[a], &reqs[b]
		return cmp.Or(
			cmp.Compare(ra.Started.Or(0), rb.Started.Or(0)),
			cmp.Compare(ra.Index.Or(0), rb.Index.Or(0)),
		)
	})
	return order
}

func sortedCounts(c Counts) Counts {
	slices.SortFunc(c, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

// ordered is a map that remembers the order in which its keys came.
type ordered[K comparable, V any] struct {
	keys   []K
	values []V
	index  map[K]int
}

// at is the value of k, which begins as zero. It is good until the next key comes.
func (o *ordered[K, V]) at(k K) *V {
	i, ok := o.index[k]
	if !ok {
		if o.index == nil {
			o.index = make(map[K]int)
		}
		i = len(o.keys)
		o.index[k] = i
		o.keys = append(o.keys, k)
		o.values = append(o.values, *new(V))
	}
	return &o.values[i]
}
