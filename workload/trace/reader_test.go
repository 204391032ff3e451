package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
)

func mooncakeLine(ms int) string {
	return fmt.Sprintf(`{"timestamp": %d, "input_length": 9, "output_length": 1}`+"\n", ms)
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

func TestDress(t *testing.T) {
	plain := mooncakeLine(0) + mooncakeLine(5)
	for name, text := range map[string]string{
		"plain":           plain,
		"no last newline": strings.TrimSuffix(plain, "\n"),
		"CRLF":            strings.ReplaceAll(plain, "\n", "\r\n"),
		"BOM":             "\xef\xbb\xbf" + plain,
		"blank lines":     "\n\n" + strings.ReplaceAll(plain, "\n", "\n \t\n\n"),
		"gzip":            zip(t, plain),
		"gzip with BOM":   zip(t, "\xef\xbb\xbf"+plain),
		"two gzip parts":  zip(t, mooncakeLine(0)) + zip(t, mooncakeLine(5)),
		"a list":          "[" + strings.ReplaceAll(strings.TrimSpace(plain), "\n", ",\n") + "]",
	} {
		t.Run(name, func(t *testing.T) {
			r := openText(t, text, Options{Strict: true})
			require.Equal(t, []float64{0, 5}, offsets(readAll(t, r)))
			require.Empty(t, r.Report().Truncated)
		})
	}
}

func TestRowsAreSortedWithinTheWindow(t *testing.T) {
	text := mooncakeLine(30) + mooncakeLine(10) + mooncakeLine(20) + mooncakeLine(20) + mooncakeLine(40)
	rows := readAll(t, openText(t, text, Options{SortWindow: 2}))
	require.Equal(t, []float64{10, 20, 20, 30, 40}, offsets(rows))
	require.Equal(t, []int{3, 4}, []int{rows[1].Line, rows[2].Line}, "the source's order within one time")

	text = mooncakeLine(30) + mooncakeLine(40) + mooncakeLine(50) + mooncakeLine(10)
	_, err := drain(openText(t, text, Options{SortWindow: 1}))
	require.EqualError(t, err, "in:4: is 0.03s earlier than a row already given: sort the file, or raise the sort window above 1 rows")
	r := openText(t, text, Options{SortWindow: 1, MaxErrors: 1})
	require.Equal(t, []float64{30, 40, 50}, offsets(readAll(t, r)))
	require.Equal(t, 1, r.Report().Bad)
}

func TestTruncatedGzipKeepsWhatWasRead(t *testing.T) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, `{"timestamp": %d, "input_length": %d, "output_length": 1}`+"\n", i, 1+i*i%7919)
	}
	whole := zip(t, text.String())
	r := openText(t, whole[:len(whole)/2], Options{})
	rows := readAll(t, r)
	require.Greater(t, len(rows), 1000)
	require.Less(t, len(rows), 5000)
	require.Regexp(t, `^the gzip stream is cut off( in line \d+)?$`, r.Report().Truncated)
	for i := range rows {
		require.Equal(t, 1+i*i%7919, rows[i].InputTokens)
	}
	require.Contains(t, r.Report().String(), "what came before it is kept")

	_, err := drain(openText(t, whole[:len(whole)/2], Options{Strict: true}))
	require.ErrorContains(t, err, "the gzip stream is cut off")

	bad := []byte(whole)
	bad[len(bad)-6] ^= 1 // the checksum
	r = openText(t, string(bad), Options{})
	require.Len(t, readAll(t, r), 5000)
	require.Equal(t, "the gzip stream fails its checksum", r.Report().Truncated)
}

// Behind whole gzip streams there may be something else: that is said, and nothing
// of what the streams hold is lost.
func TestDataBehindTheGzipStream(t *testing.T) {
	for name, text := range map[string]string{
		"lines":       mooncakeLine(0) + mooncakeLine(5),
		"no line end": strings.TrimSuffix(mooncakeLine(0)+mooncakeLine(5), "\n"),
		"a list":      "[" + mooncakeLine(0) + "," + mooncakeLine(5) + "]",
		"CSV":         "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n1,5,1",
	} {
		for _, behind := range []string{"x", "more than a gzip header is long"} {
			r := openText(t, zip(t, text)+behind, Options{})
			require.Len(t, readAll(t, r), 2, name)
			require.Equal(t, "the gzip data end, and something that is no gzip follows", r.Report().Truncated, name)
			require.Contains(t, r.Report().String(), "\nnot read to the end: the gzip data end, and something that is no gzip follows; what came before it is kept")
			_, err := drain(openText(t, zip(t, text)+behind, Options{Strict: true}))
			require.ErrorContains(t, err, "the gzip data end, and something that is no gzip follows", name)
		}
	}
}

func TestHalfALineAtTheEnd(t *testing.T) {
	for _, cut := range []string{`{"timestamp": 9, "inp`, `{"timestamp": 9`, `{`, `{"timestamp": 9, "input_length": 9, "output_length": 1`} {
		r := openText(t, mooncakeLine(0)+mooncakeLine(5)+cut, Options{})
		require.Len(t, readAll(t, r), 2, cut)
		require.Equal(t, "line 3, the last, is cut off", r.Report().Truncated)
		_, err := drain(openText(t, mooncakeLine(0)+cut, Options{Strict: true}))
		require.EqualError(t, err, "in:2: line 2, the last, is cut off")
	}
	r := openText(t, "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n1,5", Options{})
	require.Len(t, readAll(t, r), 1)
	require.Equal(t, "line 3, the last, is cut off", r.Report().Truncated)
	// Half a document is no document.
	_, err := drain(openText(t, `{"benchmarks": [{"requests": {"successful": [`, Options{}))
	require.ErrorContains(t, err, "in:1: benchmarks[0].requests.successful[0]: a value expected, found the end")
}

func TestBadRowsAreListedAtOnce(t *testing.T) {
	text := mooncakeLine(0) +
		`{"timestamp": 1, "input_length": -5, "output_length": 1}` + "\n" +
		mooncakeLine(2) +
		`{"timestamp": NaN, "input_length": 5, "output_length": 1}` + "\n" +
		`{"timestamp": 3, "input_length": 5.5, "output_length": 1}` + "\n" +
		`{"timestamp": 3, "input_length": 5, "output_length": 99999999999999999999999}` + "\n" +
		`{"timestamp": 3, "input_length": 5, "output_length": 1} x` + "\n" +
		`{"timestamp": 1e400, "input_length": 5, "output_length": 1}` + "\n"
	want := `in:2: input_length: -5 is negative
in:4: timestamp: a number expected, found "NaN"
in:5: input_length: 5.5 is not a whole number
in:6: output_length: 99999999999999999999999 is above 16777216
in:7: end of the record expected, found "x"
in:8: timestamp: 1e400 is beyond 10^15 s`
	_, err := drain(openText(t, text, Options{}))
	require.EqualError(t, err, want)
	_, err = drain(openText(t, text, Options{MaxErrors: 5}))
	require.EqualError(t, err, want)
	_, err = drain(openText(t, text, Options{MaxErrors: 9, Strict: true}))
	require.EqualError(t, err, want)

	for _, allowed := range []int{6, -1} {
		r := openText(t, text, Options{MaxErrors: allowed})
		require.Equal(t, []float64{0, 2}, offsets(readAll(t, r)))
		require.Equal(t, 6, r.Report().Bad)
		require.Contains(t, r.Report().String(), "6 rows could not be read\n  in:2: input_length: -5 is negative")
	}
	many := strings.Repeat("{}x\n", 30)
	_, err = drain(openText(t, mooncakeLine(0)+many, Options{}))
	require.ErrorContains(t, err, "in:21: ")
	require.NotContains(t, err.Error(), "in:22: ")
}

func TestBadRowsOfADocument(t *testing.T) {
	const text = `[
 {"start_time": 0, "end_time": 1, "error": null, "info": {"input_tokens": 5, "output_tokens": 5}},
 {"start_time": 1, "end_time": 2, "error": null, "info": {"input_tokens": "x", "output_tokens": 5}},
 {"start_time": 2, "end_time": 3, "error": null, "info": {"input_tokens": 5, "output_tokens": 1e99}},
 {"start_time": 3, "end_time": 4, "error": null, "info": {"input_tokens": 5, "output_tokens": 5}}]`
	_, err := drain(openText(t, text, Options{}))
	require.EqualError(t, err, `in:3: info.input_tokens: a number expected, found "\"x\""
in:4: info.output_tokens: 1e99 is above 16777216`)
	require.Len(t, readAll(t, openText(t, text, Options{MaxErrors: 2})), 2)
}

func TestLimits(t *testing.T) {
	long := `{"timestamp": 1, "text_input": "` + strings.Repeat("x", 5000) + `", "output_length": 1}` + "\n"
	r := openText(t, mooncakeLine(0)+long+mooncakeLine(2), Options{MaxLineBytes: 4096, MaxErrors: 1})
	require.Equal(t, []float64{0, 2}, offsets(readAll(t, r)))
	require.Equal(t, "in:2: line longer than 4096 bytes", r.Report().Problems[0].Error())

	_, err := drain(openText(t, "["+strings.Repeat(" ", 200)+mooncakeLine(0)+"]", Options{MaxDocumentBytes: 100}))
	require.EqualError(t, err, "in: document longer than 100 bytes, which must fit in memory; raise the limit")

	deep := strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)
	_, err = drain(openText(t, mooncakeLine(0)+deep, Options{}))
	require.ErrorContains(t, err, "nested deeper than 200")
}

func TestCSVQuotes(t *testing.T) {
	head := "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
	rows := readAll(t, openText(t, head+"1,\"a \"\"b\"\", c\",10,5,15,\"two\nlines\"\n2,m,10,5,15,x\n", Options{}))
	require.Equal(t, `a "b", c`, rows[0].Model)
	require.Equal(t, "two\nlines", rows[0].Kind)
	require.Equal(t, 4, rows[1].Line)

	_, err := drain(openText(t, head+"1,\"a,10,5,15,x\n2,m,10,5,15,x\n", Options{}))
	require.EqualError(t, err, "in:2: a quote that opens here does not close")
	_, err = drain(openText(t, head+"1,a,10,5,15\n2,m,ten,5,-1,x\n", Options{}))
	require.EqualError(t, err, "in:2: 5 fields, where the header has 6\nin:3: Request tokens: \"ten\" is no number")
	// Files put together with their headers.
	require.Len(t, readAll(t, openText(t, head+"1,m,10,5,15,x\n"+head+"2,m,10,5,15,x\n", Options{})), 2)
}

func TestOptions(t *testing.T) {
	text := mooncakeLine(0) + `{"timestamp": 7, "input_length": 40, "output_length": null, "hash_ids": [1, 2]}` + "\n" + mooncakeLine(9)
	r := openText(t, text, Options{SkipFirst: 1, DefaultOutput: 64, BlockTokens: 32})
	rows := readAll(t, r)
	require.Equal(t, []float64{7, 9}, offsets(rows))
	require.Equal(t, 64, rows[0].AnswerTokens())
	require.Equal(t, 32, rows[0].BlockTokens)
	require.Equal(t, "1 warm-up", r.Report().Skipped.String())
	require.Empty(t, r.Report().Warnings)

	r = openText(t, text, Options{})
	readAll(t, r)
	require.Equal(t, "1 without output length", r.Report().Skipped.String())
	r = openText(t, text, Options{KeepAll: true, Strict: true})
	_, err := drain(r)
	require.EqualError(t, err, "in: 1 row with more hash ids than the prompt has 512-token blocks: the surplus is left out")
}

func TestReportLine(t *testing.T) {
	text := "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
	for i := range 9 {
		text += fmt.Sprintf("%d,m,5,0,5,x\n", i)
	}
	text += "10,m,0,5,5,x\n11,m,,5,5,x\n12,m,0,5,5,x\n13,m,1,1,2,x\n"
	r := openText(t, text, Options{})
	require.Len(t, readAll(t, r), 1)
	require.Contains(t, r.Report().String(), "12 rows skipped: 9 failed, 3 without input length")
}

func TestAbsoluteTimesBeyondTheClock(t *testing.T) {
	head := "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	_, err := drain(openText(t, head+"2020-01-01 00:00:00,1,1\n2024-01-01 00:00:00,1,1\n", Options{}))
	require.EqualError(t, err, fmt.Sprintf("in:3: is more than %d s after the start of the trace", maxSpanSeconds))
}

func TestTimeUnits(t *testing.T) {
	for name, want := range map[string]simtime.Time{"s": 5 * simtime.Second, "ms": 5 * simtime.Millisecond, "us": 5 * simtime.Microsecond, "ns": 5 * simtime.Nanosecond} {
		u, err := ParseTimeUnit(name)
		require.NoError(t, err)
		rows := readAll(t, openText(t, mooncakeLine(5), Options{TimeUnit: u}))
		require.Equal(t, want, rows[0].At)
		require.Equal(t, name, u.String())
	}
	_, err := ParseTimeUnit("minutes")
	require.EqualError(t, err, `time unit "minutes": want s, ms, us or ns`)
}

func TestBoundedMap(t *testing.T) {
	var m boundedMap[int]
	for i := range 10 {
		m.put(fmt.Sprint(i), i, 3)
		m.put(fmt.Sprint(i), i+100, 3)
	}
	require.Len(t, m.values, 3)
	for i := 7; i < 10; i++ {
		v, ok := m.get(fmt.Sprint(i))
		require.True(t, ok)
		require.Equal(t, i+100, v)
	}
	_, ok := m.get("6")
	require.False(t, ok)
}

// A lineSource gives the same line n times without holding them.
type lineSource struct {
	line string
	n    int
	rest string
}

func (s *lineSource) Read(p []byte) (int, error) {
	if s.rest == "" {
		if s.n == 0 {
			return 0, io.EOF
		}
		s.n--
		s.rest = s.line
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func TestLongTracesStream(t *testing.T) {
	r, err := Open("in", &lineSource{line: mooncakeLine(7), n: 300_000}, Options{})
	require.NoError(t, err)
	for i := range 300_000 {
		_, err := r.Next()
		require.NoError(t, err)
		if held := len(r.window) + len(r.free); held > traceWindow+2 {
			t.Fatalf("%d rows held at row %d", held, i)
		}
	}
	_, err = r.Next()
	require.Equal(t, io.EOF, err)
}

func TestHistogram(t *testing.T) {
	var h logHistogram
	require.Zero(t, h.quantile(0.5))
	for i := 1; i <= 1000; i++ {
		h.add(float64(i), 1)
	}
	h.add(0.5, 1000)
	require.Zero(t, h.quantile(0.25))
	require.InEpsilon(t, 500, h.quantile(0.75), 0.0625)
	require.InEpsilon(t, 980, h.quantile(0.99), 0.0625)
	h.add(math.Inf(1), 1)
	h.add(1e300, 1)
}
