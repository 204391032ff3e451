package sim

import (
	"fmt"
	"path/filepath"

	"fleetsim/sim/record"
	traces "fleetsim/workload/trace"
)

// traceSummary is what a phase record says of the trace that it replayed.
type traceSummary struct {
	File   string `json:"file"` // without its directory
	Format string `json:"format"`
	// Mode is replayed: every request is sent at its time; closed_loop: every turn of
	// a conversation but the first waits for the one before; mixed: some turns do.
	Mode           string  `json:"mode"`
	ClosedLoopRows int     `json:"closed_loop_rows"`
	Rows           int     `json:"rows"`
	SpanSeconds    float64 `json:"span_seconds"` // of the source, from its first to its last row read
	Rate           float64 `json:"rate_per_second"`

	Skipped   map[string]int `json:"skipped,omitempty"` // rows by reason
	BadRows   int            `json:"bad_rows"`
	Truncated string         `json:"truncated,omitempty"`
	Warnings  []string       `json:"warnings,omitempty"`

	// HitRatioBound is the share of prompt tokens that a prefix cache without limits
	// would have hit, over all requests that reached an engine; absent without any.
	HitRatioBound record.Float `json:"hit_ratio_upper_bound"`
	Estimated     bool         `json:"hit_ratio_upper_bound_estimated"`
	BlockTokens   int          `json:"block_tokens"` // in which hits are counted

	skipped traces.Counts
}

// The modes of a replay.
const (
	modeReplayed   = "replayed"
	modeClosedLoop = "closed_loop"
	modeMixed      = "mixed"
)

func (r *run) traceSummary() *traceSummary {
	l := r.client.trace
	report := l.reader.Report()
	s := &traceSummary{
		File: filepath.Base(l.file.Name()), Format: report.Format,
		Mode: l.mode(), ClosedLoopRows: l.waits, Rows: r.client.planned,
		SpanSeconds: (report.Last - report.First).Seconds(), Rate: report.Rate(),
		BadRows: report.Bad, Truncated: report.Truncated, Warnings: report.Warnings,
		skipped: report.Skipped,
	}
	for _, c := range report.Skipped {
		if s.Skipped == nil {
			s.Skipped = map[string]int{}
		}
		s.Skipped[c.What] = c.N
	}
	if sh := r.sharing; sh != nil {
		s.BlockTokens, s.Estimated = sh.block, sh.bound.Estimated()
		if share, ok := sh.bound.Ratio(); ok {
			s.HitRatioBound = record.Some(share)
		}
	}
	return s
}

// mode is how the turns of conversations were sent.
func (l *traceLoad) mode() string {
	switch {
	case l.waits == 0:
		return modeReplayed
	case l.waits == l.later:
		return modeClosedLoop
	}
	return modeMixed
}

// load is how many requests a replica had in flight, on average.
func (r *run) load() float64 {
	if elapsed := (r.recorder.last - r.begin).Seconds(); elapsed > 0 {
		return r.recorder.busy.Seconds() / elapsed / float64(len(r.replicas))
	}
	return 0
}

// tinyLoad is the load of a replica below which two requests seldom meet.
const tinyLoad = 0.05

// notes is what a reader of the phase should know of the trace.
func (s *traceSummary) notes(p *record.Phase, load float64) []string {
	var notes []string
	note := func(format string, args ...any) {
		notes = append(notes, "trace "+s.File+": "+fmt.Sprintf(format, args...))
	}
	switch s.Mode {
	case modeReplayed:
		note("%s, every request sent at its time, whatever became of those before", s.Format)
	default:
		note("%s, closed loop: %d of %d requests were turns sent after the answer before and a think time", s.Format, s.ClosedLoopRows, s.Rows)
	}
	if len(s.skipped) > 0 {
		note("rows skipped: %s", s.skipped)
	}
	if s.BadRows > 0 {
		note("rows that could not be read: %d", s.BadRows)
	}
	if s.Truncated != "" {
		note("%s; what came before it was replayed", s.Truncated)
	}
	for _, w := range s.Warnings {
		note("%s", w)
	}
	if bound, ok := s.HitRatioBound.Get(); ok {
		note("at most %.3f of the prompt tokens can hit, in blocks of %d tokens (a cache without limits)", bound, s.BlockTokens)
	}
	if n := p.ErrorCategories.Of(errTooLong); n > 0 {
		note("%d of %d requests were longer than the engine takes, and answered with 400", n, s.Rows)
	}
	if s.Rows > 0 && load < tinyLoad {
		note("fewer than %g requests in flight a replica on average: so little that policies can differ by cache hits only; another window (from, to) or a rate above 1 shows more", tinyLoad)
	}
	return notes
}
