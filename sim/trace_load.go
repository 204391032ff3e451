package sim

import (
	"fmt"
	"iter"
	"os"

	"fleetsim/random"
	"fleetsim/simtime"
	traces "fleetsim/workload/trace"
)

// traceLoad takes arrivals from a trace file, row by row: a row is read when the
// one before it is sent, so that what is held is what is in flight or waits for
// its turn.
type traceLoad struct {
	file     *os.File
	reader   *traces.Reader
	next     func() (traces.Row, error, bool)
	stop     func()
	prompter *traces.Prompter
	sessions map[string]*session // nil when no turn can wait
	tenants  map[string]int      // by name; empty when all are one

	later int // turns of conversations with one before
	waits int // those of them that wait for it
}

// openTrace opens the setup's trace. Content that no other prompt has is kept apart
// from that of the serial requests before.
func openTrace(s Setup, serial int) (*traceLoad, error) {
	t := s.Scenario.Workload.Trace
	opts, selection, err := traceSettings(s)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(t.File())
	if err != nil {
		return nil, err
	}
	load := &traceLoad{file: file, prompter: traces.NewPrompter(t.CharsPerToken), tenants: map[string]int{}}
	load.prompter.Distinguish(serial)
	for i, tenant := range s.Scenario.Workload.Tenants {
		load.tenants[tenant.Name] = i
	}
	if err := load.open(opts, selection, s.Seed); err != nil {
		file.Close()
		return nil, err
	}
	return load, nil
}

func (l *traceLoad) open(opts traces.Options, selection traces.Selection, seed uint64) error {
	var err error
	if l.reader, err = traces.Open(l.file.Name(), l.file, opts); err != nil {
		return err
	}
	rows, err := selection.Apply(l.reader.Rows(), random.Stream(seed, "trace"))
	if err != nil {
		return fmt.Errorf("%s: %w", l.file.Name(), err)
	}
	if selection.Sessions == traces.Waiting || selection.Sessions == traces.Recorded && l.reader.MayWait() {
		l.sessions = map[string]*session{}
	}
	l.next, l.stop = iter.Pull2(rows)
	return nil
}

// traceSettings is the scenario's trace in the reader's terms.
func traceSettings(s Setup) (traces.Options, traces.Selection, error) {
	t := s.Scenario.Workload.Trace
	unit, err := traces.ParseTimeUnit(t.TimeUnit)
	if err != nil {
		return traces.Options{}, traces.Selection{}, err
	}
	modes := map[string]traces.SessionMode{"": traces.Recorded, "recorded": traces.Recorded, "replayed": traces.Replayed, "closed_loop": traces.Waiting}
	mode, known := modes[t.Sessions]
	if !known {
		return traces.Options{}, traces.Selection{}, fmt.Errorf("workload.trace.sessions = %q: allowed are recorded, replayed, closed_loop", t.Sessions)
	}
	opts := traces.Options{
		Format: t.Format, TimeUnit: unit, BlockTokens: t.BlockTokens, CharsPerToken: t.CharsPerToken,
		DefaultOutput: t.DefaultOutput, FamilyTokens: t.FamilyTokens, SkipFirst: t.SkipFirst,
		MaxErrors: t.MaxErrors, Strict: t.Strict,
	}
	selection := traces.Selection{
		From: t.From.Time, To: t.To.Time, Tenant: t.Tenant, Phase: t.Phase,
		Thin: t.Thin, Rate: t.Rate, UntimedRate: t.UntimedRate,
		Sessions: mode, Think: t.ThinkTime.Time, Head: s.Scenario.Workload.Requests,
	}
	if t.Sample < 1 {
		selection.Sample = t.Sample
	}
	return opts, selection, nil
}

func (l *traceLoad) close() {
	l.stop()
	l.file.Close() // it was only read
}

// row is the next row as a request of the plan, nil after the last.
func (c *client) row() (*request, error) {
	l := c.trace
	row, err, ok := l.next()
	if !ok || err != nil {
		return nil, err
	}
	planned, err := l.prompter.Request(&row)
	if err != nil {
		return nil, traces.Located(l.file.Name(), err)
	}
	tenant, listed := l.tenants[row.Tenant]
	if len(l.tenants) > 0 && !listed {
		return nil, traces.Problem{File: l.file.Name(), Line: row.Line,
			Text: fmt.Sprintf("tenant %q is not among [[workload.tenants]]", row.Tenant)}
	}
	q := c.fresh(-1, tenant)
	planned.Index = c.planned - 1
	planned.At = c.begin + min(planned.At, simtime.Horizon)
	q.Request, q.prompt = planned, planned.Prompt
	q.seq.Hidden = c.hiddenTokens(planned.Family)
	l.join(q, &row)
	return q, nil
}
