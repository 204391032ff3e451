package trace

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
)

// fuzz feeds a reader any bytes, seeded with the hand-written inputs and, where
// they are, the samples: it must not panic, and what it gives must make sense and
// survive our own format. format is "" for a sniffed one.
func fuzz(f *testing.F, format string) {
	for _, pattern := range []string{"testdata/*.*", "../../../shared/samples/*/*.*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(f, err)
			if name, err := Sniff(data); format == "" || err == nil && name == format {
				f.Add(data)
			}
		}
	}
	if format == "" {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write([]byte("\xef\xbb\xbf" + mooncakeLine(0) + mooncakeLine(1)))
		w.Close()
		f.Add(z.Bytes())
		f.Add(z.Bytes()[:z.Len()-10])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Open("fuzz", bytes.NewReader(data), Options{Format: format, KeepAll: true, MaxErrors: -1, MaxLineBytes: 1 << 16, MaxDocumentBytes: 1 << 20})
		if err != nil {
			return
		}
		rows, err := drain(r)
		if err != nil {
			return
		}
		require.NotEmpty(t, r.Report().String())
		last := simtime.Time(0)
		info := NewInfo(InfoOptions{MaxBlocks: 256})
		for i := range rows {
			requireSane(t, &rows[i])
			require.GreaterOrEqual(t, rows[i].At, last)
			last = rows[i].At
			if rows[i].InputTokens+rows[i].ServerInputTokens+rows[i].OutputTokens < 1<<16 {
				info.Add(&rows[i])
			}
		}
		require.NotContains(t, info.Summary().String(), "NaN")
		requireLossless(t, rows)
	})
}

func requireSane(t *testing.T, row *Row) {
	for _, n := range []int{row.InputTokens, row.ServerInputTokens, row.OutputTokens, row.RequestedOutput, row.CachedTokens.Value,
		row.FamilyTokens, row.Turn, row.BlockTokens} {
		require.GreaterOrEqual(t, n, 0)
		require.LessOrEqual(t, n, maxTokens)
	}
	for _, s := range []Optional[simtime.Time]{row.Late, row.Think, row.TTFT, row.TPOT, row.E2E} {
		require.GreaterOrEqual(t, s.Value, simtime.Time(0))
		require.LessOrEqual(t, s.Value, maxSpan)
	}
	require.Equal(t, row.BlockTokens > 0, row.blocks() > 0)
	require.True(t, row.HashIDs == nil || row.HashText == nil)
}

func FuzzSniffed(f *testing.F)        { fuzz(f, "") }
func FuzzOwn(f *testing.F)            { fuzz(f, "fleetsim") }
func FuzzMooncake(f *testing.F)       { fuzz(f, "mooncake") }
func FuzzBailian(f *testing.F)        { fuzz(f, "bailian") }
func FuzzAzure(f *testing.F)          { fuzz(f, "azure") }
func FuzzBurstGPT(f *testing.F)       { fuzz(f, "burstgpt") }
func FuzzVidur(f *testing.F)          { fuzz(f, "vidur") }
func FuzzBLIS(f *testing.F)           { fuzz(f, "blis") }
func FuzzVLLMBench(f *testing.F)      { fuzz(f, "vllm-bench") }
func FuzzSGLangBench(f *testing.F)    { fuzz(f, "sglang-bench") }
func FuzzGuideLLM(f *testing.F)       { fuzz(f, "guidellm") }
func FuzzInferencePerf(f *testing.F)  { fuzz(f, "inference-perf") }
func FuzzAIPerf(f *testing.F)         { fuzz(f, "aiperf") }
func FuzzGenAIPerf(f *testing.F)      { fuzz(f, "genai-perf") }
func FuzzAIBrixWorkload(f *testing.F) { fuzz(f, "aibrix-workload") }
func FuzzAIBrixClient(f *testing.F)   { fuzz(f, "aibrix-client") }
func FuzzRecords(f *testing.F)        { fuzz(f, "records") }
