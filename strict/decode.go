package strict

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"fleetsim/spelling"
)

// Decode fills the struct that v points to from the values of d, by the names
// in its `toml` tags. What d does not hold keeps its value. Keys that v has no
// field for, values of another type, numbers out of the field's range and NaN
// or infinite ones are problems; the rest is decoded all the same. Of more than
// MaxProblems the first so many, in the order of the keys, are returned.
//
// Fields may be strings, booleans, integers, floats, structs, and pointers,
// slices and maps of those; one of type any takes every value. A type that implements encoding.TextUnmarshaler
// is read from a string.
func (d *Doc) Decode(v any) Problems {
	dec := decoder{doc: d}
	dec.value("", d.root, reflect.ValueOf(v).Elem())
	return dec.problems
}

type decoder struct {
	doc      *Doc
	problems Problems
}

func (dec *decoder) bad(path Path, format string, args ...any) {
	if len(dec.problems) == MaxProblems {
		return
	}
	dec.problems = append(dec.problems, dec.doc.Problem(path, format, args...))
}

func (dec *decoder) wrongType(path Path, want string, got any) {
	dec.bad(path, "%s must be %s, not %s", path, want, describe(got))
}

func (dec *decoder) value(path Path, v any, into reflect.Value) {
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	if u, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		dec.text(path, v, u)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		dec.structure(path, v, into)
	case reflect.Map:
		dec.table(path, v, into)
	case reflect.Slice:
		dec.slice(path, v, into)
	case reflect.Interface:
		into.Set(reflect.ValueOf(v))
	default:
		dec.scalar(path, v, into)
	}
}

func (dec *decoder) text(path Path, v any, u encoding.TextUnmarshaler) {
	text, ok := asText(v)
	if !ok {
		want := "a string"
		if w, ok := u.(interface{ Want() string }); ok {
			want = w.Want()
		}
		dec.wrongType(path, want, v)
		return
	}
	if err := u.UnmarshalText([]byte(text)); err != nil {
		dec.bad(path, "%s %v", path, err)
	}
}

func asText(v any) (string, bool) {
	if s, ok := v.(setting); ok {
		return s.text, true
	}
	s, ok := v.(string)
	return s, ok
}

func (dec *decoder) structure(path Path, v any, into reflect.Value) {
	table, ok := v.(map[string]any)
	if !ok {
		dec.wrongType(path, "a table", v)
		return
	}
	fields := fieldsOf(into.Type())
	for _, k := range sortedKeys(table) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == k })
		if i < 0 {
			dec.unknown(path, k, fields)
			continue
		}
		dec.value(path.Key(k), table[k], into.Field(fields[i].index))
	}
}

func (dec *decoder) unknown(table Path, key string, fields []field) {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.key
	}
	where := ""
	if table != "" {
		where = " in " + string(table)
	}
	dec.bad(table.Key(key), "unknown key %q%s%s", key, where, spelling.Suggest(key, known))
}

// A field is a struct field that has a key.
type field struct {
	key   string
	index int
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("toml"); key != "" && key != "-" {
			fields = append(fields, field{key, i})
		}
	}
	return fields
}

func (dec *decoder) table(path Path, v any, into reflect.Value) {
	table, ok := v.(map[string]any)
	if !ok {
		dec.wrongType(path, "a table", v)
		return
	}
	m := reflect.MakeMapWithSize(into.Type(), len(table))
	for _, k := range sortedKeys(table) {
		e := reflect.New(into.Type().Elem()).Elem()
		dec.value(path.Key(k), table[k], e)
		m.SetMapIndex(reflect.ValueOf(k), e)
	}
	into.Set(m)
}

func (dec *decoder) slice(path Path, v any, into reflect.Value) {
	array, ok := v.([]any)
	if !ok {
		if i, ok := soleIndex(v); ok {
			dec.bad(path, "%s is beyond the end of %s, which is empty; allowed: %s", path.Key(i), path, path.Index(0))
			return
		}
		dec.wrongType(path, "an array", v)
		return
	}
	s := reflect.MakeSlice(into.Type(), len(array), len(array))
	for i, e := range array {
		dec.value(path.Index(i), e, s.Index(i))
	}
	into.Set(s)
}

// soleIndex is the only key of a table when that is a number: what Set makes of
// an index into an array that is not there, since it does not know the types.
func soleIndex(v any) (index string, ok bool) {
	table, _ := v.(map[string]any)
	if len(table) != 1 {
		return "", false
	}
	index = sortedKeys(table)[0]
	_, err := strconv.ParseUint(index, 10, 64)
	return index, err == nil
}

func (dec *decoder) scalar(path Path, v any, into reflect.Value) {
	if s, ok := v.(setting); ok {
		v = s.value
		if into.Kind() == reflect.String {
			v = s.text
		}
	}
	switch into.Kind() {
	case reflect.String:
		if s, ok := v.(string); ok {
			into.SetString(s)
			return
		}
		dec.wrongType(path, "a string in quotes", v)
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			into.SetBool(b)
			return
		}
		dec.wrongType(path, "true or false", v)
	case reflect.Int, reflect.Int64:
		n, ok := v.(int64)
		switch {
		case !ok:
			dec.wrongType(path, "a whole number", v)
		case into.OverflowInt(n):
			dec.bad(path, "%s is too large: %d", path, n)
		default:
			into.SetInt(n)
		}
	case reflect.Uint64:
		n, ok := v.(int64)
		if !ok || n < 0 {
			dec.wrongType(path, "a whole number from 0 to "+strconv.FormatInt(math.MaxInt64, 10), v)
			return
		}
		into.SetUint(uint64(n))
	case reflect.Float64:
		dec.float(path, v, into)
	default:
		panic(fmt.Sprintf("strict: %s has a field of type %s, which no TOML value fits", path, into.Type()))
	}
}

func (dec *decoder) float(path Path, v any, into reflect.Value) {
	if n, ok := v.(int64); ok {
		v = float64(n)
	}
	f, ok := v.(float64)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		dec.wrongType(path, "a finite number", v)
		return
	}
	into.SetFloat(f)
}

func sortedKeys(t map[string]any) []string {
	keys := make([]string, 0, len(t))
	for k := range t {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
