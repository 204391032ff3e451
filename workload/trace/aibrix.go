package trace

import (
	"regexp"
	"strconv"
	"strings"
)

var aibrixWorkloadFormat = &format{
	name:      "aibrix-workload",
	title:     "AIBrix benchmark workload, JSONL or a JSON list",
	unit:      Milliseconds,
	guessUnit: true,
	window:    traceWindow,
	waits:     true,
	required:  []string{"timestamp", "requests"},
	record:    aibrixWorkload,
}

// aibrixWorkload reads an instant with all its requests.
func aibrixWorkload(r *Reader, c *cursor, line int) error {
	when := &pending{}
	err := c.object(func(key []byte) error {
		switch string(key) {
		case "timestamp":
			return r.arrival(c, when)
		case "requests":
			return c.array(func(int) error { return r.aibrixRequest(c, line) })
		}
		return c.skip()
	})
	for _, p := range r.staged {
		p.at = when.at
	}
	return err
}

func (r *Reader) aibrixRequest(c *cursor, line int) error {
	row := &r.stage(line).row
	var text []byte
	err := c.object(func(key []byte) (err error) {
		switch string(key) {
		case "prompt":
			text, err = c.promptText()
		case "prompt_length", "Prompt Length":
			err = c.countInto(&row.InputTokens)
		case "output_length", "Output Length":
			err = c.countInto(&row.OutputTokens)
		case "session_id":
			err = c.textInto(&row.Session)
		case "model":
			err = c.textInto(&row.Model)
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if row.Session != "" {
		row.Wait, row.History = true, true
		r.report.note("of a session, whose output length the v0.7.0 generator gives in characters")
	}
	r.fromText(row, text)
	return nil
}

var aibrixClientFormat = &format{
	name:     "aibrix-client",
	title:    "AIBrix benchmark client results, JSONL",
	unit:     Seconds,
	absolute: true,
	window:   logWindow,
	required: []string{"request_id", "status", "start_time", "latency|target_pod|prompt_tokens"},
	record:   aibrixResult,
}

// aibrixResult reads a request's result. A "success" without tokens is none: with
// text its stream broke or nothing was counted, without it is an empty answer.
func aibrixResult(r *Reader, c *cursor, line int) error {
	p := r.stage(line)
	row := &p.row
	var status string
	var output []byte
	err := c.object(func(key []byte) (err error) {
		switch string(key) {
		case "request_id":
			err = c.textInto(&row.ID)
		case "status":
			err = c.textInto(&status)
		case "error_message":
			err = c.textInto(&row.Error)
		case "output":
			if !c.null() {
				output, err = c.str()
			}
		case "prompt_tokens":
			err = c.countInto(&row.InputTokens)
		case "output_tokens":
			err = c.countInto(&row.OutputTokens)
		case "latency":
			err = c.spanInto(&row.E2E, Seconds)
		case "start_time":
			err = r.arrival(c, p)
		case "ttft":
			err = c.spanInto(&row.TTFT, Seconds)
		case "tpot":
			err = c.spanInto(&row.TPOT, Seconds)
		case "target_pod":
			err = c.textInto(&row.Replica)
		case "session_id":
			err = c.textInto(&row.Session)
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	row.TTFTFloor = row.TTFT.Present
	row.TPOTRule = EndMinusFirstChunk
	if status != "success" {
		row.fail(row.Error)
		return nil
	}
	row.ended(p, row.OutputTokens > 0 || len(output) == 0)
	return nil
}

// ended decides what a request was whose source calls it complete, by the tokens of
// its answer: with none it is a failure, and when the source did not count them it
// is unknown whether the stream broke.
func (row *Row) ended(p *pending, counted bool) {
	switch {
	case !counted:
		row.Status = Unknown
	case row.OutputTokens == 0:
		row.emptyAnswer(p)
	default:
		row.Status = OK
	}
}

// statusInText finds an HTTP status in an error's text where tools put it: at the
// start, in quotes, or after words that announce it.
var statusInText = regexp.MustCompile(`(?i)(?:^|error code: |http |status |status code |['"])([45][0-9][0-9])\b`)

// fail marks the row as failed with the error's text, or as rejected if that says
// 429.
func (row *Row) fail(text string) {
	row.Status, row.Error = Failed, text
	if row.HTTPStatus == 0 {
		if m := statusInText.FindStringSubmatch(text); m != nil {
			row.HTTPStatus, _ = strconv.Atoi(m[1]) // three digits
		} else if strings.Contains(text, "Too Many Requests") {
			row.HTTPStatus = 429
		}
	}
	if row.HTTPStatus == 429 {
		row.Status = Rejected
	}
}

// emptyAnswer marks a request that ended well and produced nothing: a failure.
func (row *Row) emptyAnswer(p *pending) {
	row.Status, row.Error = Failed, "empty answer"
	p.skip = "with an empty answer"
}
