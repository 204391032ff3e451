package sweep

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"fleetsim/sim/record"
)

// An Interval is an estimate with its confidence interval. With too few values
// for one, Low and High are -Inf and +Inf; without any, Estimate is NaN.
type Interval struct {
	N                   int // values, or pairs of values
	Estimate, Low, High float64
}

// Decided reports whether the interval lies on one side of x.
func (i Interval) Decided(x float64) bool { return i.Low > x || i.High < x }

// MeanInterval is the mean with Student's t interval of the given confidence,
// two-sided: mean ± t(n-1) s/√n. It takes the values for independent and their
// mean for about normal.
func MeanInterval(values []float64, confidence float64) Interval {
	return tInterval(values, (1-confidence)/2)
}

// tInterval is the mean with bounds that each err with probability tail.
func tInterval(values []float64, tail float64) Interval {
	n := len(values)
	i := Interval{N: n, Estimate: math.NaN(), Low: math.Inf(-1), High: math.Inf(1)}
	if n == 0 {
		return i
	}
	if n == 1 {
		i.Estimate = values[0]
		return i
	}
	mean, sd := stat.MeanStdDev(values, nil)
	if constant(values) {
		mean, sd = values[0], 0 // without the rounding of the sum
	}
	half := sd / math.Sqrt(float64(n)) * tQuantile(1-tail, n-1)
	i.Estimate, i.Low, i.High = mean, mean-half, mean+half
	return i
}

func constant(values []float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return v != values[0] })
}

// tQuantile is the p-quantile of Student's t with the degrees of freedom.
func tQuantile(p float64, freedom int) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(freedom)}.Quantile(p)
}

// PairedInterval is the mean of a[i]-b[i] with its t interval (the paired t
// method): a and b are the same seeds in the same order. Pairs with a NaN, an
// absent value, are left out; N is the number of those that count.
func PairedInterval(a, b []float64, confidence float64) Interval {
	return pairedInterval(a, b, (1-confidence)/2)
}

func pairedInterval(a, b []float64, tail float64) Interval {
	var d []float64
	for i := range min(len(a), len(b)) {
		if v := a[i] - b[i]; !math.IsNaN(v) {
			d = append(d, v)
		}
	}
	return tInterval(d, tail)
}

// clopperPearson is the interval for a proportion of which k of n were seen,
// each bound erring with probability at most tail (Clopper and Pearson, "The use
// of confidence or fiducial limits illustrated in the case of the binomial",
// Biometrika 26 (1934)).
func clopperPearson(k, n int, tail float64) Interval {
	i := Interval{N: n, Estimate: math.NaN(), Low: 0, High: 1}
	if n == 0 {
		return i
	}
	i.Estimate = float64(k) / float64(n)
	if k > 0 {
		i.Low = distuv.Beta{Alpha: float64(k), Beta: float64(n - k + 1)}.Quantile(tail)
	}
	if k < n {
		i.High = distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(1 - tail)
	}
	return i
}

// widest is the interval that holds both, around the first's estimate.
func widest(a, b Interval) Interval {
	a.Low, a.High = min(a.Low, b.Low), max(a.High, b.High)
	return a
}

// A Stat sums up one metric over the seeds of one cell.
type Stat struct {
	Mean Interval    // t interval
	Band record.Band // median, and the 5% and 95% quantiles of the seeds: where 90% of them lie
	Diff Interval    // to the baseline, paired by seed; N is 0 without one
}

// present are the values that are there.
func present(values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), math.IsNaN)
}

// statOf sums values up; base are the baseline's, nil without one. With
// tail, an interval's bounds err with probability tail each.
func statOf(values, base []float64, tail float64) Stat {
	have := present(values)
	s := Stat{Mean: tInterval(have, tail), Band: record.BandOf(have)}
	if base != nil {
		s.Diff = pairedInterval(values, base, tail)
	}
	return s
}
