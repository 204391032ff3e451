package metrics

import (
	"io"
	"math"
	"strconv"
	"strings"
)

// The content types of the two formats.
const (
	TextContentType        = "text/plain; version=0.0.4; charset=utf-8"
	OpenMetricsContentType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
)

// WriteText writes the last point of every series in Prometheus' text format,
// as a page to scrape.
func WriteText(w io.Writer, families []Family) error {
	var page []byte
	var values []float64
	for i := range families {
		f := &families[i]
		name := f.Name
		if f.Type == Counter {
			name += counterSuffix // the text format names a counter as its samples are named
		}
		page = appendHead(page, name, f.Help, f.Type)
		for _, s := range f.Series {
			if n := len(s.Points); n > 0 {
				p := &s.Points[n-1]
				values = p.appendValues(values[:0])
				page = appendLines(page, lineStarts(f.Name, f.Type, p.bounds(), s.Labels), values, "\n")
			}
		}
	}
	_, err := w.Write(page)
	return err
}

// A lineWriter writes the points of one series after the other.
type lineWriter struct {
	w      io.Writer
	text   []byte
	starts []string // of the lines of a point
	time   []byte   // the end of each
}

// point writes the values of a series at the Unix time at.
func (w *lineWriter) point(at float64, values ...float64) error {
	w.time = append(strconv.AppendFloat(append(w.time[:0], ' '), at, 'f', 3, 64), '\n')
	w.text = appendLines(w.text, w.starts, values, w.time)
	if len(w.text) < 1<<16 {
		return nil
	}
	return w.flush()
}

func (w *lineWriter) flush() error {
	_, err := w.w.Write(w.text)
	w.text = w.text[:0]
	return err
}

// counterSuffix is in the names of a counter's samples.
const counterSuffix = "_total"

func appendHead(dst []byte, name, help string, t Type) []byte {
	return append(dst, "# HELP "+name+" "+escapeHelp(help)+"\n# TYPE "+name+" "+string(t)+"\n"...)
}

// appendLines appends the lines of one point: what each begins with, its value, and
// the end that all have.
func appendLines[T string | []byte](dst []byte, starts []string, values []float64, end T) []byte {
	for i, v := range values {
		dst = append(appendValue(append(dst, starts[i]...), v), end...)
	}
	return dst
}

// lineStarts are what the lines of a point begin with, up to the value.
func lineStarts(name string, t Type, bounds []float64, labels []Label) []string {
	switch t {
	case Counter:
		return []string{lineStart(name+counterSuffix, labels)}
	case HistogramType:
		starts := make([]string, 0, len(bounds)+3)
		with := append(labels[:len(labels):len(labels)], Label{Name: "le"})
		for _, b := range bounds {
			with[len(labels)].Value = boundText(b)
			starts = append(starts, lineStart(name+"_bucket", with))
		}
		with[len(labels)].Value = "+Inf"
		return append(starts, lineStart(name+"_bucket", with), lineStart(name+"_sum", labels), lineStart(name+"_count", labels))
	}
	return []string{lineStart(name, labels)}
}

func lineStart(name string, labels []Label) string {
	var b strings.Builder
	b.WriteString(name)
	separator := byte('{')
	for _, l := range labels {
		b.WriteByte(separator)
		b.WriteString(l.Name + `="` + escapeLabel(l.Value) + `"`)
		separator = ','
	}
	if len(labels) > 0 {
		b.WriteByte('}')
	}
	b.WriteByte(' ')
	return b.String()
}

// bounds are those of the point's histogram; nil for a value.
func (p *Point) bounds() []float64 {
	if p.Histogram == nil {
		return nil
	}
	return p.Histogram.Bounds
}

// appendValues appends the values of the point's lines.
func (p *Point) appendValues(dst []float64) []float64 {
	if p.Histogram != nil {
		return p.Histogram.appendValues(dst)
	}
	return append(dst, p.Value)
}

// appendValues appends the values of the histogram's lines: cumulative counts, sum
// and count.
func (h *Histogram) appendValues(dst []float64) []float64 {
	cumulative := uint64(0)
	for _, n := range h.Counts {
		cumulative += n
		dst = append(dst, float64(cumulative))
	}
	return append(dst, h.Sum, float64(cumulative))
}

// boundText is a bound as OpenMetrics asks for it, whole numbers with ".0", in
// both formats, so that scraped and loaded series have one name.
func boundText(v float64) string {
	s := string(appendValue(nil, v))
	if !strings.ContainsAny(s, ".eIN") {
		s += ".0"
	}
	return s
}

func appendValue(dst []byte, v float64) []byte {
	switch {
	case v > 0 && v < 1e6 && v == float64(uint32(v)):
		return strconv.AppendUint(dst, uint64(v), 10) // as below, but most are counts
	case math.IsInf(v, 1):
		return append(dst, "+Inf"...)
	case math.IsInf(v, -1):
		return append(dst, "-Inf"...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`) // the text format keeps \" as it is
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func escapeHelp(s string) string  { return helpEscapes.Replace(s) }
func escapeLabel(s string) string { return labelEscapes.Replace(s) }
