// Package metrics writes what a real cluster's Prometheus holds: the engine's,
// the gateway's and the client's metrics under their real names, as a page to
// scrape or as time series with timestamps.
package metrics

import "sort"

// A Type is a metric family's type.
type Type string

// The types in use.
const (
	Gauge         Type = "gauge"
	Counter       Type = "counter"
	HistogramType Type = "histogram"
)

// A Family is the series of one metric name.
type Family struct {
	// Name is without the _total that the samples of a counter have.
	Name string
	Help string
	Type Type
	// Series are those with different labels.
	Series []Series
}

// A Series is one metric over time.
type Series struct {
	Labels []Label // distinct names, in the order in which they are written
	Points []Point // in order of time; a page to scrape shows the last
}

// A Label is a name and a value.
type Label struct{ Name, Value string }

// A Point is a value at an instant.
type Point struct {
	At        float64    // Unix time, s; ignored on a page to scrape
	Value     float64    // of a gauge or counter
	Histogram *Histogram // of a histogram
}

// A Histogram counts observations in buckets.
type Histogram struct {
	Bounds []float64 // upper, inclusive and ascending; +Inf is understood
	Counts []uint64  // by bucket, the last beyond all bounds; not cumulative
	Sum    float64
}

// NewHistogram returns an empty histogram; bounds are shared, not copied.
func NewHistogram(bounds []float64) *Histogram {
	return &Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Observe adds an observation.
func (h *Histogram) Observe(v float64) { h.ObserveN(v, 1) }

// ObserveN adds n equal observations.
func (h *Histogram) ObserveN(v float64, n int) {
	h.Counts[sort.SearchFloat64s(h.Bounds, v)] += uint64(n)
	h.Sum += v * float64(n)
}

// Clone is a copy that later observations do not change.
func (h *Histogram) Clone() *Histogram {
	c := *h
	c.Counts = append([]uint64(nil), h.Counts...)
	return &c
}

// Count is the number of observations.
func (h *Histogram) Count() uint64 {
	n := uint64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Exponential is n bounds from first on, each factor times the one before.
func Exponential(first, factor float64, n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = first
		first *= factor
	}
	return bounds
}
