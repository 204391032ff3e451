package calibrate

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// routingStudy simulates the published routing study under 100 seeds.
func routingStudy(t *testing.T) *StudyComparison {
	study, err := scenario.LoadStudy("routing-study")
	require.NoError(t, err)
	c, err := CompareStudy(context.Background(), study,
		func(sc *scenario.Scenario) (*model.Profile, error) { return profiles.Load(sc.Profile) }, 100, 0, nil)
	require.NoError(t, err)
	require.Len(t, c.Phases, 24)
	return c
}

func split(p *record.Phase) string {
	return fmt.Sprintf("%s/%s", p.Replicas[0].Requests, p.Replicas[1].Requests)
}

func float(t *testing.T, f record.Float) float64 {
	v, ok := f.Get()
	require.True(t, ok)
	return v
}

// The published figures of the routing study, as bounds on the simulator: what
// ties do not decide comes out as measured.
func TestRoutingStudy(t *testing.T) {
	study := routingStudy(t)
	phases := map[string]*PhaseComparison{}
	for i := range study.Phases {
		phases[study.Phases[i].Phase] = &study.Phases[i]
	}

	t.Run("measured inside the band", func(t *testing.T) {
		require.Equal(t, 24, study.Coverage(0.005, "cache_hit_ratio")[0].Inside, "hit ratio")
		for metric, least := range map[string]int{"ttft.p50": 24, "ttft.p95": 23, "tpot.p95": 23} {
			require.GreaterOrEqual(t, study.Coverage(0.05, metric)[0].Inside, least, metric)
		}
		// Two of the three outside are off by one; with the measured difference
		// between replicas in the band, r1-hot90-prefix-cache is inside.
		require.GreaterOrEqual(t, study.Coverage(0, "good")[0].Inside, 21, "good")
	})
	t.Run("split", func(t *testing.T) {
		for phase, want := range map[string]string{
			"r1-hot50-prefix-cache": "27/69", "r2-hot50-prefix-cache": "27/69",
			"r2-warm-uniform-prefix-cache": "70/26", "r1-warm-uniform-prefix-cache": "48/48",
		} {
			for _, run := range phases[phase].Runs {
				require.Equal(t, want, split(run), phase)
			}
		}
	})
	t.Run("cold splits are among the outcomes", func(t *testing.T) {
		for _, phase := range []string{"r1-cold-uniform-prefix-cache", "r2-cold-uniform-prefix-cache"} {
			seen := map[string]bool{}
			for _, run := range phases[phase].Runs {
				seen[split(run)] = true
			}
			require.True(t, seen["36/60"] && seen["60/36"], "%s: %v", phase, seen)
		}
	})
	t.Run("good and TTFT p95", func(t *testing.T) {
		for _, phase := range []string{"r1-hot50-prefix-cache", "r2-hot50-prefix-cache", "r2-hot90-prefix-cache", "r2-warm-uniform-prefix-cache"} {
			p := phases[phase]
			require.InDelta(t, p.Measured.Good.Or(0), p.Simulated.Good.Or(0), 1, phase)
			require.InEpsilon(t, float(t, p.Measured.TTFT.P95), float(t, p.Simulated.TTFT.P95), 0.015, phase)
		}
	})
	t.Run("the imbalance fallback", func(t *testing.T) {
		const counter = "aibrix_prefix_cache_load_imbalance_total,using_kv_sync=false"
		for phase, want := range map[string]float64{
			"r1-hot90-prefix-cache": 1, "r2-hot90-prefix-cache": 1, "r2-warm-uniform-prefix-cache": 1,
			"r1-hot50-prefix-cache": 0, "r2-hot50-prefix-cache": 0,
		} {
			for _, run := range phases[phase].Runs {
				var got float64
				for _, d := range run.RoutingCounterDeltas {
					if CounterName(d) == counter {
						got = d.Delta
					}
				}
				require.Equal(t, want, got, phase)
			}
		}
	})
	t.Run("KV peaks", func(t *testing.T) {
		for _, phase := range []string{"r1-warm-uniform-prefix-cache", "r2-warm-uniform-prefix-cache", "r1-hot50-prefix-cache", "r2-hot50-prefix-cache"} {
			p := phases[phase]
			for _, r := range p.Simulated.Replicas {
				requireSteadyDecode(t, 180*float(t, r.KVUsagePeak), p.Phase, r.Name)
			}
		}
	})
}

// requireSteadyDecode checks that a count of used KV blocks is one that N
// sequences decoding over S prefixes hold: 4N + 3S.
func requireSteadyDecode(t *testing.T, blocks float64, phase, replica string) {
	whole := int(blocks + 0.5)
	require.InDelta(t, whole, blocks, 1e-9)
	for n := range 9 {
		for s := range n + 1 {
			if whole == 4*n+3*s {
				return
			}
		}
	}
	require.Fail(t, "not of the form 4N+3S", "%s %s: %d blocks", phase, replica, whole)
}
