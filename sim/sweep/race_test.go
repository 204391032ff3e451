package sweep

import (
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
)

// invented is a sweep of so many cells on one axis, whose only metrics are a
// share with 100 trials and a time, with results to be filled in.
func invented(cells, seeds int) (*Sweep, Results) {
	s := &Sweep{
		Confidence: 0.95, looks: []int{seeds}, dims: [][]int{{0}}, given: []bool{false},
		Metrics: []Metric{{Name: "share", trials: "trials"}, {Name: "trials"}, {Name: "time"}},
		Cells:   make([]Cell, cells), Seeds: make([]uint64, seeds),
	}
	axis := Axis{Name: "x"}
	for i := range cells {
		axis.Values = append(axis.Values, Value{int64(i)})
		s.Cells[i] = Cell{Index: i, At: []int{i}, Baseline: -1}
	}
	s.Axes = []Axis{axis}
	return s, s.newResults()
}

func fill(r Results, cell int, of func(k int) Values) {
	for k := range r[cell] {
		r[cell][k] = of(k)
	}
}

func steady(share, time float64) func(int) Values {
	return func(int) Values { return Values{share, 100, time} }
}

// With one bound at 95%, the lower bound of a share that is always 1 is that of
// Clopper and Pearson: 0.05^(1/400) = 0.9925 of four runs with 100 trials each,
// 0.05^(1/200) = 0.9851 of two.
func TestJudgeShare(t *testing.T) {
	s, r := invented(1, 4)
	fill(r, 0, steady(1, 1))
	least := Constraint{Metric: 0, Least: true, Bound: 0.99}
	i, v := s.Judge(r, 0, least, 4)
	require.Equal(t, Met, v)
	require.InDelta(t, math.Pow(0.05, 1.0/400), i.Low, 1e-9)
	i, v = s.Judge(r, 0, least, 2)
	require.Equal(t, Undecided, v)
	require.InDelta(t, math.Pow(0.05, 1.0/200), i.Low, 1e-9)

	fill(r, 0, steady(0.5, 1))
	_, v = s.Judge(r, 0, least, 4)
	require.Equal(t, Violated, v)

	// Runs that differ widely are worth less than their counts say: the t interval
	// of 1, 0, 1, 0 is wider than that of 200 in 400.
	fill(r, 0, func(k int) Values { return Values{float64(1 - k%2), 100, 1} })
	i, v = s.Judge(r, 0, Constraint{Metric: 0, Least: true, Bound: 0.3}, 4)
	require.Equal(t, Undecided, v)
	require.Equal(t, 0.0, i.Low) // 0.5 - 2.3534 × 0.57735/2 < 0
}

// Values 1, 2, 3 have the one-sided bounds 2 ± 2.919986 × 1/√3 = 0.3141, 3.6859.
func TestJudgeTime(t *testing.T) {
	s, r := invented(1, 3)
	fill(r, 0, func(k int) Values { return Values{1, 100, float64(k + 1)} })
	for bound, want := range map[float64]Verdict{0.31: Violated, 0.32: Undecided, 3.68: Undecided, 3.69: Met} {
		i, v := s.Judge(r, 0, Constraint{Metric: 2, Bound: bound}, 3)
		require.Equal(t, want, v, bound)
		require.InDelta(t, 0.3141, i.Low, 1e-4)
		require.InDelta(t, 3.6859, i.High, 1e-4)
	}
	r[0][1][2] = math.NaN()
	_, v := s.Judge(r, 0, Constraint{Metric: 2, Bound: 100}, 3)
	require.Equal(t, Violated, v, "a run without a value is not within a bound")
}

// Each of two looks has half the chance to err.
func TestTail(t *testing.T) {
	s, _ := invented(1, 4)
	require.InDelta(t, 0.025, s.Tail(), 1e-15)
	s.looks = []int{2, 4}
	require.InDelta(t, 0.0125, s.Tail(), 1e-15)
}

// The best of those that meet the constraint is chosen; what is not shown to be
// worse ties with it.
func TestChoose(t *testing.T) {
	s, r := invented(4, 10)
	s.Objective = &Objective{Name: "time", Axis: -1, Metric: 2}
	s.Constraints = []Constraint{{Metric: 0, Least: true, Bound: 0.9}}
	s.group()
	fill(r, 0, steady(0.5, 1)) // fast, but violates
	fill(r, 1, func(k int) Values { return Values{1, 100, 2 + float64(k%2)} })
	fill(r, 2, func(k int) Values { return Values{1, 100, 2 + float64((k+1)%2) + 0.01*float64(k%3)} })
	fill(r, 3, func(k int) Values { return Values{1, 100, 3 + float64(k%2)} }) // 1 slower than cell 1, always
	choices := s.Choose(r)
	require.Equal(t, []Choice{{Cells: []int{0, 1, 2, 3}, Best: 1, Ties: []int{2}}}, choices)

	s.Objective = &Objective{Name: "x", Axis: 0, Metric: -1, Maximise: true}
	require.Equal(t, 3, s.Choose(r)[0].Best)
	require.Empty(t, s.Choose(r)[0].Ties)

	s.Constraints[0].Bound = 1.1
	require.Equal(t, -1, s.Choose(r)[0].Best)

	s.Objective = nil
	require.Nil(t, s.Choose(r))
}

// Only what may yet be the best goes on.
func TestOpen(t *testing.T) {
	s, r := invented(4, 10)
	s.Objective = &Objective{Name: "time", Axis: -1, Metric: 2}
	s.Constraints = []Constraint{{Metric: 0, Least: true, Bound: 0.9}}
	s.group()
	noisy := func(share, mean float64, phase int) func(int) Values {
		return func(k int) Values { return Values{share, 100, mean + float64((k+phase)%2)} }
	}
	fill(r, 0, noisy(1, 2, 0))
	fill(r, 1, noisy(1, 2, 1))   // may be better
	fill(r, 2, noisy(1, 9, 0))   // decidedly slower
	fill(r, 3, noisy(0.1, 1, 0)) // fastest, but violates
	all := []int{0, 1, 2, 3}
	require.Equal(t, []int{0, 1}, s.open(r, all, 10))
	fill(r, 1, noisy(1, 2, 0)) // exactly the same: nothing to find out
	require.Empty(t, s.open(r, all, 10))
	fill(r, 1, func(k int) Values { // undecided about the share, but slower
		return Values{float64(k%2)*0.2 + 0.8, 100, 9}
	})
	require.Empty(t, s.open(r, all, 10))
	fill(r, 1, func(k int) Values { return Values{float64(k%2)*0.2 + 0.8, 100, 1} })
	require.Equal(t, []int{0, 1}, s.open(r, all, 10))

	// With an axis for objective a smaller value that is undecided goes on, and the
	// larger ones are done with.
	s.Objective = &Objective{Name: "x", Axis: 0, Metric: -1}
	fill(r, 0, func(k int) Values { return Values{float64(k%2)*0.2 + 0.8, 100, 1} })
	fill(r, 1, steady(1, 1))
	require.Equal(t, []int{0, 1}, s.open(r, all, 10))

	// Without an objective, what is undecided goes on.
	s.Objective = nil
	require.Equal(t, []int{0}, s.open(r, []int{0, 1}, 10))
}

// Early stopping spends fewer runs and decides as all seeds do.
func TestStoppingFindsTheSame(t *testing.T) {
	stopping := resolve(t, smallSweep)
	full := resolve(t, strings.Split(smallSweep, "[stop]")[0])
	r, err := stopping.Run(context.Background(), 0)
	require.NoError(t, err)
	all, err := full.Run(context.Background(), 0)
	require.NoError(t, err)
	require.NoError(t, stopping.check(r, Whole))
	runs := 0
	for cell := range stopping.Cells {
		runs += r.Ran(cell)
		for k := range r.Ran(cell) {
			require.True(t, r[cell][k].same(all[cell][k]), "common seeds give common results")
		}
	}
	require.Less(t, runs, 12*12)
	// Judged as strictly, all seeds say the same of every cell that was decided.
	for cell := range stopping.Cells {
		if v := stopping.Verdict(r, cell, r.Ran(cell)); v != Undecided {
			require.Equal(t, v, stopping.Verdict(all, cell, 12), cell)
		}
	}
}

// The results do not depend on the number of workers.
func TestWorkers(t *testing.T) {
	s := resolve(t, smallSweep)
	one, err := s.Run(context.Background(), 1)
	require.NoError(t, err)
	many, err := s.Run(context.Background(), 5)
	require.NoError(t, err)
	for cell := range s.Cells {
		require.Equal(t, one.Ran(cell), many.Ran(cell))
		for k := range one.Ran(cell) {
			require.True(t, one[cell][k].same(many[cell][k]))
		}
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := resolve(t, smallSweep)
	_, err := s.Run(ctx, 2)
	require.ErrorIs(t, err, context.Canceled)
	dir := t.TempDir()
	_, err = s.Execute(ctx, dir, Options{Shard: Whole})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, Begun(dir))
	require.False(t, IsComplete(dir))
}

// Progress ends with all that was needed done, and never goes back.
func TestProgress(t *testing.T) {
	s := resolve(t, smallSweep)
	last, most := -1, 0
	r := s.newResults()
	e := newExecution(s, r, Options{Shard: Whole, Progress: func(n, m int) {
		require.Greater(t, n, last)
		last, most = n, m
	}})
	require.NoError(t, e.run(context.Background(), 2))
	require.Equal(t, last, most)
}

// Whatever is monotone is found, and asked seldom.
func TestFirstMet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		want := rapid.IntRange(0, n).Draw(t, "want")
		start := rapid.IntRange(0, n-1).Draw(t, "start")
		asked := map[int]bool{}
		got := firstMet(n, start, func(i int) bool {
			require.False(t, asked[i], "asked twice")
			asked[i] = true
			return i >= want
		})
		require.Equal(t, want, got)
		require.LessOrEqual(t, len(asked), 24)
		if want < n {
			require.True(t, asked[want])
		}
		if want > 0 {
			require.True(t, asked[want-1])
		}
	})
}

func TestParseGoal(t *testing.T) {
	for text, want := range map[string]Goal{
		"good>=99%":           {"good_share", true, 0.99},
		"success >= 99.5%":    {"success_share", true, 0.995},
		"ttft_p95<=2s":        {"ttft_p95", false, 2},
		"tpot_p95<=150ms":     {"tpot_p95", false, 0.15},
		"cache_hit_ratio>=.5": {"cache_hit_ratio", true, 0.5},
		"good>=90":            {"good", true, 90},
	} {
		g, err := ParseGoal(text)
		require.NoError(t, err, text)
		require.Equal(t, want.Metric, g.Metric)
		require.Equal(t, want.Least, g.Least)
		require.InDelta(t, want.Bound, g.Bound, 1e-12)
	}
	for _, text := range []string{"", "good", "good>99%", "good>=", "good>=x", "good>=NaN", "good>=inf",
		"good>=200%", "good>=-1%", "success<=100.1%", "good_share>=99", "cache_hit_ratio>=2", "tenant_A_good_share>=101%", "ttft_p95<=99%", "tenant_A_success>=99%"} {
		_, err := ParseGoal(text)
		require.ErrorContains(t, err, "allowed", text)
	}
}

func search(t *testing.T, change func(*Search)) (*Answer, error) {
	q := Search{
		BaseFile: "base.toml", BaseText: smallBase, Policy: "least-request", Find: Replicas, Confidence: 0.95,
		First: 3, Step: 3, Seeds: 12, Goals: []Goal{{"good_share", true, 0.8}},
		// Short prompts that share nothing, far too many for one replica and far too
		// few for 64, whatever the profile says to a factor of some.
		Sets: []string{
			"workload.arrivals.rate_per_second=24", "workload.requests=60", "workload.prompt.families=0",
			"workload.prompt.hot_fraction=0", "workload.prompt.body_repeat=4", "slo.ttft=1s",
		},
	}
	change(&q)
	require.NoError(t, q.Check())
	return q.Run(context.Background())
}

// The answer's neighbour does not meet the goal, and the probes show both.
func TestSearch(t *testing.T) {
	var told []Probe
	a, err := search(t, func(q *Search) {
		q.Done = func(p Probe) { told = append(told, p) }
	})
	require.NoError(t, err)
	require.NotNil(t, a.Met)
	require.NotNil(t, a.NotMet)
	require.Equal(t, a.Met.Value-1, a.NotMet.Value)
	require.Equal(t, Met, a.Met.Verdict)
	require.GreaterOrEqual(t, a.Met.Goals[0].Low, 0.8)
	require.NotEqual(t, Met, a.NotMet.Verdict)
	require.Equal(t, told, a.Probes)
	runs := 0
	for _, p := range a.Probes {
		runs += p.Runs
	}
	require.Equal(t, runs, a.Runs)

	rate, err := search(t, func(q *Search) { q.Find, q.Tolerance = Rate, 0.05 })
	require.NoError(t, err)
	require.NotNil(t, rate.Met)
	require.NotNil(t, rate.NotMet)
	require.Less(t, rate.Met.Value, rate.NotMet.Value)
	require.InDelta(t, rate.Met.Value, rate.NotMet.Value, 0.051*rate.NotMet.Value)

	easy, err := search(t, func(q *Search) { q.Goals[0].Bound = 0 })
	require.NoError(t, err)
	require.Equal(t, 1.0, easy.Met.Value)
	require.Nil(t, easy.NotMet)

	never, err := search(t, func(q *Search) { q.High, q.Goals[0] = 3, Goal{"ttft_p95", false, 0} })
	require.NoError(t, err)
	require.Nil(t, never.Met)
}

// The stages of a wave are scaled together: the rate is that of the peak.
func TestSearchStages(t *testing.T) {
	p := &prober{Search: Search{BaseFile: "base.toml", Policy: "random", Find: Rate, BaseText: strings.Replace(smallBase, "rate_per_second = 3.0",
		`stages = [{ duration = "2s", rate_per_second = 1.0 }, { duration = "4s", rate_per_second = 4.0 }]`, 1)}}
	var err error
	p.base, err = p.parse(nil)
	require.NoError(t, err)
	sc, err := p.parse(p.setsFor(8))
	require.NoError(t, err)
	require.Equal(t, 2.0, sc.Workload.Arrivals.Stages[0].Rate)
	require.Equal(t, 8.0, sc.Workload.Arrivals.Stages[1].Rate)
	require.Equal(t, p.base.Workload.Arrivals.Stages[1].Duration, sc.Workload.Arrivals.Stages[1].Duration)
}

func TestSearchCheck(t *testing.T) {
	for want, change := range map[string]func(*Search){
		"metric":               func(q *Search) { q.Goals[0].Metric = "ttft" },
		"a goal":               func(q *Search) { q.Goals = nil },
		"confidence":           func(q *Search) { q.Confidence = 95 },
		"1, not NaN":           func(q *Search) { q.Confidence = math.NaN() },
		"0.0001 to 1, not NaN": func(q *Search) { q.Find, q.Tolerance = Rate, math.NaN() },
		"0.0001 to 1, not 3":   func(q *Search) { q.Tolerance = 3 },
		"further seed":         func(q *Search) { q.Step = 0 },
		"not 1 to 10001":       func(q *Search) { q.High = 10_001 },
		"not 1.5 to 4":         func(q *Search) { q.Low, q.High = 1.5, 4 },
		"not 1 to +Inf":        func(q *Search) { q.High = math.Inf(1) },
		"not NaN to 64":        func(q *Search) { q.Low, q.High = math.NaN(), 64 },
		"not NaN to 4":         func(q *Search) { q.Find, q.Low, q.High = Rate, math.NaN(), 4 },
		"over 100000 rates":    func(q *Search) { q.Find, q.Low, q.High = Rate, 5e-324, 1e6 },
		"first seeds":          func(q *Search) { q.Seeds = 1 },
		"what to find":         func(q *Search) { q.Find = "pods" },
		"range of rep":         func(q *Search) { q.Low, q.High = 5, 4 },
		"range of rates":       func(q *Search) { q.Find, q.Low, q.High = Rate, 5, 4 },
		"tolerance":            func(q *Search) { q.Find, q.Tolerance = Rate, 2 },
		"good>=99 is a number of requests, and the load has 24; allowed: at most that, or a percentage of them, such as good>=99%": func(q *Search) { q.Goals[0] = Goal{"good", true, 99} },
		"success>=25 is a number of requests, and the load has 24":                                                                 func(q *Search) { q.Find, q.Goals[0] = Rate, Goal{"success", true, 25} },
		"good>=31 is a number of requests, and the load has 30": func(q *Search) {
			q.Goals[0] = Goal{"good", true, 31}
			q.Sets = []string{"workload.requests=0", "workload.arrivals={process=\"constant\", stages=[{duration=\"10s\", rate_per_second=3}]}"}
		},
		"unknown policy":   func(q *Search) { q.Policy = "rr" },
		"workload.requets": func(q *Search) { q.Sets = []string{"workload.requets=1"} },
		"no rate": func(q *Search) {
			q.Find = Rate
			q.BaseText = strings.Replace(strings.Replace(smallBase, "process = \"poisson\"\nrate_per_second = 3.0", "concurrency = 2", 1), "arrivals", "closed_loop", 1)
		},
	} {
		q := Search{BaseFile: "base.toml", BaseText: smallBase, Policy: "random", Find: Replicas, Confidence: 0.95, First: 2, Step: 2, Seeds: 4, Goals: []Goal{{"good_share", true, 0.5}}}
		change(&q)
		require.ErrorContains(t, q.Check(), want)
	}
	for _, find := range []Quantity{Replicas, Rate} {
		q := Search{BaseFile: "base.toml", BaseText: smallBase, Policy: "random", Find: find, Confidence: 0.95, First: 2, Step: 2, Seeds: 4,
			Goals: []Goal{{"good", true, 24}, {"failed", false, 99}, {"good", false, 99}}}
		require.NoError(t, q.Check(), find)
	}
}

// A cell beyond what its profile was calibrated on is said to be.
func TestExtrapolates(t *testing.T) {
	s := resolve(t, smallSweep)
	r, err := s.Run(context.Background(), 0)
	require.NoError(t, err)
	require.Empty(t, s.Extrapolates(r, 0))
	running, err := s.MetricIndex("running_max")
	require.NoError(t, err)
	input, err := s.MetricIndex("input_tokens_max")
	require.NoError(t, err)
	limit := s.Cells[0].Profile.Range
	r[0][1][running], r[0][0][input] = float64(limit.Decodes+1), float64(limit.ContextTokens)
	require.Contains(t, s.Extrapolates(r, 0), "in a batch")
	require.Contains(t, s.Extrapolates(r, 0), "tokens")
	require.Empty(t, s.Extrapolates(r, 1))
}

// Noise in the results changes what is decided only where it must: with the same
// true means, the share of wrong verdicts stays below what is asked for.
func TestStoppingErrorRate(t *testing.T) {
	rng := random.Stream(3, "stopping")
	const trials = 1000
	wrong := 0
	for range trials {
		s, r := invented(1, 20)
		s.looks = looks(5, 5, 20)
		s.Constraints = []Constraint{{Metric: 2, Bound: 9.9}} // true mean 10: violated by a little
		fill(r, 0, func(int) Values { return Values{1, 100, 10 + rng.NormFloat64()} })
		for _, n := range s.looks {
			if v := s.Verdict(r, 0, n); v != Undecided {
				if v == Met {
					wrong++
				}
				break
			}
		}
	}
	require.LessOrEqual(t, wrong, 50)
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("SWEEP_TEST_CHILD"); dir != "" {
		runs, err := strconv.Atoi(os.Getenv("SWEEP_TEST_RUNS"))
		if err != nil {
			panic(err)
		}
		child(dir, runs)
		return
	}
	os.Exit(m.Run())
}
