package calibrate

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// ok is a success of the tenant.
func ok(tenant string, start, ttft, e2e float64) record.Request {
	return record.Request{
		Tenant: tenant, Result: record.OK, HTTPStatus: record.Some(200), OutputTokens: record.Some(11),
		Started: record.Some(start), TTFT: record.Some(ttft), E2E: record.Some(e2e),
	}
}

// byHand is a comparison of request records; runs are the simulated seeds.
func byHand(measured []record.Request, runs ...[]record.Request) *PhaseComparison {
	p := &PhaseComparison{Plan: scenario.Phase{Scenario: &scenario.Scenario{}}}
	p.Plan.Scenario.Start.EngineCache = "cold"
	m := Measured{Requests: measured}
	p.Measured = m.summary(record.StudySLO())
	p.traces.measured = traceOf(measured)
	for _, run := range runs {
		s := record.Summarize(run, record.StudySLO(), record.Meta{})
		p.Runs = append(p.Runs, &s)
		p.traces.simulated = append(p.traces.simulated, traceOf(run))
	}
	p.Simulated, p.Band = p.Runs[0], bandsOf(p.Runs)
	p.Groups, p.Warnings = p.groups(), p.warnings()
	return p
}

func at(t *testing.T, want float64, got record.Float) {
	t.Helper()
	v, ok := got.Get()
	require.True(t, ok, "absent, want %v", want)
	require.InDelta(t, want, v, 1e-12)
}

func TestTimesByHand(t *testing.T) {
	measured := []record.Request{ok("", 0, 1, 4), ok("", 1, 2, 5), ok("", 2, 3, 6), ok("", 3, 4, 7)}
	simulated := []record.Request{ok("", 0, 2, 4), ok("", 1, 3, 5), ok("", 2, 4, 6), ok("", 3, 5, 7)}
	p := byHand(measured, simulated)
	require.Len(t, p.Groups, 1)
	g := p.Groups[0]
	at(t, 4, g.Success.Measured)
	at(t, 4, g.Success.Simulated)

	ttft := g.Metrics[0]
	require.Equal(t, "ttft", ttft.Metric)
	at(t, 2.5, ttft.Quantiles[0].Measured)
	at(t, 3.5, ttft.Quantiles[0].Simulated)
	at(t, 0.4, ttft.Quantiles[0].Error) // 3.5/2.5 - 1
	at(t, 3.85, ttft.Quantiles[1].Measured)
	at(t, 1/3.85, ttft.Quantiles[1].Error) // 4.85/3.85 - 1
	at(t, 1, ttft.Wasserstein)             // every value moved by 1
	at(t, 0.4, ttft.WassersteinShare)      // of the mean 2.5
	at(t, 0.25, ttft.KS.D)
	at(t, 1, ttft.KS.P) // no smaller gap is possible but 0
	require.Equal(t, TooHigh, ttft.Verdict)
	require.False(t, ttft.Quantiles[0].Inside.Valid(), "one seed makes no band")

	tpot := g.Metrics[1] // 3/10 measured; 0.2 simulated
	at(t, 0.3, tpot.Quantiles[0].Measured)
	at(t, -1.0/3, tpot.Quantiles[0].Error)
	require.Equal(t, TooLow, tpot.Verdict)

	e2e := g.Metrics[2]
	at(t, 0, e2e.Quantiles[1].Error)
	at(t, 0, e2e.Wasserstein)
	require.Equal(t, Same, e2e.Verdict)
	require.Equal(t, "p50 +0.0%, p95 +0.0%, W1 0 ms (0.0% of the mean), KS 0.000 (p 1.000)", e2e.Reason())
}

// Three seeds: medians and bands by hand, and samples pooled.
func TestBandsByHand(t *testing.T) {
	one := func(ttft float64) []record.Request { return []record.Request{ok("", 0, ttft, 10)} }
	p := byHand(one(2.2), one(1), one(2), one(3))
	q := p.Groups[0].Metrics[0].Quantiles[0]
	at(t, 2, q.Simulated)
	at(t, 1.1, q.Band.P5) // 0.1 of the way from 1 to 2
	at(t, 2.9, q.Band.P95)
	at(t, -0.2/2.2, q.Error)
	require.Equal(t, record.Some(true), q.Inside)
	at(t, (1.2+0.2+0.8)/3, p.Groups[0].Metrics[0].Wasserstein)

	p = byHand(one(2.95), one(1), one(2), one(3))
	require.Equal(t, record.Some(false), p.Groups[0].Metrics[0].Quantiles[0].Inside)
}

// Refused, failed and dropped requests are in no distribution (F04).
func TestTimesAreOfSuccesses(t *testing.T) {
	measured := []record.Request{
		ok("", 0, 0.2, 1), ok("", 1, 0.2, 1),
		{Result: record.Rejected, HTTPStatus: record.Some(429), TTFT: record.Some(0.0), E2E: record.Some(0.004), Started: record.Some(2.0)},
		{Result: record.Failed, HTTPStatus: record.Some(200), TTFT: record.Some(9.0), E2E: record.Some(9.0), Started: record.Some(3.0)},
		{Result: record.Dropped, Started: record.Some(4.0)},
	}
	trace := traceOf(measured)
	require.Equal(t, []float64{0.2, 0.2}, trace.of("").times[0])
	require.Len(t, trace.spans, 4, "those that were sent")
	p := byHand(measured, measured)
	require.Equal(t, Same, p.Groups[0].Metrics[0].Verdict)
	at(t, 0.2, p.Groups[0].Metrics[0].Quantiles[2].Measured)
}

func TestTenants(t *testing.T) {
	measured := []record.Request{ok("A", 0, 1, 5), ok("B", 1, 3, 9), ok("A", 2, 1, 5)}
	simulated := []record.Request{ok("A", 0, 1, 5), ok("C", 1, 3, 9), ok("A", 2, 1, 5)}
	p := byHand(measured, simulated)
	var names []string
	for _, g := range p.Groups {
		names = append(names, g.Tenant)
	}
	require.Equal(t, []string{"", "A", "B", "C"}, names)
	require.Equal(t, Same, p.Groups[1].Metrics[0].Verdict)
	at(t, 2, p.Groups[1].Success.Measured)
	require.Equal(t, NotSimulated, p.Groups[2].Metrics[0].Verdict)
	require.Equal(t, NotMeasured, p.Groups[3].Metrics[0].Verdict)
	require.False(t, p.Groups[3].Success.Measured.Valid(), "absent, not 0")

	alone := byHand([]record.Request{ok("A", 0, 1, 5)}, []record.Request{ok("", 0, 1, 5)})
	require.Len(t, alone.Groups, 1, "the only tenant is the whole phase")
}

func TestVerdicts(t *testing.T) {
	some := record.Some[float64]
	quantile := func(measured, simulated record.Float, inside record.Bool) QuantileComparison {
		return QuantileComparison{Measured: measured, Simulated: simulated, Error: relativeError(measured, simulated), Inside: inside}
	}
	both := func(p50, p95 float64, inside record.Bool) []QuantileComparison {
		return []QuantileComparison{quantile(some(1), some(p50), inside), quantile(some(1), some(p95), inside), quantile(some(1), some(9), inside)}
	}
	in, out, unknown := record.Some(true), record.Some(false), record.Bool{}
	nothing := []QuantileComparison{{}, {}, {}}
	for name, c := range map[string]struct {
		quantiles []QuantileComparison
		p, share  record.Float
		want      Verdict
	}{
		"KS cannot tell":             {both(1.01, 0.97, out), some(0.05), some(0.2), Same},
		"KS cannot tell, p95 off":    {both(1.01, 0.90, out), some(0.9), some(0.01), TooLow},
		"KS cannot tell, in band":    {both(1.01, 0.90, in), some(0.9), some(0.2), Same},
		"at the tolerance":           {both(1.04, 0.96, out), some(0.049), some(0.05), Close},
		"without requests":           {both(1.04, 0.96, unknown), record.Float{}, record.Float{}, Close},
		"p95 in band":                {both(1.04, 1.30, in), some(0.001), some(0.2), InBand},
		"near, another shape":        {both(1.04, 0.96, out), some(0.001), some(0.06), OtherShape},
		"near, shape off, in band":   {both(1.04, 0.96, in), some(0.001), some(0.06), InBand},
		"the worse quantile decides": {both(1.06, 0.80, out), some(0.001), some(0.06), TooLow},
		"too high":                   {both(1.30, 0.80, out), some(0.001), some(0.06), TooHigh},
		"only p95 measured":          {[]QuantileComparison{{}, quantile(some(1), some(1.2), unknown), {}}, record.Float{}, record.Float{}, TooHigh},
		"only p95 measured, inside":  {[]QuantileComparison{{}, quantile(some(1), some(1.2), in), {}}, record.Float{}, record.Float{}, InBand},
		"nothing":                    {nothing, record.Float{}, record.Float{}, NotMeasured},
		"nothing measured":           {[]QuantileComparison{quantile(record.Float{}, some(1), unknown), {}, {}}, record.Float{}, record.Float{}, NotMeasured},
		"nothing simulated":          {[]QuantileComparison{quantile(some(1), record.Float{}, unknown), {}, {}}, record.Float{}, record.Float{}, NotSimulated},
	} {
		got := TimeComparison{Quantiles: c.quantiles, KS: KSTest{P: c.p}, WassersteinShare: c.share}
		require.Equal(t, c.want, got.verdict(), name)
	}
}

func TestWarnings(t *testing.T) {
	family := func(r record.Request, number, cached int) record.Request {
		r.Family, r.CachedTokens = record.Some(number), record.Some(cached)
		return r
	}
	prompt := func(r record.Request, tokens int) record.Request {
		r.InputTokens = record.Some(tokens)
		return r
	}
	refused := record.Request{Result: record.Rejected, HTTPStatus: record.Some(429)}
	whole := record.Request{Result: record.OK, OutputTokens: record.Some(11), E2E: record.Some(3.0)}
	a, b := ok("", 0, 1, 4), ok("", 1, 1, 4)
	for name, c := range map[string]struct {
		measured, simulated []record.Request
		want                []string
	}{
		"alike":  {[]record.Request{a, b}, []record.Request{a, b}, []string{}},
		"shares": {[]record.Request{a, refused}, []record.Request{a, b}, []string{"rejected: 50.0% measured, 0.0% simulated; the times are those of the other requests"}},
		"warm": {[]record.Request{family(b, 0, 0), family(a, 0, 50), family(ok("", 0, 1, 4), 1, 40)}, []record.Request{a, b, b},
			[]string{`the measurement began warm (the first request of 2 of 2 families hit the cache), the scenario begins cold: start.engine_cache = "all" or "owners" begins warm`}},
		"cold": {[]record.Request{family(b, 0, 50), family(a, 0, 0), family(ok("", 0, 1, 4), 1, 0)}, []record.Request{a, b, b}, []string{}},
		"prompts": {[]record.Request{prompt(a, 520), prompt(b, 540)}, []record.Request{prompt(a, 512), prompt(b, 512)},
			[]string{"prompts: on average 530 tokens measured, 512 simulated (-18); a chat template adds tokens on the server"}},
		"not streamed": {[]record.Request{whole, whole}, []record.Request{a, b}, []string{"no TTFT: the source did not stream"}},
		"load": {[]record.Request{a, b, a, b}, []record.Request{a, b},
			[]string{"4 requests were sent in the measurement and 2 in the simulation: is it the same load?"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, byHand(c.measured, c.simulated).Warnings)
		})
	}
}

// Warnings by phase records alone.
func TestWarningsOfRecords(t *testing.T) {
	phase := func(change func(*record.Phase)) *record.Phase {
		p := &record.Phase{Planned: record.Some(100), Requests: record.Some(100), Success: record.Some(100), Dropped: record.Some(0), CacheHitRatio: record.Some(0.5)}
		p.E2E.P50, p.TTFT.P50 = record.Some(3.0), record.Some(1.0)
		change(p)
		return p
	}
	for name, c := range map[string]struct {
		measured func(*record.Phase)
		start    string
		want     []string
	}{
		"alike":               {func(*record.Phase) {}, "cold", []string{}},
		"hits":                {func(p *record.Phase) { p.CacheHitRatio = record.Some(0.9) }, "cold", []string{`the hit ratio is 0.900 measured and 0.500 simulated: did the measurement begin warm? The scenario begins cold: start.engine_cache = "all" or "owners" begins warm`}},
		"hits, warm scenario": {func(p *record.Phase) { p.CacheHitRatio = record.Some(0.9) }, "owners", []string{}},
		"hits unknown":        {func(p *record.Phase) { p.CacheHitRatio = record.Float{} }, "cold", []string{`cache hits were not measured, and the scenario begins cold and hits 0.500: if the measurement began warm, start.engine_cache = "all" or "owners" begins warm`}},
		"dropped":             {func(p *record.Phase) { p.Dropped = record.Some(25) }, "cold", []string{"dropped: 25.0% measured, 0.0% simulated; the times are those of the other requests"}},
		"prompts": {func(p *record.Phase) {
			p.InputTokensRange = record.Range{Min: record.Some(500), Max: record.Some(560)}
		}, "cold", []string{"prompts: in the middle of their range 530 tokens measured, 512 simulated (-18); a chat template adds tokens on the server"}},
		"no TTFT":       {func(p *record.Phase) { p.TTFT.P50 = record.Float{} }, "cold", []string{"no TTFT: the source did not stream"}},
		"nothing known": {func(p *record.Phase) { *p = record.Phase{CacheHitRatio: record.Some(0.1)} }, "cold", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &PhaseComparison{Plan: scenario.Phase{Scenario: &scenario.Scenario{}}, Measured: phase(c.measured)}
			p.Plan.Scenario.Start.EngineCache = c.start
			p.Runs = []*record.Phase{phase(func(p *record.Phase) {
				p.InputTokensRange = record.Range{Min: record.Some(507), Max: record.Some(517)}
			})}
			require.Equal(t, c.want, p.warnings())
		})
	}
}

func TestNotes(t *testing.T) {
	p := &PhaseComparison{Measured: &record.Phase{Notes: []string{"shared nodes", unstreamedNote}}}
	require.Equal(t, []string{"shared nodes"}, p.Notes())
	require.Len(t, p.Measured.Notes, 2, "the record is left alone")
	require.Empty(t, (&PhaseComparison{}).Notes())

	unstreamed := record.Summarize([]record.Request{{Result: record.OK, OutputTokens: record.Some(1), E2E: record.Some(1.0)}}, record.StudySLO(), record.Meta{})
	require.Contains(t, unstreamed.Notes, unstreamedNote)
}

// twoPolicies is a study of one load: least-request and random under two seeds.
func twoPolicies(measuredGood, measuredRandom int, least, random [2]int) *StudyComparison {
	summary := func(good int) *record.Phase {
		p := &record.Phase{Round: record.Some(1), Good: record.Some(good)}
		p.TTFT.P95 = record.Some(float64(100-good) / 10)
		return p
	}
	phase := func(policy string, measured int, runs [2]int) PhaseComparison {
		p := PhaseComparison{Phase: "r1-" + policy, Measured: summary(measured), Plan: scenario.Phase{Policy: policy}}
		p.Plan.Scenario = &scenario.Scenario{Name: "hot", Seed: 5, Policies: []string{policy}}
		for _, good := range runs {
			p.Runs = append(p.Runs, summary(good))
		}
		p.Simulated, p.Band = p.Runs[0], bandsOf(p.Runs)
		return p
	}
	c := &StudyComparison{Phases: []PhaseComparison{phase("random", measuredRandom, random), phase("least-request", measuredGood, least)}}
	c.assess()
	return c
}

func TestPairsByHand(t *testing.T) {
	// Simulated differences, random less least-request: -20 and -10.
	c := twoPolicies(90, 75, [2]int{90, 90}, [2]int{70, 80})
	require.Len(t, c.Pairs, 1)
	pair := c.Pairs[0]
	require.Equal(t, Pair{
		Load: "hot, round 1", A: PairSide{"r1-least-request", "least-request"}, B: PairSide{"r1-random", "random"}, Metrics: pair.Metrics,
	}, pair)
	good := pair.Of("good")
	at(t, -15, good.Measured.Difference)
	at(t, 75.0/90, good.Measured.Ratio)
	at(t, -15, good.Simulated.Difference)
	at(t, -19.5, good.Band.P5)
	at(t, -10.5, good.Band.P95)
	at(t, 0, good.Error)
	require.Equal(t, record.Some(true), good.Decided, "15 is more than 9")
	require.Equal(t, record.Some(true), good.SignAgrees)
	ttft := pair.Of("ttft.p95")
	at(t, 1.5, ttft.Measured.Difference)
	at(t, 2.5, ttft.Measured.Ratio)
	require.Nil(t, pair.Of("cache_hit_ratio"), "known on neither side")

	require.Equal(t, []string{"good", "ttft.p95"}, []string{c.Rankings[0].Metric, c.Rankings[1].Metric})
	for _, r := range c.Rankings {
		require.Equal(t, "least-request > random", Order(r.Measured))
		require.Equal(t, "least-request > random", Order(r.Simulated))
		require.Equal(t, [2]int{1, 1}, [2]int{r.Decided, r.Agree})
		require.True(t, r.Agrees())
	}
}

func TestRankings(t *testing.T) {
	for name, c := range map[string]struct {
		least, random          int // measured
		simLeast, simRandom    [2]int
		decided, agree         int
		measured, simulated    string
		signKnown, signCorrect bool
	}{
		"a gap within the band": {90, 85, [2]int{90, 90}, [2]int{70, 80}, 0, 0, "least-request > random", "least-request > random", true, true},
		"the wrong way round":   {90, 75, [2]int{70, 80}, [2]int{90, 90}, 1, 0, "least-request > random", "random > least-request", true, false},
		"a measured tie":        {90, 90, [2]int{90, 90}, [2]int{80, 80}, 0, 0, "least-request = random", "least-request > random", false, false},
		"a simulated tie":       {90, 80, [2]int{90, 90}, [2]int{90, 90}, 1, 0, "least-request > random", "least-request = random", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			study := twoPolicies(c.least, c.random, c.simLeast, c.simRandom)
			r := study.Rankings[0]
			require.Equal(t, [2]int{c.decided, c.agree}, [2]int{r.Decided, r.Agree})
			require.Equal(t, c.measured, Order(r.Measured))
			require.Equal(t, c.simulated, Order(r.Simulated))
			sign, known := study.Pairs[0].Of("good").SignAgrees.Get()
			require.Equal(t, c.signKnown, known)
			require.Equal(t, c.signCorrect, sign)
		})
	}
}

// Phases are paired when only policy and start differ; one that continues
// another is not paired.
func TestLoads(t *testing.T) {
	count := func(change func(*scenario.Phase)) int {
		c := twoPolicies(1, 1, [2]int{1, 1}, [2]int{1, 1})
		change(&c.Phases[1].Plan)
		c.assess()
		return len(c.Pairs)
	}
	require.Equal(t, 1, count(func(*scenario.Phase) {}))
	require.Equal(t, 1, count(func(p *scenario.Phase) { p.Scenario.Start.Owners = [][]string{{"a"}} }))
	require.Equal(t, 0, count(func(p *scenario.Phase) { p.Scenario.Seed++ }))
	require.Equal(t, 0, count(func(p *scenario.Phase) { p.Scenario.Workload.Requests = 7 }))
	require.Equal(t, 0, count(func(p *scenario.Phase) { p.Scenario.Cluster.Replicas = 7 }))
	require.Equal(t, 0, count(func(p *scenario.Phase) { p.Continue = true }))
	require.Equal(t, 0, count(func(p *scenario.Phase) { p.Policy = "random" }))
}

// Exchanging two policies turns every difference round and keeps the judgement.
func TestPairsAreSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		good := rapid.IntRange(0, 100)
		phases := make([]PhaseComparison, 2)
		for i := range phases {
			p := &phases[i]
			p.Measured = &record.Phase{Good: record.Some(good.Draw(t, "measured"))}
			for range 3 {
				p.Runs = append(p.Runs, &record.Phase{Good: record.Some(good.Draw(t, "run"))})
			}
			p.Band = bandsOf(p.Runs)
		}
		one, other := newPair("", &phases[0], &phases[1]), newPair("", &phases[1], &phases[0])
		there, back := one.Of("good"), other.Of("good")
		require.InDelta(t, there.Measured.Difference.Or(0), -back.Measured.Difference.Or(0), 1e-9)
		require.InDelta(t, there.Simulated.Difference.Or(0), -back.Simulated.Difference.Or(0), 1e-9)
		require.InDelta(t, there.Band.P5.Or(0), -back.Band.P95.Or(0), 1e-9)
		require.Equal(t, there.SignAgrees, back.SignAgrees)
	})
}

// Lists are lists in JSON even when they are empty, and what is absent is null.
func TestComparisonJSON(t *testing.T) {
	p := byHand([]record.Request{ok("", 0, 1, 4)}, []record.Request{ok("", 0, 1, 4)})
	c := &StudyComparison{Study: "s", Phases: []PhaseComparison{*p}}
	c.assess()
	data, err := json.Marshal(c)
	require.NoError(t, err)
	require.Contains(t, string(data), `"pairs":[],"rankings":[]`)
	require.Contains(t, string(data), `"warnings":[]`)
	require.Contains(t, string(data), `"inside_band":null`)
	require.Contains(t, string(data), `"verdict":"same"`)
}
