// Package strict reads TOML into structs without letting anything slip: every
// unknown key, wrong type and value out of range is reported at its line, all
// at once, and values can be overridden before they are looked at.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// A Doc is a parsed document that remembers where each of its values stands.
type Doc struct {
	file   string
	root   map[string]any
	places map[Path]Place
}

// byteOrderMark begins the files of some editors.
const byteOrderMark = "\ufeff"

// Parse reads data, called file in messages. The error, if any, is Problems:
// the first thing that is not TOML, or a key that is too deep.
func Parse(file string, data []byte) (*Doc, error) {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	places, err := locate(file, data) // first, since it stops at a key that is too deep
	if err != nil {
		return nil, err
	}
	root := map[string]any{}
	if err := toml.Unmarshal(data, &root); err != nil {
		return nil, syntaxProblem(file, err)
	}
	return &Doc{file: file, root: root, places: places}, nil
}

func syntaxProblem(file string, err error) Problems {
	place := Place{File: file, Line: 1, Col: 1}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		place.Line, place.Col = at.Position()
	}
	return Problems{{Place: place, Msg: "not valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}}
}

// File is the name that the document has in messages.
func (d *Doc) File() string { return d.file }

// Has reports whether there is a value at path.
func (d *Doc) Has(path Path) bool {
	_, ok := d.get(path)
	return ok
}

// At is the place of the value at path; of what holds it when the value was
// not written down.
func (d *Doc) At(path Path) Place {
	for {
		if at, ok := d.places[path]; ok {
			return at
		}
		if path == "" {
			return Place{File: d.file, Line: 1, Col: 1}
		}
		path = path.parent()
	}
}

// Problem is a problem with the value at path.
func (d *Doc) Problem(path Path, format string, args ...any) Problem {
	return Problem{Place: d.At(path), Path: path, Msg: fmt.Sprintf(format, args...)}
}

// Clone is a copy of d that can be changed on its own.
func (d *Doc) Clone() *Doc {
	c := &Doc{file: d.file, root: cloneTable(d.root), places: make(map[Path]Place, len(d.places))}
	for p, at := range d.places {
		c.places[p] = at
	}
	return c
}

func cloneTable(t map[string]any) map[string]any {
	c := make(map[string]any, len(t))
	for k, v := range t {
		c[k] = cloneValue(v)
	}
	return c
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return cloneTable(v)
	case []any:
		c := make([]any, len(v))
		for i, e := range v {
			c[i] = cloneValue(e)
		}
		return c
	}
	return v
}

func (d *Doc) get(path Path) (any, bool) {
	if path == "" {
		return d.root, true
	}
	parts, err := path.split()
	if err != nil {
		return nil, false
	}
	var v any = d.root
	for _, part := range parts {
		switch holder := v.(type) {
		case map[string]any:
			next, ok := holder[part]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(holder) {
				return nil, false
			}
			v = holder[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// A locator finds out where the values of a document stand.
type locator struct {
	file   string
	lines  []int        // offset of the start of each line
	tables map[Path]int // array tables seen so far, with their lengths
	places map[Path]Place
	parser unstable.Parser
	deep   Problems // the first key that is too deep
}

// locate is the place of every key and array element of data, as far as it is
// valid TOML. The error is the first key that is too deep.
func locate(file string, data []byte) (map[Path]Place, error) {
	l := locator{file: file, lines: []int{0}, tables: map[Path]int{}, places: map[Path]Place{}}
	for i, c := range data {
		if c == '\n' {
			l.lines = append(l.lines, i+1)
		}
	}
	l.parser.Reset(data)
	var table spot
	for l.deep == nil && l.parser.NextExpression() {
		switch e := l.parser.Expression(); e.Kind {
		case unstable.Table:
			table = l.header(e)
		case unstable.ArrayTable:
			if table = l.header(e); l.deep != nil || l.tooDeep(table, e) {
				continue
			}
			l.tables[table.path]++
			element := table.index(l.tables[table.path] - 1)
			l.places[element.path] = l.places[table.path]
			table = element
		case unstable.KeyValue:
			l.keyValue(table, e)
		}
	}
	return l.places, l.deep.Err()
}

// A spot is a path with the number of its parts.
type spot struct {
	path  Path
	depth int
}

func (s spot) key(k string) spot { return spot{s.path.Key(k), s.depth + 1} }
func (s spot) index(i int) spot  { return spot{s.path.Index(i), s.depth + 1} }

// tooDeep reports, as a problem with n, that nothing may lie below s.
func (l *locator) tooDeep(s spot, n *unstable.Node) bool {
	if s.depth < maxDepth {
		return false
	}
	at, ok := l.firstPlace(n)
	for p := s.path; !ok; p = p.parent() { // the key that begins the expression has a place
		at, ok = l.places[p]
	}
	l.deep = Problems{{Place: at, Path: s.path, Msg: errTooDeep.Error()}}
	return true
}

// header is the path that a table header opens. Every key of it but the last
// stands for the newest element when it is an array of tables.
func (l *locator) header(e *unstable.Node) spot {
	var s spot
	for keys := e.Key(); keys.Next(); {
		if n := l.tables[s.path]; n > 0 {
			s = s.index(n - 1)
		}
		if l.tooDeep(s, keys.Node()) {
			break
		}
		s = s.key(string(keys.Node().Data))
		if _, seen := l.places[s.path]; !seen || keys.IsLast() {
			l.places[s.path] = l.place(keys.Node())
		}
	}
	return s
}

func (l *locator) keyValue(s spot, e *unstable.Node) {
	for keys := e.Key(); keys.Next(); {
		if l.tooDeep(s, keys.Node()) {
			return
		}
		s = s.key(string(keys.Node().Data))
		if _, seen := l.places[s.path]; !seen {
			l.places[s.path] = l.place(keys.Node())
		}
	}
	l.value(s, e.Value())
}

func (l *locator) value(s spot, v *unstable.Node) {
	switch v.Kind {
	case unstable.Array:
		i := 0
		for elements := v.Children(); elements.Next(); {
			if elements.Node().Kind == unstable.Comment {
				continue
			}
			if l.tooDeep(s, elements.Node()) {
				return
			}
			element := s.index(i)
			if at, ok := l.firstPlace(elements.Node()); ok {
				l.places[element.path] = at
			}
			l.value(element, elements.Node())
			i++
		}
	case unstable.InlineTable:
		for pairs := v.Children(); pairs.Next(); {
			if pairs.Node().Kind == unstable.KeyValue {
				l.keyValue(s, pairs.Node())
			}
		}
	}
}

// firstPlace is where v begins, or the first of its parts that the parser
// kept the place of.
func (l *locator) firstPlace(v *unstable.Node) (Place, bool) {
	for ; v.Valid(); v = v.Child() {
		if v.Raw.Length > 0 {
			return l.place(v), true
		}
	}
	return Place{}, false
}

func (l *locator) place(n *unstable.Node) Place {
	offset := int(n.Raw.Offset)
	line := sort.Search(len(l.lines), func(i int) bool { return l.lines[i] > offset })
	return Place{File: l.file, Line: line, Col: offset - l.lines[line-1] + 1}
}
