package router

// A Value is an engine metric that may not have arrived, which is not the same
// as 0. The zero Value is missing.
type Value struct {
	v  float64
	ok bool
}

// Some is a metric that has arrived.
func Some(v float64) Value { return Value{v, true} }

// Get is the metric and whether it has arrived.
func (v Value) Get() (float64, bool) { return v.v, v.ok }

// Or is the metric, or missing when it has not arrived.
func (v Value) Or(missing float64) float64 {
	if v.ok {
		return v.v
	}
	return missing
}

// Metrics are the engine metrics of one pod as the gateway last read them. Each
// may be missing. The comments give AIBrix's metric names.
type Metrics struct {
	BusyTimeRatio Value // gpu_busy_time_ratio, 0 to 1
	KVCacheUsage  Value // kv_cache_usage_perc, 0 to 1
	CPUCacheUsage Value // cpu_cache_usage_perc, 0 to 1
	GPUCacheUsage Value // gpu_cache_usage_perc, 0 to 1
	Utilization   Value // engine_utilization, 0 to 1
	PromptTokens  Value // avg_prompt_toks_per_req, tokens a request
	OutputTokens  Value // avg_generation_toks_per_req, tokens a request
	QueueTime     Value // request_queue_time_seconds, read as a plain value
	PrefillTime   Value // mean of request_prefill_time_seconds
	DecodeTime    Value // mean of request_decode_time_seconds
	EngineRunning Value // num_requests_running, requests in the engine's batch
	OutputRate    Value // avg_generation_throughput_toks_per_s, tokens a second
	DrainRate     Value // realtime_running_requests_drain_rate_1m, requests a second
}
