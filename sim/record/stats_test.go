package record_test

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"fleetsim/sim/record"
)

func TestQuantile(t *testing.T) {
	tests := []struct {
		sorted []float64
		q      float64
		want   record.Float
	}{
		{nil, 0.5, record.Float{}},
		{[]float64{3}, 0.99, record.Some(3.0)},
		{[]float64{1, 2}, 0.5, record.Some(1.5)},
		{[]float64{1, 2, 4}, 0.5, record.Some(2.0)},
		{[]float64{1, 2, 4}, 0.75, record.Some(3.0)},           // at 1.5
		{[]float64{0, 10, 20, 30, 40}, 0.95, record.Some(38.)}, // at 3.8
		{[]float64{0, 10, 20, 30, 40}, 0, record.Some(0.0)},
		{[]float64{0, 10, 20, 30, 40}, 1, record.Some(40.0)},
		{[]float64{0, 10, 20, 30, 40}, 7, record.Some(40.0)},
		{[]float64{0, 10, 20, 30, 40}, -7, record.Some(0.0)},
		{[]float64{1, 2}, math.NaN(), record.Float{}},
	}
	for _, tt := range tests {
		got := record.Quantile(tt.sorted, tt.q)
		if got.Valid() != tt.want.Valid() || math.Abs(got.Or(0)-tt.want.Or(0)) > 1e-14 {
			t.Errorf("Quantile(%v, %v) = %v, want %v", tt.sorted, tt.q, got, tt.want)
		}
	}
	got := record.Quantiles([]float64{1, 2, 4}, 0.75, 0)
	if !slices.Equal(got, []record.Float{record.Some(3.0), record.Some(1.0)}) {
		t.Errorf("Quantiles = %v", got)
	}
	equal(t, "equal values come back exactly", record.Quantile(slices.Repeat([]float64{0.2}, 97), 0.99), record.Some(0.2))
}

func TestQuantileIsMonotoneAndWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 50).Draw(t, "values")
		slices.Sort(values)
		p, q := rapid.Float64Range(0, 1).Draw(t, "p"), rapid.Float64Range(0, 1).Draw(t, "q")
		low, high := record.Quantile(values, min(p, q)).Or(-1), record.Quantile(values, max(p, q)).Or(-1)
		if low > high || low < values[0] || high > values[len(values)-1] {
			t.Fatalf("quantiles %v and %v of %v", low, high, values)
		}
	})
}

func TestKolmogorovSmirnov(t *testing.T) {
	tests := []struct {
		name string
		a, b []float64
		d, p float64
	}{
		// Of the C(n+m, n) orders of the pooled sample, how many are as far apart.
		{"apart, 2 and 2", []float64{1, 2}, []float64{3, 4}, 1, 2.0 / 6},
		{"apart, 3 and 3", []float64{1, 2, 3}, []float64{4, 5, 6}, 1, 2.0 / 20},
		{"apart, 2 and 3", []float64{5, 4}, []float64{3, 1, 2}, 1, 2.0 / 10},
		{"one each", []float64{1}, []float64{2}, 1, 1},
		{"alternating", []float64{1, 3}, []float64{2, 4}, 0.5, 1},
		{"nested", []float64{2, 3}, []float64{1, 4}, 0.5, 1},
		{"1 and 3, in the middle", []float64{2.5}, []float64{1, 2, 3}, 2.0 / 3, 1},
		{"1 and 3, at the end", []float64{9}, []float64{1, 2, 3}, 1, 2.0 / 4},
		{"the same", []float64{1, 2, 3}, []float64{1, 2, 3}, 0, 1},
		// Paths over the 3x3 lattice that leave |i−j| < 2: all 20 but 2*2*2.
		{"two thirds", []float64{1, 2, 4}, []float64{3, 5, 6}, 2.0 / 3, 12.0 / 20},
	}
	for _, tt := range tests {
		d, p := record.KolmogorovSmirnov(tt.a, tt.b)
		near(t, tt.name+": d", d, record.Some(tt.d), 1e-15)
		near(t, tt.name+": p", p, record.Some(tt.p), 1e-15)
		d, p = record.KolmogorovSmirnov(tt.b, tt.a)
		near(t, tt.name+", swapped: d", d, record.Some(tt.d), 1e-15)
		near(t, tt.name+", swapped: p", p, record.Some(tt.p), 1e-15)
	}
	d, p := record.KolmogorovSmirnov(nil, []float64{1})
	equal(t, "d of nothing", d, record.Float{})
	equal(t, "p of nothing", p, record.Float{})
}

// Beyond exactKS pairs the limit distribution takes over. The values are those of
// its definition, 2 Σ (−1)^(k−1) exp(−2k²λ²): K(1) = 0.27 and K(1.36) = 0.049, the
// familiar 5% point.
func TestKolmogorovSmirnovOfLargeSamples(t *testing.T) {
	const n = 4000
	a, b := make([]float64, n), make([]float64, n)
	for i := range n {
		a[i], b[i] = float64(i), float64(i)
	}
	root := math.Sqrt(n / 2.0)
	for _, tt := range []struct{ lambda, p float64 }{{1, 0.26999967}, {1.36, 0.04948588}, {0.3, 0.99999069}, {0.1, 1}} {
		shift := math.Round(tt.lambda / (root + 0.12 + 0.11/root) * n)
		for i := range b {
			b[i] = float64(i) + shift
		}
		d, p := record.KolmogorovSmirnov(a, b)
		near(t, "d", d, record.Some(shift/n), 1e-12)
		near(t, "p", p, record.Some(tt.p), 0.01*max(tt.p, 0.5))
	}
}

func TestWasserstein(t *testing.T) {
	tests := []struct {
		name string
		a, b []float64
		want float64
	}{
		{"points", []float64{1}, []float64{4}, 3},
		{"shifted", []float64{3, 1, 2}, []float64{2, 3, 4}, 1},
		{"the same", []float64{1, 2}, []float64{2, 1}, 0},
		// The gap is 1/2 − 2/6 from 0 to 1 and 1 − 4/6 from 1 to 4.
		{"unequal sizes", []float64{0, 1}, []float64{0, 0, 1, 1, 4, 4}, 1.0/6 + 3.0/3},
	}
	for _, tt := range tests {
		near(t, tt.name, record.Wasserstein(tt.a, tt.b), record.Some(tt.want), 1e-15)
	}
	equal(t, "of nothing", record.Wasserstein(nil, []float64{1}), record.Float{})
}

func TestWassersteinAgreesWithGonum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sample := rapid.SliceOfN(rapid.Map(rapid.IntRange(-20, 20), func(i int) float64 { return float64(i) / 4 }), 1, 30)
		a, b := sample.Draw(t, "a"), sample.Draw(t, "b")
		keptA, keptB := slices.Clone(a), slices.Clone(b)
		got := record.Wasserstein(a, b).Or(-1)
		if want := stat.WassersteinDistance(a, b, nil, nil); math.Abs(got-want) > 1e-12 {
			t.Fatalf("got %v, gonum says %v", got, want)
		}
		if !slices.Equal(a, keptA) || !slices.Equal(b, keptB) {
			t.Fatal("the samples were changed")
		}
	})
}

func TestBand(t *testing.T) {
	var values []float64
	for i := 100; i >= 0; i-- {
		values = append(values, float64(i))
	}
	b := record.BandOf(values)
	near(t, "p5", b.P5, record.Some(5.0), 1e-12)
	near(t, "p50", b.P50, record.Some(50.0), 1e-12)
	near(t, "p95", b.P95, record.Some(95.0), 1e-12)
	for _, tt := range []struct {
		v             record.Float
		slack         float64
		within, known bool
	}{
		{record.Some(50.0), 0, true, true},
		{record.Some(96.0), 0, false, true},
		{record.Some(96.0), 0.05, true, true},
		{record.Some(4.0), 0.05, false, true},
		{record.Some(4.76), 0.05, true, true},
		{record.Float{}, 0, false, false},
	} {
		within, known := b.Holds(tt.v, tt.slack)
		equal(t, "within", within, tt.within)
		equal(t, "known", known, tt.known)
	}
	_, known := record.BandOf(nil).Holds(record.Some(1.0), 0)
	equal(t, "the band of nothing is known", known, false)
}
