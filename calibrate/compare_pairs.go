package calibrate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// A Pair is two policies on the same load. Differences are B less A, ratios B
// over A.
type Pair struct {
	Load    string       `json:"load"` // scenario, and round or else seed
	A       PairSide     `json:"a"`
	B       PairSide     `json:"b"`
	Metrics []PairMetric `json:"metrics"` // those known of both sides in the simulation
}

// A PairSide is one phase of a pair.
type PairSide struct {
	Phase  string `json:"phase"`
	Policy string `json:"policy"`
}

// A PairMetric is how one metric differs between two policies.
type PairMetric struct {
	Metric   string `json:"metric"`
	Measured Gap    `json:"measured"`
	// Simulated has the medians over the seeds, Band the differences: each seed's
	// own, for both policies see the same arrivals under it.
	Simulated Gap         `json:"simulated"`
	Band      record.Band `json:"band"`
	// Error is the simulated difference less the measured one, in the metric's unit.
	Error record.Float `json:"error"`
	// Decided reports whether the measured difference is larger than the width of
	// Band, that is, than what chance does in the simulation.
	Decided record.Bool `json:"decided"`
	// SignAgrees reports whether both sides prefer the same policy; absent when one
	// of them has a tie.
	SignAgrees record.Bool `json:"sign_agrees"`
}

// A Gap is a difference and a ratio. The ratio is absent over 0.
type Gap struct {
	Difference record.Float `json:"difference"`
	Ratio      record.Float `json:"ratio"`
}

// A Ranking is the policies of one load by one metric, the best first.
type Ranking struct {
	Load      string   `json:"load"`
	Metric    string   `json:"metric"`
	Measured  []Ranked `json:"measured"`
	Simulated []Ranked `json:"simulated"` // by the median over the seeds
	// Decided is the number of pairs of policies whose measured gap exceeds the
	// simulated 90% band (PairMetric.Decided), and Agree how many of them the
	// simulation puts in the same order.
	Decided int `json:"decided"`
	Agree   int `json:"agree"`
}

// A Ranked is a policy with its value of the metric.
type Ranked struct {
	Policy string  `json:"policy"`
	Value  float64 `json:"value"`
}

// Agrees reports whether the simulation puts every decided pair in the measured
// order; true too when no pair is decided.
func (r *Ranking) Agrees() bool { return r.Agree == r.Decided }

// rankedBy are the metrics of a ranking, and whether more is better.
var rankedBy = []struct {
	metric string
	more   bool
}{{"good", true}, {"ttft.p95", false}}

// assess adds what follows from the runs: groups, warnings, pairs and rankings.
func (c *StudyComparison) assess() {
	c.Pairs, c.Rankings = []Pair{}, []Ranking{}
	for i := range c.Phases {
		p := &c.Phases[i]
		p.Groups, p.Warnings = p.groups(), p.warnings()
	}
	for _, load := range c.loads() {
		var pairs []Pair
		for i, a := range load.phases {
			for _, b := range load.phases[i+1:] {
				if a.Plan.Policy != b.Plan.Policy {
					pairs = append(pairs, newPair(load.name, a, b))
				}
			}
		}
		c.Pairs = append(c.Pairs, pairs...)
		for _, by := range rankedBy {
			if r, ok := load.ranking(by.metric, by.more, pairs); ok {
				c.Rankings = append(c.Rankings, r)
			}
		}
	}
}

// A load is the phases that differ in their policy alone, and in what the caches
// and the router's index hold at the start: each policy had its own preparation.
type load struct {
	name   string
	digest string
	phases []*PhaseComparison
}

// loads are the loads that more than one policy ran on, in the order of their
// first phases; those of each are sorted by policy, so that differences have the
// same sense everywhere. A phase that continues another is none's: what it starts from is
// what the other left.
func (c *StudyComparison) loads() []load {
	var all []load
	for i := range c.Phases {
		p := &c.Phases[i]
		if p.Plan.Continue {
			continue
		}
		digest := loadDigest(p)
		at := slices.IndexFunc(all, func(l load) bool { return l.digest == digest })
		if at < 0 {
			at = len(all)
			all = append(all, load{name: loadName(p), digest: digest})
		}
		all[at].phases = append(all[at].phases, p)
	}
	for _, l := range all {
		slices.SortStableFunc(l.phases, func(a, b *PhaseComparison) int { return cmp.Compare(a.Plan.Policy, b.Plan.Policy) })
	}
	return slices.DeleteFunc(all, func(l load) bool {
		return !slices.ContainsFunc(l.phases, func(p *PhaseComparison) bool { return p.Plan.Policy != l.phases[0].Plan.Policy })
	})
}

// loadDigest identifies all of a phase but its policy and its start.
func loadDigest(p *PhaseComparison) string {
	load := *p.Plan.Scenario
	load.Policies, load.Start = nil, scenario.Start{}
	return fmt.Sprintf("%s, round %s", scenario.Digest(&load), p.round())
}

func (p *PhaseComparison) round() record.Int {
	if p.Measured == nil {
		return record.Int{}
	}
	return p.Measured.Round
}

func loadName(p *PhaseComparison) string {
	if round, ok := p.round().Get(); ok {
		return fmt.Sprintf("%s, round %d", p.Plan.Scenario.Name, round)
	}
	return fmt.Sprintf("%s, seed %d", p.Plan.Scenario.Name, p.Plan.Scenario.Seed)
}

func newPair(load string, a, b *PhaseComparison) Pair {
	pair := Pair{Load: load, A: PairSide{a.Phase, a.Plan.Policy}, B: PairSide{b.Phase, b.Plan.Policy}}
	for _, m := range phaseMetrics {
		if pm, ok := comparePair(m, a, b); ok {
			pair.Metrics = append(pair.Metrics, pm)
		}
	}
	return pair
}

// comparePair is false when the simulation of a side has no value.
func comparePair(m Metric, a, b *PhaseComparison) (PairMetric, bool) {
	pm := PairMetric{Metric: m.Name}
	if a.Measured != nil && b.Measured != nil {
		pm.Measured = gap(m.Value(a.Measured), m.Value(b.Measured))
	}
	pm.Simulated = gap(a.Band.Of(m.Name).P50, b.Band.Of(m.Name).P50)
	var differences []float64
	for i := range min(len(a.Runs), len(b.Runs)) {
		if d, ok := gap(m.Value(a.Runs[i]), m.Value(b.Runs[i])).Difference.Get(); ok {
			differences = append(differences, d)
		}
	}
	pm.Band = record.BandOf(differences)
	pm.judge()
	return pm, pm.Simulated.Difference.Valid()
}

func gap(a, b record.Float) Gap {
	x, haveX := a.Get()
	y, haveY := b.Get()
	if !haveX || !haveY {
		return Gap{}
	}
	return Gap{Difference: record.Some(y - x), Ratio: record.Some(y / x)} // Some drops a ratio over 0
}

// judge adds what follows from the gaps.
func (pm *PairMetric) judge() {
	measured, haveM := pm.Measured.Difference.Get()
	simulated, haveS := pm.Simulated.Difference.Get()
	if !haveM || !haveS {
		return
	}
	pm.Error = record.Some(simulated - measured)
	if measured != 0 && simulated != 0 {
		pm.SignAgrees = record.Some(measured > 0 == (simulated > 0))
	}
	if low, ok := pm.Band.P5.Get(); ok {
		pm.Decided = record.Some(math.Abs(measured) > pm.Band.P95.Or(low)-low)
	}
}

// Of is the pair's metric of that name; nil when it has none.
func (p *Pair) Of(metric string) *PairMetric {
	for i := range p.Metrics {
		if p.Metrics[i].Metric == metric {
			return &p.Metrics[i]
		}
	}
	return nil
}

// ranking is false when a side does not know the metric of every policy.
func (l *load) ranking(metric string, more bool, pairs []Pair) (Ranking, bool) {
	r := Ranking{Load: l.name, Metric: metric}
	for _, p := range l.phases {
		if p.Measured == nil {
			return r, false
		}
		measured, haveM := p.value(p.Measured, metric).Get()
		simulated, haveS := p.Band.Of(metric).P50.Get()
		if !haveM || !haveS {
			return r, false
		}
		r.Measured = append(r.Measured, Ranked{p.Plan.Policy, measured})
		r.Simulated = append(r.Simulated, Ranked{p.Plan.Policy, simulated})
	}
	sortRanked(r.Measured, more)
	sortRanked(r.Simulated, more)
	for i := range pairs {
		pm := pairs[i].Of(metric)
		if pm == nil || !pm.Decided.Or(false) {
			continue
		}
		r.Decided++
		if pm.SignAgrees.Or(false) {
			r.Agree++
		}
	}
	return r, true
}

// sortRanked puts the best first; what is equal stays in the order of the policies.
func sortRanked(ranked []Ranked, more bool) {
	slices.SortStableFunc(ranked, func(a, b Ranked) int {
		switch {
		case a.Value == b.Value:
			return 0
		case a.Value > b.Value == more:
			return -1
		}
		return 1
	})
}

// Order is a ranking in words: "prefix-cache > random", with = between equal
// values.
func Order(ranked []Ranked) string {
	var s strings.Builder
	for i, r := range ranked {
		switch {
		case i > 0 && r.Value == ranked[i-1].Value:
			s.WriteString(" = ")
		case i > 0:
			s.WriteString(" > ")
		}
		s.WriteString(r.Policy)
	}
	return s.String()
}
