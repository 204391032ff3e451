package trace

import (
	"bytes"

	"fleetsim/simtime"
)

var aiperfFormat = &format{
	name:     "aiperf",
	title:    "aiperf profile_export.jsonl",
	unit:     Nanoseconds,
	absolute: true,
	window:   logWindow,
	required: []string{"metadata", "metrics"},
	record:   aiperfRecord,
}

// aiperfMetadata is the part of a record about when and what.
type aiperfMetadata struct {
	start                  Optional[instant]
	correlation, requestID string
	conversation, phase    string
	turn                   Optional[int]
	cancelled              bool
}

func aiperfRecord(r *Reader, c *cursor, line int) error {
	p := r.stage(line)
	row := &p.row
	var meta aiperfMetadata
	var tokens aiperfTokens
	failed := false
	err := c.object(func(key []byte) error {
		switch string(key) {
		case "metadata":
			return meta.decode(c, r.opts.TimeUnit)
		case "metrics":
			if c.null() {
				return nil
			}
			return c.object(func(key []byte) error { return row.aiperfMetric(c, string(key), &tokens) })
		case "error":
			failed = !c.null()
			if !failed {
				return nil
			}
			return row.aiperfError(c)
		}
		return c.skip()
	})
	if err != nil {
		return err
	}
	p.at = meta.start
	row.ID = meta.requestID
	row.Session = meta.correlation
	if row.Session == "" {
		row.Session = meta.conversation
	}
	if row.Session != "" && meta.turn.Present {
		row.Turn = turnOf(meta.turn.Value)
	}
	if meta.phase == "warmup" {
		p.skip = "warm-up"
	}
	row.InputTokens, row.OutputTokens = firstOf(tokens.input, tokens.errorInput).Value, tokens.output.Value
	switch {
	case meta.cancelled:
		row.Status = Cancelled
	case failed:
		row.fail(row.Error)
	default:
		row.ended(p, tokens.output.Present)
	}
	return nil
}

// aiperfTokens are the counts among a request's metrics.
type aiperfTokens struct{ input, errorInput, output Optional[int] }

func (m *aiperfMetadata) decode(c *cursor, unit TimeUnit) error {
	return c.object(func(key []byte) (err error) {
		switch string(key) {
		case "x_request_id":
			err = c.textInto(&m.requestID)
		case "x_correlation_id":
			err = c.textInto(&m.correlation)
		case "conversation_id":
			err = c.textInto(&m.conversation)
		case "turn_index":
			m.turn, err = c.count()
		case "request_start_ns":
			m.start, _, err = c.instant(unit)
		case "benchmark_phase":
			err = c.textInto(&m.phase)
		case "was_cancelled":
			m.cancelled, err = c.flag()
		default:
			err = c.skip()
		}
		return err
	})
}

// aiperfMetric reads one metric, in the unit that it says it has.
func (row *Row) aiperfMetric(c *cursor, name string, counts *aiperfTokens) error {
	var duration *Optional[simtime.Time]
	var tokens *Optional[int]
	switch name {
	case "input_sequence_length":
		tokens = &counts.input
	case "output_sequence_length":
		tokens = &counts.output
	case "error_isl":
		tokens = &counts.errorInput
	case "time_to_first_token":
		duration = &row.TTFT
	case "inter_token_latency":
		duration = &row.TPOT
	case "request_latency":
		duration = &row.E2E
	default:
		return c.skip()
	}
	start := c.i
	unit := Milliseconds
	err := c.object(func(key []byte) error {
		if string(key) != "unit" {
			return c.skip()
		}
		name, err := c.text()
		if err != nil || tokens != nil {
			return err
		}
		if unit, err = aiperfUnit(name); err != nil {
			return c.errorf("%v", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.i = start
	return c.object(func(key []byte) (err error) {
		switch {
		case string(key) != "value":
			return c.skip()
		case tokens != nil:
			*tokens, err = c.count()
			return err
		}
		return c.spanInto(duration, unit)
	})
}

func aiperfUnit(name string) (TimeUnit, error) {
	switch name {
	case "sec", "seconds", "second":
		return Seconds, nil
	case "milliseconds":
		return Milliseconds, nil
	case "microseconds", "µs":
		return Microseconds, nil
	case "nanoseconds":
		return Nanoseconds, nil
	}
	return ParseTimeUnit(name)
}

func (row *Row) aiperfError(c *cursor) error {
	var kind, message string
	err := c.object(func(key []byte) error {
		switch string(key) {
		case "code":
			return c.countInto(&row.HTTPStatus)
		case "type":
			return c.textInto(&kind)
		case "message":
			return c.textInto(&message)
		}
		return c.skip()
	})
	row.Error = message
	if kind != "" {
		row.Error = kind + ": " + message
	}
	return err
}

var genaiPerfFormat = &format{
	name:     "genai-perf",
	title:    "genai-perf (perf_analyzer) profile export, JSON",
	unit:     Nanoseconds,
	absolute: true,
	document: true,
	required: []string{"experiments"},
	record:   genaiPerfExport,
}

func genaiPerfExport(r *Reader, c *cursor, _ int) error {
	return c.object(func(key []byte) error {
		if string(key) != "experiments" {
			return c.skip()
		}
		return c.array(func(int) error {
			phase := ""
			return c.object(func(key []byte) error {
				switch string(key) {
				case "experiment":
					return genaiPhase(c, &phase)
				case "requests":
					return c.array(func(int) error {
						return r.element(c, func() error { return r.genaiRequest(c, phase) })
					})
				}
				return c.skip()
			})
		})
	})
}

// genaiPhase names an experiment by its mode and value.
func genaiPhase(c *cursor, phase *string) error {
	var mode, value string
	err := c.object(func(key []byte) error {
		switch string(key) {
		case "mode":
			return c.textInto(&mode)
		case "value":
			return c.textInto(&value)
		}
		return c.skip()
	})
	*phase = mode + "-" + value
	return err
}

// A genaiResponse is one piece of a streamed answer.
type genaiResponse struct {
	content            bool
	prompt, completion int // by usage, 0 if it has none
}

// genaiRequest reads one request. Its lengths are known only where the server
// sent its usage; the tool itself counts them with a tokenizer later.
func (r *Reader) genaiRequest(c *cursor, phase string) error {
	p := r.stage(c.lineAt(c.i))
	row := &p.row
	row.Phase = phase
	var times []Optional[instant]
	var responses []genaiResponse
	err := c.object(func(key []byte) (err error) {
		switch string(key) {
		case "timestamp":
			err = r.arrival(c, p)
		case "request_inputs":
			err = row.genaiInputs(c)
		case "response_timestamps":
			err = list(c, &times, func() (Optional[instant], error) {
				at, _, err := c.instant(r.opts.TimeUnit)
				return at, err
			})
		case "response_outputs":
			err = list(c, &responses, func() (genaiResponse, error) { return genaiOutput(c) })
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	row.genaiTimes(p, times, responses)
	return nil
}

func (row *Row) genaiTimes(p *pending, times []Optional[instant], responses []genaiResponse) {
	var first, last Optional[instant]
	for i, resp := range responses {
		if resp.completion > 0 {
			row.ServerInputTokens, row.OutputTokens = resp.prompt, resp.completion
		}
		if !resp.content || i >= len(times) {
			continue
		}
		if !first.Present {
			first = times[i]
		}
		last = times[i]
	}
	row.TTFT = timeSpan(p.at, first)
	row.E2E = timeSpan(p.at, last)
	row.setTPOT(first, last)
	switch {
	case !first.Present:
		row.emptyAnswer(p)
	case row.OutputTokens == 0:
		row.Status = Unknown
	default:
		row.Status = OK
	}
}

func (row *Row) genaiInputs(c *cursor) error {
	return c.object(func(key []byte) error {
		if string(key) != "payload" || c.peek() != '"' {
			return c.skip()
		}
		body, err := c.str()
		row.RequestedOutput = maxTokensIn(body)
		return err
	})
}

// genaiOutput reads a response: text_output of Triton, or the bytes of the HTTP
// answer, which are server-sent events or one JSON object.
func genaiOutput(c *cursor) (resp genaiResponse, err error) {
	err = c.object(func(key []byte) error {
		if c.peek() != '"' {
			return c.skip()
		}
		s, err := c.str()
		switch string(key) {
		case "text_output":
			resp.content = len(s) > 0
		case "response":
			for event := range bytes.Lines(s) {
				event = bytes.TrimSpace(event)
				event = bytes.TrimSpace(bytes.TrimPrefix(event, []byte("data:")))
				resp.event(event)
			}
		}
		return err
	})
	return resp, err
}

// event takes what one event of an answer says. What is no JSON object, such as
// [DONE], says nothing.
func (resp *genaiResponse) event(data []byte) {
	c := &cursor{b: data}
	if c.peek() != '{' {
		return
	}
	text := func() error {
		if c.peek() == '"' {
			s, err := c.str()
			resp.content = resp.content || len(s) > 0
			return err
		}
		return c.skip()
	}
	choice := func(key []byte) error {
		switch string(key) {
		case "text":
			return text()
		case "delta", "message":
			if c.null() {
				return nil
			}
			return c.object(func(key []byte) error {
				switch string(key) {
				case "content", "reasoning", "reasoning_content":
					return text()
				}
				return c.skip()
			})
		}
		return c.skip()
	}
	usage := func(key []byte) error {
		switch string(key) {
		case "prompt_tokens":
			return c.countInto(&resp.prompt)
		case "completion_tokens":
			return c.countInto(&resp.completion)
		}
		return c.skip()
	}
	// An event that breaks off keeps what it said before.
	_ = c.object(func(key []byte) error {
		switch {
		case string(key) == "choices" && c.peek() == '[':
			return c.array(func(int) error { return c.object(choice) })
		case string(key) == "usage" && c.peek() == '{':
			return c.object(usage)
		}
		return c.skip()
	})
}
