package record

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// KolmogorovSmirnov is the two-sample test that a and b, in any order, come from
// one distribution: d is the largest gap between their empirical distribution
// functions, p the probability of one at least as large if they do. Both are absent
// when a sample is empty.
//
// p is exact (paths on the lattice that leave a band around the diagonal: Hodges,
// "The significance probability of the Smirnov two-sample test", Arkiv för Matematik 3
// (1958)) up to exactKS pairs, beyond it asymptotic. With ties it is an upper bound.
func KolmogorovSmirnov(a, b []float64) (d, p Float) {
	if len(a) == 0 || len(b) == 0 {
		return Float{}, Float{}
	}
	gap := stat.KolmogorovSmirnov(slices.Sorted(slices.Values(a)), nil, slices.Sorted(slices.Values(b)), nil)
	if len(a) <= exactKS/len(b) {
		return Some(gap), Some(exactKSProbability(gap, len(a), len(b)))
	}
	return Some(gap), Some(asymptoticKSProbability(gap, len(a), len(b)))
}

// exactKS is the number of pairs up to which the exact probability is worth its
// time, some 10 ms.
const exactKS = 1 << 22

// exactKSProbability is the share of the monotone lattice paths from (0, 0) to
// (n, m) that touch a point (i, j) with |i/n − j/m| ≥ d. A random path that passes
// (i, j) came from (i−1, j) with probability i/(i+j).
func exactKSProbability(d float64, n, m int) float64 {
	reach := int(math.Round(d * float64(n) * float64(m))) // d is a multiple of 1/(nm)
	touched := make([]float64, m+1)                       // of paths to (i, j), for the current i
	for i := 0; i <= n; i++ {
		for j := 0; j <= m; j++ {
			switch gap := i*m - j*n; {
			case gap >= reach || -gap >= reach:
				touched[j] = 1
			case i == 0 && j == 0:
				touched[j] = 0
			case j == 0: // touched[0] is that of (i−1, 0)
			case i == 0:
				touched[j] = touched[j-1]
			default:
				// Conversions forbid fused operations, which differ between machines.
				down := float64(touched[j] * float64(i))
				left := float64(touched[j-1] * float64(j))
				touched[j] = (down + left) / float64(i+j)
			}
		}
	}
	return touched[m]
}

// asymptoticKSProbability is Kolmogorov's limit distribution with Stephens's
// correction for finite samples ("Use of the Kolmogorov–Smirnov, Cramér–von Mises and
// related statistics without extensive tables", JRSS B 32 (1970)).
func asymptoticKSProbability(d float64, n, m int) float64 {
	root := math.Sqrt(float64(n) / float64(n+m) * float64(m))
	lambda := (root + 0.12 + 0.11/root) * d
	if lambda < 0.2 {
		return 1 // to sixteen digits; the series converges slowly there
	}
	sum, sign := 0.0, 1.0
	for k := 1.0; k <= 100; k++ {
		term := math.Exp(-2 * k * k * lambda * lambda)
		sum += sign * term
		sign = -sign
		if term < 1e-17 {
			break
		}
	}
	return min(max(2*sum, 0), 1)
}

// Wasserstein is the Wasserstein-1 (earth mover's) distance between a and b, in
// any order, in their unit: the area between their empirical distribution functions.
// It is absent when a sample is empty. (gonum's takes quadratic time, too long for
// the pooled samples of an ensemble.)
func Wasserstein(a, b []float64) Float {
	if len(a) == 0 || len(b) == 0 {
		return Float{}
	}
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	area, at := 0.0, math.Min(a[0], b[0])
	for i, j := 0, 0; i < len(a) || j < len(b); {
		next := math.Inf(1)
		if i < len(a) {
			next = a[i]
		}
		if j < len(b) {
			next = min(next, b[j])
		}
		gap := math.Abs(float64(i)/float64(len(a)) - float64(j)/float64(len(b)))
		area += float64(gap * (next - at)) // no fused operation: they differ between machines
		at = next
		i = pass(a, i, at)
		j = pass(b, j, at)
	}
	return Some(area)
}

// pass is the first place from i on in sorted that does not hold v.
func pass(sorted []float64, i int, v float64) int {
	for i < len(sorted) && sorted[i] == v {
		i++
	}
	return i
}

// A Band is where most of an ensemble lies.
type Band struct {
	P5  Float `json:"p5"`
	P50 Float `json:"p50"`
	P95 Float `json:"p95"`
}

// BandOf is the band of values, in any order; absent over nothing.
func BandOf(values []float64) Band {
	settled := slices.Clone(values)
	settle(settled, 0.05, 0.50, 0.95)
	return Band{P5: Quantile(settled, 0.05), P50: Quantile(settled, 0.50), P95: Quantile(settled, 0.95)}
}

// Holds reports whether v lies within the band widened by slack, a share of each
// bound (0.05 is 5%), bounds included; known is false when v or the band is absent.
func (b Band) Holds(v Float, slack float64) (within, known bool) {
	low, haveLow := b.P5.Get()
	high, haveHigh := b.P95.Get()
	x, haveX := v.Get()
	if !haveLow || !haveHigh || !haveX {
		return false, false
	}
	return low-math.Abs(low)*slack <= x && x <= high+math.Abs(high)*slack, true
}
