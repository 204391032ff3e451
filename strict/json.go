package strict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// JSON is the value at path, which must be there, as JSON. The members of its
// objects have the order in which the document has them.
func (d *Doc) JSON(path Path) ([]byte, error) {
	v, ok := d.get(path)
	if !ok {
		return nil, fmt.Errorf("%s is missing", path)
	}
	return d.appendJSON(nil, path, v)
}

func (d *Doc) appendJSON(dst []byte, path Path, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		dst = append(dst, '{')
		for i, k := range d.writtenOrder(path, v) {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = d.appendJSON(dst, path, k); err != nil {
				return nil, err
			}
			dst = append(dst, ':')
			if dst, err = d.appendJSON(dst, path.Key(k), v[k]); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = d.appendJSON(dst, path.Index(i), e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case setting:
		return d.appendJSON(dst, path, v.value)
	default:
		scalar, err := json.Marshal(v)
		if err != nil {
			return nil, Problems{d.Problem(path, "%s must be a finite number, not %s", path, describe(v))}
		}
		return append(dst, scalar...), nil
	}
}

// writtenOrder is the keys of the table at path by their places.
func (d *Doc) writtenOrder(path Path, table map[string]any) []string {
	keys := sortedKeys(table)
	slices.SortStableFunc(keys, func(a, b string) int {
		p, q := d.At(path.Key(a)), d.At(path.Key(b))
		return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Col, q.Col))
	})
	return keys
}
