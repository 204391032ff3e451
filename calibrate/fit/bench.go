package fit

import (
	"encoding/json"
	"fmt"

	"fleetsim/sim"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// Bench is the environment of runs of `vllm bench serve`: the client stands
// beside the engine, without a gateway between them.
const Bench = "bench"

// benchResult is a result file of `vllm bench serve`, in milliseconds.
type benchResult struct {
	MaxConcurrency int      `json:"max_concurrency"`
	Duration       float64  `json:"duration"` // s
	Completed      int      `json:"completed"`
	Failed         int      `json:"failed"`
	InputTokens    int      `json:"total_input_tokens"`
	OutputTokens   int      `json:"total_output_tokens"`
	MeanTTFT       *float64 `json:"mean_ttft_ms"`
	MedianTTFT     *float64 `json:"median_ttft_ms"`
	P50TTFT        *float64 `json:"p50_ttft_ms"`
	P95TTFT        *float64 `json:"p95_ttft_ms"`
	MeanTPOT       *float64 `json:"mean_tpot_ms"`
	MedianTPOT     *float64 `json:"median_tpot_ms"`
	P50TPOT        *float64 `json:"p50_tpot_ms"`
	P95TPOT        *float64 `json:"p95_tpot_ms"`
	MeanE2E        *float64 `json:"mean_e2el_ms"`
}

// BenchRun reads a result file of `vllm bench serve --save-result` with a fixed
// number of lanes (--max-concurrency) and random prompts, all of one length. The
// lanes ask one idle engine beside them.
func BenchRun(name string, data []byte) (*Run, error) {
	var b benchResult
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if b.Completed == 0 {
		return nil, fmt.Errorf("%s: no request was completed, there is nothing to fit", name)
	}
	if b.MaxConcurrency < 1 || b.Duration <= 0 {
		return nil, fmt.Errorf("%s: not a result of vllm bench serve with --max-concurrency", name)
	}
	input, output := b.InputTokens/b.Completed, b.OutputTokens/b.Completed
	if input < 2 || output < 1 {
		return nil, fmt.Errorf("%s: total_input_tokens %d and total_output_tokens %d for %d requests: allowed are at least 2 and 1 a request",
			name, b.InputTokens, b.OutputTokens, b.Completed)
	}
	sc, err := benchScenario(name, &b, input, output)
	if err != nil {
		return nil, err
	}
	return &Run{
		Name:        name,
		Environment: Bench,
		Setup:       sim.Setup{Phase: name, Scenario: sc, Policy: sc.Policies[0], Seed: sc.Seed},
		Figures:     b.figures(),
	}, nil
}

// benchScenario has the lanes send until all but the last requests are under
// way, so that as many are completed as were.
func benchScenario(name string, b *benchResult, input, output int) (*scenario.Scenario, error) {
	text := fmt.Sprintf(`
name = "bench"
policies = ["random"]
[cluster]
replicas = 1
[workload]
output_tokens = %d
[workload.closed_loop]
concurrency = %d
duration = "1s"
[workload.prompt]
families = 0
salt_chars = 1
salt_tokens = 1
salt_tokens_spread = 0
head_chars = 0
head_tokens = 0
question_chars = 0
question_tokens = 0
body_repeat = %d
body_chars = 1
body_tokens = 1
`, output, b.MaxConcurrency, input-1)
	sc, err := scenario.Parse(name, []byte(text))
	if err != nil {
		return nil, err
	}
	last := b.Duration / float64((b.Completed+b.MaxConcurrency-1)/b.MaxConcurrency)
	sc.Workload.ClosedLoop.Duration.Time = simtime.FromSeconds(b.Duration - last/2)
	return sc, nil
}

// figures are what the file says of the two latencies, in seconds.
func (b *benchResult) figures() []Figure {
	var all []Figure
	add := func(metric Latency, level float64, values ...*float64) {
		for _, v := range values {
			if v != nil {
				all = append(all, Figure{metric, level, *v / 1000})
				return
			}
		}
	}
	add(TTFT, Mean, b.MeanTTFT)
	add(TTFT, 0.5, b.P50TTFT, b.MedianTTFT)
	add(TTFT, 0.95, b.P95TTFT)
	add(TPOT, Mean, b.MeanTPOT)
	add(TPOT, 0.5, b.P50TPOT, b.MedianTPOT)
	add(TPOT, 0.95, b.P95TPOT)
	return all
}
