package record

import (
	"math"
	"math/bits"
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
	at, i := position(len(sorted), q)
	if i == len(sorted)-1 {
		return Some(sorted[i])
	}
	low, high := sorted[i], sorted[i+1]
	// The conversion forbids a fused multiply-add, which some machines would use and
	// which would differ in the last digit. Blending in this form gives equal
	// neighbours back exactly.
	return Some(low + float64((at-float64(i))*(high-low)))
}

// position is where among n sorted values the q-quantile lies, and the place of the
// value at or before it.
func position(n int, q float64) (at float64, place int) {
	at = float64(n-1) * min(max(q, 0), 1)
	return at, int(at)
}

// Quantiles are the quantiles qs of sorted, in the order of qs.
func Quantiles(sorted []float64, qs ...float64) []Float {
	out := make([]Float, len(qs))
	for i, q := range qs {
		out[i] = Quantile(sorted, q)
	}
	return out
}

// PercentilesOf are the percentiles of values, in any order, which it rearranges.
// N is their number.
func PercentilesOf(values []float64) Percentiles {
	settle(values, 0.50, 0.95, 0.99)
	return Percentiles{
		P50: Quantile(values, 0.50),
		P95: Quantile(values, 0.95),
		P99: Quantile(values, 0.99),
		N:   Some(len(values)),
	}
}

// settle rearranges values so that Quantile finds in them, for each of the
// ascending qs, what it would find if they were sorted.
func settle(values []float64, qs ...float64) {
	if len(values) == 0 {
		return
	}
	var store [8]int
	places := store[:0]
	for _, q := range qs {
		_, i := position(len(values), q)
		places = append(places, i, min(i+1, len(values)-1))
	}
	first := gatherNaN(values)
	selectPlaces(values, first, places, 2*bits.Len(uint(len(values))))
}

// gatherNaN puts what is not a number where sorting does, in front, and returns how
// many there are.
func gatherNaN(values []float64) int {
	n := 0
	for i, v := range values {
		if math.IsNaN(v) {
			values[i], values[n] = values[n], v
			n++
		}
	}
	return n
}

// selectPlaces puts at each of the ascending places the value that sorting would
// put there, by quickselect (Hoare, "Algorithm 65: Find", CACM 4 (1961)) for all
// places at once. The values up to first are in place and those from it on are
// numbers. It sorts what it has not narrowed down after so many splits, so that no
// input takes quadratic time.
func selectPlaces(values []float64, first int, places []int, splits int) {
	const few = 12
	end := len(values)
	for {
		for len(places) > 0 && places[0] < first {
			places = places[1:]
		}
		if len(places) == 0 {
			return
		}
		if end-first <= few || splits == 0 {
			slices.Sort(values[first:end])
			return
		}
		splits--
		low, high := split(values[first:end])
		low, high = first+low, first+high
		before := 0
		for before < len(places) && places[before] < low {
			before++
		}
		selectPlaces(values[:low], first, places[:before], splits)
		first, places = high, places[before:]
	}
}

// split rearranges values around one of them: those before low are at most, those
// from high on at least, and those between equal to it.
func split(values []float64) (low, high int) {
	pivot := pivotOf(values)
	i, j := 0, len(values)-1
	for i <= j {
		for values[i] < pivot {
			i++
		}
		for pivot < values[j] {
			j--
		}
		if i <= j {
			values[i], values[j] = values[j], values[i]
			i++
			j--
		}
	}
	return j + 1, i
}

// pivotOf is the median of three medians of three.
func pivotOf(values []float64) float64 {
	n := len(values)
	three := func(at int) float64 { return median(values[at], values[at+1], values[at+2]) }
	return median(three(0), three(n/2-1), three(n-3))
}

func median(a, b, c float64) float64 {
	return max(min(a, b), min(max(a, b), c))
}
