package sweep

import (
	"encoding/csv"
	"io"
	"math"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"fleetsim/sim/scenario"
)

// A kind is the type of a column.
type kind int

const (
	text kind = iota
	whole
	number64 // a float; NaN and infinite are absent
)

// A tableColumn is one column of a table of results.
type tableColumn struct {
	name string
	kind kind
}

// A field is one value of a row, in the member that its column's kind says.
type field struct {
	text   string
	whole  int64
	number float64
	absent bool
}

// A table is columns and rows, one after the other, that can be written as CSV
// and as Parquet.
type table struct {
	columns []tableColumn
	rows    func(yield func([]field) error) error // the slice is only valid during the call
}

// statDigits is to how many significant digits statistics are written: enough
// for anyone, and few enough to be the same on machines whose floating point
// differs in the last bit.
const statDigits = 9

// axisColumns are a column an axis: numbers where all its values are.
func (s *Sweep) axisColumns() []tableColumn {
	var out []tableColumn
	for i := range s.Axes {
		c := tableColumn{s.Axes[i].Name, text}
		switch numbers, whole64 := s.Axes[i].numeric(); {
		case whole64:
			c.kind = whole
		case numbers:
			c.kind = number64
		}
		out = append(out, c)
	}
	return out
}

func (s *Sweep) axisFields(row []field, cell int) []field {
	for a := range s.Axes {
		v := s.Value(cell, a)
		f := field{text: v.Text()}
		f.number, _ = v.Number()
		f.whole = int64(f.number)
		row = append(row, f)
	}
	return row
}

// runsTable has a row a run: the cell, the seed, the axes' values, the metrics.
func (s *Sweep) runsTable(r Results) table {
	columns := append([]tableColumn{{"cell", whole}, {"seed", whole}}, s.axisColumns()...)
	for _, m := range s.Metrics {
		columns = append(columns, tableColumn{m.Name, number64})
	}
	return table{columns, func(yield func([]field) error) error {
		var row []field
		for cell := range s.Cells {
			for k := range r.Ran(cell) {
				row = append(row[:0], field{whole: int64(cell)}, field{whole: int64(s.Seeds[k])})
				row = s.axisFields(row, cell)
				for _, v := range r[cell][k] {
					row = append(row, floatField(v))
				}
				if err := yield(row); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

func floatField(v float64) field {
	return field{number: v, absent: math.IsNaN(v) || math.IsInf(v, 0)}
}

func statField(v float64) field { return floatField(round(v, statDigits)) }

// cellsTable has a row a cell: what it is, what it is compared with, and what
// was decided about it.
func (s *Sweep) cellsTable(r Results) table {
	columns := append([]tableColumn{{"cell", whole}}, s.axisColumns()...)
	columns = append(columns, tableColumn{"seeds", whole}, tableColumn{"baseline", whole}, tableColumn{"verdict", text},
		tableColumn{"best", text}, tableColumn{"extrapolates", text}, tableColumn{"scenario_digest", text})
	return table{columns, func(yield func([]field) error) error {
		best := s.bestNotes(r)
		var row []field
		for cell := range s.Cells {
			base := s.Cells[cell].Baseline
			row = s.axisFields(append(row[:0], field{whole: int64(cell)}), cell)
			row = append(row, field{whole: int64(r.Ran(cell))}, field{whole: int64(base), absent: base < 0},
				optionalText(s.verdictText(r, cell)), optionalText(best[cell]), optionalText(s.Extrapolates(r, cell)),
				field{text: scenario.Digest(s.Cells[cell].Scenario)})
			if err := yield(row); err != nil {
				return err
			}
		}
		return nil
	}}
}

func optionalText(s string) field { return field{text: s, absent: s == ""} }

func (s *Sweep) verdictText(r Results, cell int) string {
	if len(s.Constraints) == 0 {
		return ""
	}
	return s.Verdict(r, cell, r.Ran(cell)).String()
}

// bestNotes says of each cell whether it is the "best" of its group or a "tie"
// with it; "" of the rest.
func (s *Sweep) bestNotes(r Results) []string {
	notes := make([]string, len(s.Cells))
	for _, c := range s.Choose(r) {
		if c.Best >= 0 {
			notes[c.Best] = "best"
		}
		for _, cell := range c.Ties {
			notes[cell] = "tie"
		}
	}
	return notes
}

// headline are the metrics summed up by cell, beside those of the goals.
var headline = [...]string{
	"good_share", "ttft_p50", "ttft_p95", "ttft_p99", "tpot_p95", "e2e_p95", "cache_hit_ratio",
	"good_per_second", "output_tokens_per_second", "dropped", "rejected", "failed", "waiting_max", "imbalance", "gpu_seconds",
}

// Headline are the indexes of the metrics that are summed up by cell: the
// usual ones, those of tenants, and those of the goals.
func (s *Sweep) Headline() []int {
	in := make([]bool, len(s.Metrics))
	for _, name := range headline {
		if i, err := s.MetricIndex(name); err == nil {
			in[i] = true
		}
	}
	if s.Objective != nil && s.Objective.Metric >= 0 {
		in[s.Objective.Metric] = true
	}
	for _, c := range s.Constraints {
		in[c.Metric] = true
	}
	var out []int
	for i := range s.Metrics {
		if in[i] || i >= len(general) {
			out = append(out, i)
		}
	}
	return out
}

// summaryTable has a row a cell and metric: mean, median and the rest over the
// seeds, and the difference to the baseline.
func (s *Sweep) summaryTable(r Results) table {
	columns := append([]tableColumn{{"cell", whole}}, s.axisColumns()...)
	columns = append(columns, tableColumn{"metric", text}, tableColumn{"n", whole})
	for _, name := range []string{"mean", "mean_low", "mean_high", "median", "p5", "p95"} {
		columns = append(columns, tableColumn{name, number64})
	}
	columns = append(columns, tableColumn{"diff_n", whole})
	for _, name := range []string{"diff", "diff_low", "diff_high"} {
		columns = append(columns, tableColumn{name, number64})
	}
	return table{columns, func(yield func([]field) error) error {
		metrics := s.Headline()
		var row []field
		for cell := range s.Cells {
			for _, m := range metrics {
				st := s.Stat(r, cell, m)
				row = s.axisFields(append(row[:0], field{whole: int64(cell)}), cell)
				row = append(row, field{text: s.Metrics[m].Name}, field{whole: int64(st.Mean.N)},
					statField(st.Mean.Estimate), statField(st.Mean.Low), statField(st.Mean.High),
					statField(st.Band.P50.Or(math.NaN())), statField(st.Band.P5.Or(math.NaN())), statField(st.Band.P95.Or(math.NaN())))
				none := st.Diff.N == 0
				row = append(row, field{whole: int64(st.Diff.N), absent: none})
				for _, v := range []float64{st.Diff.Estimate, st.Diff.Low, st.Diff.High} {
					f := statField(v)
					f.absent = f.absent || none
					row = append(row, f)
				}
				if err := yield(row); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

// writeCSV writes the table with a header; what is absent is empty.
func (t table) writeCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	line := make([]string, len(t.columns))
	for i, c := range t.columns {
		line[i] = c.name
	}
	if err := w.Write(line); err != nil {
		return err
	}
	err := t.rows(func(row []field) error {
		for i, f := range row {
			line[i] = f.csv(t.columns[i].kind)
		}
		return w.Write(line)
	})
	w.Flush()
	if err != nil {
		return err
	}
	return w.Error()
}

func (f field) csv(k kind) string {
	switch {
	case f.absent:
		return ""
	case k == text:
		return f.text
	case k == whole:
		return strconv.FormatInt(f.whole, 10)
	}
	return strconv.FormatFloat(f.number, 'g', -1, 64)
}

// A schemaRoot is a group whose fields keep their order; parquet.Group sorts
// them by name.
type schemaRoot struct {
	parquet.Group
	fields []parquet.Field
}

func (r schemaRoot) Fields() []parquet.Field { return r.fields }

// A schemaField is a named node of a schemaRoot.
type schemaField struct {
	parquet.Field
}

func (t table) schema(name string) *parquet.Schema {
	root := schemaRoot{Group: parquet.Group{}}
	for _, c := range t.columns {
		var node parquet.Node
		switch c.kind {
		case text:
			node = parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
		case whole:
			node = parquet.Int(64)
		default:
			node = parquet.Leaf(parquet.DoubleType)
		}
		one := parquet.Group{c.name: parquet.Compressed(parquet.Optional(node), &parquet.Zstd)}
		root.Group[c.name] = one[c.name]
		root.fields = append(root.fields, schemaField{one.Fields()[0]})
	}
	return parquet.NewSchema(name, root)
}

// rowsPerWrite is how many rows are handed to the Parquet writer at once.
const rowsPerWrite = 1024

// writeParquet writes the table as one Parquet file, every column optional.
func (t table) writeParquet(out io.Writer, name, version string) error {
	w := parquet.NewGenericWriter[any](out, t.schema(name), parquet.CreatedBy("fleetsim", version, ""))
	var rows []parquet.Row
	flush := func() error {
		_, err := w.WriteRows(rows)
		rows = rows[:0]
		return err
	}
	err := t.rows(func(fields []field) error {
		row := make(parquet.Row, len(fields))
		for i, f := range fields {
			row[i] = f.parquet(t.columns[i].kind, i)
		}
		if rows = append(rows, row); len(rows) < rowsPerWrite {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return w.Close()
}

func (f field) parquet(k kind, column int) parquet.Value {
	const defined = 1 // level of an optional value that is there
	switch {
	case f.absent:
		return parquet.NullValue().Level(0, 0, column)
	case k == text:
		return parquet.ByteArrayValue([]byte(f.text)).Level(0, defined, column)
	case k == whole:
		return parquet.Int64Value(f.whole).Level(0, defined, column)
	}
	return parquet.DoubleValue(f.number).Level(0, defined, column)
}
