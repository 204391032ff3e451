package fit_test

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fleetsim/calibrate/fit"
	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// mixed has short and long prompts in bursts, on one engine: queues, lone
// requests and everything between, and pauses in which the engine is idle.
const mixed = `
name = "mixed"
policies = ["least-request"]
[cluster]
replicas = 1
[workload]
requests = 150
output_tokens = 60
[workload.arrivals]
process = "gamma"
rate_per_second = 0.5
burstiness = 0.1
[workload.prompt]
families = 0
salt_chars = 20
salt_tokens = 12
salt_tokens_spread = 2
head_chars = 10
head_tokens = 4
question_chars = 20
question_tokens = 8
[[workload.tenants]]
name = "short"
body_repeat = 6
[[workload.tenants]]
name = "long"
body_repeat = 130
output_tokens = 90
[[workload.tenants]]
name = "middle"
body_repeat = 40
output_tokens = 20
`

// truth is the built-in profile with other coefficients.
func truth(t *testing.T) (*model.Profile, map[string]float64) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	known := map[string]float64{
		"decode_1": 0.0545, "decode_2": 0.0552, "decode_3": 0.0541, "decode_4": 0.0549,
		"decode_5": 0.0546, "decode_6": 0.0551, "decode_7": 0.0556, "decode_8": 0.0560,
		"per_decode_context": 4.8e-8, "base": 0.048, "per_prefill_token": 0.000285,
		"launch": 0.119,
	}
	for name, v := range known {
		require.NoError(t, p.SetCoefficient(name, v))
	}
	return p, known
}

// measure writes what a client of the profile's engine would have recorded.
func measure(t *testing.T, dir string, p *model.Profile) (requests, scenarioFile string) {
	scenarioFile, requests = filepath.Join(dir, "mixed.toml"), filepath.Join(dir, "requests.jsonl")
	require.NoError(t, os.WriteFile(scenarioFile, []byte(mixed), 0o600))
	sc, err := scenario.Load(scenarioFile)
	require.NoError(t, err)
	out, err := os.Create(requests)
	require.NoError(t, err)
	w := record.NewRequestWriter(out)
	_, err = sim.Run(sim.Setup{Scenario: sc, Profile: p, Policy: "least-request", Seed: sc.Seed,
		Each: func(r *record.Request) { require.NoError(t, w.Write(r)) }})
	require.NoError(t, err)
	require.NoError(t, out.Close())
	return requests, scenarioFile
}

// A profile comes back from its own records alone.
func TestRecovery(t *testing.T) {
	known, values := truth(t)
	requests, sc := measure(t, t.TempDir(), known)
	runs, err := fit.Load(fit.Input{Files: []string{requests}, Scenario: sc})
	require.NoError(t, err)
	base, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	var parameters []fit.Parameter
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parameters = append(parameters, fit.Parameter{Name: name})
	}
	parameters = append(parameters, fit.Parameter{Name: "per_decode"}) // no batch is beyond the table
	r, err := fit.Fit(context.Background(), runs, fit.Options{Base: base, Parameters: parameters, Seed: 1, Starts: 4, Polish: 0})
	require.NoError(t, err)
	require.True(t, r.Complete)
	identified := 0
	t.Logf("loss %.5f, before %.5f, %d evaluations", r.Objective, r.Before, r.Evaluations)
	for _, f := range r.Parameters {
		t.Logf("%-22s %.6g, is %.6g, [%.6g %.6g] %v %s", f.Name, f.Value, values[f.Name], f.IntervalLow, f.IntervalHigh, f.Identified, f.Why)
		if f.Name == "per_decode" {
			require.False(t, f.Identified)
			require.Equal(t, f.Start, f.Value)
			continue
		}
		if f.Identified {
			identified++
			assert.Less(t, math.Abs(f.Value/values[f.Name]-1), 0.01, f.Name)
		}
	}
	require.GreaterOrEqual(t, identified, 11)
}
