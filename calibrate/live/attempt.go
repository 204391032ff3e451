package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"fleetsim/calibrate/live/sse"
	"fleetsim/sim/record"
)

// Categories of what is no success, as records and docs/live.md have them.
const (
	catRejected       = "rejected"
	catRedirect       = "redirect_refused"
	catRefused        = "connection_refused"
	catConnect        = "connect_failed"
	catReset          = "connection_reset"
	catBroken         = "connection_closed"
	catBadHTTP        = "bad_http"
	catSilence        = "read_timeout"
	catNotStream      = "not_a_stream"
	catErrorBody      = "error_body"
	catEncoding       = "content_encoding"
	catStreamError    = "stream_error"
	catBadJSON        = "bad_json"
	catTooLong        = "event_too_long"
	catMissingDone    = "missing_done"
	catEmpty          = "empty_answer"
	catNoUsage        = "usage_missing"
	catAborted        = "aborted"
	catWrongTokens    = "wrong_output_tokens"
	catDrainTimeout   = "drain_timeout"
	catMaxDuration    = "max_duration"
	catMaxRequests    = "max_requests"
	catInFlightCap    = "in_flight_cap"
	catCancelled      = "cancelled"
	catForeignAddress = "not_on_this_machine"
)

// Causes with which a context ends.
var (
	errSilence     = errors.New("live: the server was silent for too long")
	errDrain       = errors.New("live: the answer was not over when the drain was")
	errMaxDuration = errors.New("live: the replay's time is over")
)

// An Ask is one request to send.
type Ask struct {
	URL       string
	Header    http.Header
	Body      []byte
	Stream    bool
	Requested int // output tokens
}

// An Attempt is what one sending of a request came to. Instants are zero where
// something did not happen.
type Attempt struct {
	Sent    time.Time // before the connection was looked for
	Headers time.Time // of the answer
	First   time.Time // first content of any kind
	Content time.Time // first content that is neither reasoning nor a tool call
	Last    time.Time // last content of any kind
	Done    time.Time // the stream's terminator, or the end of an answer in one piece
	End     time.Time // nothing more was to come

	Status      int    // 0: no answer
	TargetPod   string // the gateway's header
	RetryAfter  string
	ErrorHeader string // name of AIBrix's x-error-… header
	FirstKind   string // field that First was in: content, text, reasoning, …
	Finish      string // finish reason
	Chunks      int    // with content
	Usage       *Usage // the last that was seen

	Result   string // record.OK, …
	Category string // why it is no success
	Message  string // the server's words, cut short
}

// Usage is the usage block of an answer.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	Details          *struct {
		CachedTokens *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// Cached is the number of prompt tokens that came from a prefix cache, if the
// server says.
func (u *Usage) Cached() record.Int {
	if u == nil || u.Details == nil || u.Details.CachedTokens == nil {
		return record.Int{}
	}
	return record.Some(*u.Details.CachedTokens)
}

// Limits of what is read of an answer.
const (
	maxEvent   = 1 << 20  // bytes
	maxWhole   = 64 << 20 // bytes of an answer in one piece
	maxMessage = 300      // bytes of a server's words that are kept
)

// Send sends the request once and reads the answer to its end, or until the
// server has been silent for the given time.
func (t *Transport) Send(ctx context.Context, now func() time.Time, ask *Ask, silence time.Duration) *Attempt {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilence) })
	defer watchdog.Stop()

	a := &Attempt{Sent: now()}
	defer func() { a.End = now() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ask.URL, bytes.NewReader(ask.Body))
	if err != nil {
		a.fail(catConnect, err.Error())
		return a
	}
	req.Header = ask.Header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		a.broke(ctx, err)
		return a
	}
	defer resp.Body.Close()
	a.headers(now(), resp)
	r := &reader{now: now, attempt: a, in: &alive{resp.Body, func() { watchdog.Reset(silence) }}}
	switch {
	case resp.StatusCode != http.StatusOK:
		r.errorAnswer(resp.StatusCode)
		return a
	case resp.Header.Get("Content-Encoding") != "":
		a.fail(catEncoding, resp.Header.Get("Content-Encoding"))
		return a
	case !ask.Stream:
		err = r.whole()
	case !isEventStream(resp):
		err = r.noStream()
	default:
		err = r.stream()
	}
	if err != nil {
		a.broke(ctx, err)
	}
	a.judge(ask)
	return a
}

// alive tells of every piece that is read.
type alive struct {
	io.Reader
	seen func()
}

func (r *alive) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.seen()
	}
	return n, err
}

func isEventStream(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

func (a *Attempt) headers(at time.Time, resp *http.Response) {
	a.Headers, a.Status = at, resp.StatusCode
	a.TargetPod, a.RetryAfter = resp.Header.Get("target-pod"), resp.Header.Get("Retry-After")
	for name := range resp.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-error-") && (a.ErrorHeader == "" || lower < a.ErrorHeader) {
			a.ErrorHeader = lower
		}
	}
}

// fail gives the attempt its category, unless it has one.
func (a *Attempt) fail(category, message string) {
	if a.Category != "" {
		return
	}
	a.Result, a.Category = record.Failed, category
	a.Message = strings.ToValidUTF8(message[:min(len(message), maxMessage)], "\uFFFD")
}

// broke finds the category of an error of the connection.
func (a *Attempt) broke(ctx context.Context, err error) {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSilence):
		a.fail(catSilence, "")
	case errors.Is(cause, errDrain):
		a.fail(catDrainTimeout, "")
	case errors.Is(cause, errMaxDuration):
		a.fail(catMaxDuration, "")
	case cause != nil:
		a.fail(catCancelled, "")
	case errors.Is(err, ErrNotLoopback):
		a.fail(catForeignAddress, err.Error())
	case errors.Is(err, sse.ErrTooLong):
		a.fail(catTooLong, "")
	case errors.Is(err, syscall.ECONNREFUSED):
		a.fail(catRefused, "")
	case isDial(err):
		a.fail(catConnect, err.Error())
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		a.fail(catReset, "")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		a.fail(catBroken, "")
	default:
		a.fail(catBadHTTP, err.Error())
	}
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// judge decides whether what came is a success: content, an end, and usage that
// counts the tokens asked for.
func (a *Attempt) judge(ask *Ask) {
	switch {
	case a.Category != "":
	case a.Done.IsZero():
		a.fail(catMissingDone, "")
	case a.Finish == "abort":
		a.fail(catAborted, "")
	case a.First.IsZero():
		a.fail(catEmpty, "")
	case a.Usage == nil:
		a.fail(catNoUsage, "")
	case a.Usage.CompletionTokens != ask.Requested:
		a.fail(catWrongTokens, fmt.Sprintf("%d tokens, asked for %d", a.Usage.CompletionTokens, ask.Requested))
	default:
		a.Result = record.OK
	}
}

// A reader reads an answer's body into its attempt.
type reader struct {
	now     func() time.Time
	attempt *Attempt
	in      io.Reader
}

// errorAnswer reads an answer other than 200.
func (r *reader) errorAnswer(status int) {
	body, _ := io.ReadAll(io.LimitReader(r.in, 64<<10)) // what can be had of the words
	category := fmt.Sprintf("http_status_%d", status)
	switch {
	case status == http.StatusTooManyRequests:
		category = catRejected
	case status >= 300 && status < 400:
		category = catRedirect
	}
	r.attempt.fail(category, errorMessage(body))
	if r.attempt.Result = record.Error; status == http.StatusTooManyRequests {
		r.attempt.Result = record.Rejected
	}
}

// errorMessage is the message of an error object, or the body as it is.
func errorMessage(body []byte) string {
	var e struct {
		Error *apiError `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error != nil {
		return e.Error.String()
	}
	return string(bytes.TrimSpace(body))
}

// An apiError is an error object, or an error that is no more than words.
type apiError struct {
	Message string `json:"message"`
	words   string
}

func (e *apiError) UnmarshalJSON(data []byte) error {
	type object apiError
	if json.Unmarshal(data, (*object)(e)) != nil || e.Message == "" {
		e.words = string(data)
	}
	return nil
}

func (e *apiError) String() string {
	if e.Message != "" {
		return e.Message
	}
	return e.words
}

// noStream reads an answer that is not the stream that was asked for.
func (r *reader) noStream() error {
	body, err := io.ReadAll(io.LimitReader(r.in, maxWhole))
	if err != nil {
		return err
	}
	category := catNotStream
	var e struct {
		Error *apiError `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error != nil {
		category = catErrorBody
	}
	r.attempt.fail(category, errorMessage(body))
	return nil
}

// whole reads an answer in one piece, which has no first content.
func (r *reader) whole() error {
	body, err := io.ReadAll(io.LimitReader(r.in, maxWhole))
	if err != nil {
		return err
	}
	var c chunk
	if err := json.Unmarshal(body, &c); err != nil {
		r.attempt.fail(catBadJSON, err.Error())
		return nil
	}
	r.attempt.Done = r.now()
	r.take(&c)
	return nil
}

// stream reads a stream to the end of the body, also behind its terminator: a
// client that hangs up there makes gateways book a cancelled request.
func (r *reader) stream() error {
	events := sse.NewReader(r.in, maxEvent)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if !r.attempt.Done.IsZero() {
				return nil // nothing that was needed is missing
			}
			return err
		}
		if !r.attempt.Done.IsZero() {
			continue
		}
		if string(bytes.TrimSpace(e.Data)) == "[DONE]" {
			r.attempt.Done = r.now()
			continue
		}
		var c chunk
		if err := json.Unmarshal(e.Data, &c); err != nil {
			r.attempt.fail(catBadJSON, err.Error())
			return nil
		}
		r.take(&c)
	}
}

// A chunk is what is read of an event, or of an answer in one piece.
type chunk struct {
	Choices []struct {
		Text         string  `json:"text"`
		Delta        delta   `json:"delta"`
		Message      delta   `json:"message"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *Usage    `json:"usage"`
	Error *apiError `json:"error"`
}

type delta struct {
	Content          string          `json:"content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
}

// kind is the first field that holds something, "" if none does.
func (d *delta) kind() string {
	calls := string(bytes.TrimSpace(d.ToolCalls))
	switch {
	case d.Content != "":
		return "content"
	case d.Reasoning != "":
		return "reasoning"
	case d.ReasoningContent != "":
		return "reasoning_content"
	case calls != "" && calls != "null" && calls != "[]":
		return "tool_calls"
	}
	return ""
}

// take adds a chunk to what is known of the answer.
func (r *reader) take(c *chunk) {
	a := r.attempt
	if c.Error != nil {
		a.fail(catStreamError, c.Error.String())
	}
	if c.Usage != nil {
		a.Usage = c.Usage
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.FinishReason != nil {
			a.Finish = *choice.FinishReason
		}
		kind := choice.Delta.kind()
		if kind == "" {
			kind = choice.Message.kind()
		}
		if choice.Text != "" {
			kind = "text"
		}
		if kind != "" {
			r.content(kind)
		}
	}
}

func (r *reader) content(kind string) {
	a, at := r.attempt, r.now()
	if a.First.IsZero() {
		a.First, a.FirstKind = at, kind
	}
	if a.Content.IsZero() && (kind == "content" || kind == "text") {
		a.Content = at
	}
	a.Last = at
	a.Chunks++
}
