package calibrate

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// production simulates the published production study, or only one phase of it,
// under so many seeds.
func production(t *testing.T, seeds int, only string) map[string]*PhaseComparison {
	study, err := scenario.LoadStudy("production-study")
	require.NoError(t, err)
	require.Len(t, study.Phases, 13)
	if only != "" {
		study.Phases = slices.DeleteFunc(study.Phases, func(p scenario.Phase) bool { return p.Name != only })
	}
	c, err := CompareStudy(context.Background(), study,
		func(sc *scenario.Scenario) (*model.Profile, error) { return profiles.Load(sc.Profile) }, seeds, 0, nil)
	require.NoError(t, err)
	phases := map[string]*PhaseComparison{}
	for i := range c.Phases {
		phases[c.Phases[i].Phase] = &c.Phases[i]
	}
	return phases
}

// scalingOf is the scaling member of a simulated phase.
func scalingOf(t *testing.T, p *record.Phase) sim.ScalingSummary {
	var s sim.ScalingSummary
	require.NoError(t, json.Unmarshal(p.Other["scaling"], &s), p.Phase)
	return s
}

// near holds a simulated time to the measured one, to a share of it.
func near(t *testing.T, measured, simulated record.Float, share float64, what string) {
	t.Helper()
	require.InEpsilon(t, float(t, measured), float(t, simulated), share, what)
}

// within holds a simulated count to the measured one.
func within(t *testing.T, measured, simulated record.Int, most int, what string) {
	t.Helper()
	require.InDelta(t, measured.Or(-1), simulated.Or(-1000), float64(most), what)
}

// The published figures of the production study, as bounds on the simulator.
func TestProductionStudy(t *testing.T) {
	phases := production(t, 40, "")

	t.Run("one replica overloaded", func(t *testing.T) {
		for _, phase := range []string{"fixed1-wave", "apa-cold-wave"} {
			p := phases[phase]
			for _, s := range p.Runs {
				within(t, p.Measured.Requests, s.Requests, 1, phase)
				within(t, p.Measured.Dropped, s.Dropped, 1, phase)
				within(t, p.Measured.Good, s.Good, 1, phase)
				near(t, p.Measured.TTFT.P95, s.TTFT.P95, 0.01, phase)
				near(t, p.Measured.Elapsed, s.Elapsed, 0.01, phase)
			}
		}
	})
	t.Run("replicas come too late", func(t *testing.T) {
		for _, run := range phases["apa-cold-wave"].Runs {
			s := scalingOf(t, run)
			require.Equal(t, []int{4, 4, 1, 1}, []int{s.DesiredPeak, s.DesiredFinal, s.ReadyPeak, s.ReadyFinal})
			last := s.Changes[len(s.Changes)-1]
			require.Equal(t, []int{2, 1}, []int{last.Starting, last.Pending})
		}
	})
	t.Run("two replicas suffice", func(t *testing.T) {
		for _, phase := range []string{"apa-min2-wave", "fixed2-wave", "kpa-min2-wave"} {
			p := phases[phase]
			for _, s := range p.Runs {
				require.Equal(t, []record.Int{record.Some(414), record.Some(414), record.Some(0)}, []record.Int{s.Requests, s.Good, s.Dropped}, phase)
				near(t, p.Measured.TTFT.P95, s.TTFT.P95, 0.03, phase)
				near(t, p.Measured.TPOT.P95, s.TPOT.P95, 0.01, phase)
			}
		}
		for _, phase := range []string{"apa-min2-wave", "kpa-min2-wave"} {
			for _, run := range phases[phase].Runs {
				require.Len(t, scalingOf(t, run).Changes, 1, "%s never scales", phase)
			}
		}
	})
	t.Run("draining", func(t *testing.T) {
		for phase, failed := range map[string]int{"drain-native": 2, "drain-graceful": 0} {
			p := phases[phase]
			for _, s := range p.Runs {
				within(t, p.Measured.Requests, s.Requests, 1, phase)
				require.Equal(t, record.Some(failed), s.Failed, phase)
				near(t, p.Measured.Elapsed, s.Elapsed, 0.005, phase)
			}
		}
	})
	t.Run("tenants protected", func(t *testing.T) {
		p := phases["tenants-protected"]
		for _, run := range p.Runs {
			a, b := &run.Tenants[0], &run.Tenants[1]
			require.Equal(t, record.Some(105), a.Good)
			within(t, record.Some(95), b.Rejected, 2, "B rejected")
			within(t, record.Some(10), b.Good, 2, "B good")
			near(t, p.Measured.Tenants[0].TTFT.P95, a.TTFT.P95, 0.1, "A")
			near(t, p.Measured.Tenants[1].TTFT.P95, b.TTFT.P95, 0.1, "B")
		}
	})
	t.Run("a cache warms", func(t *testing.T) {
		for _, phase := range []string{"cache-online-least-a", "cache-online-prefix-a", "cache-online-prefix-b", "cache-online-least-b"} {
			p := phases[phase]
			for _, s := range p.Runs {
				within(t, p.Measured.Requests, s.Requests, 1, phase)
				near(t, p.Measured.TTFT.P95, s.TTFT.P95, 0.1, phase)
			}
		}
	})
}

// At the in-flight cap a few milliseconds decide who is dropped, and who is
// dropped decides who waits: in tenants-baseline the 95th percentile of the TTFT
// varies by a tenth with the seeds' draws of ties alone. What was measured is one
// such draw: it lies inside the band, and the median over the seeds is near it.
// Farthest off is tenant B's TTFT, at 41.6 s against 43.9 s, 5.2%.
func TestTenantsBaseline(t *testing.T) {
	p := production(t, 200, "tenants-baseline")["tenants-baseline"]
	for _, metric := range []string{"requests", "dropped", "good", "ttft.p50", "ttft.p95", "tpot.p95", "e2e.p95", "elapsed"} {
		inside, known := p.Inside(metric, 0.05)
		require.True(t, known && inside, "%s: %+v", metric, p.Band.Of(metric))
	}
	for i, name := range []string{"A", "B"} {
		bandOver := func(value func(*record.Tenant) float64) record.Band {
			var values []float64
			for _, run := range p.Runs {
				values = append(values, value(&run.Tenants[i]))
			}
			return record.BandOf(values)
		}
		const planned = 105
		measured := &p.Measured.Tenants[i]
		for _, c := range []struct {
			what           string
			measured, most float64
			simulated      record.Band
		}{
			{"requests", float64(measured.Requests.Or(-1)), 2, bandOver(func(u *record.Tenant) float64 { return float64(u.Requests.Or(-100)) })},
			{"dropped", float64(planned - measured.Requests.Or(-1)), 2, bandOver(func(u *record.Tenant) float64 { return float64(u.Dropped.Or(-100)) })},
			{"good", float64(measured.Good.Or(-1)), 2, bandOver(func(u *record.Tenant) float64 { return float64(u.Good.Or(-100)) })},
			{"TTFT p95", float(t, measured.TTFT.P95), 0.06 * float(t, measured.TTFT.P95), bandOver(func(u *record.Tenant) float64 { return float(t, u.TTFT.P95) })},
		} {
			inside, known := c.simulated.Holds(record.Some(c.measured), 0)
			require.True(t, known && inside, "%s %s: %v in %+v", name, c.what, c.measured, c.simulated)
			require.InDelta(t, c.measured, float(t, c.simulated.P50), c.most, "%s %s", name, c.what)
		}
	}
}
