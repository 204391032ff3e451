// Package report draws the results of a sweep: one HTML file that needs no
// network, and its figures as SVG and PNG files.
//
// Build turns results into a Report, plain data: texts, tables and figures.
// WriteHTML and WriteFigures draw it.
package report

import (
	"fleetsim/sim/sweep"
)

// A Report is everything that is drawn.
type Report struct {
	Title       string
	Description string
	Facts       []Fact
	Warnings    []string
	Answers     *Table // what was chosen; nil: the sweep has no objective
	Figures     []Figure
	Tables      []Table
	Method      []string // paragraphs: how the figures came about
}

// A Fact is a name with its value, both for people.
type Fact struct{ Name, Value string }

// A Table is rows of texts.
type Table struct {
	ID, Title string
	Caption   string
	Columns   []Column
	Rows      [][]string
}

// A Column heads a column of a Table.
type Column struct {
	Name   string
	Number bool // set to the right
}

// A Figure is panels that are looked at together.
type Figure struct {
	ID, Title string
	Caption   string
	Legend    []string // names of the colours, from the first
	Panels    []Panel
}

// A Panel is one drawing: a Heatmap or a Chart.
type Panel interface{ panel() }

// A Heatmap is a grid of coloured cells.
type Heatmap struct {
	Title  string
	X, Y   Category
	Name   string // of the value
	Unit   string
	Values [][]float64 // by y, then x; NaN: nothing there
	Low    float64     // value of the palette's first colour
	High   float64     // and of its last
	// Diverging takes 0 for the middle of the palette; otherwise bright is high,
	// and with Reverse bright is low.
	Diverging, Reverse bool
	Best               [][]bool // ringed
	Hatched            [][]bool // outside the calibrated range
	Note               [][]string
}

// A Category is an axis of discrete values.
type Category struct {
	Label  string
	Values []string
}

// A Chart has two axes and series.
type Chart struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// An Axis is a chart's.
type Axis struct {
	Label string
	Log   bool
	// Values are the names of the places 0, 1, …, when the axis has no numbers.
	Values []string
	// Low and High are the least range shown; both 0: that of the data.
	Low, High float64
}

// A Mark is how a series is drawn.
type Mark int

// The marks.
const (
	Line Mark = iota // with Low and High as a band, if there
	Step
	Dots
	Hollow // dots of what lies outside the calibrated range
	Front  // a line that stands out
)

// A Series is points with one colour.
type Series struct {
	Name      string
	Color     int // place in the legend
	Mark      Mark
	X, Y      []float64
	Low, High []float64 // the band's bounds, or none
	Notes     []string  // by point, or none
}

func (*Heatmap) panel() {}
func (*Chart) panel()   {}

// An Input is what a report is made of.
type Input struct {
	Sweep   *sweep.Sweep
	Results sweep.Results
	Version string
	Command string // the command that makes the results again
	// Cell is looked at closely, and Baseline beside it; nil for none.
	Cell, Baseline *sweep.Detail
	// Fidelity says how far the profile agrees with measurements; nil when that
	// was not looked at.
	Fidelity *Table
}
