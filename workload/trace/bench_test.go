package trace

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bulk is a source of about n rows in each line-by-line format, and in the
// documents a short list many times over.
func bulk(b *testing.B, format string, n int) []byte {
	var out bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	ids := func(n, block int) string {
		s := make([]string, 24)
		for i := range s {
			s[i] = fmt.Sprint(i * (1 + n%97))
		}
		return strings.Join(s, ", ")
	}
	switch format {
	case "fleetsim":
		line(`{"fleetsim_trace":1}`)
		for i := range n {
			line(`{"at":%d.%03d,"tenant":"a","input_tokens":12000,"output_tokens":200,"block_tokens":512,"hash_ids":[%s]}`, i/9, i%9, ids(i, 512))
		}
	case "mooncake":
		for i := range n {
			line(`{"timestamp": %d, "input_length": 12000, "output_length": 200, "hash_ids": [%s]}`, i*100, ids(i, 512))
		}
	case "bailian":
		for i := range n {
			line(`{"chat_id": %d, "parent_chat_id": %d, "timestamp": %d.5, "input_length": 380, "output_length": 200, "type": "text", "turn": 1, "hash_ids": [%s]}`,
				i, i-2-i%2, i, ids(i, 16))
		}
	case "azure":
		line("TIMESTAMP,ContextTokens,GeneratedTokens")
		for i := range n {
			line("2023-11-16 %02d:%02d:%02d.9799600,4808,%d", i/3600%24, i/60%60, i%60, 1+i%500)
		}
	case "burstgpt":
		line("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type")
		for i := range n {
			line("%d.0,,1.25,ChatGPT,472,18,490,Conversation log", i)
		}
	case "records":
		for i := range n {
			line(`{"phase": "p", "tenant": "A", "result": "ok", "http_status": 200, "ttft": 0.2069, "tpot": 0.056446, "e2e": 7.3756, "input_tokens": 519, "output_tokens": 128, "requested_output": 128, "good": true, "started_relative_seconds": %d.25}`, i)
		}
	default:
		data, err := os.ReadFile(filepath.Join("testdata", format))
		require.NoError(b, err)
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		if strings.HasSuffix(format, ".csv") {
			line("%s", lines[0])
			lines = lines[1:]
		}
		for range n / len(lines) {
			for _, l := range lines {
				line("%s", l)
			}
		}
	}
	return out.Bytes()
}

// BenchmarkRead gives rows a second, found rather than given.
func BenchmarkRead(b *testing.B) {
	for _, format := range []string{"fleetsim", "mooncake", "bailian", "azure", "burstgpt", "records", "aibrix_client.jsonl", "aiperf.jsonl",
		"aibrix_workload.jsonl", "vidur.csv", "blis.csv", "vllm_bench.json", "sglang_bench.jsonl", "guidellm.json", "inference_perf.json", "genai_perf.json"} {
		b.Run(format, func(b *testing.B) {
			data := bulk(b, format, 20_000)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			rows := 0
			start := time.Now()
			for b.Loop() {
				r, err := Open("bench", bytes.NewReader(data), Options{KeepAll: true, MaxErrors: -1, SortWindow: 1024})
				require.NoError(b, err)
				for {
					if _, err := r.Next(); err != nil {
						require.Equal(b, io.EOF, err)
						break
					}
				}
				rows += r.Report().Found
			}
			b.ReportMetric(float64(rows)/time.Since(start).Seconds(), "rows/s")
		})
	}
}

func BenchmarkInfo(b *testing.B) {
	data := bulk(b, "mooncake", 20_000)
	r, err := Open("bench", bytes.NewReader(data), Options{})
	require.NoError(b, err)
	rows, err := drain(r)
	require.NoError(b, err)
	start := time.Now()
	n := 0
	for b.Loop() {
		info := NewInfo(InfoOptions{})
		for i := range rows {
			info.Add(&rows[i])
		}
		n += len(rows)
	}
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "rows/s")
}
