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
	e := encoder{suffixInHead: true}
	for i := range families {
		e.head(&families[i])
		for _, s := range families[i].Series {
			if n := len(s.Points); n > 0 {
				e.point(&families[i], s.Labels, &s.Points[n-1])
			}
		}
	}
	_, err := w.Write(e.dst)
	return err
}

// WriteOpenMetrics writes every point of every series with its timestamp in
// OpenMetrics text, as `promtool tsdb create-blocks-from openmetrics` reads it.
func WriteOpenMetrics(w io.Writer, families []Family) error {
	e := encoder{timestamps: true}
	for i := range families {
		e.head(&families[i])
		for _, s := range families[i].Series {
			for j := range s.Points {
				e.point(&families[i], s.Labels, &s.Points[j])
			}
			if err := e.flush(w); err != nil {
				return err
			}
		}
	}
	e.dst = append(e.dst, "# EOF\n"...)
	return e.flush(w)
}

// An encoder appends lines of either format to dst.
type encoder struct {
	dst          []byte
	suffixInHead bool // the text format names a counter as its samples are named
	timestamps   bool
}

func (e *encoder) flush(w io.Writer) error {
	_, err := w.Write(e.dst)
	e.dst = e.dst[:0]
	return err
}

func (e *encoder) head(f *Family) {
	name := f.Name
	if f.Type == Counter && e.suffixInHead {
		name += "_total"
	}
	e.dst = append(e.dst, "# HELP "+name+" "+escapeHelp(f.Help)+"\n# TYPE "+name+" "+string(f.Type)+"\n"...)
}

func (e *encoder) point(f *Family, labels []Label, p *Point) {
	switch {
	case p.Histogram != nil:
		e.histogram(f.Name, labels, p)
	case f.Type == Counter:
		e.sample(f.Name+"_total", labels, p.Value, p.At)
	default:
		e.sample(f.Name, labels, p.Value, p.At)
	}
}

func (e *encoder) histogram(name string, labels []Label, p *Point) {
	h := p.Histogram
	cumulative := uint64(0)
	with := append(labels[:len(labels):len(labels)], Label{Name: "le"})
	le := &with[len(labels)].Value
	for i, n := range h.Counts {
		cumulative += n
		*le = "+Inf"
		if i < len(h.Bounds) {
			*le = boundText(h.Bounds[i])
		}
		e.sample(name+"_bucket", with, float64(cumulative), p.At)
	}
	e.sample(name+"_sum", labels, h.Sum, p.At)
	e.sample(name+"_count", labels, float64(cumulative), p.At)
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

func (e *encoder) sample(name string, labels []Label, v, at float64) {
	e.dst = append(e.dst, name...)
	for i, l := range labels {
		if i == 0 {
			e.dst = append(e.dst, '{')
		} else {
			e.dst = append(e.dst, ',')
		}
		e.dst = append(e.dst, l.Name+`="`+escapeLabel(l.Value)+`"`...)
	}
	if len(labels) > 0 {
		e.dst = append(e.dst, '}')
	}
	e.dst = appendValue(append(e.dst, ' '), v)
	if e.timestamps {
		e.dst = strconv.AppendFloat(append(e.dst, ' '), at, 'f', 3, 64)
	}
	e.dst = append(e.dst, '\n')
}

func appendValue(dst []byte, v float64) []byte {
	switch {
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
