package record_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"fleetsim/sim/record"
)

func sampleRequest() record.Request {
	return record.Request{
		Phase: "hot90-prefix-cache", Tenant: "A", Result: record.OK, HTTPStatus: record.Some(200),
		TTFT: record.Some(0.2069), TPOT: record.Some(0.056446), E2E: record.Some(7.3756),
		InputTokens: record.Some(5045), OutputTokens: record.Some(128), RequestedOutput: record.Some(128),
		Good: record.Some(true), Started: record.Some(1.875),
		Replica: "L20-B", Family: record.Some(0), Index: record.Some(3), CachedTokens: record.Some(4704),
		QueueSeconds: record.Some(2.5e-7), MatchPercent: record.Some(99), Selection: "prefix_match",
		Imbalanced: record.Some(false),
	}
}

func TestRequestJSON(t *testing.T) {
	r := sampleRequest()
	equal(t, "full", string(r.AppendJSON(nil)), `{"phase":"hot90-prefix-cache","tenant":"A","result":"ok","http_status":200,`+
		`"ttft":0.2069,"tpot":0.056446,"e2e":7.3756,"input_tokens":5045,"output_tokens":128,"requested_output":128,`+
		`"good":true,"started_relative_seconds":1.875,"replica":"L20-B","family":0,"index":3,"cached_tokens":4704,`+
		`"queue_seconds":2.5e-7,"error_category":null,"match_percent":99,"selection":"prefix_match","imbalanced":false}`)
	equal(t, "empty", string((&record.Request{}).AppendJSON(nil)), `{"phase":null,"tenant":null,"result":null,"http_status":null,`+
		`"ttft":null,"tpot":null,"e2e":null,"input_tokens":null,"output_tokens":null,"requested_output":null,`+
		`"good":null,"started_relative_seconds":null,"replica":null,"family":null,"index":null,"cached_tokens":null,`+
		`"queue_seconds":null,"error_category":null,"match_percent":null,"selection":null,"imbalanced":null}`)
}

func optional[T float64 | int | uint64 | bool](t *rapid.T, label string, g *rapid.Generator[T]) record.Opt[T] {
	if rapid.Bool().Draw(t, label+" present") {
		return record.Some(g.Draw(t, label))
	}
	return record.Opt[T]{}
}

func drawRequest(t *rapid.T) record.Request {
	seconds := rapid.Float64Range(0, math.MaxFloat64)
	count := rapid.IntRange(0, 1<<53)
	text := rapid.String()
	return record.Request{
		Phase: text.Draw(t, "phase"), Tenant: text.Draw(t, "tenant"),
		Result:     rapid.StringN(1, -1, -1).Draw(t, "result"),
		HTTPStatus: optional(t, "status", rapid.IntRange(0, 999)),
		TTFT:       optional(t, "ttft", seconds), TPOT: optional(t, "tpot", seconds), E2E: optional(t, "e2e", seconds),
		InputTokens: optional(t, "in", count), OutputTokens: optional(t, "out", count),
		RequestedOutput: optional(t, "asked", count), Good: optional(t, "good", rapid.Bool()),
		Started: optional(t, "started", seconds), Replica: text.Draw(t, "replica"),
		Family: optional(t, "family", count), Index: optional(t, "index", count),
		CachedTokens: optional(t, "cached", count), QueueSeconds: optional(t, "queue", seconds),
		ErrorCategory: text.Draw(t, "category"), MatchPercent: optional(t, "match", rapid.IntRange(0, 100)),
		Selection: text.Draw(t, "selection"), Imbalanced: optional(t, "imbalanced", rapid.Bool()),
	}
}

func TestRequestsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(drawRequest), 1, 5).Draw(t, "requests")
		var out bytes.Buffer
		w := record.NewRequestWriter(&out)
		for i := range want {
			if err := w.Write(&want[i]); err != nil {
				t.Fatal(err)
			}
		}
		if w.Count() != len(want) {
			t.Fatalf("counted %d of %d records", w.Count(), len(want))
		}
		got, err := record.ReadRequests("out", &out)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	})
}

// The hand-written encoder says what encoding/json would, in text (whose escapes
// may differ) and in numbers (which may not, but for -0).
func TestAppendJSONAgreesWithEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := record.Request{
			Phase: "p" + rapid.String().Draw(t, "text") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")),
			TTFT:  record.Some(rapid.Float64().Draw(t, "time")),
		}
		type members struct {
			Phase string
			TTFT  json.Number
		}
		var got, want members
		if err := json.Unmarshal(r.AppendJSON(nil), &got); err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(struct {
			Phase string
			TTFT  float64
		}{r.Phase, r.TTFT.Or(0)})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		if want.TTFT == "-0" {
			want.TTFT = "0"
		}
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestOpt(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		equal(t, "Some of what is no number", record.Some(v), record.Float{})
	}
	var got struct{ A, B, C record.Float }
	got.B = record.Some(1.0)
	if err := json.Unmarshal([]byte(`{"A":0,"B":null}`), &got); err != nil {
		t.Fatal(err)
	}
	equal(t, "0 is a value", got.A, record.Some(0.0))
	equal(t, "null is none", got.B, record.Float{})
	equal(t, "neither is nothing", got.C, record.Float{})
	out, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "marshalled", string(out), `{"A":0,"B":null,"C":null}`)
	if err := json.Unmarshal([]byte(`{"A":"x"}`), &got); err == nil {
		t.Error("a string passes for a number")
	}
	equal(t, "absent for people", record.Float{}.String(), "-")
	equal(t, "seed beyond int", record.Some(uint64(math.MaxUint64)).String(), "18446744073709551615")
}

func TestOutcome(t *testing.T) {
	status := record.Some[int]
	tests := []struct {
		name string
		r    record.Request
		want record.Outcome
	}{
		{"ok", record.Request{Result: "ok", HTTPStatus: status(200), OutputTokens: status(1)}, record.Success},
		{"ok, status unknown", record.Request{Result: "ok", OutputTokens: status(1)}, record.Success},
		{"ok, tokens unknown", record.Request{Result: "ok", HTTPStatus: status(200)}, record.FailedRequest},
		{"ok, as asked", record.Request{Result: "ok", OutputTokens: status(3), RequestedOutput: status(3)}, record.Success},
		{"ok, short", record.Request{Result: "ok", OutputTokens: status(2), RequestedOutput: status(3)}, record.FailedRequest},
		{"ok, empty", record.Request{Result: "ok", OutputTokens: status(0)}, record.FailedRequest},
		{"ok, but 500", record.Request{Result: "ok", HTTPStatus: status(500), OutputTokens: status(1)}, record.FailedRequest},
		{"dropped", record.Request{Result: "dropped"}, record.DroppedArrival},
		{"rejected", record.Request{Result: "rejected"}, record.RejectedRequest},
		{"429 by another word", record.Request{Result: "error", HTTPStatus: status(429)}, record.RejectedRequest},
		{"failed", record.Request{Result: "failed", HTTPStatus: status(200)}, record.FailedRequest},
		{"error", record.Request{Result: "error", HTTPStatus: status(503)}, record.FailedRequest},
		{"a word of the source's", record.Request{Result: "timeout"}, record.FailedRequest},
		{"nothing", record.Request{}, record.FailedRequest},
	}
	for _, tt := range tests {
		equal(t, tt.name, tt.r.Outcome(), tt.want)
	}
}

func TestAppendJSONAllocatesNothing(t *testing.T) {
	r := sampleRequest()
	buf := make([]byte, 0, 1024)
	w := record.NewRequestWriter(io.Discard)
	if err := w.Write(&r); err != nil {
		t.Fatal(err)
	}
	equal(t, "AppendJSON", testing.AllocsPerRun(100, func() { buf = r.AppendJSON(buf[:0]) }), 0)
	equal(t, "RequestWriter.Write", testing.AllocsPerRun(100, func() { _ = w.Write(&r) }), 0)
}

type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left == 0 {
		return 0, io.ErrShortWrite
	}
	w.left--
	return len(p), nil
}

func TestRequestWriterKeepsItsError(t *testing.T) {
	w := record.NewRequestWriter(&failingWriter{left: 1})
	r := sampleRequest()
	for i, want := range []error{nil, io.ErrShortWrite, io.ErrShortWrite} {
		if err := w.Write(&r); err != want {
			t.Errorf("write %d: %v, want %v", i, err, want)
		}
	}
	equal(t, "written", w.Count(), 1)
}

func BenchmarkAppendJSON(b *testing.B) {
	r := sampleRequest()
	buf := r.AppendJSON(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = r.AppendJSON(buf[:0])
	}
}

func BenchmarkReadRequests(b *testing.B) {
	r := sampleRequest()
	line := append(r.AppendJSON(nil), '\n')
	data := bytes.Repeat(line, 1000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := record.ReadRequests("bench", bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSummarize(b *testing.B) {
	reqs := make([]record.Request, 10000)
	for i := range reqs {
		reqs[i] = sampleRequest()
		reqs[i].Family = record.Some(i % 8)
		reqs[i].Started = record.Some(float64(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		record.Summarize(reqs, record.StudySLO(), record.Meta{})
	}
}
