package fit_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/calibrate/fit"
	"fleetsim/model"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// The tests here are named by the field cases they answer: faults seen in other
// tools.

// documents are lone requests for three shared documents, on one engine.
const documents = `
name = "documents"
policies = ["least-request"]
[cluster]
replicas = 1
[workload]
requests = 24
output_tokens = 20
[workload.arrivals]
rate_per_second = 0.1
[workload.prompt]
families = 3
body_repeat = 200
`

// recorded writes what the scenario's client would have recorded, with overrides,
// and changes each record. It gives the file and the scenario's.
func recorded(t *testing.T, p *model.Profile, change func(*record.Request), sets ...string) (requests, scenarioFile string) {
	t.Helper()
	scenarioFile = file(t, "documents.toml", documents)
	sc, err := scenario.LoadWith(scenarioFile, sets)
	require.NoError(t, err)
	requests = filepath.Join(t.TempDir(), "requests.jsonl")
	out, err := os.Create(requests)
	require.NoError(t, err)
	w := record.NewRequestWriter(out)
	_, err = sim.Run(sim.Setup{Scenario: sc, Profile: p, Policy: "least-request", Seed: sc.Seed, Each: func(r *record.Request) {
		own := *r
		if change != nil {
			change(&own)
		}
		require.NoError(t, w.Write(&own))
	}})
	require.NoError(t, err)
	require.NoError(t, out.Close())
	return requests, scenarioFile
}

// fitted fits one coefficient of the records' profile, which is right already, and
// gives its value over the right one and the report.
func fitted(t *testing.T, requests, scenarioFile, name string) (float64, string) {
	t.Helper()
	runs, err := fit.Load(fit.Input{Files: []string{requests}, Scenario: scenarioFile})
	require.NoError(t, err)
	o := options(t, name)
	r, err := fit.Fit(context.Background(), runs, o)
	require.NoError(t, err)
	var report bytes.Buffer
	require.NoError(t, r.Write(&report, nil))
	right, err := o.Base.Coefficient(name)
	require.NoError(t, err)
	return r.Parameters[0].Value / right, report.String()
}

// F01: the TPOT of a one-token answer is none, though some sources write 0.
func TestF01OneTokenAnswers(t *testing.T) {
	requests, sc := recorded(t, profile(t, builtin, nil), func(r *record.Request) { r.TPOT = record.Some(0.0) }, "workload.output_tokens=1")
	runs, err := fit.Load(fit.Input{Files: []string{requests}, Scenario: sc, Sets: []string{"workload.output_tokens=1"}})
	require.NoError(t, err)
	r, err := fit.Fit(context.Background(), runs, options(t, "per_prefill_token"))
	require.NoError(t, err)
	require.Equal(t, 24, r.Runs[0].Observations, "TTFT alone")
	require.InDelta(t, 0, r.Objective, 1e-9)
}

// F04, F06, F19: what is no success is not fitted to, and that is said.
func TestF19OnlySuccessesAreFitted(t *testing.T) {
	for name, spoil := range map[string]func(*record.Request){
		"no usage":     func(r *record.Request) { r.OutputTokens = record.Int{} },
		"empty answer": func(r *record.Request) { r.OutputTokens = record.Some(0) },
		"short answer": func(r *record.Request) { r.OutputTokens = record.Some(3) },
		"refused":      func(r *record.Request) { r.Result, r.HTTPStatus = record.Rejected, record.Some(429) },
	} {
		t.Run(name, func(t *testing.T) {
			requests, sc := recorded(t, profile(t, builtin, nil), func(r *record.Request) {
				if r.Index.Or(0)%4 == 3 {
					r.TTFT, r.TPOT = record.Some(0.001), record.Some(9.0)
					spoil(r)
				}
			})
			ratio, report := fitted(t, requests, sc, "per_prefill_token")
			require.InDelta(t, 1, ratio, 1e-4)
			require.Contains(t, report, "6 of 24 requests are no success: they are not fitted to")
		})
	}
}

// F35: the server's chat template makes prompts longer than the scenario's; its
// count is what TTFT is fitted to.
func TestF35PromptsAsTheServerCountsThem(t *testing.T) {
	const more = "workload.prompt.head_tokens=308" // 300 more than it is
	requests, sc := recorded(t, profile(t, builtin, nil), nil, more)
	ratio, report := fitted(t, requests, sc, "per_prefill_token")
	require.InDelta(t, 1, ratio, 1e-3)
	require.Regexp(t, `Note: documents: prompts have \d+ tokens on average by the server's count, \d+ in the scenario: simulated with \+300 each`, report)

	requests, sc = recorded(t, profile(t, builtin, nil), nil)
	_, report = fitted(t, requests, sc, "per_prefill_token")
	require.NotContains(t, report, "Note:")
}

// F49: a server that had the documents already is not taken for a fast one.
func TestF49WarmFromTheStart(t *testing.T) {
	requests, sc := recorded(t, profile(t, builtin, nil), nil, "start.engine_cache=all")
	ratio, report := fitted(t, requests, sc, "per_prefill_token")
	require.InDelta(t, 1, ratio, 1e-3)
	require.Contains(t, report, `Note: documents: the measurement began warm (the first request of 3 of 3 families hit the cache), the scenario begins cold: simulated with start.engine_cache = "all"`)
}

// Another load than the scenario's is refused; where a few requests differ that is
// said.
func TestAnotherLoad(t *testing.T) {
	requests, sc := recorded(t, profile(t, builtin, nil), nil, "workload.arrivals.rate_per_second=0.2")
	_, err := fit.Load(fit.Input{Files: []string{requests}, Scenario: sc})
	require.ErrorContains(t, err, "documents: 24 of 24 requests were sent over 2.4 s before or after the scenario sends one: it is another load")
	unnumbered, err := os.ReadFile(requests)
	require.NoError(t, err)
	for i := range 24 {
		unnumbered = bytes.Replace(unnumbered, fmt.Appendf(nil, `"index":%d,`, i), []byte(`"index":null,`), 1)
	}
	_, err = fit.Load(fit.Input{Files: []string{file(t, "r.jsonl", string(unnumbered))}, Scenario: sc})
	require.ErrorContains(t, err, "documents: 12 of 24 requests were sent over", "every other one's time is a time of the plan")

	requests, sc = recorded(t, profile(t, builtin, nil), func(r *record.Request) {
		r.Started = record.Some(r.Started.Or(0)*1.005 + 1000) // another clock, a client that falls behind
		if r.Index == record.Some(5) {
			r.Started = record.Some(r.Started.Or(0) + 4)
		}
	}, "workload.output_tokens=30")
	_, report := fitted(t, requests, sc, "per_prefill_token")
	require.Contains(t, report, "1 of 24 requests were sent over 2.4 s before or after the scenario sends one")
	require.Contains(t, report, "answers of 30 tokens were asked for on average, of 20 in the scenario")
	require.Equal(t, 2, strings.Count(report, "Note: "))
}

// F55: what was not streamed has no TTFT to fit to.
func TestF55NotStreamed(t *testing.T) {
	requests, sc := recorded(t, profile(t, builtin, nil), func(r *record.Request) { r.TTFT, r.TPOT = record.Float{}, record.Float{} })
	runs, err := fit.Load(fit.Input{Files: []string{requests}, Scenario: sc})
	require.NoError(t, err)
	_, err = fit.Fit(context.Background(), runs, options(t, "per_prefill_token"))
	require.ErrorContains(t, err, "none of the 24 requests of documents is a success with a TTFT")
}
