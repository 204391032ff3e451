package strict

import (
	"fmt"
	"math"
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
		return setProblem(expr, "", "there must be a value: --set path.to.key=value")
	}
	parts, err := path.split()
	if err != nil {
		return setProblem(string(path), "", fmt.Sprintf("%v; allowed: path.to.key=value", err))
	}
	path = joinParts(parts)
	root, err := put(d.root, "", parts, readSetting(strings.TrimSpace(value)))
	if err != nil {
		return setProblem(string(path), path, err.Error())
	}
	d.root = root.(map[string]any)
	d.forget(path)
	d.places[path] = Place{File: "--set " + string(path)}
	return nil
}

func setProblem(what string, path Path, msg string) Problems {
	return Problems{{Place: Place{File: "--set " + what}, Path: path, Msg: msg}}
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

// Merge lays the table at path of other over d: its tables are merged, all
// else replaces what was there. Problems with its values are reported where
// other has them. A path that holds nothing merges nothing.
func (d *Doc) Merge(other *Doc, path Path) error {
	v, ok := other.get(path)
	if !ok {
		return nil
	}
	table, ok := v.(map[string]any)
	if !ok {
		return Problems{other.Problem(path, "%s must be a table, not %s", path.Last(), describe(v))}
	}
	d.merge(d.root, "", table, other, path)
	return nil
}

func (d *Doc) merge(dst map[string]any, at Path, src map[string]any, other *Doc, from Path) {
	for k, v := range src {
		p, q := at.Key(k), from.Key(k)
		if sub, ok := v.(map[string]any); ok {
			if old, ok := dst[k].(map[string]any); ok {
				d.merge(old, p, sub, other, q)
				continue
			}
		}
		dst[k] = cloneValue(v)
		d.forget(p)
		for place := range other.places {
			if q.contains(place) {
				d.places[p.join(place.below(q))] = other.places[place]
			}
		}
	}
}

// Replace puts v, a value of the kinds that TOML has, at path. Problems with it
// are reported at place.
func (d *Doc) Replace(path Path, v any, place Place) error {
	parts, err := path.split()
	if err != nil {
		return err
	}
	root, err := put(d.root, "", parts, cloneValue(v))
	if err != nil {
		return err
	}
	d.root = root.(map[string]any)
	d.forget(path)
	d.places[path] = place
	return nil
}

// Value is the table, array or scalar at path, as TOML's kinds are held by
// map[string]any, []any, string, int64, float64 and bool. It must not be
// changed.
func (d *Doc) Value(path Path) (any, bool) { return d.get(path) }

// put returns holder, which stands at path at, with v at the path parts below
// it; tables on the way are made where they are missing.
func put(holder any, at Path, parts []string, v any) (any, error) {
	if len(parts) == 0 {
		return v, nil
	}
	key := parts[0]
	switch h := holder.(type) {
	case nil:
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
		if err != nil || i < 0 || i > len(h) {
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
