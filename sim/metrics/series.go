package metrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"fleetsim/sim/record"
)

// A series is one metric of a phase: where its events come from, and those that have
// come.
type series struct {
	def     *Def
	labels  []Label
	sampled func(*Sample) (float64, bool) // nil: the timeline does not have it
	sources []source                      // in the request records
	total   record.Float                  // its last value, where that is known
	sum     float64                       // of what the timeline has given
	track   track
}

// A source is something in a request's life that gives events.
type source struct {
	at     func(*record.Request) float64 // s since the phase began
	amount amount
}

// An amount is that of the event, and whether there is one.
type amount func(*record.Request) (float64, bool)

// Where in a request's life something happened, in seconds since the phase began.
func sent(r *record.Request) float64       { return r.Started.Or(0) }
func admitted(r *record.Request) float64   { return r.Started.Or(0) + r.QueueSeconds.Or(0) }
func firstToken(r *record.Request) float64 { return r.Started.Or(0) + r.TTFT.Or(r.E2E.Or(0)) }
func endOf(r *record.Request) float64      { return r.Started.Or(0) + r.E2E.Or(0) }

// What an event counts or observes.
func ttft(r *record.Request) (float64, bool)         { return r.TTFT.Get() }
func tpot(r *record.Request) (float64, bool)         { return r.MeanTokenTime().Get() }
func e2e(r *record.Request) (float64, bool)          { return r.E2E.Get() }
func queueTime(r *record.Request) (float64, bool)    { return r.QueueSeconds.Get() }
func inputTokens(r *record.Request) (float64, bool)  { return tokens(r.InputTokens) }
func outputTokens(r *record.Request) (float64, bool) { return tokens(r.OutputTokens) }
func cachedTokens(r *record.Request) (float64, bool) { return tokens(r.CachedTokens) }

func tokens(n record.Int) (float64, bool) { return float64(n.Or(0)), n.Valid() }

// each is v for every request that is wanted.
func each(v float64, wanted func(*record.Request) bool) amount {
	return func(r *record.Request) (float64, bool) { return v, wanted(r) }
}

// only has the amounts of the requests that are wanted.
func only(wanted func(*record.Request) bool, a amount) amount {
	return func(r *record.Request) (float64, bool) {
		if !wanted(r) {
			return 0, false
		}
		return a(r)
	}
}

func success(r *record.Request) bool   { return r.Outcome() == record.Success }
func good(r *record.Request) bool      { return r.Good.Or(false) }
func undropped(r *record.Request) bool { return r.Result != record.Dropped }

// A phase is a phase record with its series.
type phase struct {
	record  *record.Phase
	begin   float64 // of its first point, Unix time, s
	steps   int     // from there to its last
	lastEnd float64 // of its requests, s since it began
	labels  []Label

	engines  map[string]*engine // by replica
	gateway  []*series
	client   []*series
	results  map[string]*series
	replicas map[string]*series
}

// An engine is the series of one replica.
type engine struct{ gauges, cache, counters []*series }

func newPhase(of *record.Phase, model string) *phase {
	p := &phase{record: of, labels: []Label{{"phase", of.Phase}, {"route", of.Route}},
		engines: make(map[string]*engine), results: make(map[string]*series), replicas: make(map[string]*series)}
	for i := range of.Replicas {
		p.engines[of.Replicas[i].Name] = p.newEngine(&of.Replicas[i], model)
	}
	for i := range of.RoutingCounterDeltas {
		p.gateway = append(p.gateway, p.newDecisions(&of.RoutingCounterDeltas[i], model))
	}
	p.client = p.newClient()
	return p
}

// with is the phase's labels behind the given ones.
func (p *phase) with(labels ...Label) []Label { return append(labels, p.labels...) }

// all are the phase's series in the order in which they are written. A gauge that
// the timeline does not have is none.
func (p *phase) all() []*series {
	var all []*series
	for i := range p.record.Replicas {
		e := p.engines[p.record.Replicas[i].Name]
		for _, g := range e.gauges {
			if !g.track.empty() {
				all = append(all, g)
			}
		}
		all = append(append(all, e.cache...), e.counters...)
	}
	all = append(append(all, p.gateway...), p.client[0])
	for _, by := range []map[string]*series{p.results, p.replicas} {
		for _, name := range slices.Sorted(maps.Keys(by)) {
			all = append(all, by[name])
		}
	}
	return append(all, p.client[1:]...)
}

// newEngine is the series of one replica: the timeline's gauges, the counters of the
// prefix cache, which are the timeline's where it has them, and what follows from the
// requests that it answered.
func (p *phase) newEngine(rep *record.Replica, model string) *engine {
	labels := func(more ...Label) []Label {
		return p.with(append([]Label{{"model_name", model}, {"engine", "0"}, {"node_alias", rep.Name}}, more...)...)
	}
	e := &engine{}
	for _, g := range []struct {
		def   *Def
		value func(*Sample) (float64, bool)
	}{
		{&Running, func(s *Sample) (float64, bool) { return s.Running, true }},
		{&Waiting, func(s *Sample) (float64, bool) { return s.Waiting, true }},
		{&KVUsage, func(s *Sample) (float64, bool) { return s.KVUsage, true }},
		{&InFlight, func(s *Sample) (float64, bool) { return value(s.InFlight) }},
	} {
		e.gauges = append(e.gauges, &series{def: g.def, labels: labels(), sampled: g.value})
	}
	for _, c := range []struct {
		def     *Def
		total   record.Int
		sampled func(*Sample) (float64, bool)
		amount  amount
	}{
		{&CacheQueries, rep.CacheQueriesTokens, func(s *Sample) (float64, bool) { return value(s.CacheQueries) }, inputTokens},
		{&CacheHits, rep.CacheHitTokens, func(s *Sample) (float64, bool) { return value(s.CacheHits) }, cachedTokens},
	} {
		if total, ok := c.total.Get(); ok {
			e.cache = append(e.cache, &series{def: c.def, labels: labels(), sampled: c.sampled,
				sources: []source{{admitted, c.amount}}, total: record.Some(float64(total))})
		}
	}
	add := func(d *Def, labels []Label, at func(*record.Request) float64, a amount) {
		e.counters = append(e.counters, &series{def: d, labels: labels, sources: []source{{at, a}}})
	}
	add(&PromptTokens, labels(), firstToken, inputTokens)
	add(&OutputTokens, labels(), endOf, outputTokens)
	add(&Finished, labels(Label{"finished_reason", "length"}), endOf, each(1, success))
	add(&TTFT, labels(), firstToken, ttft)
	add(&TPOT, labels(), endOf, tpot)
	add(&E2E, labels(), endOf, e2e)
	add(&Queue, labels(), endOf, queueTime)
	return e
}

func value(v *float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}

// newDecisions is a counter of the gateway's routing policy.
func (p *phase) newDecisions(c *record.CounterDelta, model string) *series {
	name := strings.TrimSuffix(c.Name, "_total")
	labels := []Label{{"model", model}}
	for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
		labels = append(labels, Label{k, c.Labels[k]})
	}
	moved := func(r *record.Request) bool { return counts(r, name, c.Labels) }
	return &series{def: &Def{Name: name, Type: Counter, Help: CounterHelp(name)}, labels: p.with(labels...),
		sources: []source{{sent, each(1, moved)}}, total: record.Some(c.Delta)}
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

// newClient is what the load generator itself exports, but for what it exports by
// result and by replica. Requests in flight come first.
func (p *phase) newClient() []*series {
	add := func(d *Def, sources ...source) *series { return &series{def: d, labels: p.with(), sources: sources} }
	return []*series{
		add(&ClientInFlight, source{sent, each(1, undropped)}, source{endOf, each(-1, undropped)}),
		add(&ClientGood, source{endOf, each(1, good)}),
		add(&ClientTTFT, source{firstToken, only(success, ttft)}),
		add(&ClientTPOT, source{endOf, only(success, tpot)}),
		add(&ClientE2E, source{endOf, only(success, e2e)}),
	}
}

// ofResult is the counter of the requests that ended so.
func (p *phase) ofResult(result string) *series {
	return p.counterOf(p.results, &ClientRequests, Label{"result", result})
}

// ofReplica is the counter of the requests that ran there.
func (p *phase) ofReplica(name string) *series {
	return p.counterOf(p.replicas, &ClientByReplica, Label{"node_alias", name})
}

func (p *phase) counterOf(by map[string]*series, d *Def, l Label) *series {
	s, ok := by[l.Value]
	if !ok {
		s = &series{def: d, labels: p.with(l)}
		by[l.Value] = s
	}
	return s
}
