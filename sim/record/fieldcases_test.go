package record_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"fleetsim/sim/record"
)

func summarize(t testing.TB, lines ...string) record.Phase {
	t.Helper()
	return record.Summarize(readRequests(t, lines...), record.StudySLO(), record.Meta{Phase: "p"})
}

// F01: the TPOT of a one-token answer does not exist; it neither divides by zero nor
// drags the quantiles down, and the answer counts for everything else.
func TestF01OneTokenAnswer(t *testing.T) {
	for _, tpot := range []string{"null", "0"} { // some sources write the 0 that the case is about
		p := summarize(t,
			`{"phase":"p","result":"ok","http_status":200,"ttft":0.1,"tpot":`+tpot+`,"e2e":0.1,"output_tokens":1,"started_relative_seconds":0}`,
			`{"phase":"p","result":"ok","http_status":200,"ttft":0.3,"tpot":0.05,"e2e":0.8,"output_tokens":11,"started_relative_seconds":0}`,
		)
		equal(t, "tpot.p50", p.TPOT.P50, record.Some(0.05))
		equal(t, "tpot.n", p.TPOT.N, record.Some(1))
		equal(t, "ttft.p50", p.TTFT.P50, record.Some(0.2))
		equal(t, "ttft.n", p.TTFT.N, record.Some(2))
		equal(t, "e2e.n", p.E2E.N, record.Some(2))
		equal(t, "success", p.Success, record.Some(2))
		equal(t, "good", p.Good, record.Some(2))
		equal(t, "throughput", p.OutputTokensPerSecond, record.Some(12/0.8))
	}
}

// F01: good is decided on the SLOs that exist, not given away.
func TestF01GoodNeedsTheTimesThatExist(t *testing.T) {
	p := summarize(t,
		`{"result":"ok","ttft":2.0,"tpot":null,"e2e":30,"output_tokens":1}`,    // on both bounds: good
		`{"result":"ok","ttft":2.0001,"tpot":null,"e2e":3,"output_tokens":1}`,  // over one
		`{"result":"ok","ttft":0.1,"tpot":0.15,"e2e":20,"output_tokens":128}`,  // on the third: good
		`{"result":"ok","ttft":0.1,"tpot":0.1501,"e2e":20,"output_tokens":12}`, // over it
		`{"result":"ok","output_tokens":1}`,                                    // nothing to judge by
	)
	equal(t, "success", p.Success, record.Some(5))
	equal(t, "good", p.Good, record.Some(2))
}

// F02: an empty answer is no success, no ratio is over 0, and the report comes.
func TestF02EmptyAnswers(t *testing.T) {
	p := summarize(t,
		`{"result":"ok","http_status":200,"ttft":0.1,"tpot":0.05,"e2e":0.6,"output_tokens":11}`,
		`{"result":"ok","http_status":200,"ttft":0.1,"tpot":0.05,"e2e":0.6,"output_tokens":11}`,
		`{"http_status":200,"output_tokens":0,"e2e":0,"ttft":null}`,
	)
	equal(t, "requests", p.Requests, record.Some(3))
	equal(t, "success", p.Success, record.Some(2))
	equal(t, "failed", p.Failed, record.Some(1))
	equal(t, "e2e.n", p.E2E.N, record.Some(2))
	equal(t, "e2e.p50", p.E2E.P50, record.Some(0.6))
	equal(t, "category", p.ErrorCategories.Of("empty_answer"), 1)

	only := summarize(t, `{"http_status":200,"output_tokens":0,"e2e":0,"ttft":null,"started_relative_seconds":3}`)
	equal(t, "throughput over no time", only.OutputTokensPerSecond, record.Float{})
	equal(t, "ttft of nothing", only.TTFT.P99, record.Float{})
	line, err := only.AppendJSON(nil)
	if err != nil || !json.Valid(line) || bytes.Contains(line, []byte("NaN")) {
		t.Errorf("the report of an empty answer is %s, %v", line, err)
	}
}

// F04: requests that failed fast do not pull the times down.
func TestF04FailuresStayOutOfQuantiles(t *testing.T) {
	lines := repeat(9, `{"result":"ok","http_status":200,"ttft":0.2,"tpot":0.05,"e2e":6.55,"output_tokens":128,"started_relative_seconds":0}`)
	p := summarize(t, append(lines,
		`{"result":"rejected","http_status":429,"ttft":0,"e2e":0.004,"output_tokens":7,"started_relative_seconds":0}`)...)
	equal(t, "ttft.p50", p.TTFT.P50, record.Some(0.2))
	equal(t, "ttft.p99", p.TTFT.P99, record.Some(0.2))
	equal(t, "e2e.p50", p.E2E.P50, record.Some(6.55))
	equal(t, "success", p.Success, record.Some(9))
	equal(t, "rejected", p.Rejected, record.Some(1))
	equal(t, "failed", p.Failed, record.Some(0))
	equal(t, "dropped", p.Dropped, record.Some(0))
	equal(t, "throughput", p.OutputTokensPerSecond, record.Some(9*128/6.55))
}

// F05: a server that refuses half of its load does not look better than one that
// serves it: the share is over what was planned, and the refusals stand beside it.
func TestF05RefusalsCountAgainstTheShare(t *testing.T) {
	slow := summarize(t, repeat(100, `{"result":"ok","http_status":200,"ttft":1.5,"tpot":0.1,"e2e":3,"output_tokens":16}`)...)
	refusing := summarize(t, append(
		repeat(50, `{"result":"ok","http_status":200,"ttft":0.5,"tpot":0.03,"e2e":1,"output_tokens":16}`),
		repeat(50, `{"result":"http_429","http_status":429,"e2e":0.001}`)...)...)
	equal(t, "slow: good share", slow.GoodShare(), record.Some(1.0))
	equal(t, "slow: e2e.p50", slow.E2E.P50, record.Some(3.0))
	equal(t, "refusing: e2e.p50", refusing.E2E.P50, record.Some(1.0))
	equal(t, "refusing: good share", refusing.GoodShare(), record.Some(0.5))
	equal(t, "refusing: success share", refusing.SuccessShare(), record.Some(0.5))
	equal(t, "refusing: rejected", refusing.Rejected, record.Some(50))
	equal(t, "refusing: errors", refusing.Errors, record.Some(50))
}

// F06: TPOT is over the tokens received, whatever was asked for. What was asked
// for decides success alone: a short answer is none, and that is said.
func TestF06ShortAnswer(t *testing.T) {
	const short = `{"result":"ok","requested_output":4096,"output_tokens":512,"ttft":0.1,"e2e":6.1}`
	r := readRequests(t, short)[0]
	equal(t, "tpot", r.MeanTokenTime(), record.Some((6.1-0.1)/511))
	p := summarize(t, short, `{"result":"ok","requested_output":11,"output_tokens":11,"ttft":0.2,"e2e":1.1,"started_relative_seconds":0}`)
	equal(t, "success", p.Success, record.Some(1))
	equal(t, "failed", p.Failed, record.Some(1))
	equal(t, "tpot.p50", p.TPOT.P50, record.TPOT(record.Some(0.2), record.Some(1.1), record.Some(11)))
	equal(t, "throughput", p.OutputTokensPerSecond, record.Some(11/1.1))
	equal(t, "category", p.ErrorCategories.Of("wrong_output_tokens"), 1)
	if !slices.Equal(p.Notes, []string{"1 of 2 requests say ok but hold fewer or more tokens than were asked for: counted as failed"}) {
		t.Errorf("not said: %q", p.Notes)
	}
}

// F08: TPOT is over usage tokens, not over the chunks that carried them.
func TestF08TokenTimeByTokensNotChunks(t *testing.T) {
	got := record.TPOT(record.Some(0.1), record.Some(0.3), record.Some(1+4+4))
	near(t, "tpot", got, record.Some(0.2/8), 1e-15)
}

// F18: without usage the tokens are unknown, not 0, and HTTP 200 is no success.
func TestF18UsageMissing(t *testing.T) {
	r := readRequests(t, `{"http_status":200,"ttft":0.1,"e2e":1.5,"output_tokens":null}`)[0]
	equal(t, "result", r.Result, record.Failed)
	equal(t, "category", r.ErrorCategory, "usage_missing")
	equal(t, "tokens", r.OutputTokens, record.Int{})
}

// F19: a broken stream that its source calls ok, with text but no tokens or an
// unknown number of them, is a failure, and that is said.
func TestF19BrokenStreamCalledOK(t *testing.T) {
	for _, c := range []struct{ tokens, category, note string }{
		{`,"output_tokens":0`, "empty_answer", "1 of 2 requests say ok but hold no tokens: counted as failed"},
		{`,"output_tokens":null`, "usage_missing", "1 of 2 requests say ok but not how many tokens came: counted as failed"},
		{"", "usage_missing", "1 of 2 requests say ok but not how many tokens came: counted as failed"},
	} {
		p := summarize(t,
			`{"result":"ok","http_status":200,"ttft":0.1,"e2e":1.5`+c.tokens+`}`,
			`{"result":"ok","http_status":200,"ttft":0.2,"tpot":0.1,"e2e":1.1,"output_tokens":11,"started_relative_seconds":0}`)
		equal(t, "success", p.Success, record.Some(1))
		equal(t, "failed", p.Failed, record.Some(1))
		equal(t, "ttft.p50", p.TTFT.P50, record.Some(0.2))
		equal(t, "throughput", p.OutputTokensPerSecond, record.Some(11/1.1))
		equal(t, "category", p.ErrorCategories.Of(c.category), 1)
		if !slices.Equal(p.Notes, []string{c.note}) {
			t.Errorf("with tokens %q: said is %q", c.tokens, p.Notes)
		}
	}
}

// F30: 200 with something else than an answer is a failure.
func TestF30FailureWithStatus200(t *testing.T) {
	p := summarize(t, `{"result":"failed","http_status":200,"e2e":0.2,"error_category":"not_a_stream"}`,
		`{"result":"ok","http_status":502,"ttft":0.1,"e2e":0.2,"output_tokens":3}`)
	equal(t, "success", p.Success, record.Some(0))
	equal(t, "failed", p.Failed, record.Some(2))
	equal(t, "not_a_stream", p.ErrorCategories.Of("not_a_stream"), 1)
	equal(t, "http_status_502", p.ErrorCategories.Of("http_status_502"), 1)
}

// F55: a run that was not streamed has no TTFT, and that is said.
func TestF55NotStreamed(t *testing.T) {
	p := summarize(t, repeat(5, `{"result":"ok","http_status":200,"e2e":4,"output_tokens":64}`)...)
	equal(t, "ttft.p50", p.TTFT.P50, record.Float{})
	equal(t, "tpot.p50", p.TPOT.P50, record.Float{})
	equal(t, "e2e.p50", p.E2E.P50, record.Some(4.0))
	equal(t, "good", p.Good, record.Some(5))
	if !slices.Contains(p.Notes, "no TTFT: the source did not stream") {
		t.Errorf("not said: %q", p.Notes)
	}
}
