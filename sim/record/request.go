package record

// What became of a request, as Request.Result says it. Readers accept any other
// word too: whatever is neither ok, dropped nor rejected is a failure.
const (
	OK       = "ok"       // HTTP 200, content, a finished stream, the tokens asked for
	Dropped  = "dropped"  // the client never sent it: too many in flight
	Rejected = "rejected" // refused with 429
	Failed   = "failed"   // the stream broke, ended early or never began
	Error    = "error"    // an error answer other than 429
)

// A Request is what the client saw of one request, beside what the router
// believed and the engine reused.
type Request struct {
	Phase  string // phase the request belongs to
	Tenant string // sender; "" when the load has one

	Result     string // OK, Dropped, Rejected, Failed, Error or the source's own word
	HTTPStatus Int    // absent when there was no answer

	TTFT Float // s, from sending to the first content
	TPOT Float // s per token; absent for answers of one token
	E2E  Float // s, from sending to the end of the stream

	InputTokens     Int  // prompt tokens by usage
	OutputTokens    Int  // tokens received by usage
	RequestedOutput Int  // tokens asked for
	Good            Bool // success within every SLO

	Started Float // s since the run (in the production study: the first phase) began

	Replica       string // where it really ran; "" when nowhere or unknown
	Family        Int    // number of the shared-prefix family
	Index         Int    // place in the plan, from 0
	CachedTokens  Int    // prompt tokens that the engine took from its prefix cache
	QueueSeconds  Float  // s from reaching the engine to first being scheduled
	ErrorCategory string // why it is no success; "" for a success

	MatchPercent Int    // what the router's index believed to be on the replica, 0 to 100
	Selection    string // how the router chose, by its metric label
	Imbalanced   Bool   // the router's load-imbalance rule narrowed the candidates
}

// AppendJSON appends the record as one JSON object without a newline. Every
// member is written, in a fixed order, null when absent; floats have the shortest
// form that reads back the same.
func (r *Request) AppendJSON(dst []byte) []byte {
	o := newObject(dst)
	o.text("phase", r.Phase)
	o.text("tenant", r.Tenant)
	o.text("result", r.Result)
	o.int("http_status", r.HTTPStatus)
	o.float("ttft", r.TTFT)
	o.float("tpot", r.TPOT)
	o.float("e2e", r.E2E)
	o.int("input_tokens", r.InputTokens)
	o.int("output_tokens", r.OutputTokens)
	o.int("requested_output", r.RequestedOutput)
	o.bool("good", r.Good)
	o.float("started_relative_seconds", r.Started)
	o.text("replica", r.Replica)
	o.int("family", r.Family)
	o.int("index", r.Index)
	o.int("cached_tokens", r.CachedTokens)
	o.float("queue_seconds", r.QueueSeconds)
	o.text("error_category", r.ErrorCategory)
	o.int("match_percent", r.MatchPercent)
	o.text("selection", r.Selection)
	o.bool("imbalanced", r.Imbalanced)
	return o.end()
}

// MarshalJSON is AppendJSON for encoding/json.
func (r Request) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// An Outcome is the class a request counts in. Every planned arrival has exactly
// one.
type Outcome int

// The outcomes.
const (
	Success Outcome = iota
	DroppedArrival
	RejectedRequest
	FailedRequest
)

// Outcome classes the request. A success says ok, was not answered with a status
// other than 200, and holds, by usage, as many tokens as were asked for, if
// that is known: an answer that is shorter, empty or of unknown length is a failure,
// whatever it calls itself. A 429 is a rejection, whatever word the source has for it.
func (r *Request) Outcome() Outcome {
	status, answered := r.HTTPStatus.Get()
	switch {
	case r.Result == Dropped:
		return DroppedArrival
	case r.Result == Rejected, status == 429:
		return RejectedRequest
	case r.Result != OK, answered && status != 200, r.tokensWrong() != "":
		return FailedRequest
	}
	return Success
}

// Why the tokens of an answer make it no success, as error categories.
const (
	usageMissing = "usage_missing" // unknown how many: a broken stream looks so, too
	emptyAnswer  = "empty_answer"
	wrongTokens  = "wrong_output_tokens" // not as many as were asked for
)

// tokensWrong is why the answer's tokens make it no success; "" if they do not.
func (r *Request) tokensWrong() string {
	received, counted := r.OutputTokens.Get()
	switch {
	case !counted:
		return usageMissing
	case received == 0:
		return emptyAnswer
	case received != r.RequestedOutput.Or(received):
		return wrongTokens
	}
	return ""
}

// MeanTokenTime is the request's TPOT in seconds per token: the recorded one, or
// else the one that TTFT, E2E and the tokens received give. It is absent for
// answers of fewer than two tokens.
func (r *Request) MeanTokenTime() Float {
	if n, known := r.OutputTokens.Get(); known && n < 2 {
		return Float{}
	}
	if r.TPOT.Valid() {
		return r.TPOT
	}
	return TPOT(r.TTFT, r.E2E, r.OutputTokens)
}

// TPOT is the mean time per output token of one request, in seconds:
// (last − first) / (received − 1), where first and last are the times of the first
// and the last content and received counts tokens by usage, not chunks and not the
// tokens asked for. It is absent when an input is, for fewer than two tokens, and
// when last precedes first.
func TPOT(first, last Float, received Int) Float {
	f, haveFirst := first.Get()
	l, haveLast := last.Get()
	n, haveTokens := received.Get()
	if !haveFirst || !haveLast || !haveTokens || n < 2 || l < f {
		return Float{}
	}
	return Some((l - f) / float64(n-1))
}

// An SLO bounds the times of a good request, in seconds and inclusive; an absent
// bound does not bind.
type SLO struct {
	TTFT, TPOT, E2E Float
}

// StudySLO is the SLO of both published studies.
func StudySLO() SLO {
	return SLO{TTFT: Some(2.0), TPOT: Some(0.15), E2E: Some(30.0)}
}

// Good reports whether the request is a success within every bound. A time that
// does not exist (the TPOT of a one-token answer, the TTFT of an answer that was not
// streamed) is not held against it, but when none of the bounded times exists there
// is nothing to call good.
func (s SLO) Good(r *Request) bool {
	return r.Outcome() == Success && s.withinBounds(r)
}

// withinBounds is Good of a success.
func (s SLO) withinBounds(r *Request) bool {
	bounds, measured := 0, 0
	for _, c := range [...]struct{ bound, time Float }{
		{s.TTFT, r.TTFT}, {s.TPOT, r.MeanTokenTime()}, {s.E2E, r.E2E},
	} {
		bound, bounded := c.bound.Get()
		if !bounded {
			continue
		}
		bounds++
		t, ok := c.time.Get()
		if !ok {
			continue
		}
		measured++
		if t > bound {
			return false
		}
	}
	return bounds == 0 || measured > 0
}
