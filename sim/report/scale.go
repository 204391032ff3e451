package report

import (
	"math"
	"strconv"
)

// ticks are about n round numbers from low to high: multiples of 1, 2 or 5 times
// a power of ten.
func ticks(low, high float64, n int) []float64 {
	if !(high > low) || n < 1 {
		return []float64{low}
	}
	step := roundStep((high - low) / float64(n))
	var out []float64
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		out = append(out, i*step+0) // +0 turns -0 into 0
	}
	return out
}

// roundStep is the least of 1, 2 and 5 times a power of ten that is step or more.
func roundStep(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= step*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logTicks are the powers of ten from low to high, with 2 and 5 times them when
// they are few.
func logTicks(low, high float64) []float64 {
	factors := []float64{1}
	if math.Log10(high/low) < 3 {
		factors = []float64{1, 2, 5}
	}
	var out []float64
	for p := math.Floor(math.Log10(low)); p <= math.Ceil(math.Log10(high)); p++ {
		for _, f := range factors {
			if v := f * math.Pow(10, p); v >= low*(1-1e-9) && v <= high*(1+1e-9) {
				out = append(out, v)
			}
		}
	}
	return out
}

// extent is the range of the finite values among those given.
func extent(values ...[]float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, vs := range values {
		for _, v := range vs {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	return low, high
}

// number writes v with so many significant digits, for people.
func number(v float64, digits int) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case math.IsInf(v, 1):
		return "∞"
	case math.IsInf(v, -1):
		return "-∞"
	case a >= 1e6 || a != 0 && a < 1e-4:
		return strconv.FormatFloat(v, 'g', digits, 64)
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
	if err != nil {
		return strconv.FormatFloat(v, 'g', digits, 64)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// A color is a colour of a palette, its parts from 0 to 255.
type color struct{ r, g, b float64 }

// sequential goes from dark to bright with even steps to the eye, also to one
// that sees no red or no green (the colours of matplotlib's viridis).
var sequential = [...]color{
	{68, 1, 84}, {72, 40, 120}, {62, 73, 137}, {49, 104, 142}, {38, 130, 142},
	{31, 158, 137}, {53, 183, 121}, {110, 206, 88}, {181, 222, 43}, {253, 231, 37},
}

// diverging goes from blue over white to red (ColorBrewer's RdBu, reversed).
var diverging = [...]color{
	{33, 102, 172}, {67, 147, 195}, {146, 197, 222}, {209, 229, 240}, {247, 247, 247},
	{253, 219, 199}, {244, 165, 130}, {214, 96, 77}, {178, 24, 43},
}

// shade is the heatmap's colour of v.
func (h *Heatmap) shade(v float64) color {
	at := 0.5
	if h.High > h.Low {
		at = min(max((v-h.Low)/(h.High-h.Low), 0), 1)
	}
	if h.Reverse {
		at = 1 - at
	}
	if h.Diverging {
		return blend(diverging[:], at)
	}
	return blend(sequential[:], at)
}

// blend is the colour at a place from 0 to 1 of the palette.
func blend(palette []color, at float64) color {
	place := at * float64(len(palette)-1)
	i := min(int(place), len(palette)-2)
	f := place - float64(i)
	mix := func(a, b float64) float64 { return a + f*(b-a) }
	a, b := palette[i], palette[i+1]
	return color{mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b)}
}

// bright reports whether dark text is easier to read on c.
func (c color) bright() bool { return 0.299*c.r+0.587*c.g+0.114*c.b > 140 }
