package sim

import (
	"slices"

	"fleetsim/router"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// recorder turns requests that have ended into records, and these into a summary.
type recorder struct {
	phase    string
	slo      record.SLO
	begin    simtime.Time
	overhead simtime.Time // from the end of a step to the client
	each     func(*record.Request)
	summary  *record.Summary
	out      record.Request // the latest, told of and then written over
	last     simtime.Time   // end of the latest request
	busy     simtime.Time   // time in flight, of all requests together
}

func newRecorder(s Setup, begin simtime.Time) recorder {
	phase := s.Phase
	if phase == "" {
		phase = s.Scenario.Name
	}
	bounds := SLO(s.Scenario.SLO)
	summary := record.NewSummary(bounds)
	if s.Sketch {
		summary = record.NewSketch(bounds)
	}
	summary.Expect(planned(&s.Scenario.Workload) / max(len(s.Scenario.Workload.Tenants), 1))
	return recorder{phase: phase, slo: bounds, begin: begin, last: begin,
		overhead: s.Profile.ResponseOverhead, each: s.Each, summary: summary}
}

// planned is the number of requests that the load surely has, as far as it is worth
// making room for; 0 when its end is a matter of time.
func planned(w *scenario.Workload) int {
	const most = 1 << 26
	if w.Arrivals == nil || len(w.Arrivals.Stages) > 0 {
		return 0
	}
	return min(w.Requests, most)
}

// dropped records an arrival that the client never sent.
func (rc *recorder) dropped(q *request) {
	out := rc.describe(q)
	out.Result = record.Dropped
	rc.tell()
}

// ended records a request whose end the client sees at now. Times count from its
// first sending, retries and back-offs included.
func (rc *recorder) ended(q *request, now simtime.Time) {
	rc.last = max(rc.last, now)
	rc.busy += now - q.sent
	out := rc.describe(q)
	out.E2E = seconds(now - q.sent)
	out.ErrorCategory = q.err
	if q.replica != nil {
		out.Replica = q.replica.name
	}
	if q.status != 0 {
		out.HTTPStatus = record.Some(q.status)
	}
	switch q.status {
	case 0:
		out.Result = record.Failed
	case 200:
		rc.stream(out, q, now)
	case statusRefused:
		out.Result = record.Rejected
	default:
		out.Result = record.Error
	}
	if rc.each != nil {
		rc.detail(out, q)
	}
	rc.tell()
}

// detail adds what the summary does not ask for.
func (rc *recorder) detail(out *record.Request, q *request) {
	out.Good = record.Some(rc.slo.Good(out))
	if q.replica != nil {
		out.MatchPercent = record.Some(q.routing.choice.MatchPercent)
		out.Selection = q.routing.choice.Selection
		out.Imbalanced = record.Some(q.routing.choice.Imbalanced)
	}
	if q.status != 200 {
		return
	}
	out.CachedTokens = record.Some(q.cached())
	if q.seq.Scheduled != simtime.Never {
		out.QueueSeconds = seconds(q.waited())
	}
}

// stream adds what the client saw of the answer until now. A token that was on
// its way when the client closed was never seen.
func (rc *recorder) stream(out *record.Request, q *request, now simtime.Time) {
	s := &q.seq
	out.Result = record.OK
	if q.err != "" {
		out.Result = record.Failed
	}
	out.OutputTokens = record.Some(s.Outputs)
	if s.Shown != simtime.Never && s.Shown+rc.overhead <= now {
		out.TTFT = seconds(s.Shown + rc.overhead - q.sent)
	}
	if s.Outputs > 0 && s.Last+rc.overhead > now {
		out.OutputTokens = record.Some(s.Outputs - 1)
		return // nor is it known here when the one before came
	}
	out.TPOT = record.TPOT(out.TTFT, seconds(s.Last+rc.overhead-q.sent), out.OutputTokens)
}

// describe begins the record of q.
func (rc *recorder) describe(q *request) *record.Request {
	out := &rc.out
	*out = record.Request{}
	out.Phase, out.Tenant, out.Index = rc.phase, q.Tenant, record.Some(q.Index)
	out.RequestedOutput, out.Started = record.Some(q.Output), seconds(q.sent-rc.begin)
	if q.Family >= 0 {
		out.Family = record.Some(q.Family)
	}
	if q.seq.Prompt > 0 {
		out.InputTokens = record.Some(q.seq.Prompt)
	}
	return out
}

// tell hands the record on.
func (rc *recorder) tell() {
	rc.summary.Add(&rc.out)
	if rc.each != nil {
		rc.each(&rc.out)
	}
}

// counterDeltas are by how much the gateway's counters have moved since before;
// those that did not are left out, as the published records do.
func counterDeltas(before, after []router.Counter) []record.CounterDelta {
	deltas := []record.CounterDelta{}
	for _, c := range after {
		same := func(b router.Counter) bool { return b.Name == c.Name && slices.Equal(b.Labels, c.Labels) }
		moved := c.Value
		if i := slices.IndexFunc(before, same); i >= 0 {
			moved -= before[i].Value
		}
		if moved != 0 {
			deltas = append(deltas, record.CounterDelta{Name: c.Name, Labels: labels(c), Delta: float64(moved)})
		}
	}
	return deltas
}

// labels are the counter's labels without the model's, of which there is one.
func labels(c router.Counter) map[string]string {
	m := make(map[string]string)
	for _, l := range c.Labels {
		if l.Name != "model" {
			m[l.Name] = l.Value
		}
	}
	return m
}
