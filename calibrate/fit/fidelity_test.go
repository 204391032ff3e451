package fit_test

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/calibrate/fit"
	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

const builtin = "qwen3.8-27b-fp8-l20"

func profile(t *testing.T, name string, changes map[string]float64) *model.Profile {
	p, err := profiles.Load(name)
	require.NoError(t, err)
	for name, v := range changes {
		require.NoError(t, p.SetCoefficient(name, v))
	}
	return p
}

// phases simulates every phase of a study under the study's seeds, and those
// of others if repeat is above 1.
func phases(t *testing.T, study string, p *model.Profile, repeat int, sets ...string) (*scenario.Study, [][]*record.Phase) {
	s, err := scenario.LoadStudyWith(study, sets)
	require.NoError(t, err)
	all := make([][]*record.Phase, len(s.Phases))
	for i, ph := range s.Phases {
		for seed := range uint64(repeat) {
			r, err := sim.Run(sim.Setup{Phase: ph.Name, Scenario: ph.Scenario, Profile: p, Policy: ph.Policy, Seed: ph.Scenario.Seed + seed})
			require.NoError(t, err)
			all[i] = append(all[i], r)
		}
	}
	return s, all
}

func off(simulated, measured record.Float) float64 {
	return math.Abs(simulated.Or(math.NaN())/measured.Or(math.NaN()) - 1)
}

// The built-in profile is fitted to the production study and the benchmarks:
// the routing study is held out. Where the router's choices do not hang on
// chance, its phases are met one by one, in the median over seeds: which
// documents begin with a token that shows nothing is not known and is drawn
// from the seed, and in the hot phases one document's draw moves nearly all
// TPOTs by 1/127.
func TestRoutingStudyHeldOut(t *testing.T) {
	study, runs := phases(t, "routing-study", profile(t, builtin, nil), 100)
	for i, ph := range study.Phases {
		cold, prefix := strings.Contains(ph.Name, "cold"), ph.Policy == "prefix-cache"
		warmLeast := strings.Contains(ph.Name, "warm") && ph.Policy == "least-request"
		if cold || !prefix && !warmLeast {
			continue
		}
		t.Run(ph.Name, func(t *testing.T) {
			m := ph.Measured
			require.Less(t, off(medianOf(runs[i], tpotP50), m.TPOT.P50), 0.007, "TPOT p50")
			require.Less(t, off(medianOf(runs[i], tpotP95), m.TPOT.P95), 0.006, "TPOT p95")
			if ph.Name == "r1-hot90-prefix-cache" {
				// Measured, the 17th request outstanding beyond the other replica's
				// came at 18.13 s, simulated at 20.6 s: 80 ms of a queue decide, see
				// TestBandsCoverTheRoutingStudy.
				return
			}
			bound := 0.015
			if warmLeast {
				bound = 0.025
			}
			require.Less(t, off(medianOf(runs[i], ttftP95), m.TTFT.P95), bound, "TTFT p95")
			for _, s := range runs[i] {
				require.InDelta(t, m.Good.Or(-1), s.Good.Or(-2), 1)
			}
		})
	}
}

func tpotP50(p *record.Phase) record.Float { return p.TPOT.P50 }
func tpotP95(p *record.Phase) record.Float { return p.TPOT.P95 }
func ttftP95(p *record.Phase) record.Float { return p.TTFT.P95 }

func medianOf(runs []*record.Phase, value func(*record.Phase) record.Float) record.Float {
	var values []float64
	for _, r := range runs {
		values = append(values, value(r).Or(math.NaN()))
	}
	return record.BandOf(values).P50
}

// In r2-hot90-prefix-cache the hot document has 86 of the 96 requests. Whether
// its answers begin with a token that shows nothing moves the median TPOT by
// 0.8%: the measured one is met if the token shows, and missed by 1.1% under the
// study's own seed, which draws that it does not.
func TestHotDocumentsFirstToken(t *testing.T) {
	tpot := func(share string) record.Float {
		study, runs := phases(t, "routing-study", profile(t, builtin, nil), 1, "workload.hidden_first_share="+share)
		i := slices.IndexFunc(study.Phases, func(p scenario.Phase) bool { return p.Name == "r2-hot90-prefix-cache" })
		return record.Some(runs[i][0].TPOT.P50.Or(0) / study.Phases[i].Measured.TPOT.P50.Or(0))
	}
	shows, hides := tpot("0").Or(0), tpot("1").Or(0)
	require.InDelta(t, 1./127, shows-hides, 0.001)
	require.InDelta(t, 1, shows, 0.004)
	require.InDelta(t, 1, hides, 0.012)
}

// With step times that scatter as measured, the band over seeds covers what was
// measured. Cold phases are left a little too good. Several counts of good lie at
// an edge of their band, which 100 seeds place to a request or so; with 400 it
// stays where it is for 1,000.
func TestBandsCoverTheRoutingStudy(t *testing.T) {
	const seeds = 400
	study, runs := phases(t, "routing-study", profile(t, builtin, nil), seeds, "model.noise=true")
	for _, c := range []struct {
		name  string
		value func(*record.Phase) float64
		slack float64 // share of the band's bounds
		least int     // of 24
	}{
		{"ttft.p95", func(p *record.Phase) float64 { return p.TTFT.P95.Or(0) }, 0.05, 24},
		{"tpot.p95", func(p *record.Phase) float64 { return p.TPOT.P95.Or(0) }, 0.05, 23},
		{"good", func(p *record.Phase) float64 { return float64(p.Good.Or(0)) }, 0, 23},
		{"good, to one request", func(p *record.Phase) float64 { return float64(p.Good.Or(0)) }, 0.03, 24},
	} {
		inside, outside := 0, []string{}
		for i, ph := range study.Phases {
			values := make([]float64, seeds)
			for k, r := range runs[i] {
				values[k] = c.value(r)
			}
			band, v := record.BandOf(values), c.value(ph.Measured)
			if v >= band.P5.Or(0)*(1-c.slack) && v <= band.P95.Or(0)*(1+c.slack) {
				inside++
			} else {
				outside = append(outside, ph.Name)
			}
		}
		require.GreaterOrEqual(t, inside, c.least, "%s is outside in %v", c.name, outside)
	}
}

func TestProductionWaves(t *testing.T) {
	study, runs := phases(t, "production-study", profile(t, builtin, nil), 1)
	for i, ph := range study.Phases {
		m, s := ph.Measured, runs[i][0]
		switch ph.Name {
		case "fixed1-wave":
			require.InDelta(t, 105, s.Dropped.Or(0), 1)
			require.InDelta(t, 28, s.Good.Or(0), 1)
			require.Less(t, off(s.TTFT.P50, m.TTFT.P50), 0.005)
			require.Less(t, off(s.TTFT.P95, m.TTFT.P95), 0.005)
		case "fixed2-wave":
			require.Less(t, off(s.TTFT.P50, m.TTFT.P50), 0.03)
			require.Less(t, off(s.TTFT.P95, m.TTFT.P95), 0.03)
			require.Less(t, off(s.TPOT.P95, m.TPOT.P95), 0.01)
		}
	}
}

const benches = "../../../shared/measurements/vllm-bench-l20/vllm-"

// benchErrors are how far a profile is off in a benchmark.
func benchErrors(t *testing.T, file string, p *model.Profile) fit.Errors {
	data, err := os.ReadFile(benches + file + ".json")
	if err != nil {
		t.Skip("the measured benchmarks are not beside the checkout")
	}
	run, err := fit.BenchRun(file, data)
	require.NoError(t, err)
	e, err := fit.Measure(*run, p)
	require.NoError(t, err)
	return e
}

// A prompt step is launched kernel by kernel, and meanwhile the host schedules
// nothing: of four prompts that arrive together the first is computed alone, and
// the others after it. Without that the benchmarks cannot be met.
func TestHostLaunchesPrompts(t *testing.T) {
	pod := profile(t, builtin+"-pod", nil)
	without := profile(t, builtin+"-pod", map[string]float64{"launch": 0, "launch_lag": 0})
	for _, file := range []string{"c1-128-64", "c4-128-64-r1", "c6-128-64-r1", "c8-128-64-r1"} {
		with := benchErrors(t, file, pod)
		require.Less(t, with.TTFT.Absolute, 0.016, file)
		require.Less(t, with.TPOT.Absolute, 0.001, file)
		require.Greater(t, benchErrors(t, file, without).TTFT.Absolute, 0.045, file)
	}
}

// Long prompts are computed in chunks, the later ones at more than the first's
// price a token.
func TestLongPrompts(t *testing.T) {
	pod := profile(t, builtin+"-pod", nil)
	for _, file := range []string{"c1-8192-256-r1", "c1-16384-256-r1", "c1-30720-256-r1", "c4-2048-1024-r1"} {
		e := benchErrors(t, file, pod)
		require.Less(t, e.TTFT.Absolute, 0.015, file)
		require.Less(t, e.TPOT.Absolute, 0.0015, file)
	}
}

// Requests of a family share KV blocks, which are read from memory once: if
// each read its own, the queue of r1-hot50 would grow a tenth longer than was
// measured.
func TestSharedContextIsReadOnce(t *testing.T) {
	p := profile(t, builtin, nil)
	each, err := p.Coefficient("per_decode_context")
	require.NoError(t, err)
	study, err := scenario.LoadStudy("routing-study")
	require.NoError(t, err)
	for _, ph := range study.Phases {
		if ph.Name != "r1-hot50-prefix-cache" {
			continue
		}
		p95 := func(p *model.Profile) float64 {
			r, err := sim.Run(sim.Setup{Scenario: ph.Scenario, Profile: p, Policy: ph.Policy, Seed: ph.Scenario.Seed})
			require.NoError(t, err)
			return r.TTFT.P95.Or(0) / ph.Measured.TTFT.P95.Or(0)
		}
		require.InDelta(t, 1, p95(p), 0.02)
		require.Greater(t, p95(profile(t, builtin, map[string]float64{"per_shared_context": each})), 1.08)
	}
}
