package strict

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// A setting is a value from the command line. Its text counts where a string
// is wanted; elsewhere it counts as the TOML value that it reads as.
type setting struct {
	text  string
	value any
}

// Set overrides one value: "path.to.key=value", with an index for an element
// of an array ("faults.0.at=10s"; the index after the last appends). The value
// is TOML, or else the bare text. A table, as TOML's {…}, replaces what was
// there. Problems with the value are later reported at "--set path".
func (d *Doc) Set(expr string) error {
	text, value, ok := strings.Cut(expr, "=")
	path := Path(strings.TrimSpace(text))
	if !ok {
		return setProblem(expr, "there must be a value: --set path.to.key=value")
	}
	parts, err := path.split()
	if err != nil {
		return setProblem(string(path), err.Error())
	}
	path = joinParts(parts)
	return d.Put(path, readSetting(strings.TrimSpace(value)), Place{File: "--set " + string(path)})
}

func setProblem(what, msg string) Problems {
	return Problems{{Place: Place{File: "--set " + what}, Msg: msg}}
}

func readSetting(text string) any {
	var doc struct{ V any }
	if strings.ContainsAny(text, "\n\r") || toml.Unmarshal([]byte("V = "+text), &doc) != nil {
		return setting{text: text, value: text}
	}
	switch v := doc.V.(type) {
	case map[string]any, []any, string:
		return v
	default:
		return setting{text: text, value: v}
	}
}

// Merge lays the table at from of other over the table at path: tables are
// merged, all else replaces what was there. Problems with the new values are
// reported where other has them. A path that holds nothing merges nothing.
func (d *Doc) Merge(path Path, other *Doc, from Path) error {
	v, ok := other.get(from)
	if !ok {
		return nil
	}
	table, ok := v.(map[string]any)
	if !ok {
		return Problems{other.Problem(from, "%s must be a table, not %s", from, describe(v))}
	}
	for _, k := range sortedKeys(table) {
		at, src := path.Key(k), from.Key(k)
		if old, _ := d.get(at); isTable(old) && isTable(table[k]) {
			if err := d.Merge(at, other, src); err != nil {
				return err
			}
			continue
		}
		if err := d.Graft(at, other, src); err != nil {
			return err
		}
	}
	return nil
}

func isTable(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// Graft puts a copy of the value at from of other, which must be there, at
// path, in the place of what was there. Problems with it are reported where
// other has it.
func (d *Doc) Graft(path Path, other *Doc, from Path) error {
	v, ok := other.get(from)
	if !ok {
		return Problems{other.Problem(from, "%s is missing", from)}
	}
	if err := d.Put(path, cloneValue(v), other.At(from)); err != nil {
		return err
	}
	walk(path, v, func(p Path) {
		if at, ok := other.places[from.join(p.below(path))]; ok {
			d.places[p] = at
		}
	})
	return nil
}

// Put puts v, made of the types that TOML values have (map[string]any, []any,
// string, int64, float64, bool), at path. Problems with it are reported at place.
func (d *Doc) Put(path Path, v any, place Place) error {
	parts, err := path.split()
	if err == nil && tooDeep(v, maxDepth-len(parts)) {
		err = errTooDeep
	}
	if err != nil {
		return Problems{{Place: place, Path: path, Msg: err.Error()}}
	}
	first, old := d.firstNew(path)
	root, err := put(d.root, "", parts, v)
	if err != nil {
		return Problems{{Place: place, Path: path, Msg: err.Error()}}
	}
	d.root = root.(map[string]any)
	walk(path, old, func(p Path) { delete(d.places, p) })
	for p := path; p != first; p = p.parent() {
		d.places[p] = place
	}
	d.places[first] = place
	return nil
}

// tooDeep reports whether v has parts more than so many levels below it.
func tooDeep(v any, levels int) bool {
	if levels < 0 {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if tooDeep(e, levels-1) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return tooDeep(e, levels-1) })
	}
	return false
}

// firstNew is the topmost path, down to path, that holds nothing yet, or path
// and what it holds.
func (d *Doc) firstNew(path Path) (first Path, old any) {
	old, found := d.get(path)
	first = path
	for !found {
		up := first.parent()
		if _, found = d.get(up); !found {
			first = up
		}
	}
	return first, old
}

// walk calls f with path, which holds v, and the paths of all parts of v.
func walk(path Path, v any, f func(Path)) {
	f(path)
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			walk(path.Key(k), e, f)
		}
	case []any:
		for i, e := range v {
			walk(path.Index(i), e, f)
		}
	}
}

// put returns holder, which stands at path at, with v at the path parts below
// it. What is missing on the way is made: an array where the index is 0, else a
// table.
func put(holder any, at Path, parts []string, v any) (any, error) {
	if len(parts) == 0 {
		return v, nil
	}
	key := parts[0]
	switch h := holder.(type) {
	case nil:
		if key == "0" {
			return put([]any{}, at, parts, v)
		}
		return put(map[string]any{}, at, parts, v)
	case map[string]any:
		below, err := put(h[key], at.Key(key), parts[1:], v)
		if err != nil {
			return nil, err
		}
		h[key] = below
		return h, nil
	case []any:
		i, err := strconv.Atoi(key)
		if err != nil || strconv.Itoa(i) != key || i < 0 || i > len(h) { // 00 and +1 would be places of their own
			return nil, fmt.Errorf("%s is an array, so %q must be an index; allowed: 0 to %d", at, key, len(h))
		}
		if i == len(h) {
			h = append(h, nil)
		}
		below, err := put(h[i], at.Key(key), parts[1:], v)
		if err != nil {
			return nil, err
		}
		h[i] = below
		return h, nil
	default:
		return nil, fmt.Errorf("%s is %s, not a table, so it has no %q", at, describe(holder), key)
	}
}

// describe names a value in a message.
func describe(v any) string {
	switch v := v.(type) {
	case setting:
		return describe(v.value)
	case map[string]any:
		return "a table"
	case []any:
		return "an array"
	case string:
		return "the string " + strconv.Quote(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatFloat(v, 'f', 1, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool, int64:
		return fmt.Sprint(v)
	case nil:
		return "nothing"
	default:
		return "the date or time " + fmt.Sprint(v)
	}
}
