package model

import (
	"testing"

	"fleetsim/simtime"
)

// BenchmarkReplica is what the engine alone costs a request: 518 tokens in, 128
// out, one every 1.25 s, so that about six run at a time.
func BenchmarkReplica(b *testing.B) {
	cost := CostModel{
		Decode:           []simtime.Time{5_650_000, 5_310_000, 5_270_000, 5_320_000, 5_250_000, 5_300_000, 5_350_000, 5_390_000},
		PerDecodeContext: 4, PerSharedContext: 1, Base: 4_500_000, PerPrefillToken: 267_600_000, Launch: 11_400_000, LaunchLag: 464,
	}
	for i := range cost.Decode {
		cost.Decode[i] *= 1000
	}
	r := NewReplica(l20(), cost)
	var free []*Seq
	done := func(s *Seq) { free = append(free, s) }
	at := simtime.Time(0)
	b.ReportAllocs()
	for b.Loop() {
		at += 1250 * simtime.Millisecond
		for r.Next() < at {
			r.Advance(r.Next(), done)
		}
		if len(free) == 0 {
			free = append(free, new(Seq))
		}
		s := free[len(free)-1]
		free = free[:len(free)-1]
		s.Prompt, s.Output = 518, 128
		r.Add(at, s)
	}
	b.ReportMetric(float64(r.Stats().Steps)/float64(b.N), "steps/request")
	b.ReportMetric(float64(r.Stats().Steps-r.Skipped())/float64(b.N), "taken/request")
}
