package record_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"fleetsim/sim/record"
)

func packed(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Files come in many dresses; what they say is the same.
func TestReadRequestsTakesEveryDress(t *testing.T) {
	const (
		a = `{"phase":"p","result":"ok","http_status":200,"ttft":0.1}`
		b = `{"phase":"p","result":"failed","http_status":502}`
	)
	want := []record.Request{
		{Phase: "p", Result: "ok", HTTPStatus: record.Some(200), TTFT: record.Some(0.1)},
		{Phase: "p", Result: "failed", HTTPStatus: record.Some(502)},
	}
	tests := []struct{ name, in string }{
		{"plain", a + "\n" + b + "\n"},
		{"no last newline", a + "\n" + b},
		{"CRLF", a + "\r\n" + b + "\r\n"},
		{"byte order mark", "\ufeff" + a + "\n" + b + "\n"},
		{"blank lines and spaces", "\n  \r\n " + a + " \n\n\t" + b + "\n\n"},
		{"unknown members", strings.Replace(a, "{", `{"E2E":[1,{"ttft":"}"}],"x\"":null,"":{},`, 1) + "\n" + b},
		{"spaces within", "{ \"phase\" : \"p\" , \"result\" : \"ok\" , \"http_status\" : 200 , \"ttft\" : 0.1 }\n" + b},
		{"escapes", `{"\u0070hase":"\u0070","result":"\u006fk","http_status":2e2,"ttft":1e-1}` + "\n" + b},
		{"counts as the sources write them", strings.Replace(a, "200", "200.0", 1) + "\n" + b},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for dress, data := range map[string][]byte{
				"plain":               []byte(tt.in),
				"gzip":                packed(t, []byte(tt.in)),
				"gzip in two members": append(packed(t, []byte(tt.in[:7])), packed(t, []byte(tt.in[7:]))...),
			} {
				got, err := record.ReadRequests("in", iotest.OneByteReader(bytes.NewReader(data)))
				if err != nil {
					t.Fatalf("%s: %v", dress, err)
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %+v, want %+v", dress, got, want)
				}
			}
		})
	}
}

func TestReadRequestsNamesEveryProblem(t *testing.T) {
	in := strings.Join([]string{
		`{"result":"ok","ttft":0.1}`,
		`{"result":"ok","ttft":-0.1,"e2e":1e999,"output_tokens":1.5}`,
		`{"result":"ok","tpot":NaN}`,
		`{"result":"ok","tpot":-Infinity}`,
		``,
		`{"result":"ok","ttft":"0.1","good":1,"http_status":2000,"match_percent":101}`,
		`[1,2]`,
		`{"phase":"p","elapsed":3}`,
		`{"result":["ok"],"family":"hot","input_tokens":9007199254740994}`,
		`nonsense`,
		`{"result":"ok","ttft":0.3,"x":1,"x":{"y":2,"y":3}}`,
		`{"result":"ok","ttft":1,"http_status":200,"\u0074tft":2,"result":null}`,
		`{"result":"ok","tt`,
	}, "\n")
	want := []string{
		`run.jsonl:2: ttft: -0.1 is negative; allowed is a number from 0, or null`,
		`run.jsonl:2: e2e: 1e999 is beyond what a number can hold`,
		`run.jsonl:2: output_tokens: 1.5; allowed is a whole number from 0 to 9007199254740992, or null`,
		`run.jsonl:3: column 23: NaN is no number in JSON; what was not measured is null`,
		`run.jsonl:4: column 24: Infinity is no number in JSON; what was not measured is null`,
		`run.jsonl:6: ttft: a string instead of a number`,
		`run.jsonl:6: good: a number instead of true, false or null`,
		`run.jsonl:6: http_status: 2000; allowed is a whole number from 0 to 999, or null`,
		`run.jsonl:6: match_percent: 101; allowed is a whole number from 0 to 100, or null`,
		`run.jsonl:7: a list instead of a JSON object`,
		`run.jsonl:8: neither result nor http_status: not a request record`,
		`run.jsonl:9: result: a list instead of a string or null`,
		`run.jsonl:9: family: "hot"; allowed is a number from 0, or null`,
		`run.jsonl:9: input_tokens: 9007199254740994; allowed is a whole number from 0 to 9007199254740992, or null`,
		`run.jsonl:10: column 2: not JSON: invalid character 'o' in literal null (expecting 'u')`,
		`run.jsonl:12: ttft: is there twice`,
		`run.jsonl:12: result: is there twice`,
		`run.jsonl:13: column 19: the record is unfinished: cut off here?`,
	}
	got, err := record.ReadRequests("run.jsonl", strings.NewReader(in))
	if err == nil {
		t.Fatal("no error")
	}
	equal(t, "problems", err.Error(), strings.Join(want, "\n"))
	if want := readRequests(t, `{"result":"ok","ttft":0.1}`, `{"result":"ok","ttft":0.3}`); !reflect.DeepEqual(got, want) {
		t.Errorf("kept %+v, want %+v", got, want)
	}
	var place *record.LineError
	if !errors.As(err, &place) || place.File != "run.jsonl" || place.Line != 2 {
		t.Errorf("the first place is %+v", place)
	}
}

func TestReadRequestsListsAHundredProblems(t *testing.T) {
	_, err := record.ReadRequests("f", strings.NewReader(strings.Repeat("x\n", 250)))
	lines := strings.Split(err.Error(), "\n")
	equal(t, "lines", len(lines), 101)
	equal(t, "the last", lines[100], "f: and 150 more problems")
}

// What was packed before a file was cut off is kept, and the cut is named.
func TestReadRequestsOfACutFile(t *testing.T) {
	const n = 2000
	var in bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2)) // times that do not pack well, so that the cut lies among them
	for range n {
		fmt.Fprintf(&in, "{\"result\":\"ok\",\"ttft\":%v}\n", rng.Float64())
	}
	whole, err := record.ReadRequests("f", bytes.NewReader(in.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	data := packed(t, in.Bytes())
	for _, cut := range []int{len(data) - 1, len(data) - 9, len(data) / 2, 11, 3, 2} {
		got, err := record.ReadRequests("f", bytes.NewReader(data[:cut]))
		want := fmt.Sprintf("f:%d: the gzip data end here, too early: the file was cut off; what stands before was read", len(got)+1)
		if err == nil || err.Error() != want {
			t.Errorf("cut at %d: got %v, want %s", cut, err, want)
		}
		if len(got) > len(whole) || !reflect.DeepEqual(got, whole[:len(got):len(got)]) && len(got) > 0 {
			t.Errorf("cut at %d: what was kept is not what was written", cut)
		}
		if cut == len(data)/2 && len(got) < n/3 {
			t.Errorf("cut in half: kept %d of %d", len(got), n)
		}
	}
	damaged := bytes.Clone(data)
	damaged[len(damaged)-8] ^= 0xff // the check sum
	if _, err := record.ReadRequests("f", bytes.NewReader(damaged)); err == nil || !strings.Contains(err.Error(), "the gzip data are damaged") {
		t.Errorf("a wrong check sum: %v", err)
	}
	broken := errors.New("disk on fire")
	_, err = record.ReadRequests("f", iotest.TimeoutReader(iotest.HalfReader(bytes.NewReader(in.Bytes()))))
	if err == nil || !strings.Contains(err.Error(), "cannot read on: timeout") {
		t.Errorf("a reader that fails: %v", err)
	}
	if _, err = record.ReadRequests("f", iotest.ErrReader(broken)); err == nil || err.Error() != "f:1: cannot read on: disk on fire" {
		t.Errorf("a reader that fails at once: %v", err)
	}
}

// Behind whole gzip streams there may be something else: that is named, and all
// that the streams hold is kept.
func TestDataBehindTheGzipStream(t *testing.T) {
	const a, b = `{"result":"ok","ttft":0.1}`, `{"result":"ok","ttft":0.2}`
	want := readRequests(t, a, b)
	for _, behind := range []string{"x", "more than a gzip header is long"} {
		for _, end := range []string{"", "\n"} {
			data := append(packed(t, []byte(a+"\n")), packed(t, []byte(b+end))...)
			got, err := record.ReadRequests("f", strings.NewReader(string(data)+behind))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("kept %+v, want %+v", got, want)
			}
			if err == nil || err.Error() != fmt.Sprintf("f:%d: the gzip data end, and something that is no gzip follows; what stands before was read", 2+len(end)) {
				t.Errorf("with %q behind: %v", behind, err)
			}
		}
		_, err := record.ReadPhases("f", strings.NewReader(string(packed(t, []byte(`[{"phase":"a"}]`)))+behind))
		if err == nil || err.Error() != "f:1: the gzip data end, and something that is no gzip follows; what stands before was read" {
			t.Errorf("a document with %q behind: %v", behind, err)
		}
	}
}

func TestReadRequestsLongLine(t *testing.T) {
	long := `{"result":"ok","x":"` + strings.Repeat("y", 1<<20) + `"}`
	for _, in := range []string{long + "\n{\"result\":\"ok\"}\n", "{\"result\":\"ok\"}\n" + long} {
		got, err := record.ReadRequests("f", strings.NewReader(in))
		equal(t, "kept", len(got), 1)
		if err == nil || !strings.HasSuffix(err.Error(), ": the line is longer than 1048576 bytes") {
			t.Errorf("a line of a megabyte: %.100v", err)
		}
	}
}

func TestReadNothing(t *testing.T) {
	for _, in := range []string{"", "\n\n", "\ufeff"} {
		reqs, err := record.ReadRequests("f", strings.NewReader(in))
		if len(reqs) != 0 || err != nil {
			t.Errorf("requests of %q: %v, %v", in, reqs, err)
		}
		phases, err := record.ReadPhases("f", strings.NewReader(in))
		if len(phases) != 0 || err != nil {
			t.Errorf("phases of %q: %v, %v", in, phases, err)
		}
	}
}

// A consumer that has enough stops the reading.
func TestRequestsStops(t *testing.T) {
	n := 0
	for _, err := range record.Requests("f", strings.NewReader(strings.Repeat("{\"result\":\"ok\"}\n", 10))) {
		if n++; err != nil || n == 3 {
			break
		}
	}
	equal(t, "records taken", n, 3)
}

func TestResultFromStatus(t *testing.T) {
	tests := []struct{ in, result, category string }{
		{`{"http_status":200,"output_tokens":3}`, record.OK, ""},
		{`{"http_status":200,"output_tokens":3,"requested_output":3}`, record.OK, ""},
		{`{"http_status":200,"output_tokens":2,"requested_output":3}`, record.Failed, "wrong_output_tokens"},
		{`{"http_status":200,"output_tokens":0}`, record.Failed, "empty_answer"},
		{`{"http_status":200}`, record.Failed, "usage_missing"},
		{`{"http_status":429}`, record.Rejected, ""},
		{`{"http_status":503,"error_category":"no_pod"}`, record.Error, "no_pod"},
	}
	for _, tt := range tests {
		r := readRequests(t, tt.in)[0]
		equal(t, tt.in, r.Result, tt.result)
		equal(t, tt.in, r.ErrorCategory, tt.category)
	}
}

func TestReadPhasesForms(t *testing.T) {
	const a, b = `{"phase":"a","good":3,"success":4}`, `{"phase":"b","x":{"y":[1, 2]}}`
	want, err := record.ReadPhases("f", strings.NewReader(a+"\n"+b))
	if err != nil || len(want) != 2 || string(want[1].Other["x"]) != `{"y":[1,2]}` {
		t.Fatalf("%v, %v", want, err)
	}
	spread := strings.NewReplacer("{", "{\n  ", ",", ",\n  ").Replace
	for name, in := range map[string]string{
		"list":             "[" + a + "," + b + "]",
		"spread list":      "\ufeff\r\n[\n" + spread(a) + ",\n" + spread(b) + "\n]\n",
		"spread records":   spread(a) + "\n" + spread(b) + "\n",
		"CRLF lines":       a + "\r\n\r\n" + b + "\r\n",
		"packed":           string(packed(t, []byte(a+"\n"+b))),
		"packed list":      string(packed(t, []byte("["+a+"\n,"+b+"]"))),
		"list, empty last": "[" + a + "," + b + "]\n\n",
	} {
		got, err := record.ReadPhases("f", strings.NewReader(in))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestReadPhasesNamesEveryProblem(t *testing.T) {
	tests := []struct {
		name, in string
		kept     int
		want     []string
	}{
		{"lines", strings.Join([]string{
			`{"phase":"a"}`,
			`{"elapsed":1}`,
			`{"phase":"b","result":"ok","ttft":0.1}`,
			`{"phase":"c","ttft":{"p50":-1},"replicas":{"A":{"kv_usage_peak":1.5,"requests":"x"}},"families":[],"seed":-1}`,
			`{"phase":"d","good":5,"success":4,"requests":3,"input_tokens_range":[3,2],"cache_hit_ratio":2}`,
			`{"phase":"e","replicas":{"A":{},"A":{}},"routing_counter_deltas":[{"name":"n","labels":{"l":"v"},"delta":null}]}`,
			`{"phase":"f","elapsed":NaN}`,
			`{"phase":"g"}`,
			`{"phase":"h`,
		}, "\n"), 2, []string{
			`p:2: no phase: a phase record has a name`,
			`p:3: a request record, where phase records are wanted`,
			`p:4: ttft.p50: -1 is negative; allowed is a number from 0, or null`,
			`p:4: replicas.A.kv_usage_peak: 1.5 is over 1; allowed is a ratio from 0 to 1, or null`,
			`p:4: replicas.A.requests: a string instead of a number`,
			`p:4: families: a list instead of an object or null`,
			`p:4: seed: -1; allowed is a whole number from 0 to 18446744073709551615, or null`,
			`p:5: input_tokens_range: [3,2]; allowed is [smallest, largest], or null`,
			`p:5: cache_hit_ratio: 2 is over 1; allowed is a ratio from 0 to 1, or null`,
			`p:5: good: 5 of 4 successes`,
			`p:5: success: 4 of 3 requests`,
			`p:6: replicas: "A" is there twice`,
			`p:6: routing_counter_deltas.delta: null instead of a number`,
			`p:7: column 24: NaN is no number in JSON; what was not measured is null`,
			`p:9: column 12: the record is unfinished: cut off here?`,
		}},
		{"unfinished list", "[\n{\"phase\":\"a\"},\n{\"phase\":\"b\"}", 2, []string{`p:3: the list is unfinished: cut off here?`}},
		{"cut list", "[\n{\"phase\":\"a\"},\n{\"phase\":", 1, []string{`p:3: the record is unfinished: cut off here?`}},
		{"wrong in a list", "[\n{\"phase\":\"a\"},\n{\"phase\":\n3x}]", 1, []string{`p:4: not JSON: invalid character 'x' after object key:value pair`}},
		{"wrong member in a list", "[\n{\"phase\":\"a\"},\n{\"phase\":\n[]}]", 1, []string{"p:3: phase: a list instead of a string or null", "p:3: no phase: a phase record has a name"}},
		{"no comma", "[{\"phase\":\"a\"}\n{\"phase\":\"b\"}]", 1, []string{`p:2: not JSON: invalid character ']' after top-level value`}},
		{"more behind a list", "[{\"phase\":\"a\"}]\n\nx", 1, []string{`p:3: something follows the last record`}},
		{"more behind a record", "{\n\"phase\":\"a\"}\n]", 1, []string{`p:3: something follows the last record`}},
		{"a list of numbers", "[1, 2]", 0, []string{`p:1: a number instead of a JSON object`, `p:1: a number instead of a JSON object`}},
		{"a cut packed list", string(packed(t, []byte("[{\"phase\":\"a\"},\n{\"phase\":\"b\"}]"))[:20]), 0, nil},
		{"a packed list cut before its end", string(packed(t, []byte("[{\"phase\":\"a\"}]"))[:30]), 1, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := record.ReadPhases("p", strings.NewReader(tt.in))
			if err == nil {
				t.Fatal("no error")
			}
			if tt.want != nil {
				equal(t, "problems", err.Error(), strings.Join(tt.want, "\n"))
				equal(t, "kept", len(got), tt.kept)
			} else if !strings.Contains(err.Error(), "the file was cut off") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A file of both kinds, or of either, is told apart record by record.
func TestReadBothKinds(t *testing.T) {
	in := strings.Join([]string{
		`{"phase":"a","success":1,"requests":1}`,
		`{"phase":"a","result":"ok","ttft":0.1}`,
		`{"phase":"b","http_status":429}`,
		`{"phase":"b","ttft":0.1}`,
		`{"phase":"c"`,
		`{"phase":"d","result":"ok","ttft":-1}`,
	}, "\n")
	phases, reqs, err := record.Read("f", strings.NewReader(in))
	equal(t, "phases", len(phases), 1)
	equal(t, "requests", len(reqs), 2)
	equal(t, "problems", fmt.Sprint(err), strings.Join([]string{
		"f:4: ttft: a number instead of an object or null",
		"f:5: column 13: the record is unfinished: cut off here?",
		"f:6: ttft: -1 is negative; allowed is a number from 0, or null",
	}, "\n"))
	phases, reqs, err = record.Read("f", strings.NewReader("[{\"phase\":\"a\"}]"))
	if len(phases) != 1 || len(reqs) != 0 || err != nil {
		t.Errorf("a list of phases: %v, %v, %v", phases, reqs, err)
	}
}

func FuzzReadRequests(f *testing.F) {
	r := sampleRequest()
	f.Add(r.AppendJSON(nil))
	f.Add([]byte("\ufeff{\"result\":\"ok\",\"ttft\":1e-400}\r\n\r\n{\"http_status\":429}"))
	f.Add([]byte(`{"result":"\ud800","tpot":NaN,"a":[{"b":"\\\""}]}`))
	f.Add(packed(f, []byte(`{"result":"ok","family":"7"}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		reqs, _ := record.ReadRequests("f", bytes.NewReader(data))
		var out bytes.Buffer
		w := record.NewRequestWriter(&out)
		for i := range reqs {
			if err := w.Write(&reqs[i]); err != nil {
				t.Fatal(err)
			}
		}
		again, err := record.ReadRequests("f", bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if !reflect.DeepEqual(again, reqs) {
			t.Fatalf("read again: %+v, first: %+v", again, reqs)
		}
		p := record.Summarize(reqs, record.StudySLO(), record.Meta{Phase: "f"})
		if _, err := p.AppendJSON(nil); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzReadPhases(f *testing.F) {
	p := samplePhase()
	line, err := p.AppendJSON(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add([]byte("[\n{\"phase\":\"a\",\"count\":96,\"extra\":{\"errors\":0}},\n{\"phase\":\"b\"}]"))
	f.Add([]byte(`{"config":{"phase":"x","route":"r"},"dropped_arrivals":1,"requests":2,"tenants":{"A":{"status_counts":{"429":1}}}}`))
	f.Add([]byte(`{"phase":"a","routing_counter_deltas":[{"labels":{"":null}},{"delta":-1e-9}],"replicas":{"":{"x":[]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		phases, _ := record.ReadPhases("f", bytes.NewReader(data))
		var out bytes.Buffer
		for i := range phases {
			if err := record.WritePhase(&out, &phases[i]); err != nil {
				t.Fatal(err)
			}
		}
		first := out.String()
		again, err := record.ReadPhases("f", &out)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, first)
		}
		out.Reset()
		for i := range again {
			if err := record.WritePhase(&out, &again[i]); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != first {
			t.Fatalf("read again: %s\nfirst: %s", out.String(), first)
		}
	})
}
