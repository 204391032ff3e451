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
// say. Throughput is the successes' received tokens over the elapsed time. Notes
// names what the figures leave out.
func Summarize(reqs []Request, slo SLO, meta Meta) Phase {
	s := NewSummary(slo)
	for i := range reqs {
		s.Add(&reqs[i])
	}
	return s.Phase(meta)
}

// A Summary takes request records one by one, in any order, and keeps of each only
// what the phase record is made of: the times of a success, 24 bytes, or 32 when it
// names a family.
type Summary struct {
	slo         SLO
	sketched    bool
	expected    int // records of each tenant; 0: unknown
	records     int
	first, last float64 // start and end of the span on record, in seconds
	tenants     ordered[string, tally]
	families    numbered[familyTally]
	replicas    ordered[string, replicaTally]
}

// A familyTally is what is kept of one family.
type familyTally struct {
	sent int
	ttft times
}

// A replicaTally is what is kept of one replica.
type replicaTally struct {
	requests int
	families numbered[familyCount]
}

// A familyCount is how many requests of a family a replica got, and which of them
// began first.
type familyCount struct {
	requests int
	start    float64
	index    int
	place    int // among the records
}

// NewSummary returns an empty summary.
func NewSummary(slo SLO) *Summary {
	return &Summary{slo: slo, first: math.Inf(1), last: math.Inf(-1)}
}

// NewSketch returns an empty summary of constant size, however many records it
// takes: its quantiles are within 0.1% of the exact ones.
func NewSketch(slo SLO) *Summary {
	s := NewSummary(slo)
	s.sketched = true
	return s
}

// Expect makes room for that many records of each tenant.
func (s *Summary) Expect(records int) {
	if !s.sketched {
		s.expected = records
	}
}

// Add takes a record. It does not keep r.
func (s *Summary) Add(r *Request) {
	place := s.records
	s.records++
	outcome := r.Outcome()
	t := s.tenants.at(r.Tenant)
	if t.success == 0 && outcome == Success {
		t.expect(s.expected)
	}
	t.add(r, outcome, s.slo, s.sketched)
	f, inFamily := r.Family.Get()
	if inFamily {
		s.families.at(f).add(r, outcome, s.sketched)
	}
	if outcome == DroppedArrival {
		return
	}
	if start, ok := r.Started.Get(); ok {
		s.first = min(s.first, start)
		s.last = max(s.last, start+r.E2E.Or(0))
	}
	if r.Replica != "" {
		t := s.replicas.at(r.Replica)
		t.requests++
		if inFamily {
			t.families.at(f).add(r, place)
		}
	}
}

func (t *familyTally) add(r *Request, outcome Outcome, sketched bool) {
	if outcome == DroppedArrival {
		return
	}
	t.sent++
	if outcome == Success {
		t.ttft.add(r.TTFT, sketched)
	}
}

func (c *familyCount) add(r *Request, place int) {
	start, index := r.Started.Or(0), r.Index.Or(0)
	if c.requests == 0 || cmp.Or(cmp.Compare(start, c.start), cmp.Compare(index, c.index)) < 0 {
		c.start, c.index, c.place = start, index, place
	}
	c.requests++
}

// Phase is the record of what was added.
func (s *Summary) Phase(meta Meta) Phase {
	all := s.all()
	elapsed := meta.Elapsed
	if !elapsed.Valid() {
		elapsed = Some(s.last - s.first) // absent when nothing says when: -Inf
	}
	planned := max(s.records, meta.Planned.Or(0))
	unrecorded := planned - s.records

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
		TTFT:                  all.ttft.percentiles(),
		TPOT:                  all.tpot.percentiles(),
		E2E:                   all.e2e.percentiles(),

		Families:         familiesOf(&s.families),
		Tenants:          tenantsOf(&s.tenants, elapsed, unrecorded),
		Replicas:         replicasOf(&s.replicas, meta.Replicas),
		InputTokensRange: all.inputs,
		ErrorCategories:  sortedCounts(all.categories),
		Simulated:        meta.Simulated,
		Notes:            all.notes(),
	}
	if said, ok := meta.Planned.Get(); ok && said < s.records {
		p.Notes = append(p.Notes, fmt.Sprintf("%d records of %d planned arrivals: taken as %d planned", s.records, said, s.records))
	}
	return p
}

// all is what was added of all tenants together.
func (s *Summary) all() *tally {
	if len(s.tenants.values) == 1 {
		return &s.tenants.values[0]
	}
	all := &tally{}
	for i := range s.tenants.values {
		all.merge(&s.tenants.values[i])
	}
	return all
}

// A tally counts requests and collects the times of the successes among them.
type tally struct {
	success, dropped, rejected, failed, good int

	tokens     int    // received by successes
	calledOK   Counts // failures that their source calls ok, by what is wrong with their tokens
	unstreamed int    // successes without TTFT

	ttft, tpot, e2e times
	inputs          Range
	statuses        []statusCount
	categories      Counts
}

// merge adds what o has counted.
func (t *tally) merge(o *tally) {
	t.success += o.success
	t.dropped += o.dropped
	t.rejected += o.rejected
	t.failed += o.failed
	t.good += o.good
	t.tokens += o.tokens
	t.unstreamed += o.unstreamed
	t.ttft.merge(&o.ttft)
	t.tpot.merge(&o.tpot)
	t.e2e.merge(&o.e2e)
	for _, end := range []Int{o.inputs.Min, o.inputs.Max} {
		if n, ok := end.Get(); ok {
			t.inputs = t.inputs.with(n)
		}
	}
	for _, c := range o.calledOK {
		t.calledOK = t.calledOK.plus(c.Name, c.N)
	}
	for _, c := range o.categories {
		t.categories = t.categories.plus(c.Name, c.N)
	}
}

// expect makes room for the times of n successes.
func (t *tally) expect(n int) {
	for _, times := range [...]*times{&t.ttft, &t.tpot, &t.e2e} {
		times.values = slices.Grow(times.values, n)
	}
}

func (t *tally) sent() int { return t.success + t.rejected + t.failed }

func (t *tally) add(r *Request, outcome Outcome, slo SLO, sketched bool) {
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
		t.addSuccess(r, slo, sketched)
		return
	case RejectedRequest:
		t.rejected++
	default:
		t.failed++
		if wrong := r.tokensWrong(); r.Result == OK && wrong != "" && wrong == category(r, outcome) {
			t.calledOK = t.calledOK.add(wrong)
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

func (t *tally) addSuccess(r *Request, slo SLO, sketched bool) {
	t.success++
	if slo.withinBounds(r) {
		t.good++
	}
	t.tokens += r.OutputTokens.Or(0) // a success says them
	if !r.TTFT.Valid() {
		t.unstreamed++
	}
	t.ttft.add(r.TTFT, sketched)
	t.tpot.add(r.MeanTokenTime(), sketched)
	t.e2e.add(r.E2E, sketched)
}

// category is why a request is no success: the source's category, or else its
// word for the result, or else what was found wrong here.
func category(r *Request, outcome Outcome) string {
	switch {
	case r.ErrorCategory != "":
		return r.ErrorCategory
	case outcome == RejectedRequest:
		return Rejected
	case r.Result == OK && r.HTTPStatus.Or(200) == 200:
		return r.tokensWrong()
	case r.Result == OK:
		return "http_status_" + strconv.Itoa(r.HTTPStatus.Or(0))
	case r.Result == "":
		return Failed
	}
	return r.Result
}

func (t *tally) throughput(elapsed Float) Float {
	e, ok := elapsed.Get()
	if !ok || e <= 0 {
		return Float{}
	}
	return Some(float64(t.tokens) / e)
}

func (t *tally) notes() []string {
	var notes []string
	for _, but := range [...]struct{ wrong, what string }{
		{usageMissing, "not how many tokens came"},
		{emptyAnswer, "hold no tokens"},
		{wrongTokens, "hold fewer or more tokens than were asked for"},
	} {
		if n := t.calledOK.Of(but.wrong); n > 0 {
			notes = append(notes, fmt.Sprintf("%d of %d requests say ok but %s: counted as failed", n, t.sent(), but.what))
		}
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

// familiesOf is nil when no request names a family.
func familiesOf(families *numbered[familyTally]) []Family {
	var out []Family
	for _, number := range slices.Sorted(slices.Values(families.keys)) {
		t := families.at(number)
		out = append(out, Family{
			Name:     strconv.Itoa(number),
			Requests: Some(t.sent),
			TTFTP95:  t.ttft.p95(),
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
			TTFT:                  t.ttft.percentiles(),
			TPOT:                  t.tpot.percentiles(),
			E2E:                   t.e2e.percentiles(),
		}
		if unrecorded == 0 || len(names) == 1 {
			tenant.Dropped = Some(t.dropped + unrecorded)
			tenant.Planned = Some(t.sent() + t.dropped + unrecorded)
		}
		out = append(out, tenant)
	}
	return out
}

// replicasOf is what the requests tell of each replica, its families in the order
// in which they first reached it.
func replicasOf(replicas *ordered[string, replicaTally], names []string) []Replica {
	var out []Replica
	for _, name := range replicaOrder(names, replicas.keys) {
		t := replicas.at(name)
		order := make([]int, len(t.families.keys))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return t.families.values[a].compare(&t.families.values[b]) })
		counts := make(Counts, 0, len(order))
		for _, i := range order {
			counts = append(counts, Count{Name: strconv.Itoa(t.families.keys[i]), N: t.families.values[i].requests})
		}
		out = append(out, Replica{Name: name, Requests: Some(t.requests), FamilyCounts: counts})
	}
	return out
}

// compare orders families by their first request: by start time, by index where
// that is equal or absent, and as the records came where that is too.
func (c *familyCount) compare(o *familyCount) int {
	return cmp.Or(cmp.Compare(c.start, o.start), cmp.Compare(c.index, o.index), cmp.Compare(c.place, o.place))
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

func sortedCounts(c Counts) Counts {
	slices.SortFunc(c, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

// ordered is a map that remembers the order in which its keys came.
type ordered[K comparable, V any] struct {
	keys   []K
	values []V
	index  map[K]int
	latest int // of the key asked for last: often the next one, too
}

// at is the value of k, which begins as zero. It is good until the next key comes.
func (o *ordered[K, V]) at(k K) *V {
	if o.latest < len(o.keys) && o.keys[o.latest] == k {
		return &o.values[o.latest]
	}
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
	o.latest = i
	return &o.values[i]
}

// numbered is ordered for the numbers of families, which are mostly small.
type numbered[V any] struct {
	ordered[int, V]
	small []int32 // places of the numbers from 0 on, from 1; 0: it has not come
}

// smallNumbers is how many are looked up without a hash.
const smallNumbers = 1 << 8

// at is the value of k, as ordered has it.
func (n *numbered[V]) at(k int) *V {
	if k < 0 || k >= smallNumbers {
		return n.ordered.at(k)
	}
	for k >= len(n.small) {
		n.small = append(n.small, 0)
	}
	if n.small[k] == 0 {
		n.keys, n.values = append(n.keys, k), append(n.values, *new(V))
		n.small[k] = int32(len(n.keys))
	}
	return &n.values[n.small[k]-1]
}
