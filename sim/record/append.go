package record

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// An object appends the members of one JSON object to dst. It exists because a
// run writes millions of records, and encoding/json allocates for each.
type object struct {
	dst  []byte
	more bool
}

func newObject(dst []byte) object { return object{dst: append(dst, '{')} }

func (o *object) end() []byte { return append(o.dst, '}') }

// key starts a member whose name needs no escaping.
func (o *object) key(name string) {
	o.comma()
	o.dst = append(o.dst, '"')
	o.dst = append(o.dst, name...)
	o.dst = append(o.dst, '"', ':')
}

// name starts a member with any name.
func (o *object) name(name string) {
	o.comma()
	o.dst = append(appendString(o.dst, name), ':')
}

func (o *object) comma() {
	if o.more {
		o.dst = append(o.dst, ',')
	}
	o.more = true
}

// text writes a string; an empty one is absent.
func (o *object) text(name, v string) {
	o.key(name)
	if v == "" {
		o.dst = append(o.dst, "null"...)
		return
	}
	o.dst = appendString(o.dst, v)
}

func (o *object) float(name string, v Float) { o.key(name); o.dst = appendOpt(o.dst, v) }
func (o *object) int(name string, v Int)     { o.key(name); o.dst = appendOpt(o.dst, v) }
func (o *object) uint(name string, v Uint)   { o.key(name); o.dst = appendOpt(o.dst, v) }
func (o *object) bool(name string, v Bool)   { o.key(name); o.dst = appendOpt(o.dst, v) }

func appendOpt[T float64 | int | uint64 | bool](dst []byte, o Opt[T]) []byte {
	if !o.ok {
		return append(dst, "null"...)
	}
	switch v := any(o.v).(type) {
	case float64:
		return appendFloat(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	case bool:
		return strconv.AppendBool(dst, v)
	}
	panic("record: unreachable: the constraint names every type")
}

// appendFloat writes the shortest decimal that reads back as v, in the form
// encoding/json uses. JSON has no word for NaN and infinity: null.
func appendFloat(dst []byte, v float64) []byte {
	switch abs := math.Abs(v); {
	case !finite(v):
		return append(dst, "null"...)
	case v == 0:
		return append(dst, '0') // also for -0
	case abs < 1e-6 || abs >= 1e21:
		dst = strconv.AppendFloat(dst, v, 'e', -1, 64)
		if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
			dst = append(dst[:n-2], dst[n-1]) // e-07 is e-7
		}
		return dst
	default:
		return strconv.AppendFloat(dst, v, 'f', -1, 64)
	}
}

const hexDigits = "0123456789abcdef"

// appendString writes s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD, so that what is written can always be read.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r) // RuneError for a bad byte
			i += n
			continue
		}
		i++
	}
	return append(dst, '"')
}
