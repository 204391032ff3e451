package sim

import (
	"strconv"

	"fleetsim/simtime"
)

// TimelineFile is the name of a run directory's timeline, one Sample a line.
const TimelineFile = "timeline.jsonl.gz"

// A Sample is one line of the timeline: one replica's gauges as a scraper reads
// them, or, with Scaling, a change in the numbers of replicas.
type Sample struct {
	Phase, Route string
	Seed         uint64
	At           simtime.Time // since the phase began
	Scaling      *ScalingPoint
	Replica      string
	Running      int          // vllm:num_requests_running
	Waiting      int          // vllm:num_requests_waiting
	KVUsage      float64      // vllm:kv_cache_usage_perc, 0 to 1
	InFlight     int          // the gateways' count
	Ledgers      *LedgerCount // nil: not compared
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
	if s.Scaling != nil {
		return s.Scaling.appendMembers(dst)
	}
	dst = appendNumber(dst, s.At.Seconds())
	dst = append(dst, `,"replica":`...)
	dst = strconv.AppendQuote(dst, s.Replica)
	dst = append(dst, `,"running":`...)
	dst = strconv.AppendInt(dst, int64(s.Running), 10)
	dst = append(dst, `,"waiting":`...)
	dst = strconv.AppendInt(dst, int64(s.Waiting), 10)
	dst = append(dst, `,"kv_usage":`...)
	dst = appendNumber(dst, s.KVUsage)
	dst = append(dst, `,"in_flight":`...)
	dst = strconv.AppendInt(dst, int64(s.InFlight), 10)
	if s.Ledgers != nil {
		dst = s.Ledgers.appendMembers(dst)
	}
	return append(dst, '}')
}

func appendNumber(dst []byte, v float64) []byte { return strconv.AppendFloat(dst, v, 'g', -1, 64) }

// appendMembers appends the point's members, from the value of relative_seconds
// on, and ends the object.
func (p *ScalingPoint) appendMembers(dst []byte) []byte {
	dst = appendNumber(dst, p.At)
	for _, m := range [...]struct {
		name string
		n    int
	}{
		{"desired", p.Desired}, {"created", p.Created}, {"pending", p.Pending}, {"starting", p.Starting},
		{"ready", p.Ready}, {"crashed", p.Crashed}, {"terminating", p.Terminating},
	} {
		dst = append(append(append(dst, `,"`...), m.name...), `":`...)
		dst = strconv.AppendInt(dst, int64(m.n), 10)
	}
	return append(dst, '}')
}
