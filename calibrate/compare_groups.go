package calibrate

import (
	"fmt"
	"math"
	"slices"

	"fleetsim/sim/record"
)

// What a verdict asks for. docs/compare.md explains them to the user.
const (
	// verdictTolerance is how far p50 and p95 may be off, and the Wasserstein
	// distance as a share of the measured mean, for the sides to be close.
	verdictTolerance = 0.05
	// verdictAlpha is the KS probability from which the samples cannot be told
	// apart.
	verdictAlpha = 0.05
)

// A Group is one phase, or the requests of one of its tenants, in the times of
// its successes.
type Group struct {
	Tenant  string           `json:"tenant,omitempty"` // "": the whole phase
	Success Counted          `json:"success"`
	Metrics []TimeComparison `json:"metrics"` // ttft, tpot, e2e

	simulated []*record.Tenant // of every run
}

// Counted is a number on each side; simulated is the median over the seeds.
type Counted struct {
	Measured  record.Float `json:"measured"`
	Simulated record.Float `json:"simulated"`
}

// A TimeComparison is one time on both sides, in seconds. What is absent on a
// side was not measured, or not simulated, there.
type TimeComparison struct {
	Metric    string               `json:"metric"`
	Quantiles []QuantileComparison `json:"quantiles"` // p50, p95, p99
	// Wasserstein is the Wasserstein-1 distance between the measured times and the
	// simulated ones of all seeds, in seconds.
	Wasserstein record.Float `json:"wasserstein"`
	// WassersteinShare is Wasserstein over the measured mean.
	WassersteinShare record.Float `json:"wasserstein_share"`
	KS               KSTest       `json:"ks"`
	Verdict          Verdict      `json:"verdict"`
}

// A KSTest is a two-sample Kolmogorov-Smirnov test, record.KolmogorovSmirnov. Its
// probability takes requests for independent, which those that queue together are
// not: it is then too small.
type KSTest struct {
	D record.Float `json:"d"`
	P record.Float `json:"p"`
}

// A QuantileComparison is one quantile on both sides.
type QuantileComparison struct {
	Quantile  string       `json:"quantile"` // "p50", "p95", "p99"
	Measured  record.Float `json:"measured"`
	Simulated record.Float `json:"simulated"` // the median over the seeds
	Band      record.Band  `json:"band"`      // over the seeds
	Error     record.Float `json:"error"`     // simulated over measured, less 1
	// Inside reports whether Measured lies inside Band; absent when either is, or
	// there is one seed only.
	Inside record.Bool `json:"inside_band"`
}

// A Verdict says in a word how the two sides of one time compare.
type Verdict string

// The verdicts, from the best to the worst.
const (
	Same         Verdict = "same"          // close or in band, and KS cannot tell the samples apart
	Close        Verdict = "close"         // p50, p95 and Wasserstein within 5%
	InBand       Verdict = "in band"       // p50 and p95 inside the seeds' band
	OtherShape   Verdict = "other shape"   // p50 and p95 within 5%, Wasserstein not
	TooLow       Verdict = "too low"       // simulated below measured, by the worse quantile
	TooHigh      Verdict = "too high"      // simulated above measured
	NotMeasured  Verdict = "not measured"  // nothing measured to compare with
	NotSimulated Verdict = "not simulated" // nothing simulated to compare with
)

// groups are the phase as a whole and, if either side has several, its tenants.
func (p *PhaseComparison) groups() []Group {
	groups := []Group{p.group("", phaseAsTenant(p.Measured), func(run *record.Phase) *record.Tenant { return phaseAsTenant(run) })}
	for _, tenant := range p.tenants() {
		groups = append(groups, p.group(tenant, tenantOf(p.Measured, tenant), func(run *record.Phase) *record.Tenant { return tenantOf(run, tenant) }))
	}
	return groups
}

// tenants are the names on both sides, sorted; none when neither side has
// several, for the only tenant is the whole phase.
func (p *PhaseComparison) tenants() []string {
	if len(p.Simulated.Tenants) < 2 && (p.Measured == nil || len(p.Measured.Tenants) < 2) {
		return nil
	}
	var names []string
	for _, side := range []*record.Phase{p.Measured, p.Simulated} {
		if side == nil {
			continue
		}
		for i := range side.Tenants {
			if name := side.Tenants[i].Name; name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// phaseAsTenant is the figures that a phase and a tenant have in common.
func phaseAsTenant(p *record.Phase) *record.Tenant {
	if p == nil {
		return nil
	}
	return &record.Tenant{Success: p.Success, TTFT: p.TTFT, TPOT: p.TPOT, E2E: p.E2E}
}

func tenantOf(p *record.Phase, name string) *record.Tenant {
	if p == nil {
		return nil
	}
	for i := range p.Tenants {
		if p.Tenants[i].Name == name {
			return &p.Tenants[i]
		}
	}
	return nil
}

// group compares one group; measured is nil when there is none.
func (p *PhaseComparison) group(tenant string, measured *record.Tenant, simulated func(*record.Phase) *record.Tenant) Group {
	g := Group{Tenant: tenant}
	for _, run := range p.Runs {
		if t := simulated(run); t != nil {
			g.simulated = append(g.simulated, t)
		}
	}
	if measured == nil {
		measured = &record.Tenant{}
	}
	g.Success = Counted{
		Measured:  number(measured.Success),
		Simulated: g.band(func(t *record.Tenant) record.Float { return number(t.Success) }).P50,
	}
	for m := range timeMetrics {
		g.Metrics = append(g.Metrics, p.compareTime(&g, m, measured))
	}
	return g
}

// band is the band of a figure over the runs.
func (g *Group) band(value func(*record.Tenant) record.Float) record.Band {
	var values []float64
	for _, t := range g.simulated {
		if v, ok := value(t).Get(); ok {
			values = append(values, v)
		}
	}
	return record.BandOf(values)
}

// quantiles are those that records have.
var quantiles = [...]struct {
	name string
	of   func(*record.Percentiles) record.Float
}{
	{"p50", func(p *record.Percentiles) record.Float { return p.P50 }},
	{"p95", func(p *record.Percentiles) record.Float { return p.P95 }},
	{"p99", func(p *record.Percentiles) record.Float { return p.P99 }},
}

func (p *PhaseComparison) compareTime(g *Group, metric int, measured *record.Tenant) TimeComparison {
	m := &timeMetrics[metric]
	c := TimeComparison{Metric: m.name}
	for _, q := range quantiles {
		band := g.band(func(t *record.Tenant) record.Float { return q.of(m.ofGroup(t)) })
		c.Quantiles = append(c.Quantiles, compareQuantile(q.name, q.of(m.ofGroup(measured)), band, len(p.Runs)))
	}
	if s := p.traces.measured.of(g.Tenant); s != nil {
		c.compareSamples(s.times[metric], pooled(p.traces.simulated, g.Tenant, metric))
	}
	c.Verdict = c.verdict()
	return c
}

func compareQuantile(name string, measured record.Float, band record.Band, seeds int) QuantileComparison {
	q := QuantileComparison{
		Quantile: name, Measured: measured, Simulated: band.P50, Band: band,
		Error: relativeError(measured, band.P50),
	}
	if inside, known := band.Holds(measured, 0); known && seeds > 1 {
		q.Inside = record.Some(inside)
	}
	return q
}

// relativeError is simulated over measured, less 1; absent when either is, or
// nothing was measured to be relative to.
func relativeError(measured, simulated record.Float) record.Float {
	m, haveM := measured.Get()
	s, haveS := simulated.Get()
	if !haveM || !haveS || m == 0 {
		return record.Float{}
	}
	return record.Some((s - m) / math.Abs(m))
}

// compareSamples adds what only request records can show.
func (c *TimeComparison) compareSamples(measured, simulated []float64) {
	c.Wasserstein = record.Wasserstein(measured, simulated)
	c.KS.D, c.KS.P = record.KolmogorovSmirnov(measured, simulated)
	if w, ok := c.Wasserstein.Get(); ok {
		c.WassersteinShare = record.Some(w / meanOf(measured)) // absent when the mean is 0
	}
}

func meanOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// verdict judges by what there is: without request records by the quantiles
// alone, and of those by p50 and p95.
func (c *TimeComparison) verdict() Verdict {
	measured, simulated := 0, 0
	for _, q := range c.Quantiles {
		if q.Measured.Valid() {
			measured++
		}
		if q.Simulated.Valid() {
			simulated++
		}
	}
	worst := c.worst()
	near, inBand := math.Abs(worst) <= verdictTolerance, c.inBand()
	switch {
	case measured == 0:
		return NotMeasured
	case simulated == 0:
		return NotSimulated
	case (near || inBand) && c.KS.P.Or(0) >= verdictAlpha:
		return Same
	case near && c.WassersteinShare.Or(0) <= verdictTolerance:
		return Close
	case inBand:
		return InBand
	case near:
		return OtherShape
	case worst < 0:
		return TooLow
	}
	return TooHigh
}

// judged are the quantiles that a verdict rests on; the 99th of a hundred
// requests is one request.
func (c *TimeComparison) judged() []QuantileComparison {
	return c.Quantiles[:2]
}

// worst is the error of the judged quantile that is furthest off.
func (c *TimeComparison) worst() float64 {
	worst := 0.0
	for _, q := range c.judged() {
		if e := q.Error.Or(0); math.Abs(e) > math.Abs(worst) {
			worst = e
		}
	}
	return worst
}

// inBand reports whether every judged quantile that was measured lies inside its
// band.
func (c *TimeComparison) inBand() bool {
	inside := 0
	for _, q := range c.judged() {
		if in, known := q.Inside.Get(); known && in {
			inside++
		} else if known {
			return false
		}
	}
	return inside > 0
}

// Reason is what the verdict rests on, in words.
func (c *TimeComparison) Reason() string {
	reason := ""
	add := func(format string, args ...any) {
		if reason != "" {
			reason += ", "
		}
		reason += fmt.Sprintf(format, args...)
	}
	for _, q := range c.judged() {
		if e, ok := q.Error.Get(); ok {
			add("%s %+.1f%%", q.Quantile, 100*e)
		}
	}
	if w, ok := c.Wasserstein.Get(); ok {
		add("W1 %s", Seconds(w))
		if share, ok := c.WassersteinShare.Get(); ok {
			reason += fmt.Sprintf(" (%.1f%% of the mean)", 100*share)
		}
	}
	if d, ok := c.KS.D.Get(); ok {
		add("KS %.3f (p %s)", d, Probability(c.KS.P.Or(0)))
	}
	return reason
}

// Seconds is a time for people: milliseconds below a second.
func Seconds(s float64) string {
	if math.Abs(s) < 1 {
		return fmt.Sprintf("%.3g ms", 1000*s)
	}
	return fmt.Sprintf("%.3f s", s)
}

// Probability is a p-value for people.
func Probability(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}
