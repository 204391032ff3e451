package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
)

// brief is what a row holds, without what it lacks.
func brief(r *Row) string {
	var b strings.Builder
	add := func(set bool, format string, args ...any) {
		if set {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	span := func(name string, s Optional[simtime.Time]) { add(s.Present, "%s=%v", name, s.Value) }
	add(r.Timed, "%v", r.At)
	add(!r.Timed, "untimed")
	add(true, "in=%d", r.InputTokens)
	add(r.ServerInputTokens > 0, "server=%d", r.ServerInputTokens)
	add(true, "out=%d", r.OutputTokens)
	add(r.RequestedOutput > 0, "asked=%d", r.RequestedOutput)
	add(r.CachedTokens.Present, "cached=%d", r.CachedTokens.Value)
	add(r.Status != Planned, "%v", r.Status)
	add(r.HTTPStatus != 0, "http=%d", r.HTTPStatus)
	add(r.Error != "", "err=%q", r.Error)
	span("late", r.Late)
	span("ttft", r.TTFT)
	add(r.TTFTFloor, "floor")
	span("tpot", r.TPOT)
	add(r.TPOTRule != BetweenTokens, "%v", r.TPOTRule)
	span("e2e", r.E2E)
	add(r.Good.Present, "good=%v", r.Good.Value)
	add(r.ID != "", "id=%s", r.ID)
	add(r.Phase != "", "phase=%s", r.Phase)
	add(r.Tenant != "", "tenant=%s", r.Tenant)
	add(r.Model != "", "model=%s", r.Model)
	add(r.Kind != "", "kind=%s", r.Kind)
	add(r.Replica != "", "replica=%s", r.Replica)
	add(r.Family != "", "family=%s:%d", r.Family, r.FamilyTokens)
	add(r.Session != "", "session=%s", r.Session)
	add(r.Parent != "", "parent=%s", r.Parent)
	add(r.Turn != 0, "turn=%d", r.Turn)
	add(r.Wait, "wait")
	span("think", r.Think)
	add(r.History, "history")
	add(r.BlockTokens != 0, "ids=%v%v/%d", r.HashIDs, r.HashText, r.BlockTokens)
	return strings.TrimSpace(b.String())
}

func openFile(t *testing.T, path string, opts Options) *Reader {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	r, err := Open(filepath.Base(path), bytes.NewReader(data), opts)
	require.NoError(t, err)
	return r
}

func openText(t *testing.T, text string, opts Options) *Reader {
	t.Helper()
	r, err := Open("in", strings.NewReader(text), opts)
	require.NoError(t, err)
	return r
}

func readAll(t *testing.T, r *Reader) []Row {
	t.Helper()
	rows, err := drain(r)
	require.NoError(t, err)
	return rows
}

// drain reads to the end or the first error.
func drain(r *Reader) ([]Row, error) {
	var rows []Row
	for {
		row, err := r.Next()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
}

// formatCases are inputs written by hand, with what each must read as.
var formatCases = []struct {
	file, format, skipped string
	warnings              []string
	rows                  []string
}{
	{"mooncake.jsonl", "mooncake", "1 without output length",
		[]string{"1 row whose input length is estimated from the text at 4 bytes per token"},
		[]string{
			"0s in=1100 out=3 ids=[0 7 8][]/512",
			"0s in=1024 out=10 ids=[0 7][]/512",
			"5.999s in=1100 out=1 ids=[0 7 8][]/512",
			`7s in=600 out=2 ids=[]["a" "b"]/512`,
			"8s in=8 out=5 ids=[TEXT][]/16",
			"untimed in=20 out=4 session=s wait think=0.25s history",
		}},
	{"bailian.jsonl", "bailian", "", nil, []string{
		"0s in=33 out=5 id=10 kind=text session=10 turn=1 ids=[1 2 3][]/16",
		"61.114s in=40 out=6 id=11 kind=search session=10 parent=10 turn=2 ids=[1 2 4][]/16",
		"61.114s in=48 out=7 id=12 kind=text session=10 parent=11 turn=3 ids=[1 2 4][]/16",
		"70s in=16 out=8 id=13 kind=image session=999 parent=999 turn=4 ids=[5][]/16",
	}},
	{"azure2023.csv", "azure", "", nil, []string{
		"0s in=4808 out=10",
		"0.0520001s in=3180 out=8",
		"0.0520001s in=110 out=27",
	}},
	{"azure2025.csv", "azure", "", []string{"1 row with images, which are not in the prompt's length"}, []string{
		"0s in=2162 out=5",
		"1.49007s in=2399 out=6",
		"1.99007s in=76 out=15",
	}},
	{"burstgpt.csv", "burstgpt", "1 failed", []string{"no TTFT: the source did not stream, or did not write it down"}, []string{
		"0s in=472 out=18 ok e2e=2.5s model=ChatGPT kind=Conversation log session=c1",
		// 5 s after the turn before began, which took 2.5 s.
		"5s in=500 out=20 ok e2e=1.25s model=ChatGPT kind=Conversation log session=c1 think=2.5s",
	}},
	{"burstgpt_old.csv", "burstgpt", "1 failed", nil, []string{
		"0s in=472 out=18 ok model=ChatGPT kind=Conversation log",
		"40s in=1087 out=230 ok model=ChatGPT kind=Conversation log",
	}},
	{"vidur.csv", "vidur", "", nil, []string{"0s in=100 out=10", "0.25s in=200 out=20"}},
	{"blis.csv", "blis", "1 rejected",
		[]string{"1 row whose prompt the server counted +18.0 tokens longer than the trace, on average: its count is used"},
		[]string{
			// 512 + 100 tokens; (last - first) / (5 - 1) = (0.6001 - 0.2001) s / 4.
			"0s in=612 server=630 out=5 ok ttft=0.2s tpot=0.1s e2e=0.6s id=0 tenant=acme model=m kind=standard family=sys:512 session=s1 turn=1",
			"0.7s in=64 server=64 out=8 ok e2e=1s id=2 tenant=beta model=m kind=batch",
			"2s in=562 out=2 ok ttft=0.1s tpot=0.05s e2e=0.15s id=3 tenant=acme model=m kind=standard family=sys:512 session=s1 turn=2 think=1.5s",
		}},
	{"vllm_bench.json", "vllm-bench", "1 failed, 1 with an empty answer", nil, []string{
		"0s in=64 out=1 ok ttft=0.05s e2e=0.05s phase=20260815-031244",
		// 0.1 s over 4 gaps between 5 tokens, in 3 chunks.
		"0.25s in=128 out=5 ok ttft=0.1s tpot=0.025s e2e=0.2s phase=20260815-031244",
	}},
	{"vllm_bench_appended.jsonl", "vllm-bench", "", []string{"2 rows without arrival time"}, []string{
		"untimed in=128 out=2 ok ttft=0.1s tpot=0.02s e2e=0.12s phase=20260815-031244",
		"untimed in=256 out=3 ok ttft=0.2s tpot=0.03s e2e=0.26s phase=20260815-031500",
	}},
	{"sglang_bench.jsonl", "sglang-bench", "", []string{"2 rows without arrival time"}, []string{
		"untimed in=10 out=3 ok ttft=0.1s tpot=0.02s e2e=0.14s",
		"untimed in=20 out=2 ok ttft=0.2s tpot=0.05s e2e=0.25s",
	}},
	{"guidellm.json", "guidellm", "1 rejected", nil, []string{
		"0s in=100 out=5 cached=16 ok late=0.25s ttft=0.25s tpot=0.25s e2e=1.5s id=a phase=benchmark-1 session=k turn=1",
		// Sent at 1786678152, 2 s after the end of the turn before.
		"3.75s in=120 out=1 ok late=0s ttft=0.4005s e2e=0.5s id=b phase=benchmark-1 session=k turn=2 think=2s",
	}},
	{"inference_perf.json", "inference-perf", "1 rejected",
		[]string{"1 row whose prompt the server counted +18.0 tokens longer than the trace, on average: its count is used"},
		[]string{
			// 5 tokens by usage in 3 chunks: 0.5 s over 4 gaps.
			"0s in=512 server=530 out=5 asked=8 cached=64 ok ttft=0.25s tpot=0.125s e2e=1s",
			"1.5s in=20 out=3 ok e2e=0.5s",
		}},
	{"aiperf.jsonl", "aiperf", "1 warm-up, 1 cancelled, 1 rejected", nil, []string{
		"0s in=550 out=9 ok ttft=0.2555s tpot=0.005s e2e=0.2955s id=a session=k turn=1",
	}},
	{"genai_perf.json", "genai-perf", "1 with an answer but no token count", nil, []string{
		// The role chunk at 4 ms is no content; 3 tokens by the last usage.
		"0s in=0 server=9 out=3 asked=16 ok ttft=0.08s tpot=0.05s e2e=0.18s phase=request_rate-2.0",
	}},
	{"aibrix_workload.jsonl", "aibrix-workload", "1 without output length",
		[]string{"2 rows of a session, whose output length the v0.7.0 generator gives in characters"},
		[]string{
			"0.04s in=1 out=8 session=0 wait history ids=[TEXT][]/16",
			"0.04s in=13 out=10 ids=[TEXT][]/16",
			"0.3s in=2 out=8 session=0 wait history ids=[TEXT][]/16",
		}},
	{"aibrix_workload_list.json", "aibrix-workload", "", nil, []string{
		"0s in=3 out=2 ids=[TEXT][]/16",
		"0.1s in=4 out=2 ids=[TEXT][]/16",
	}},
	{"aibrix_client.jsonl", "aibrix-client", "1 rejected, 1 with an answer but no token count, 1 with an empty answer",
		[]string{"2 rows whose TTFT is that of a chunk that may have no content: a lower bound, and TPOT has prefill time in it"},
		[]string{
			"0s in=41 out=8 ok ttft=0.004s floor tpot=0.03s end_minus_first_chunk e2e=0.25s id=0 replica=pod-1 session=4",
			"1s in=64 out=2 ok ttft=0.003s floor tpot=0.2s end_minus_first_chunk e2e=0.5s id=1 replica=pod-0 session=4 think=0.75s",
		}},
	{"records.jsonl", "records", "1 rejected, 1 dropped, 1 with an empty answer",
		[]string{"1 row with a family but no length of its prefix: their prompts share nothing"},
		[]string{
			"0.0013s in=12 out=1 asked=1 ok http=200 ttft=0.1s e2e=0.1s good=false phase=p tenant=A",
			"5.0019s in=519 out=128 asked=128 cached=48 ok http=200 ttft=0.2069s tpot=0.056446s e2e=7.3756s good=true id=1 phase=p tenant=B replica=pod-0 family=3:0",
		}},
	{"fleetsim.jsonl", "fleetsim", "", []string{"1 row whose prompt the server counted +20.0 tokens longer than the trace, on average: its count is used", "1 row without arrival time",
		"1 row whose TTFT is that of a chunk that may have no content: a lower bound, and TPOT has prefill time in it"},
		[]string{
			`1e-11s in=100 server=120 out=10 asked=12 cached=0 ok http=200 err="x" late=0.5s ttft=0.1s floor tpot=0.02s end_minus_first_chunk e2e=0.3s good=false` +
				` id=r1 phase=p tenant=A model=m kind=text replica=pod-0 family=f:64 session=s parent=r0 turn=2 wait think=2s history`,
			"untimed in=40 out=1 ids=[1 18446744073709551615 3][]/16",
			`9s in=40 out=1 ids=[]["a\"b\\" -1 18446744073709551616]/16`,
		}},
}

func TestFormats(t *testing.T) {
	for _, c := range formatCases {
		t.Run(c.file, func(t *testing.T) {
			r := openFile(t, filepath.Join("testdata", c.file), Options{})
			require.Equal(t, c.format, r.Format())
			var got []string
			for _, row := range readAll(t, r) {
				text := row.BlockTokens == 16 && row.ID == "" && len(row.HashIDs) == 1
				if text && row.HashIDs[0] > 1000 { // the hash of a text
					got = append(got, strings.Replace(brief(&row), fmt.Sprint(row.HashIDs[0]), "TEXT", 1))
					continue
				}
				got = append(got, brief(&row))
			}
			require.Equal(t, c.rows, got)
			require.Equal(t, c.skipped, r.Report().Skipped.String())
			require.ElementsMatch(t, c.warnings, r.Report().Warnings)
			require.Zero(t, r.Report().Bad)

			strict := openFile(t, filepath.Join("testdata", c.file), Options{Strict: true, Format: c.format})
			if _, err := drain(strict); len(c.warnings) > 0 {
				require.Error(t, err, "strict reading must fail on warnings")
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestSamples reads the published samples, whole or by their excerpts.
func TestSamples(t *testing.T) {
	const dir = "../../../shared"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the shared samples are not beside the checkout")
	}
	for _, c := range []struct {
		file, format   string
		found, rows    int
		skipped        string
		span           float64 // first to last arrival, s
		inputs, output int     // sums over the rows
	}{
		{"samples/aibrix-client/v0.7.0_streaming_recorded.jsonl", "aibrix-client", 9, 5,
			"1 rejected, 2 with an answer but no token count, 1 with an empty answer", 9576.526787436 - 9576.226255144, 41 + 40 + 39 + 40 + 64, 33},
		{"samples/aibrix-workload/v0.7.0_generator_style.jsonl", "aibrix-workload", 9, 8, "1 without output length", 0.26, 9, 49},
		{"samples/aibrix-workload/v0.7.0_scenarios_excerpt.jsonl", "aibrix-workload", 4, 4, "", 197.189, 32, 53},
		{"samples/azure-llm/2024_style_excerpt.csv", "azure", 4, 4, "", 1.49007, 2162 + 2399 + 76 + 2376, 34},
		{"samples/azure-llm/AzureLLMInferenceTrace_code_excerpt.csv", "azure", 19, 19, "", 3435.948056, 43550, 412},
		{"samples/bailian/qwen_blksz_16_excerpt.jsonl", "bailian", 7, 7, "", 130.5, 1538, 1959},
		{"samples/guidellm/report_with_requests.json", "guidellm", 6, 3, "1 without input length, 1 rejected, 1 cancelled", 1, 306, 13},
		{"samples/inference-perf/per_request_lifecycle_metrics.json", "inference-perf", 6, 4, "1 rejected, 1 failed", 0.500203, 1502, 17},
		{"samples/mooncake/conversation_excerpt.jsonl", "mooncake", 13, 13, "", 90, 46593, 4288},
		{"samples/vllm-bench-serve/detailed.json", "vllm-bench", 6, 5, "1 rejected", 1.250906, 3072, 24},
		{"measurements/production-requests.jsonl", "records", 1650, 1650, "", 10508.8693, 0, 0},
	} {
		t.Run(c.file, func(t *testing.T) {
			r := openFile(t, filepath.Join(dir, c.file), Options{})
			rows := readAll(t, r)
			rep := r.Report()
			require.Equal(t, c.format, r.Format())
			require.Equal(t, c.found, rep.Found)
			require.Len(t, rows, c.rows)
			require.Equal(t, c.skipped, rep.Skipped.String())
			require.Zero(t, rep.Bad)
			require.InDelta(t, c.span, (rep.Last - rep.First).Seconds(), 1e-9)
			inputs, outputs := 0, 0
			for i := range rows {
				inputs += rows[i].InputTokens
				outputs += rows[i].OutputTokens
				require.Equal(t, i, rows[i].Index)
				if i > 0 {
					require.LessOrEqual(t, rows[i-1].At, rows[i].At)
				}
			}
			if c.inputs > 0 {
				require.Equal(t, c.inputs, inputs)
				require.Equal(t, c.output, outputs)
			}
			all := openFile(t, filepath.Join(dir, c.file), Options{KeepAll: true})
			require.Len(t, readAll(t, all), c.found, "KeepAll gives every request")
		})
	}
}

func TestSampleDetails(t *testing.T) {
	const dir = "../../../shared/samples"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the shared samples are not beside the checkout")
	}
	client := readAll(t, openFile(t, filepath.Join(dir, "aibrix-client/v0.7.0_streaming_recorded.jsonl"), Options{}))
	last := client[len(client)-1]
	require.Equal(t, "8", last.ID)
	// start 9576.526787436, after request 1 of the same session, which started at
	// 9576.272276115 and took 0.18810632200074906 s.
	require.InDelta(t, 9576.526787436-9576.272276115-0.188106322, last.Think.Value.Seconds(), 1e-8)

	vllm := readAll(t, openFile(t, filepath.Join(dir, "vllm-bench-serve/detailed.json"), Options{}))
	require.Equal(t, 8, vllm[2].OutputTokens)
	// Six gaps, 0.3248 s in all, between 8 tokens.
	require.Equal(t, simtime.FromSeconds(0.3248+0.207), vllm[2].E2E.Value)
	require.InDelta(t, 0.3248/7, vllm[2].TPOT.Value.Seconds(), 1e-11)

	guide := readAll(t, openFile(t, filepath.Join(dir, "guidellm/report_with_requests.json"), Options{}))
	require.Equal(t, Some(2300*simtime.Microsecond), guide[0].Late)
	require.False(t, guide[2].TPOT.Present, "one token has no TPOT")

	_, err := drain(openFile(t, filepath.Join(dir, "guidellm/report_summary_only.json"), Options{}))
	require.ErrorContains(t, err, "only the summary of a run")
}

// TestMeasuredSummaries reads the summaries of real vLLM runs, which hold no
// requests.
func TestMeasuredSummaries(t *testing.T) {
	files, err := filepath.Glob("../../../shared/measurements/vllm-bench-l20/*.json")
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("the shared measurements are not beside the checkout")
	}
	for _, f := range files {
		r := openFile(t, f, Options{})
		require.Equal(t, "vllm-bench", r.Format())
		_, err := drain(r)
		require.ErrorContains(t, err, "--save-detailed")
	}
}

func TestSniffRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "empty"},
		{"  \n\n", "empty"},
		{"hello world\n", "neither JSON nor a CSV of a known format"},
		{`{"a": 1, "b": 2}`, "JSON of no known format; its first keys are a, b"},
		{"trace_version: 2\ntime_unit: microseconds\n", "give the CSV file beside it"},
	} {
		_, err := Open("x", strings.NewReader(c.in), Options{})
		require.ErrorContains(t, err, c.want)
	}
	_, err := Open("x", strings.NewReader("{}"), Options{Format: "moncake"})
	require.ErrorContains(t, err, `unknown trace format "moncake": want fleetsim, bailian`)
	name, err := Sniff([]byte(`{"timestamp": 1, "input_length": 4, "output_length": 1}`))
	require.NoError(t, err)
	require.Equal(t, "mooncake", name)
}

func TestFormatsAreListed(t *testing.T) {
	writable := ""
	for _, f := range Formats() {
		require.NotEmpty(t, f.Title)
		if f.Writable {
			writable += f.Name + " "
		}
	}
	require.Equal(t, "fleetsim bailian mooncake azure burstgpt ", writable)
}

func TestOwnVersion(t *testing.T) {
	_, err := drain(openText(t, `{"fleetsim_trace":2}`+"\n", Options{}))
	require.ErrorContains(t, err, "in:1: fleetsim_trace: version 2: this program reads up to 1")
	_, err = drain(openText(t, `{"fleetsim_trace":1}`+"\n"+`{"at":1,"input_tokens":1,"output_tokens":1,"hash_ids":[1]}`, Options{}))
	require.ErrorContains(t, err, "hash_ids without block_tokens")
}

func TestErrorIsAReadError(t *testing.T) {
	_, err := drain(openText(t, `{"timestamp": -1, "input_length": 4, "output_length": 1}`, Options{}))
	var e *ReadError
	require.True(t, errors.As(err, &e))
	require.Equal(t, []Problem{{File: "in", Line: 1, Column: "timestamp", Text: "-1 is negative"}}, e.Problems)
}

// TestMessagesShareByRoleAndText: a conversation given as messages shares with one
// that begins with the same messages.
func TestMessagesShareByRoleAndText(t *testing.T) {
	system := strings.Repeat("s", 64-len("system\n")-1) // with its role and line ends, one block of 64 bytes
	line := func(question string) string {
		return `{"timestamp": 0, "messages": [{"role": "system", "content": "` + system + `"}, {"role": "user", "content": "` + question +
			`", "tool_calls": null}, {"role": "user", "content": [{"type": "text"}]}], "output_length": 5}` + "\n"
	}
	rows := readAll(t, openText(t, line("one")+line("two"), Options{}))
	require.Equal(t, rows[0].HashIDs[0], rows[1].HashIDs[0])
	require.NotEqual(t, rows[0].HashIDs[1], rows[1].HashIDs[1])
	// 64 + "user\none\n" + "user\n" bytes at 4 a token.
	require.Equal(t, 20, rows[0].InputTokens)
	_, err := drain(openText(t, `{"timestamp": 0, "messages": [1], "output_length": 5}`, Options{}))
	require.ErrorContains(t, err, "in:1: messages[0]: '{' expected, found \"1\"")
}

// TestContradictions are files that are sound JSON or CSV and make no sense.
func TestContradictions(t *testing.T) {
	vllm := func(lists string) string {
		return `{"backend": "b", "duration": 1, "completed": 1, "total_output_tokens": 1, ` + lists + `}`
	}
	blis := "request_id,input_tokens,output_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,status,prefix_group,prefix_length,think_time_us\n"
	for _, c := range []struct{ in, want string }{
		{vllm(`"input_lens": [1, 2], "output_lens": [1]`), "in:1: output_lens: 1 entries, where input_lens has 2"},
		{vllm(`"input_lens": [1], "output_lens": [1], "ttfts": []`), "in:1: ttfts: 0 entries, where input_lens has 1"},
		{vllm(`"input_lens": [1], "output_lens": [1], "itls": [[-0.1]]`), "in:1: itls[0][0]: -0.1 is negative"},
		{vllm(`"input_lens": [1], "output_lens": [3], "itls": [[4e7, 4e7]]`), "in:1: itls[0][1]: sum beyond"},
		{vllm(`"input_lens": [1], "output_lens": [3], "ttfts": [4e7], "itls": [[4e7]]`), "in:1: request 0: ttft and itls add up"},
		{vllm(`"input_lens": [1], "output_lens": [3], "ttfts": [1e9]`), "in:1: ttfts[0]: duration beyond"},
		{blis + "1,5,x,0,0,0,0,ok,,,\n", "in:2: output_tokens: \"x\" is no number"},
		{blis + "1,-5,1.5,0,0,0,0,ok,,,\n", "in:2: input_tokens: -5 is negative; output_tokens: 1.5 is not a whole number"},
		{blis + "1,5,5,0,0,-1,0,ok,,,\n", "in:2: first_chunk_time_us: -1 is negative"},
		{blis + "1,5,5,0,0,0,0,ok,,,1e99\n", "in:2: think_time_us: 1e99 is beyond"},
		{blis + "1,16777216,5,0,0,0,0,ok,g,1,\n", "in:2: prefix_length: 1 with input_tokens is above 16777216"},
		{"arrived_at,num_prefill_tokens,num_decode_tokens\nNaN,1,1\n", "in:2: arrived_at: \"NaN\" is no number"},
		{"arrived_at,num_prefill_tokens,num_decode_tokens\n1e8,1,1\n", "in:2: is more than"},
		{"TIMESTAMP,ContextTokens,GeneratedTokens\n16 Nov 2023,1,1\n", "in:2: TIMESTAMP: \"16 Nov 2023\" is no date"},
		{"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type,Elapsed time\n1,m,1,1,2,x,-1\n", "in:2: Elapsed time: -1 is negative"},
		{`{"metadata": {"was_cancelled": 1}, "metrics": {}}`, "in:1: metadata.was_cancelled: true or false expected"},
		{`{"metadata": {}, "metrics": {"request_latency": {"value": 1, "unit": "fortnight"}}}`, "in:1: metrics.request_latency.unit: time unit \"fortnight\""},
		{`{"fleetsim_trace":1}` + "\n" + `{"at":1,"status":"good"}`, "in:2: status: \"good\": want one of [planned ok"},
	} {
		_, err := drain(openText(t, c.in, Options{}))
		require.ErrorContains(t, err, c.want)
	}
}

func TestAIPerfUnits(t *testing.T) {
	for unit, want := range map[string]simtime.Time{"sec": 2 * simtime.Second, "seconds": 2 * simtime.Second, "ms": 2 * simtime.Millisecond,
		"milliseconds": 2 * simtime.Millisecond, "us": 2 * simtime.Microsecond, "microseconds": 2 * simtime.Microsecond, "ns": 2 * simtime.Nanosecond, "nanoseconds": 2 * simtime.Nanosecond} {
		rows := readAll(t, openText(t, `{"metadata": {"request_start_ns": 5}, "error": null, "metrics": {"request_latency": {"value": 2, "unit": "`+unit+
			`"}, "input_sequence_length": {"value": 3, "unit": "tokens"}, "output_sequence_length": {"value": 4, "unit": "tokens"}}}`, Options{}))
		require.Equal(t, Some(want), rows[0].E2E, unit)
	}
}
