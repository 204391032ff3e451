package record

import (
	"math"
	"slices"
)

// Quantile is the q-quantile of sorted, which must be ascending: linear
// interpolation at position (n−1)q counted from 0, as the studies' own
// recomputation does it. It is type 7 of Hyndman and Fan, "Sample Quantiles in
// Statistical Packages", The American Statistician 50 (1996). It is absent over
// nothing; q is taken within 0 and 1.
func Quantile(sorted []float64, q float64) Float {
	if len(sorted) == 0 || math.IsNaN(q) {
		return Float{}
	}
	at := float64(len(sorted)-1) * min(max(q, 0), 1)
	i := int(at)
	if i == len(sorted)-1 {
		return Some(sorted[i])
	}
	low, high := sorted[i], sorted[i+1]
	// The conversion forbids a fused multiply-add, which some machines would use and
	// which would differ in the last digit. Blending in this form gives equal
	// neighbours back exactly.
	return Some(low + float64((at-float64(i))*(high-low)))
}

// Quantiles are the quantiles qs of sorted, in the order of qs.
func Quantiles(sorted []float64, qs ...float64) []Float {
	out := make([]Float, len(qs))
	for i, q := range qs {
		out[i] = Quantile(sorted, q)
	}
	return out
}

// PercentilesOf are the percentiles of values, which it sorts. N is their number.
func PercentilesOf(values []float64) Percentiles {
	slices.Sort(values)
	return Percentiles{
		P50: Quantile(values, 0.50),
		P95: Quantile(values, 0.95),
		P99: Quantile(values, 0.99),
		N:   Some(len(values)),
	}
}
