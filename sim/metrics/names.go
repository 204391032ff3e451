package metrics

// A Def is a metric that both the live front end and the export write.
type Def struct {
	Name, Help string
	Type       Type
	Bounds     []float64 // of a histogram
}

// Family is an empty family of the metric.
func (d *Def) Family() Family { return Family{Name: d.Name, Help: d.Help, Type: d.Type} }

// Bucket bounds of vLLM V1 (v1/metrics/loggers.py).
var (
	ttftBounds  = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBounds = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	spanBounds  = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

// The engine's metrics. Labels: model_name and engine; where several engines
// are on one page, node_alias too.
var (
	Running      = Def{Name: "vllm:num_requests_running", Type: Gauge, Help: "Requests in the engine's batch."}
	Waiting      = Def{Name: "vllm:num_requests_waiting", Type: Gauge, Help: "Requests in the engine's queue."}
	KVUsage      = Def{Name: "vllm:kv_cache_usage_perc", Type: Gauge, Help: "Share of the KV blocks in use, 0 to 1."}
	CacheQueries = Def{Name: "vllm:prefix_cache_queries", Type: Counter, Help: "Prompt tokens looked up in the prefix cache."}
	CacheHits    = Def{Name: "vllm:prefix_cache_hits", Type: Counter, Help: "Prompt tokens found in the prefix cache."}
	Preemptions  = Def{Name: "vllm:num_preemptions", Type: Counter, Help: "Preemptions of running requests."}
	PromptTokens = Def{Name: "vllm:prompt_tokens", Type: Counter, Help: "Prompt tokens whose prefill has ended, cached ones included."}
	OutputTokens = Def{Name: "vllm:generation_tokens", Type: Counter, Help: "Tokens generated."}
	Finished     = Def{Name: "vllm:request_success", Type: Counter, Help: "Requests that ended, by finished_reason."}

	TTFT    = Def{Name: "vllm:time_to_first_token_seconds", Type: HistogramType, Bounds: ttftBounds, Help: "From arrival to the first token."}
	ITL     = Def{Name: "vllm:inter_token_latency_seconds", Type: HistogramType, Bounds: tokenBounds, Help: "Between two tokens of a request."}
	TPOT    = Def{Name: "vllm:request_time_per_output_token_seconds", Type: HistogramType, Bounds: tokenBounds, Help: "Mean time per output token of a request, the first left out."}
	E2E     = Def{Name: "vllm:e2e_request_latency_seconds", Type: HistogramType, Bounds: spanBounds, Help: "From arrival to the last token."}
	Queue   = Def{Name: "vllm:request_queue_time_seconds", Type: HistogramType, Bounds: spanBounds, Help: "From arrival to the first admission to the batch."}
	Prefill = Def{Name: "vllm:request_prefill_time_seconds", Type: HistogramType, Bounds: spanBounds, Help: "From the first admission to the first token."}
	Decode  = Def{Name: "vllm:request_decode_time_seconds", Type: HistogramType, Bounds: spanBounds, Help: "From the first to the last token."}
)

// The gateway's metrics (AIBrix v0.7.0). The counters of the routing policies
// have the names that package router gives them.
var InFlight = Def{Name: "realtime_num_requests_running", Type: Gauge,
	Help: "The gateway's in-flight count of the pod. In AIBrix a metric of its cache, not of its page."}

// CounterHelp is the text for a gateway counter, by name without _total.
func CounterHelp(name string) string { return counterHelp[name] }

var counterHelp = map[string]string{
	"aibrix_prefix_cache_routing_decisions": "Prefix-cache decisions by how much of the prompt the index had on the chosen pod.",
	"aibrix_prefix_cache_routing_selection": "Prefix-cache decisions by how the pod was chosen.",
	"aibrix_prefix_cache_load_imbalance":    "Prefix-cache decisions that the load-imbalance rule narrowed.",
}

// The client's metrics. Their buckets are 10% wide, so that a quantile read from
// them is within that of the records'.
var (
	fineBounds = Exponential(.001, 1.1, 145) // up to 914 s

	ClientTTFT      = Def{Name: "client_time_to_first_token_seconds", Type: HistogramType, Bounds: fineBounds, Help: "From sending to the first content, successes only."}
	ClientTPOT      = Def{Name: "client_time_per_output_token_seconds", Type: HistogramType, Bounds: fineBounds, Help: "Mean time per output token of a request, successes only."}
	ClientE2E       = Def{Name: "client_e2e_seconds", Type: HistogramType, Bounds: fineBounds, Help: "From sending to the end of the stream, successes only."}
	ClientRequests  = Def{Name: "client_requests", Type: Counter, Help: "Arrivals that have ended, by result; dropped ones included."}
	ClientGood      = Def{Name: "client_requests_good", Type: Counter, Help: "Successes within every SLO."}
	ClientInFlight  = Def{Name: "client_requests_in_flight", Type: Gauge, Help: "Requests sent whose stream has not ended."}
	ClientByReplica = Def{Name: "client_requests_routed", Type: Counter, Help: "Requests sent, by the replica they ran on."}
)
