package trace

import (
	"fmt"

	"fleetsim/simtime"
)

// Optional is a value that the source may not have. The zero value is absent,
// which is not the same as a present zero.
type Optional[T any] struct {
	Value   T
	Present bool
}

// Some is a present value.
func Some[T any](v T) Optional[T] { return Optional[T]{Value: v, Present: true} }

// A Status is how a request ended, as far as the source says.
type Status uint8

// The ways a request ends. Planned is that of a trace of arrivals, which knows
// no results.
const (
	Planned   Status = iota // the source holds no results
	OK                      // complete, with its token count
	Failed                  // error, time-out or a stream that broke
	Rejected                // refused with 429
	Cancelled               // cut off by the client or at the end of the run
	Dropped                 // never sent by the client
	Unknown                 // text came but no token count: broken or not counted
)

var statusNames = [...]string{"planned", "ok", "failed", "rejected", "cancelled", "dropped", "unknown"}

// String is the status's name in our own format.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", s)
}

// A TPOTRule says which definition a measured time per output token follows.
type TPOTRule uint8

const (
	// BetweenTokens is (last token - first token) / (tokens - 1): ours, and that
	// of vLLM, SGLang and aiperf.
	BetweenTokens TPOTRule = iota
	// EndMinusFirstChunk is (end of stream - first chunk) / tokens, where the first
	// chunk may be the empty role chunk, so that prefill time is in it: AIBrix
	// client.
	EndMinusFirstChunk
)

var tpotRuleNames = [...]string{"between_tokens", "end_minus_first_chunk"}

// String is the rule's name in our own format.
func (r TPOTRule) String() string {
	if int(r) < len(tpotRuleNames) {
		return tpotRuleNames[r]
	}
	return fmt.Sprintf("TPOTRule(%d)", r)
}

// A Row is one request of a trace or of a run's results. Counts are tokens;
// times are exact to the 10 ps tick of simtime. A zero count and an empty name
// mean that the source has none, save where the field is Optional.
type Row struct {
	// Line is where the row stands in its source, from 1.
	Line int
	// Index numbers the rows that a Reader gives, from 0, in the order of time.
	Index int
	// ID is the source's own name for the request.
	ID string
	// Phase is the run or phase within a source that holds several.
	Phase string

	// At is when the request was due, or sent where only that is known: counted
	// from the source's zero when it has one, else from the earliest row.
	At simtime.Time
	// Timed is false when the source gives no time for the row; At is then that of
	// the row before.
	Timed bool
	// Late is how much later than due the client sent it.
	Late Optional[simtime.Time]

	// InputTokens is the length of the prompt: of the whole prompt, except that a
	// History row's earlier turns come on top.
	InputTokens int
	// ServerInputTokens is the same as the server counted it, chat template
	// included.
	ServerInputTokens int
	// OutputTokens is the length of the answer, given or to give.
	OutputTokens int
	// RequestedOutput is the limit asked for (max_tokens).
	RequestedOutput int
	// CachedTokens is how much of the prompt the server had in its prefix cache.
	CachedTokens Optional[int]

	// Tenant, Model and Kind (text, search, API log …) are labels.
	Tenant, Model, Kind string

	// Family names a group of requests that share their first FamilyTokens tokens.
	Family       string
	FamilyTokens int

	// Session names the conversation, Parent the ID of the turn before, and Turn
	// the place in it, from 1.
	Session, Parent string
	Turn            int
	// Wait makes the row closed-loop: it is sent when the session's turn before
	// has ended and Think has passed, and not before At if it is Timed. Otherwise
	// it is sent at At, come what may.
	Wait bool
	// Think is the gap from the end of the session's turn before to this one's
	// start.
	Think Optional[simtime.Time]
	// History says that the client puts the session's earlier prompts and answers
	// before this prompt when it sends it.
	History bool

	// HashIDs identifies the prompt's content block by block, each BlockTokens
	// long, the last possibly shorter: equal ids are equal blocks. If one of a
	// row's ids is not a whole number from 0 to 2^64-1, all of them are in HashText
	// instead, as JSON tokens, so that no two ids ever become one.
	HashIDs     []uint64
	HashText    []string
	BlockTokens int

	Status     Status
	HTTPStatus int
	Error      string
	// Replica is the replica or pod that served it.
	Replica string

	// TTFT, TPOT and E2E are measured: first content, time per output token and
	// end of the answer, the first and the last counted from when it was sent.
	TTFT, TPOT, E2E Optional[simtime.Time]
	// TTFTFloor says that TTFT is that of a chunk without content, hence a lower
	// bound.
	TTFTFloor bool
	// TPOTRule is TPOT's definition.
	TPOTRule TPOTRule
	// Good is the source's verdict on its SLO.
	Good Optional[bool]
}

// PromptTokens is the length of the prompt as the server sees it: its own count
// where the source has it, else the trace's; 0 if neither is known.
func (r *Row) PromptTokens() int {
	if r.ServerInputTokens > 0 {
		return r.ServerInputTokens
	}
	return r.InputTokens
}

// AnswerTokens is how many tokens a replay is to produce: those given, else those
// asked for; 0 if neither is known.
func (r *Row) AnswerTokens() int {
	if r.OutputTokens > 0 {
		return r.OutputTokens
	}
	return r.RequestedOutput
}

// blocks is the number of hash ids.
func (r *Row) blocks() int { return max(len(r.HashIDs), len(r.HashText)) }
