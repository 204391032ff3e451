package live

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/workload"
)

// SendsFile is the name of a run directory's log of sendings, one attempt a line.
const SendsFile = "sends.jsonl.gz"

// A Result is what a phase came to.
type Result struct {
	Phase    record.Phase
	Requests []record.Request // in the order of the plan
	Sends    []Send           // likewise
	Samples  []sim.Sample
	start    time.Time
	speed    float64
}

// clientFacts is what a phase record says of the client itself.
type clientFacts struct {
	Speed       float64            `json:"speed"`
	Salt        string             `json:"salt"`
	Attempts    int                `json:"attempts"`
	Connections int                `json:"connections_opened"`
	Lateness    record.Percentiles `json:"-"`
	LatenessMax record.Float       `json:"-"`
	DueTTFT     record.Percentiles `json:"-"`
}

// MarshalJSON writes the percentiles as the phase record writes its own.
func (c clientFacts) MarshalJSON() ([]byte, error) {
	type plain clientFacts
	percentiles := func(p record.Percentiles) map[string]any {
		return map[string]any{"p50": p.P50, "p95": p.P95, "p99": p.P99}
	}
	late := percentiles(c.Lateness)
	late["max"] = c.LatenessMax
	return json.Marshal(struct {
		plain
		Lateness map[string]any `json:"lateness"`
		DueTTFT  map[string]any `json:"ttft_from_due"`
	}{plain(c), late, percentiles(c.DueTTFT)})
}

// lateBy is a lateness in the records' seconds from which a phase says so.
const lateBy = 0.05

// result sums the phase up.
func (ph *phase) result(planned, connections int, w *watch) *Result {
	records := ph.sorted()
	var names []string
	for _, e := range ph.Engines {
		names = append(names, e.Name)
	}
	p := record.Summarize(records, sim.SLO(ph.Scenario.SLO), record.Meta{
		Phase: ph.name, Scenario: ph.Scenario.Name, Route: ph.policy, Seed: record.Some(ph.Seed),
		Planned: record.Some(planned), Replicas: names,
	})
	w.describe(&p)
	facts := clientFacts{Speed: ph.Speed, Salt: ph.Texts.Salt(), Attempts: len(ph.sends), Connections: connections}
	ph.timing(&facts)
	if late, ok := facts.LatenessMax.Get(); ok && late > lateBy {
		p.Notes = append(p.Notes, fmt.Sprintf("the client was up to %.3g s late: latencies from the due time are in client.ttft_from_due", late))
	}
	if note := ph.tokenNote(); note != "" {
		p.Notes = append(p.Notes, note)
	}
	if err := p.Extend("client", facts); err != nil {
		panic(err) // "client" is no member of the schema, and the facts have a JSON form
	}
	for i := range w.samples {
		w.samples[i].Phase, w.samples[i].Route, w.samples[i].Seed = ph.name, ph.policy, ph.Seed
	}
	return &Result{Phase: p, Requests: records, Sends: ph.sends, Samples: w.samples, start: ph.start, speed: ph.Speed}
}

// timing adds how late requests were sent, and TTFT as it was from the time at
// which they were due.
func (ph *phase) timing(facts *clientFacts) {
	var late, ttft []float64
	latest := math.Inf(-1)
	for _, s := range ph.sends {
		if s.Try > 1 {
			continue
		}
		lateness := ph.lateness(&s)
		late, latest = append(late, lateness), max(latest, lateness)
		if s.Attempt.Result == record.OK && !s.Attempt.First.IsZero() {
			ttft = append(ttft, s.Attempt.First.Sub(s.Attempt.Sent).Seconds()*ph.Speed+lateness)
		}
	}
	facts.Lateness, facts.LatenessMax = record.PercentilesOf(late), record.Some(latest)
	facts.DueTTFT = record.PercentilesOf(ttft)
}

func (ph *phase) lateness(s *Send) float64 {
	return (s.Attempt.Sent.Sub(ph.start) - s.Due).Seconds() * ph.Speed
}

// tokenNote says by how much the server's prompt tokens differ from the plan's;
// "" when they do not.
func (ph *phase) tokenNote() string {
	n, differ, sum := 0, 0, 0
	for _, s := range ph.sends {
		if s.Attempt.Usage == nil {
			continue
		}
		n++
		if d := s.Attempt.Usage.PromptTokens - s.Request.Prompt.Len(workload.Tokens); d != 0 {
			differ++
			sum += d
		}
	}
	if differ == 0 {
		return ""
	}
	return fmt.Sprintf("prompt tokens by usage differ from the plan's in %d of %d answers, by %+.1f on average", differ, n, float64(sum)/float64(n))
}

// sendLine is a line of SendsFile. Instants are seconds since the phase began, in
// the records' time, null where something did not happen.
type sendLine struct {
	Phase       string       `json:"phase"`
	Index       int          `json:"index"`
	Attempt     int          `json:"attempt"`
	Due         record.Float `json:"due"`
	Sent        record.Float `json:"sent"`
	Headers     record.Float `json:"headers"`
	First       record.Float `json:"first"`
	FirstKind   string       `json:"first_kind,omitempty"`
	Content     record.Float `json:"first_content"`
	Last        record.Float `json:"last"`
	Done        record.Float `json:"done"`
	End         record.Float `json:"end"`
	Late        record.Float `json:"lateness"`
	Result      string       `json:"result"`
	Status      int          `json:"http_status,omitempty"`
	Category    string       `json:"error_category,omitempty"`
	Message     string       `json:"message,omitempty"`
	TargetPod   string       `json:"target_pod,omitempty"`
	RetryAfter  string       `json:"retry_after,omitempty"`
	ErrorHeader string       `json:"error_header,omitempty"`
	Finish      string       `json:"finish_reason,omitempty"`
	Chunks      int          `json:"chunks"`
	Planned     int          `json:"planned_input_tokens"`
}

func (r *Result) line(s *Send) *sendLine {
	a := s.Attempt
	at := func(t time.Time) record.Float {
		if t.IsZero() {
			return record.Float{}
		}
		return record.Some(t.Sub(r.start).Seconds() * r.speed)
	}
	return &sendLine{
		Phase: s.Phase, Index: s.Request.Index, Attempt: s.Try, Due: record.Some(s.Due.Seconds() * r.speed),
		Sent: at(a.Sent), Headers: at(a.Headers), First: at(a.First), FirstKind: a.FirstKind, Content: at(a.Content),
		Last: at(a.Last), Done: at(a.Done), End: at(a.End), Late: record.Some((a.Sent.Sub(r.start) - s.Due).Seconds() * r.speed),
		Result: a.Result, Status: a.Status, Category: a.Category, Message: a.Message, TargetPod: a.TargetPod,
		RetryAfter: a.RetryAfter, ErrorHeader: a.ErrorHeader, Finish: a.Finish, Chunks: a.Chunks,
		Planned: s.Request.Prompt.Len(workload.Tokens),
	}
}

// WriteDir writes a run directory like that of a simulated run, with the log of
// sendings beside it.
func WriteDir(path string, results []*Result) error {
	d, err := record.CreateDir(path)
	if err != nil {
		return err
	}
	defer d.Abort()
	for _, f := range []struct {
		name  string
		write func(io.Writer, *Result) error
	}{
		{record.PhasesFile, func(w io.Writer, r *Result) error { return record.WritePhase(w, &r.Phase) }},
		{record.RequestsFile, writeRequests},
		{sim.TimelineFile, writeTimeline},
		{SendsFile, writeSends},
	} {
		w, err := d.Create(f.name)
		if err != nil {
			return err
		}
		for _, r := range results {
			if err := f.write(w, r); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return d.Commit()
}

func writeRequests(w io.Writer, r *Result) error {
	out := record.NewRequestWriter(w)
	for i := range r.Requests {
		if err := out.Write(&r.Requests[i]); err != nil {
			return err
		}
	}
	return nil
}

func writeTimeline(w io.Writer, r *Result) error {
	for i := range r.Samples {
		if _, err := w.Write(append(r.Samples[i].AppendJSON(nil), '\n')); err != nil {
			return err
		}
	}
	return nil
}

func writeSends(w io.Writer, r *Result) error {
	out := json.NewEncoder(w)
	for i := range r.Sends {
		if err := out.Encode(r.line(&r.Sends[i])); err != nil {
			return err
		}
	}
	return nil
}
