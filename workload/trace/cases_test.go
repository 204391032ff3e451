package trace

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// The tests here are named by the field cases they answer: faults seen in other
// tools.

func offsets(rows []Row) (ms []float64) {
	for i := range rows {
		ms = append(ms, rows[i].At.Seconds()*1000)
	}
	return ms
}

// F02, F19: a success without tokens is none.
func TestF02EmptyAnswerIsNoSuccess(t *testing.T) {
	r := openText(t, `{"result":"ok","http_status":200,"output_tokens":0,"input_tokens":9,"e2e":0,"ttft":null,"started_relative_seconds":1}`, Options{KeepAll: true})
	rows := readAll(t, r)
	require.Equal(t, Failed, rows[0].Status)
}

// F19: an answer whose tokens the source did not count may be a broken stream: it
// is unknown, not empty.
func TestF19NoTokenCount(t *testing.T) {
	for _, tokens := range []string{`,"output_tokens":null`, ""} {
		text := `{"result":"ok","http_status":200,"input_tokens":9,"ttft":0.1,"e2e":1.5,"started_relative_seconds":1` + tokens + "}"
		r := openText(t, text, Options{KeepAll: true})
		require.Equal(t, Unknown, readAll(t, r)[0].Status, tokens)
		r = openText(t, text, Options{})
		require.Empty(t, readAll(t, r))
		require.Equal(t, "1 with an answer but no token count", r.Report().Skipped.String(), tokens)
	}
}

// A key that stands twice is refused where it is read, at any depth; what nobody
// reads may be as it likes.
func TestKeysThatStandTwice(t *testing.T) {
	record := func(more string) string {
		return `{"result":"ok","input_tokens":9,"output_tokens":3,"ttft":1,"started_relative_seconds":1` + more + "}"
	}
	perf := func(more string) string {
		return `{"start_time": 0, "end_time": 1, "error": null, "info": {"input_tokens": 5, "response_metrics": {"output_tokens": 5` + more + `}}}`
	}
	for _, c := range []struct{ text, want string }{
		{record(`,"ttft":2`), "in:2: ttft: is there twice"},
		{record(`,"\u0074tft":2`), "in:2: ttft: is there twice"},
		{record(`,"output_tokens":null`), "in:2: output_tokens: is there twice"},
		{record(`,"x":1,"x":2,"y":{"ttft":1,"z":[],"z":[{}]}`), ""},
		{perf(`,"output_tokens":6`), "in:2: info.response_metrics.output_tokens: is there twice"},
		{perf(`,"server_usage":{"completion_tokens":5,"x":1},"input_tokens":5,"x":1,"x":2`), ""},
		{perf(`,"output_token_times":[1],"output_token_times":[1]`), "in:2: info.response_metrics.output_token_times: is there twice"},
	} {
		_, err := drain(openText(t, "\n"+c.text+"\n", Options{}))
		if c.want == "" {
			require.NoError(t, err, c.text)
		} else {
			require.EqualError(t, err, c.want, c.text)
		}
	}
}

// F06: TPOT is by the tokens that came, not by those asked for.
func TestF06TokensReceived(t *testing.T) {
	r := openText(t, `[{"start_time": 0, "end_time": 6.1, "request": "{\"max_tokens\": 4096}", "error": null, "info": {"input_tokens": 5,
		"response_metrics": {"output_tokens": 512, "server_usage": null, "output_token_times": [0.1, 6.1]}}}]`, Options{})
	rows := readAll(t, r)
	require.InDelta(t, 6.0/511, rows[0].TPOT.Value.Seconds(), 1e-11)
	require.Equal(t, 4096, rows[0].RequestedOutput)
	require.Equal(t, 512, rows[0].AnswerTokens())
}

func TestF31FractionsOfASecondAreKept(t *testing.T) {
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	line := func(fraction string) string { return "2023-11-16 18:17:03." + fraction + ",10,10\n" }
	r := openText(t, head+line("0010000")+line("0020000")+line("0090000")+line("0110000")+line("0110001"), Options{})
	require.Equal(t, []float64{0, 1, 8, 10, 10.0001}, offsets(readAll(t, r)))
}

// familyTrace is two families of three requests with a prefix of 14336 tokens and
// a question of 100.
func familyTrace(prefix int) string {
	s := "{\"fleetsim_trace\":1}\n"
	for i := range 6 {
		s += fmt.Sprintf(`{"at":%d,"input_tokens":%d,"output_tokens":8,"family":"f%d","family_tokens":%d}`+"\n", i, prefix+100, i%2, prefix)
	}
	return s
}

// hitTokens is what a cache without limits finds of a trace, in 16-token blocks.
func hitTokens(t *testing.T, text string) float64 {
	t.Helper()
	r := openText(t, text, Options{})
	info := NewInfo(InfoOptions{})
	total := 0.0
	for _, row := range readAll(t, r) {
		info.Add(&row)
		total += float64(row.PromptTokens())
	}
	return *info.Summary().HitRatioBound * total
}

func convertText(t *testing.T, text, format string) (string, *Losses) {
	t.Helper()
	var b bytes.Buffer
	_, lost, err := Convert(&b, openText(t, text, Options{}).Rows(), format, WriteOptions{})
	require.NoError(t, err)
	return b.String(), lost
}

func TestF33PrefixGroupsSurviveConversion(t *testing.T) {
	text := familyTrace(14336)
	require.InDelta(t, 4*14336, hitTokens(t, text), 0.01)
	for _, format := range []string{"mooncake", "bailian", "fleetsim"} {
		there, lost := convertText(t, text, format)
		require.InDelta(t, 4*14336, hitTokens(t, there), 0.01, format)
		require.Zero(t, lost.Of("shared prefixes"), format)
		back, _ := convertText(t, there, "fleetsim")
		require.InDelta(t, 4*14336, hitTokens(t, back), 0.01, format)
	}
	// A prefix that ends within a block of 512 loses up to its last whole block,
	// and that is said.
	there, lost := convertText(t, familyTrace(14000), "mooncake")
	require.InDelta(t, 4*(14000/512*512), hitTokens(t, there), 0.01)
	require.Equal(t, 6, lost.Of("sharing below whole blocks of 512 tokens"))

	_, lost = convertText(t, text, "azure")
	require.Equal(t, "azure cannot hold all of it: shared prefixes (6 rows)", lost.String())
}

func TestF35TemplateTokensAreCounted(t *testing.T) {
	r := openText(t, `[{"start_time": 0, "end_time": 1, "error": null, "info": {"input_tokens": 512,
		"response_metrics": {"output_tokens": 5, "server_usage": {"prompt_tokens": 530, "completion_tokens": 5}}}}]`, Options{})
	rows := readAll(t, r)
	require.Equal(t, 530, rows[0].PromptTokens())
	require.Equal(t, 530, NewPrompter(0).Prompt(&rows[0]).Len(workload.Tokens))
	require.Contains(t, r.Report().String(), "the server counted +18.0 tokens longer")
}

func TestF36IdsNeverMerge(t *testing.T) {
	line := func(ids string) string {
		return fmt.Sprintf(`{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [%s]}`+"\n", ids)
	}
	ids := []string{"1", "4294967297", "9007199254740993", "9007199254740992", "4611686018427387905", "9223372036854775809",
		"18446744073709551615", "18446744073709551616", "-1", `"1x"`, `"a"`, `"0"`}
	text := ""
	for _, id := range ids {
		text += line(id)
	}
	rows := readAll(t, openText(t, text, Options{}))
	p := NewPrompter(0)
	seen := map[uint64]string{}
	for i := range rows {
		prompt := p.Prompt(&rows[i])
		require.Len(t, prompt, 1)
		require.Empty(t, seen[prompt[0].ID], "%s and %s became one", ids[i], seen[prompt[0].ID])
		seen[prompt[0].ID] = ids[i]
	}
	again := readAll(t, openText(t, text, Options{}))
	for i := range again {
		require.Equal(t, ids[i], seen[p.Prompt(&again[i])[0].ID], "equal ids stay equal")
	}
	for _, bad := range []string{"1.5", "1e3", "1.0", "true", "null", "NaN"} {
		_, err := drain(openText(t, line(bad), Options{}))
		require.ErrorContains(t, err, "in:1: hash_ids[0]: ", bad)
	}
}

func TestF38SecondsInAMillisecondFormat(t *testing.T) {
	line := func(at string) string {
		return `{"timestamp": ` + at + `, "input_length": 9, "output_length": 1}` + "\n"
	}
	r := openText(t, line("0.0")+line("0.2")+line("0.4"), Options{})
	require.Equal(t, []float64{0, 0.2, 0.4}, offsets(readAll(t, r)))
	require.Equal(t, []string{"2 of 3 times are fractions of a ms and all lie within 0.0004s: if they are in seconds, set the time unit to s"},
		r.Report().Warnings)

	r = openText(t, line("0.0")+line("0.2")+line("0.4"), Options{TimeUnit: Seconds})
	require.Equal(t, []float64{0, 200, 400}, offsets(readAll(t, r)))
	require.Empty(t, r.Report().Warnings)

	// Whole seconds given as ms: too fast to be true.
	text := ""
	for i := range 10 {
		text += line(fmt.Sprint(i / 2))
	}
	r = openText(t, text, Options{})
	readAll(t, r)
	require.Equal(t, []string{"0 of 10 times are fractions of a ms and all lie within 0.004s: if they are in seconds, set the time unit to s"}, r.Report().Warnings)

	// Bursts of a sound trace say nothing.
	r = openText(t, line("0")+line("0")+line("0")+line("3000"), Options{})
	readAll(t, r)
	require.Empty(t, r.Report().Warnings)
}

func TestF40IdleHeadAndFailedRows(t *testing.T) {
	// 400 rows over 20 h: the first 10 h hold 10 of them, 5 of which failed.
	var b strings.Builder
	b.WriteString("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
	for i := range 10 {
		fmt.Fprintf(&b, "%d,ChatGPT,10,%d,0,API log\n", i*3600, 5*(i%2))
	}
	for i := range 391 {
		fmt.Fprintf(&b, "%d,ChatGPT,10,5,15,API log\n", 36000+i*36000/390)
	}
	r := openText(t, b.String(), Options{})
	info := NewInfo(InfoOptions{})
	rows := readAll(t, r)
	for i := range rows {
		info.Add(&rows[i])
	}
	require.Equal(t, "5 failed", r.Report().Skipped.String())
	// From the first success at 3600 s to 72000 s.
	require.Contains(t, r.Report().String(), "in: burstgpt, 396 rows over 68400s (0.005775/s)")
	s := info.Summary()
	require.Len(t, s.Warnings, 1)
	require.Contains(t, s.Warnings[0], "the first quarter of the span has 0.76% of the rows")

	later := 0
	for row, err := range Window(openText(t, b.String(), Options{}).Rows(), 32400*simtime.Second, 50400*simtime.Second, true) {
		require.NoError(t, err)
		require.GreaterOrEqual(t, row.At, simtime.Time(0))
		require.Less(t, row.At, 18000*simtime.Second)
		later++
	}
	// Offsets count from the first success, at 3600 s: the window is from 36000 s to
	// 54000 s of the source, with rows every 92.3 s.
	require.Equal(t, 195, later)
}

func TestF41HeaderWithoutAColumn(t *testing.T) {
	_, err := Open("b.csv", strings.NewReader("Timestamp,Model,Request tokens,Total tokens\n5,ChatGPT,472,490\n"), Options{})
	require.EqualError(t, err, "b.csv:1: burstgpt: column missing: Response tokens, Log Type; "+
		"wanted are Timestamp, Model, Request tokens, Response tokens, Total tokens, Log Type, found are Timestamp, Model, Request tokens, Total tokens")
	_, err = Open("b.csv", strings.NewReader("TIMESTAMP,ContextTokens,ContextTokens\n"), Options{})
	require.EqualError(t, err, "b.csv:1: azure: column missing: GeneratedTokens; "+
		"wanted are TIMESTAMP, ContextTokens, GeneratedTokens, found are TIMESTAMP, ContextTokens, ContextTokens\n"+
		"b.csv:1: column twice in the header: ContextTokens")
}

func TestF49WarmFromTheStart(t *testing.T) {
	text := ""
	for i := range 6 {
		text += fmt.Sprintf(`{"result":"ok","family":%d,"cached_tokens":90,"input_tokens":100,"output_tokens":4,"started_relative_seconds":%d,"e2e":1}`+"\n", i%2, i)
	}
	info := NewInfo(InfoOptions{})
	for row, err := range openText(t, text, Options{FamilyTokens: 64}).Rows() {
		require.NoError(t, err)
		require.Equal(t, 64, row.FamilyTokens)
		info.Add(&row)
	}
	s := info.Summary()
	require.InDelta(t, 0.9, *s.MeasuredHitRatio, 1e-12)
	// Cold, four of six requests find 64 of 100 tokens.
	require.InDelta(t, 4*64/600.0, *s.HitRatioBound, 1e-12)
	require.Equal(t, []string{"2 of 2 families hit the cache at their first request: the server was warm; start the simulation warm, or leave those out"}, s.Warnings)

	kept := 0
	for range WithoutFirstOfFamily(openText(t, text, Options{}).Rows()) {
		kept++
	}
	require.Equal(t, 4, kept)
}

func TestF52ThinkTimeAndMode(t *testing.T) {
	const text = `{"fleetsim_trace":1}
{"at":0,"session":"s","input_tokens":10,"output_tokens":5,"status":"ok","e2e":3}
{"at":5,"session":"s","input_tokens":20,"output_tokens":5,"status":"ok","e2e":1}
`
	rows := readAll(t, openText(t, text, Options{}))
	require.Equal(t, Some(2*simtime.Second), rows[1].Think, "from the end at 3 s to the start at 5 s")
	require.False(t, rows[1].Wait, "as recorded, turns come at their times")

	var closed []Row
	for row, err := range ClosedLoop(openText(t, text, Options{}).Rows(), simtime.Minute) {
		require.NoError(t, err)
		closed = append(closed, row)
	}
	require.False(t, closed[0].Wait)
	require.True(t, closed[1].Wait)
	require.False(t, closed[1].Timed, "a turn waits for the one before, not for its old time as well")
	require.Equal(t, Some(2*simtime.Second), closed[1].Think)

	// The mode goes with the trace, and what cannot hold it says so.
	var b bytes.Buffer
	_, lost, err := Convert(&b, ClosedLoop(openText(t, text, Options{}).Rows(), 0), "fleetsim", WriteOptions{})
	require.NoError(t, err)
	require.Empty(t, lost.String())
	again := readAll(t, openText(t, b.String(), Options{}))
	require.True(t, again[1].Wait)
	b.Reset()
	_, _, err = Convert(&b, ClosedLoop(openText(t, text, Options{}).Rows(), 0), "mooncake", WriteOptions{})
	require.EqualError(t, err, "line 3: no arrival time, which the format must have")
}

func TestF55NoTTFTIsSaid(t *testing.T) {
	text := ""
	for i := range 5 {
		text += fmt.Sprintf(`{"result":"ok","e2e":1.5,"ttft":null,"tpot":null,"input_tokens":10,"output_tokens":4,"started_relative_seconds":%d}`+"\n", i)
	}
	r := openText(t, text, Options{})
	for _, row := range readAll(t, r) {
		require.False(t, row.TTFT.Present)
		require.True(t, row.E2E.Present)
	}
	require.Contains(t, r.Report().String(), "no TTFT: the source did not stream")
}
