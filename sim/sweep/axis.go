package sweep

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fleetsim/strict"
)

// PolicyKey is the axis key for the routing policy. Every other key is a key of
// the scenario file.
const PolicyKey = "policy"

// An Axis is one setting with the values that a sweep tries.
type Axis struct {
	Name   string // short name: a column of the results
	Key    string // key of the scenario file, or PolicyKey
	Zip    string // axes with the same Zip, if not "", advance together
	Values []Value
}

// A Value is one value of an axis: a string, int64, float64 or bool, or an
// array or table of those, as TOML has them.
type Value struct{ any }

// Text is the value for people and for files: a string without its quotes, a
// number in its shortest form, all else as TOML.
func (v Value) Text() string {
	switch x := v.any.(type) {
	case string:
		return x
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return literal(v.any)
}

// Number is the value of a number; ok is false for all else.
func (v Value) Number() (x float64, ok bool) {
	switch n := v.any.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// numeric reports whether all values of the axis are numbers, and whether all
// are whole.
func (a *Axis) numeric() (numbers, whole bool) {
	numbers, whole = true, true
	for _, v := range a.Values {
		_, isNumber := v.Number()
		_, isWhole := v.any.(int64)
		numbers, whole = numbers && isNumber, whole && isWhole
	}
	return numbers, whole
}

// Numeric reports whether all values of the axis are numbers.
func (a *Axis) Numeric() bool {
	numbers, _ := a.numeric()
	return numbers
}

// literal is v as TOML on one line.
func literal(v any) string {
	switch x := v.(type) {
	case string:
		return strict.Quote(x)
	case float64:
		s := strconv.FormatFloat(x, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	case []any:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = literal(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(x))
		for _, k := range sortedKeys(x) {
			parts = append(parts, strict.Quote(k)+" = "+literal(x[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}

// maxValues bounds the values of one axis, maxCells the cells of a sweep.
const (
	maxValues = 100_000
	maxCells  = 1_000_000
)

// A span is an axis given by its ends.
type span struct {
	from, to, step float64
	points         int
	log, whole     bool // whole: all numbers given are whole, so the values are
}

// values are the numbers of the span. Whole ends of a logarithmic span, or of
// one with a number of points, give whole numbers, each once.
func (s span) values() ([]Value, error) {
	if s.to < s.from {
		return nil, fmt.Errorf("to must be from = %g or more, not %g", s.from, s.to)
	}
	if s.log && s.from <= 0 {
		return nil, fmt.Errorf("from must be above 0 with scale = \"log\", not %g", s.from)
	}
	n := s.points
	if n == 0 {
		// The slack takes up the rounding of, say, 0.95/0.05.
		steps := math.Floor((s.to-s.from)/s.step + 1e-9)
		if steps >= maxValues {
			return nil, fmt.Errorf("the range has over %d values; allowed: at most %d", maxValues, maxValues)
		}
		n = int(steps) + 1
	}
	var values []Value
	for i := range n {
		v := s.value(s.at(i))
		if len(values) == 0 || values[len(values)-1] != v {
			values = append(values, v)
		}
	}
	return values, nil
}

func (s span) at(i int) float64 {
	switch {
	case s.points == 0:
		return s.from + float64(i)*s.step
	case i == 0:
		return s.from
	case i == s.points-1:
		return s.to
	case s.log:
		return s.from * math.Pow(s.to/s.from, float64(i)/float64(s.points-1))
	}
	return s.from + float64(i)*(s.to-s.from)/float64(s.points-1)
}

func (s span) value(x float64) Value {
	if s.whole {
		return Value{int64(math.Round(x))}
	}
	if s.points > 0 {
		return Value{round(x, pointDigits)}
	}
	return Value{round(x, 12)}
}

// pointDigits is to how many significant digits the values of a span with a
// number of points are rounded: they are steps on the way, not measurements.
const pointDigits = 4

// round rounds to so many significant decimal digits: 0.15 and not
// 0.15000000000000002.
func round(x float64, digits int) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', digits-1, 64), 64)
	if err != nil {
		return x // infinite, or so large that rounding up leaves the range
	}
	return r
}

// restrict keeps those values of the axis whose texts are listed. It fails, with
// the texts there are, when one is not among them.
func (a *Axis) restrict(texts []string) ([]int, error) {
	var keep []int
	for _, t := range texts {
		i := slices.IndexFunc(a.Values, func(v Value) bool { return v.Text() == t })
		if i < 0 {
			return nil, fmt.Errorf("axis %q has no value %q; allowed: %s", a.Name, t, someTexts(a.Values))
		}
		if !slices.Contains(keep, i) {
			keep = append(keep, i)
		}
	}
	return keep, nil
}

// someTexts lists values for a message, not all of a long list.
func someTexts(values []Value) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, v.Text())
	}
	if len(texts) > 12 {
		texts = append(append(texts[:10:10], "…"), texts[len(texts)-1])
	}
	return strings.Join(texts, ", ")
}
