package sim

import (
	"strconv"

	"fleetsim/simtime"
)

// TimelineFile is the name of a run directory's timeline, one Sample a line.
const TimelineFile = "timeline.jsonl.gz"

// A Sample is one replica's gauges as a scraper reads them.
type Sample struct {
	Phase, Route string
	Seed         uint64
	At           simtime.Time
	Replica      string
	Running      int     // vllm:num_requests_running
	Waiting      int     // vllm:num_requests_waiting
	KVUsage      float64 // vllm:kv_cache_usage_perc, 0 to 1
	InFlight     int     // the gateway's count
}

// AppendJSON appends the sample as one JSON object without a newline.
func (s *Sample) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"phase":`...)
	dst = strconv.AppendQuote(dst, s.Phase)
	dst = append(dst, `,"route":`...)
	dst = strconv.AppendQuote(dst, s.Route)
	dst = append(dst, `,"seed":`...)
	dst = strconv.AppendUint(dst, s.Seed, 10)
	dst = append(dst, `,"relative_seconds":`...)
	dst = strconv.AppendFloat(dst, s.At.Seconds(), 'g', -1, 64)
	dst = append(dst, `,"replica":`...)
	dst = strconv.AppendQuote(dst, s.Replica)
	dst = append(dst, `,"running":`...)
	dst = strconv.AppendInt(dst, int64(s.Running), 10)
	dst = append(dst, `,"waiting":`...)
	dst = strconv.AppendInt(dst, int64(s.Waiting), 10)
	dst = append(dst, `,"kv_usage":`...)
	dst = strconv.AppendFloat(dst, s.KVUsage, 'g', -1, 64)
	dst = append(dst, `,"in_flight":`...)
	dst = strconv.AppendInt(dst, int64(s.InFlight), 10)
	return append(dst, '}')
}
