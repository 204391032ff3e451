package record

import (
	"math"
	"slices"
)

// times are the values of one time over many requests: each of them, or, where
// their number must not matter, how many fall in each of many narrow buckets.
type times struct {
	values []float64
	sketch *sketch // nil: values has all
}

// few is how many values are kept where their number must not matter: up to there
// they take less than a sketch, which matters where there are many families.
const few = 256

func (t *times) add(v Float, sketched bool) {
	f, ok := v.Get()
	switch {
	case !ok:
	case t.sketch != nil:
		t.sketch.add(f)
	default:
		t.values = append(t.values, f)
		if sketched && len(t.values) > few {
			t.pour()
		}
	}
}

// pour puts the values into a sketch.
func (t *times) pour() {
	if t.sketch == nil {
		t.sketch = new(sketch)
	}
	for _, v := range t.values {
		t.sketch.add(v)
	}
	t.values = nil
}

func (t *times) merge(o *times) {
	t.values = append(t.values, o.values...)
	if t.sketch != nil || o.sketch != nil {
		t.pour()
	}
	if o.sketch != nil {
		t.sketch.merge(o.sketch)
	}
}

// p95 is the 95th percentile.
func (t *times) p95() Float {
	if t.sketch != nil {
		return t.sketch.quantile(0.95)
	}
	settle(t.values, 0.95)
	return Quantile(t.values, 0.95)
}

func (t *times) percentiles() Percentiles {
	if t.sketch == nil {
		return PercentilesOf(t.values)
	}
	return Percentiles{
		P50: t.sketch.quantile(0.50), P95: t.sketch.quantile(0.95), P99: t.sketch.quantile(0.99),
		N: Some(t.sketch.n),
	}
}

// A sketch counts values in buckets that are narrow for what they hold, so that a
// bucket's middle is within 0.05% of whatever fell into it (the idea of Masson, Rim
// and Lee, "DDSketch", 2019). Here a bucket is the numbers that agree in their
// exponent and the leading bits of their mantissa, of which an IEEE 754 number
// consists in this order. A sketch's size depends on how far apart the values are,
// not on how many there are.
type sketch struct {
	n      int
	zeros  int // values too small to tell from 0
	least  int // bucket number of counts[0]
	counts []int
}

const (
	sketchFloor = 1e-9 // s
	sketchBits  = 10   // of the mantissa
	sketchShift = 52 - sketchBits
)

func (s *sketch) add(v float64) {
	s.n++
	if v < sketchFloor {
		s.zeros++
		return
	}
	s.count(int(math.Float64bits(v)>>sketchShift), 1)
}

func (s *sketch) count(bucket, n int) {
	switch {
	case len(s.counts) == 0:
		s.least = bucket
		s.counts = append(s.counts, n)
	case bucket < s.least:
		s.counts = append(make([]int, s.least-bucket, s.least-bucket+len(s.counts)), s.counts...)
		s.least = bucket
		s.counts[0] = n
	default:
		if missing := bucket - s.least + 1 - len(s.counts); missing > 0 {
			s.counts = append(s.counts, make([]int, missing)...)
		}
		s.counts[bucket-s.least] += n
	}
}

func (s *sketch) merge(o *sketch) {
	s.n += o.n
	s.zeros += o.zeros
	for i, n := range o.counts {
		if n > 0 {
			s.count(o.least+i, n)
		}
	}
}

// quantile is the value at (n-1)q of those added in order, by linear interpolation
// as Quantile has it, each taken as the middle of its bucket.
func (s *sketch) quantile(q float64) Float {
	if s.n == 0 {
		return Float{}
	}
	at, below := position(s.n, q)
	low, high := s.at(below), s.at(min(below+1, s.n-1))
	return Some(low + (at-float64(below))*(high-low))
}

// at is the i-th value in order, counted from 0.
func (s *sketch) at(i int) float64 {
	if i < s.zeros {
		return 0
	}
	seen := s.zeros
	bucket := slices.IndexFunc(s.counts, func(n int) bool {
		seen += n
		return i < seen
	})
	return math.Float64frombits((uint64(s.least+bucket)<<1 | 1) << (sketchShift - 1))
}
