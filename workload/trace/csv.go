package trace

import (
	"fmt"
	"slices"
	"strings"

	"fleetsim/simtime"
)

// A table is the CSV record at hand, by column.
type table struct {
	line    int
	fields  [][]byte
	columns []string // required, then optional
	at      []int    // where each is in fields, or -1
}

// get is the text of a column, nil if the source has no such column or nothing in
// it.
func (t *table) get(column string) []byte {
	i := slices.Index(t.columns, column)
	if i < 0 || t.at[i] < 0 || len(t.fields[t.at[i]]) == 0 {
		return nil
	}
	return t.fields[t.at[i]]
}

func (t *table) text(column string) string { return string(t.get(column)) }

func (t *table) errorf(column, format string, args ...any) error {
	return &fieldError{path: column, text: fmt.Sprintf(format, args...), off: -1}
}

// number is the column as a number's text, nil if there is none.
func (t *table) number(column string) ([]byte, error) {
	s := t.get(column)
	if s == nil {
		return nil, nil
	}
	if numberLength(s) != len(s) {
		return nil, t.errorf(column, "%.24q is no number", s)
	}
	return s, nil
}

// count is a token count; absent if the column is empty.
func (t *table) count(column string) (Optional[int], error) {
	s, err := t.number(column)
	if s == nil {
		return Optional[int]{}, err
	}
	n, err := parseCount(s)
	if err != nil {
		return Optional[int]{}, t.errorf(column, "%s %v", s, err)
	}
	return Some(n), nil
}

// instant is a time in unit u; absent if the column is empty.
func (t *table) instant(column string, u TimeUnit) (Optional[instant], error) {
	s, err := t.number(column)
	if s == nil {
		return Optional[instant]{}, err
	}
	d := parseDecimal(s)
	at, err := d.instant(u)
	if err != nil {
		return Optional[instant]{}, t.errorf(column, "%s %v", s, err)
	}
	return Some(at), nil
}

// span is a duration in unit u; absent if the column is empty.
func (t *table) span(column string, u TimeUnit) (Optional[simtime.Time], error) {
	at, err := t.instant(column, u)
	if err != nil || !at.Present {
		return Optional[simtime.Time]{}, err
	}
	d, ok := at.Value.since(instant{})
	if !ok {
		return Optional[simtime.Time]{}, t.errorf(column, "duration beyond %d s", maxSpanSeconds)
	}
	return Some(d), nil
}

// counts reads several columns into fields, 0 where empty; all of their problems
// are in the error.
func (t *table) counts(into map[string]*int) error {
	var problems []string
	for _, column := range t.columns {
		dst, ok := into[column]
		if !ok {
			continue
		}
		n, err := t.count(column)
		if err != nil {
			problems = append(problems, err.Error())
		}
		*dst = n.Value
	}
	if problems != nil {
		return &fieldError{text: strings.Join(problems, "; "), off: -1}
	}
	return nil
}

// csvSteps reads the header, which must have every required column, and gives the
// reader of the records.
func (r *Reader) csvSteps() (func() error, error) {
	l := &lines{in: r.in, limit: min(r.opts.MaxLineBytes, 1<<20)}
	s := new(csvSplitter)
	t := &table{columns: append(slices.Clone(r.f.required), r.f.optional...)}
	var names []string
	for len(names) == 0 {
		fields, _, _, err := s.next(l)
		if err != nil {
			return nil, fmt.Errorf("%s: no header line", r.report.Name)
		}
		for _, f := range fields {
			names = append(names, string(f))
		}
	}
	if err := r.findColumns(t, names, l.n); err != nil {
		return nil, err
	}
	return func() error {
		fields, line, whole, err := s.next(l)
		r.report.Lines = l.n
		if err == errLineTooLong {
			return r.problem(line, fmt.Errorf("line longer than %d bytes", l.limit))
		}
		if _, ok := err.(*fieldError); ok {
			return r.problem(line, err)
		}
		if err != nil {
			return err
		}
		if !whole {
			if cut := r.endsEarly(); cut != "" {
				return r.cutOff(fmt.Sprintf("%s in line %d", cut, line))
			}
		}
		if len(fields) == 0 {
			return nil
		}
		if len(fields) < len(names) && !whole {
			return r.cutOff(fmt.Sprintf("line %d, the last, is cut off", line))
		}
		if len(fields) != len(names) {
			return r.problem(line, fmt.Errorf("%d fields, where the header has %d", len(fields), len(names)))
		}
		if slices.EqualFunc(fields, names, func(f []byte, n string) bool { return string(f) == n }) {
			return nil // a header again, where files were put together
		}
		t.fields, t.line = fields, line
		err = r.f.fields(r, t)
		r.commit(err == nil)
		if err != nil {
			return r.problem(line, err)
		}
		return nil
	}, nil
}

// findColumns fails with all that is wrong with a header.
func (r *Reader) findColumns(t *table, names []string, line int) error {
	var missing, twice []string
	for i, column := range t.columns {
		at := slices.Index(names, column)
		t.at = append(t.at, at)
		switch {
		case at < 0 && i < len(r.f.required):
			missing = append(missing, column)
		case at >= 0 && slices.Contains(names[at+1:], column):
			twice = append(twice, column)
		}
	}
	e := &ReadError{}
	add := func(text string) {
		e.Problems = append(e.Problems, Problem{File: r.report.Name, Line: line, Text: text})
	}
	if missing != nil {
		add(fmt.Sprintf("%s: column missing: %s; wanted are %s, found are %s", r.f.name,
			strings.Join(missing, ", "), strings.Join(r.f.required, ", "), strings.Join(names, ", ")))
	}
	if twice != nil {
		add("column twice in the header: " + strings.Join(twice, ", "))
	}
	if len(e.Problems) > 0 {
		return e
	}
	return nil
}
