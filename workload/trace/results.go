package trace

import (
	"fmt"

	"fleetsim/simtime"
)

// setTPOTOf is setTPOT with the time between the first and the last token.
func (row *Row) setTPOTOf(between simtime.Time) {
	gaps := simtime.Time(row.OutputTokens - 1)
	if gaps > 0 {
		row.TPOT = Some((between + gaps/2) / gaps)
	}
}

// turnOf is the place in a conversation, from 1, of the turn with the index, from
// 0.
func turnOf(index int) int { return min(index+1, maxTokens) }

var vllmBenchFormat = &format{
	name:     "vllm-bench",
	title:    "vllm bench serve, detailed results, JSON",
	unit:     Seconds,
	absolute: true,
	document: true,
	required: []string{"backend|endpoint_type", "duration", "completed", "total_output_tokens|output_lens"},
	foreign:  []string{"total_output_tokens_retokenized"},
	record: func(r *Reader, c *cursor, _ int) error {
		return r.benchRun(c, "--save-detailed")
	},
}

var sglangFormat = &format{
	name:     "sglang-bench",
	title:    "SGLang bench_serving, detailed results, JSONL",
	unit:     Seconds,
	absolute: true,
	document: true,
	required: []string{"total_output_tokens_retokenized"},
	record: func(r *Reader, c *cursor, _ int) error {
		return r.benchRun(c, "--output-details")
	},
}

// benchLists are the per-request columns of one run.
type benchLists struct {
	date    string
	inputs  []int
	outputs []int
	ttfts   []Optional[simtime.Time]
	gaps    []Optional[simtime.Time] // sum of the inter-token latencies
	starts  []Optional[instant]
	errors  []string
}

// benchRun reads one run of vLLM's or SGLang's benchmark, which differ in little.
// detailFlag is the tool's option that makes it write the lists.
func (r *Reader) benchRun(c *cursor, detailFlag string) error {
	var b benchLists
	if err := b.decode(c, r.opts.TimeUnit); err != nil {
		return err
	}
	if b.inputs == nil || b.outputs == nil {
		return &fieldError{text: "only the summary of a run, no requests: it was written without " + detailFlag, off: -1}
	}
	n := len(b.inputs)
	for _, l := range []struct {
		name   string
		length int
		absent bool
	}{
		{"output_lens", len(b.outputs), false},
		{"ttfts", len(b.ttfts), b.ttfts == nil},
		{"itls", len(b.gaps), b.gaps == nil},
		{"start_times", len(b.starts), b.starts == nil},
		{"errors", len(b.errors), b.errors == nil},
	} {
		if l.length != n && !l.absent {
			return &fieldError{path: l.name, text: fmt.Sprintf("%d entries, where input_lens has %d", l.length, n), off: -1}
		}
	}
	for i := range n {
		if err := r.benchRequest(&b, i); err != nil {
			return under(fmt.Sprintf("request %d", i), err)
		}
	}
	return nil
}

func (b *benchLists) decode(c *cursor, unit TimeUnit) error {
	return c.object(func(key []byte) error {
		switch string(key) {
		case "date":
			return c.textInto(&b.date)
		case "input_lens":
			return counts(c, &b.inputs)
		case "output_lens":
			return counts(c, &b.outputs)
		case "ttfts":
			return list(c, &b.ttfts, func() (Optional[simtime.Time], error) { return c.span(Seconds) })
		case "itls":
			return list(c, &b.gaps, func() (Optional[simtime.Time], error) { return sumOfSpans(c) })
		case "start_times", "arrival_times":
			return list(c, &b.starts, func() (Optional[instant], error) {
				at, _, err := c.instant(unit)
				return at, err
			})
		case "errors":
			return list(c, &b.errors, c.text)
		}
		return c.skip()
	})
}

// list decodes an array, or null, into dst.
func list[T any](c *cursor, dst *[]T, decode func() (T, error)) error {
	if c.null() {
		return nil
	}
	*dst = []T{}
	return c.array(func(int) error {
		v, err := decode()
		*dst = append(*dst, v)
		return err
	})
}

func counts(c *cursor, dst *[]int) error {
	return list(c, dst, func() (int, error) {
		n, err := c.count()
		return n.Value, err
	})
}

// sumOfSpans adds up one request's inter-token latencies; absent for null.
func sumOfSpans(c *cursor) (sum Optional[simtime.Time], err error) {
	if c.null() {
		return sum, nil
	}
	sum.Present = true
	err = c.array(func(int) error {
		gap, err := c.span(Seconds)
		if err != nil {
			return err
		}
		if sum.Value += gap.Value; sum.Value > maxSpan || sum.Value < 0 {
			return c.errorf("sum beyond %d s", maxSpanSeconds)
		}
		return nil
	})
	return sum, err
}

// benchRequest stages the i-th request. A failed one keeps its place with zeros,
// which are no measurements.
func (r *Reader) benchRequest(b *benchLists, i int) error {
	p := r.stage(0)
	row := &p.row
	row.Phase = b.date
	row.InputTokens, row.OutputTokens = b.inputs[i], b.outputs[i]
	if len(b.starts) > 0 {
		p.at = b.starts[i]
	}
	switch {
	case len(b.errors) > 0 && b.errors[i] != "":
		row.fail(b.errors[i])
		return nil
	case row.OutputTokens == 0:
		row.emptyAnswer(p)
		return nil
	}
	row.Status = OK
	if len(b.ttfts) == 0 || !b.ttfts[i].Present || b.ttfts[i].Value == 0 {
		return nil
	}
	row.TTFT = b.ttfts[i]
	if len(b.gaps) == 0 || !b.gaps[i].Present {
		return nil
	}
	if b.gaps[i].Value > maxSpan-row.TTFT.Value {
		return &fieldError{text: fmt.Sprintf("ttft and itls add up to more than %d s", maxSpanSeconds), off: -1}
	}
	row.E2E = Some(row.TTFT.Value + b.gaps[i].Value)
	row.setTPOTOf(b.gaps[i].Value)
	return nil
}

var guidellmFormat = &format{
	name:     "guidellm",
	title:    "GuideLLM report, JSON",
	unit:     Seconds,
	absolute: true,
	document: true,
	required: []string{"benchmarks"},
	record:   guidellmReport,
}

func guidellmReport(r *Reader, c *cursor, _ int) error {
	before := r.found + r.report.Bad
	err := c.object(func(key []byte) error {
		if string(key) != "benchmarks" {
			return c.skip()
		}
		return c.array(func(i int) error {
			phase := fmt.Sprintf("benchmark-%d", i+1)
			return c.object(func(key []byte) error {
				if string(key) != "requests" || c.null() {
					return c.skip()
				}
				return r.guidellmLists(c, phase)
			})
		})
	})
	if err == nil && r.found+r.report.Bad == before {
		err = &fieldError{text: "only the summary of a run, no requests: it was written with sampling, or a sample size of 0", off: -1}
	}
	return err
}

func (r *Reader) guidellmLists(c *cursor, phase string) error {
	return c.object(func(key []byte) error {
		status, ok := map[string]Status{"successful": OK, "errored": Failed, "incomplete": Cancelled}[string(key)]
		if !ok || c.null() {
			return c.skip()
		}
		return c.array(func(int) error {
			return r.element(c, func() error { return r.guidellmRequest(c, phase, status) })
		})
	})
}

// guidellmTimes are a request's moments, as far as it got.
type guidellmTimes struct {
	due, scheduled, start, firstToken, lastToken, end Optional[instant]
}

func (t *guidellmTimes) decode(c *cursor) error {
	return c.object(func(key []byte) (err error) {
		dst := map[string]*Optional[instant]{
			"targeted_start": &t.due, "scheduled_at": &t.scheduled, "request_start": &t.start,
			"first_token_iteration": &t.firstToken, "last_token_iteration": &t.lastToken, "request_end": &t.end,
		}[string(key)]
		if dst == nil {
			return c.skip()
		}
		*dst, _, err = c.instant(Seconds)
		return err
	})
}

// guidellmRequest reads one request. It is due at targeted_start; latencies count
// from when it was sent, and are recomputed from the times where there are any.
func (r *Reader) guidellmRequest(c *cursor, phase string, status Status) error {
	p := r.stage(c.lineAt(c.i))
	row := &p.row
	row.Phase, row.Status = phase, status
	var t guidellmTimes
	var start Optional[instant]
	var ttft, latency Optional[simtime.Time]
	var output Optional[int]
	turn := Optional[int]{}
	info := func(key []byte) (err error) {
		switch string(key) {
		case "conversation_id":
			err = c.textInto(&row.Session)
		case "turn_index":
			turn, err = c.count()
		case "error":
			if c.peek() == '{' {
				return c.skip()
			}
			err = c.textInto(&row.Error)
		case "timings":
			err = t.decode(c)
		default:
			err = c.skip()
		}
		return err
	}
	err := c.object(func(key []byte) (err error) {
		switch string(key) {
		case "request_id":
			err = c.textInto(&row.ID)
		case "info":
			err = c.object(info)
		case "prompt_tokens":
			err = c.countInto(&row.InputTokens)
		case "cached_tokens":
			row.CachedTokens, err = c.count()
		case "output_tokens":
			output, err = c.count()
		case "request_start_time":
			start, _, err = c.instant(Seconds)
		case "request_latency":
			latency, err = c.span(Seconds)
		case "time_to_first_token_ms":
			ttft, err = c.span(Milliseconds)
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if row.Session != "" && turn.Present {
		row.Turn = turnOf(turn.Value)
	}
	start = firstOf(t.start, start)
	p.at = firstOf(t.due, start, t.scheduled)
	row.Late = timeSpan(t.due, start)
	row.TTFT = firstOf(timeSpan(start, t.firstToken), ttft)
	row.OutputTokens = output.Value
	row.setTPOT(t.firstToken, t.lastToken)
	row.E2E = firstOf(timeSpan(start, t.end), latency)
	switch status {
	case Failed:
		row.fail(row.Error)
	case OK:
		row.ended(p, output.Present)
	}
	return nil
}

// firstOf is the first that is present.
func firstOf[T any](values ...Optional[T]) Optional[T] {
	for _, v := range values {
		if v.Present {
			return v
		}
	}
	return Optional[T]{}
}

var inferencePerfFormat = &format{
	name:     "inference-perf",
	title:    "inference-perf per-request metrics, JSON",
	unit:     Seconds,
	absolute: true,
	window:   logWindow,
	required: []string{"start_time", "end_time", "info"},
	record:   inferencePerfRequest,
}

// inferencePerf collects what one request says in several places.
type inferencePerf struct {
	row         *Row
	first, last Optional[instant]
	retokenized Optional[int] // output tokens as the client counts them
	usage       Optional[int] // output tokens as the server counts them
	failed      bool
}

func inferencePerfRequest(r *Reader, c *cursor, line int) error {
	p := r.stage(line)
	row := &p.row
	q := inferencePerf{row: row}
	var end Optional[instant]
	err := c.object(func(key []byte) (err error) {
		switch string(key) {
		case "start_time":
			err = r.arrival(c, p)
		case "end_time":
			end, _, err = c.instant(r.opts.TimeUnit)
		case "request":
			err = q.request(c)
		case "info":
			err = c.object(func(key []byte) error { return q.info(c, string(key)) })
		case "error":
			err = q.error(c)
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	output := q.usage
	if output.Value == 0 {
		output = firstOf(q.retokenized, q.usage)
	}
	row.OutputTokens = output.Value
	row.E2E = timeSpan(p.at, end)
	row.TTFT = timeSpan(p.at, q.first)
	row.setTPOT(q.first, q.last)
	if q.failed {
		row.fail(row.Error)
		return nil
	}
	row.ended(p, output.Present)
	return nil
}

// request reads the body that was sent, which stands there as a string. One that
// is no JSON says nothing.
func (q *inferencePerf) request(c *cursor) error {
	if c.peek() != '"' {
		return c.skip()
	}
	body, err := c.str()
	if err != nil {
		return err
	}
	q.row.RequestedOutput = maxTokensIn(body)
	return nil
}

// maxTokensIn is the limit in an OpenAI request's body, 0 if there is none.
func maxTokensIn(body []byte) (limit int) {
	inner := &cursor{b: body}
	err := inner.object(func(key []byte) error {
		if string(key) == "max_tokens" || string(key) == "max_completion_tokens" {
			return inner.countInto(&limit)
		}
		return inner.skip()
	})
	if err != nil {
		return 0
	}
	return limit
}

// info reads a key of info: the newer files nest what the older have flat.
func (q *inferencePerf) info(c *cursor, key string) (err error) {
	if c.null() {
		return nil
	}
	switch key {
	case "input_tokens":
		return c.countInto(&q.row.InputTokens)
	case "output_tokens":
		q.retokenized, err = c.count()
		return err
	case "output_token_times":
		return q.tokenTimes(c)
	case "response_metrics":
		return c.object(func(key []byte) error { return q.info(c, string(key)) })
	case "server_usage":
		return c.object(func(key []byte) error { return q.serverUsage(c, string(key)) })
	}
	return c.skip()
}

func (q *inferencePerf) tokenTimes(c *cursor) error {
	q.first, q.last = Optional[instant]{}, Optional[instant]{}
	return c.array(func(int) error {
		at, _, err := c.instant(Seconds)
		if !q.first.Present {
			q.first = at
		}
		q.last = at
		return err
	})
}

func (q *inferencePerf) serverUsage(c *cursor, key string) (err error) {
	switch key {
	case "prompt_tokens":
		return c.countInto(&q.row.ServerInputTokens)
	case "completion_tokens":
		q.usage, err = c.count()
		return err
	case "prompt_tokens_details":
		if c.null() {
			return nil
		}
		return c.object(func(key []byte) (err error) {
			if string(key) != "cached_tokens" {
				return c.skip()
			}
			q.row.CachedTokens, err = c.count()
			return err
		})
	}
	return c.skip()
}

func (q *inferencePerf) error(c *cursor) error {
	if c.null() {
		return nil
	}
	q.failed = true
	if c.peek() != '{' {
		return c.textInto(&q.row.Error)
	}
	var kind, message string
	err := c.object(func(key []byte) error {
		switch string(key) {
		case "error_type":
			return c.textInto(&kind)
		case "error_msg":
			return c.textInto(&message)
		}
		return c.skip()
	})
	q.row.Error = kind
	if message != "" && message != kind {
		q.row.Error = kind + ": " + message
	}
	return err
}
