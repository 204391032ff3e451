package trace

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// same is a row without what depends on the file it stands in.
func same(row Row) Row {
	row.Line = 0
	return row
}

// TestOwnFormatIsLossless writes what every format reads and reads it back.
func TestOwnFormatIsLossless(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*")
	require.NoError(t, err)
	samples, err := filepath.Glob("../../../shared/samples/*/*.*")
	require.NoError(t, err)
	for _, file := range append(files, samples...) {
		if strings.Contains(file, "summary_only") {
			continue
		}
		rows := readAll(t, openFile(t, file, Options{KeepAll: true}))
		require.NotEmpty(t, rows, file)
		requireLossless(t, rows)
	}
}

func requireLossless(t require.TestingT, rows []Row) {
	var b bytes.Buffer
	w, err := NewWriter("fleetsim", &b, WriteOptions{})
	require.NoError(t, err)
	for i := range rows {
		require.NoError(t, w.Write(&rows[i]))
	}
	require.NoError(t, w.Close())
	require.Empty(t, w.Losses().String())
	r, err := Open("own", &b, Options{KeepAll: true})
	require.NoError(t, err)
	again, err := drain(r)
	require.NoError(t, err)
	require.Len(t, again, len(rows))
	for i := range rows {
		require.Equal(t, same(rows[i]), same(again[i]))
	}
}

// TestOwnFormatHoldsAnyRow writes rows of any content.
func TestOwnFormatHoldsAnyRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		count := rapid.IntRange(0, maxTokens)
		span := rapid.Custom(func(t *rapid.T) Optional[simtime.Time] {
			if rapid.Bool().Draw(t, "present") {
				return Some(simtime.Time(rapid.Int64Range(0, int64(simtime.Second)*maxSpanSeconds).Draw(t, "span")))
			}
			return Optional[simtime.Time]{}
		})
		row := Row{
			At:          simtime.Time(rapid.Int64Range(0, int64(simtime.Second)*maxSpanSeconds).Draw(t, "at")),
			Timed:       true,
			ID:          text.Draw(t, "id"),
			Phase:       text.Draw(t, "phase"),
			Tenant:      text.Draw(t, "tenant"),
			Error:       text.Draw(t, "error"),
			InputTokens: count.Draw(t, "input"), OutputTokens: count.Draw(t, "output"),
			ServerInputTokens: count.Draw(t, "server"), RequestedOutput: count.Draw(t, "asked"),
			Late: span.Draw(t, "late"), Think: span.Draw(t, "think"),
			TTFT: span.Draw(t, "ttft"), TPOT: span.Draw(t, "tpot"), E2E: span.Draw(t, "e2e"),
			Wait: rapid.Bool().Draw(t, "wait"), History: rapid.Bool().Draw(t, "history"),
			Status: Status(rapid.IntRange(0, len(statusNames)-1).Draw(t, "status")),
			Turn:   rapid.IntRange(0, 99).Draw(t, "turn"),
		}
		if ids := rapid.SliceOfN(rapid.Uint64(), 0, 5).Draw(t, "ids"); len(ids) > 0 {
			row.HashIDs, row.BlockTokens = ids, rapid.IntRange(1, 600).Draw(t, "block")
		}
		requireLossless(t, []Row{row})
	})
}

// sharedFields are what each written format has in common with our rows.
func TestRoundTripOfSharedFields(t *testing.T) {
	for _, c := range []struct {
		file, format string
		keep         func(*Row) // clears what the format does not hold
	}{
		{"mooncake.jsonl", "mooncake", nil},
		{"bailian.jsonl", "bailian", nil},
		{"azure2023.csv", "azure", nil},
		{"azure2025.csv", "azure", nil},
		{"burstgpt.csv", "burstgpt", nil},
		{"vidur.csv", "azure", nil},
		{"vidur.csv", "burstgpt", func(r *Row) { r.Status = OK }},
	} {
		t.Run(c.file+" as "+c.format, func(t *testing.T) {
			rows := collect(t, Filter(openFile(t, filepath.Join("testdata", c.file), Options{}).Rows(),
				func(r *Row) bool { return r.Timed && r.BlockTokens != 16 || c.format == "bailian" }))
			var b bytes.Buffer
			w, err := NewWriter(c.format, &b, WriteOptions{})
			require.NoError(t, err)
			for i := range rows {
				require.NoError(t, w.Write(&rows[i]))
			}
			require.NoError(t, w.Close())
			require.Empty(t, w.Losses().String())
			again := readAll(t, openText(t, b.String(), Options{}))
			require.Len(t, again, len(rows))
			for i := range rows {
				if c.keep != nil {
					c.keep(&rows[i])
				}
				require.Equal(t, same(rows[i]), same(again[i]))
			}
		})
	}
}

func TestWrittenText(t *testing.T) {
	row := Row{Line: 3, Index: 0, At: 1500*simtime.Millisecond + 25*simtime.Microsecond, Timed: true, InputTokens: 20, OutputTokens: 4,
		HashIDs: []uint64{5, 6}, BlockTokens: 16, Tenant: "a", ID: "x", Session: "s,1", Model: `m "x"`}
	write := func(format string) (string, string) {
		var b bytes.Buffer
		w, err := NewWriter(format, &b, WriteOptions{Epoch: time.Date(2024, 5, 10, 2, 0, 0, 0, time.FixedZone("", 7200))})
		require.NoError(t, err)
		require.NoError(t, w.Write(&row))
		require.NoError(t, w.Close())
		return b.String(), w.Losses().String()
	}
	text, lost := write("bailian")
	require.Equal(t, `{"chat_id": 0, "parent_chat_id": -1, "timestamp": 1.500025, "input_length": 20, "output_length": 4, "type": "text", "turn": 1, "hash_ids": [5,6]}`+"\n", text)
	require.Equal(t, "bailian cannot hold all of it: tenants (1 row), models (1 row), request ids (1 row)", lost)
	text, lost = write("azure")
	require.Equal(t, "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:01.5000250+00:00,20,4\n", text)
	require.Equal(t, "azure cannot hold all of it: request ids (1 row), tenants (1 row), models (1 row), sessions (1 row), shared prefixes (1 row)", lost)
	text, _ = write("burstgpt")
	require.Equal(t, burstGPTHeader+`1.500025,"s,1",,"m ""x""",20,4,24,`+"\n", text)
	text, lost = write("mooncake")
	require.Contains(t, text, `{"timestamp": 1500, "input_length": 20, "output_length": 4, "hash_ids": [`)
	require.Contains(t, lost, "times below 1 ms (1 row)")
	require.Contains(t, lost, "sharing below whole blocks of 512 tokens (1 row)")
	text, lost = write("fleetsim")
	require.Equal(t, "{\"fleetsim_trace\":1}\n"+`{"at":1.500025,"id":"x","tenant":"a","model":"m \"x\"","session":"s,1","input_tokens":20,"output_tokens":4,"block_tokens":16,"hash_ids":[5,6]}`+"\n", text)
	require.Empty(t, lost)
}

func TestWritersRefuse(t *testing.T) {
	_, err := NewWriter("guidellm", &bytes.Buffer{}, WriteOptions{})
	require.EqualError(t, err, `cannot write trace format "guidellm": want one of fleetsim bailian mooncake azure burstgpt`)
	for want, row := range map[string]Row{
		"line 7: no arrival time":  {Line: 7, InputTokens: 1, OutputTokens: 1},
		"line 7: no input length":  {Line: 7, Timed: true, OutputTokens: 1},
		"line 7: no output length": {Line: 7, Timed: true, InputTokens: 1},
		"line 7: arrival time -1s": {Line: 7, Timed: true, At: -simtime.Second, InputTokens: 1, OutputTokens: 1},
	} {
		for _, format := range []string{"mooncake", "bailian", "azure", "burstgpt"} {
			w, err := NewWriter(format, &bytes.Buffer{}, WriteOptions{})
			require.NoError(t, err)
			require.ErrorContains(t, w.Write(&row), want)
		}
	}
	w, err := NewWriter("bailian", &bytes.Buffer{}, WriteOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Write(&Row{ID: "5", Timed: true, InputTokens: 1, OutputTokens: 1}))
	require.EqualError(t, w.Write(&Row{ID: "x", Line: 2, Timed: true, InputTokens: 1, OutputTokens: 1}), `line 2: id "x" is no whole number, as the first row's is`)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorsComeBack(t *testing.T) {
	for _, format := range []string{"fleetsim", "mooncake", "bailian", "azure", "burstgpt"} {
		_, _, err := Convert(failingWriter{}, rowsAt(0, 1), format, WriteOptions{})
		require.EqualError(t, err, "disk full", format)
	}
}

func TestBailianParents(t *testing.T) {
	rows := func(yield func(Row, error) bool) {
		for _, r := range []Row{{ID: "a"}, {ID: "b", Parent: "a", Turn: 2}, {ID: "c", Parent: "gone", Turn: 2}} {
			r.Timed, r.InputTokens, r.OutputTokens = true, 5, 5
			if !yield(r, nil) {
				return
			}
		}
	}
	var b bytes.Buffer
	n, lost, err := Convert(&b, rows, "bailian", WriteOptions{})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 1, lost.Of("parent turns"))
	again := readAll(t, openText(t, b.String(), Options{}))
	require.Equal(t, []string{"", "0", ""}, []string{again[0].Parent, again[1].Parent, again[2].Parent})
	require.Equal(t, "0", again[1].Session)
}

func TestEmptyTraceHasItsHeader(t *testing.T) {
	for format, want := range map[string]string{
		"fleetsim": "{\"fleetsim_trace\":1}\n", "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n", "burstgpt": burstGPTHeader, "mooncake": ""} {
		var b bytes.Buffer
		_, _, err := Convert(&b, rowsAt(), format, WriteOptions{})
		require.NoError(t, err)
		require.Equal(t, want, b.String())
	}
}

func TestPrompts(t *testing.T) {
	p := NewPrompter(4)
	prompt := p.Prompt(&Row{InputTokens: 40, HashIDs: []uint64{7, 8, 9, 10}, BlockTokens: 16, OutputTokens: 1})
	require.Equal(t, workload.Prompt{{ID: 7, Tokens: 16, Bytes: 64}, {ID: 8, Tokens: 16, Bytes: 64}, {ID: 9, Tokens: 8, Bytes: 32}}, prompt)

	// Too few ids, and a server that counts more: the rest is unlike any other.
	a := p.Prompt(&Row{InputTokens: 40, HashIDs: []uint64{7}, BlockTokens: 16, OutputTokens: 1})
	b := p.Prompt(&Row{InputTokens: 40, ServerInputTokens: 50, HashIDs: []uint64{7, 8, 9}, BlockTokens: 16, OutputTokens: 1})
	require.Equal(t, []int{16, 24}, []int{a[0].Tokens, a[1].Tokens})
	require.Equal(t, []int{16, 16, 8, 10}, []int{b[0].Tokens, b[1].Tokens, b[2].Tokens, b[3].Tokens})
	require.NotEqual(t, a[1].ID, b[3].ID)

	// A server that counts fewer cuts the prompt.
	require.Equal(t, 20, p.Prompt(&Row{InputTokens: 40, ServerInputTokens: 20, HashIDs: []uint64{7, 8, 9}, BlockTokens: 16}).Len(workload.Tokens))

	f1 := p.Prompt(&Row{InputTokens: 100, Family: "f", FamilyTokens: 64, OutputTokens: 1})
	f2 := p.Prompt(&Row{InputTokens: 50, Family: "f", FamilyTokens: 64, OutputTokens: 1})
	g := p.Prompt(&Row{InputTokens: 100, Family: "g", FamilyTokens: 64, OutputTokens: 1})
	require.Equal(t, f1[0].ID, f2[0].ID)
	require.NotEqual(t, f1[0].ID, g[0].ID)
	require.Equal(t, 50, f2.Len(workload.Tokens))

	// History: each turn begins with all of the turn before and its answer.
	t1 := p.Prompt(&Row{InputTokens: 10, OutputTokens: 5, Session: "s", History: true})
	t2 := p.Prompt(&Row{InputTokens: 20, OutputTokens: 5, Session: "s", History: true})
	t3 := p.Prompt(&Row{InputTokens: 30, OutputTokens: 5, Session: "s", History: true})
	other := p.Prompt(&Row{InputTokens: 30, OutputTokens: 5, Session: "o", History: true})
	require.Equal(t, []int{10, 10 + 5 + 20, 10 + 5 + 20 + 5 + 30, 30},
		[]int{t1.Len(workload.Tokens), t2.Len(workload.Tokens), t3.Len(workload.Tokens), other.Len(workload.Tokens)})
	require.Equal(t, t1, t2[:1])
	require.Equal(t, t2, t3[:3])
}

func TestRequests(t *testing.T) {
	p := NewPrompter(0)
	req, err := p.Request(&Row{Index: 4, At: 5, Timed: true, InputTokens: 8, RequestedOutput: 9, Tenant: "t", Session: "s", Family: "f", FamilyTokens: 4})
	require.NoError(t, err)
	require.Equal(t, 9, req.Output)
	require.Equal(t, 0, req.Family)
	require.Equal(t, simtime.Time(5), req.At)
	require.Equal(t, 8, req.Prompt.Len(workload.Tokens))
	require.Equal(t, 32, req.Prompt.Len(workload.Bytes))
	for want, row := range map[string]Row{
		"line 2: no input length":  {Line: 2, Timed: true, OutputTokens: 1},
		"line 2: no output length": {Line: 2, Timed: true, InputTokens: 1},
		"line 2: no arrival time":  {Line: 2, InputTokens: 1, OutputTokens: 1},
	} {
		_, err := p.Request(&row)
		require.EqualError(t, err, want)
	}
	req, err = p.Request(&Row{Wait: true, InputTokens: 1, OutputTokens: 1})
	require.NoError(t, err)
	require.Equal(t, -1, req.Family)
}

// TestTextPromptsShare: prompts that come as text share as far as they are equal.
func TestTextPromptsShare(t *testing.T) {
	head := strings.Repeat("All of this stands before every question. ", 50) // 2100 bytes
	line := func(q string) string {
		return `{"timestamp": 0, "requests": [{"prompt": "` + head + q + `", "prompt_length": 600, "output_length": 8}]}` + "\n"
	}
	rows := readAll(t, openText(t, line("One?")+line("Two?"), Options{}))
	p := NewPrompter(0)
	a, b := p.Prompt(&rows[0]), p.Prompt(&rows[1])
	shared := 0
	for i := range a {
		if a[i].ID != b[i].ID {
			break
		}
		shared += a[i].Tokens
	}
	require.Equal(t, 2100/64*16, shared)
	require.Equal(t, 600, a.Len(workload.Tokens))
}
