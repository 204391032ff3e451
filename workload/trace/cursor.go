package trace

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"fleetsim/simtime"
)

// A cursor reads JSON in place. Numbers are kept as text: neither a 64-bit id nor
// a time in nanoseconds survives a float64. Values that no format wants are
// skipped without being decoded, and there the bare words NaN and Infinity, which
// Python writes, are let through.
type cursor struct {
	b []byte
	i int

	counted, newlines int // lines ended before b[counted], see lineAt

	keys    [][]byte // those read of the objects around the cursor, the outer before the inner
	skipped bool     // the value last consumed
}

// maxDepth bounds nesting.
const maxDepth = 200

// A fieldError is a problem at a place in a record: path is the field's name,
// with the names of the objects around it before it.
type fieldError struct {
	path string
	text string
	off  int // in the cursor's bytes, or -1
}

func (e *fieldError) Error() string {
	if e.path == "" {
		return e.text
	}
	return e.path + ": " + e.text
}

// under puts the name of what is around before the path of err.
func under(name string, err error) error {
	if e := (*fieldError)(nil); errors.As(err, &e) {
		switch {
		case e.path == "":
			e.path = name
		case e.path[0] == '[':
			e.path = name + e.path
		default:
			e.path = name + "." + e.path
		}
	}
	return err
}

func (c *cursor) errorf(format string, args ...any) error {
	return &fieldError{text: fmt.Sprintf(format, args...), off: c.i}
}

func (c *cursor) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return
		}
	}
}

// peek is the next byte that is no white space, 0 at the end.
func (c *cursor) peek() byte {
	c.space()
	if c.i == len(c.b) {
		return 0
	}
	return c.b[c.i]
}

// found describes what is at the cursor, for messages.
func (c *cursor) found() string {
	if c.peek() == 0 {
		return "the end"
	}
	rest := c.b[c.i:]
	if end := bytes.IndexAny(rest, ",:{}[] \t\r\n"); end >= 0 {
		rest = rest[:max(end, 1)]
	}
	const most = 24
	if len(rest) > most {
		return strconv.Quote(string(rest[:most])) + "…"
	}
	return strconv.Quote(string(rest))
}

func (c *cursor) expect(b byte) error {
	if c.peek() != b {
		return c.errorf("%q expected, found %s", b, c.found())
	}
	c.i++
	return nil
}

// lineAt is the line, from 1, that the offset is in. It counts on from where it
// was last asked for.
func (c *cursor) lineAt(off int) int {
	if off < c.counted {
		c.counted, c.newlines = 0, 0
	}
	c.newlines += bytes.Count(c.b[c.counted:off], []byte{'\n'})
	c.counted = off
	return 1 + c.newlines
}

// end fails unless only white space is left.
func (c *cursor) end() error {
	if c.peek() != 0 {
		return c.errorf("end of the record expected, found %s", c.found())
	}
	return nil
}

// object calls f at each value with its key, which is valid until f returns; f
// must consume the value. A key twice is an error unless f skips its values: which
// of them is meant nobody knows.
func (c *cursor) object(f func(key []byte) error) error {
	outer := len(c.keys)
	err := c.members(f, true)
	c.keys, c.skipped = c.keys[:outer], false
	return err
}

// members is object; keys may come twice unless once is set.
func (c *cursor) members(f func(key []byte) error, once bool) error {
	if err := c.expect('{'); err != nil {
		return err
	}
	if c.peek() == '}' {
		c.i++
		return nil
	}
	read := keySet{first: len(c.keys)}
	for {
		key, err := c.str()
		if err != nil {
			return err
		}
		if err := c.expect(':'); err != nil {
			return err
		}
		c.skipped = false
		err = f(key)
		if once && err == nil && !c.skipped && !read.add(c, key) {
			err = c.errorf("is there twice")
		}
		if err != nil {
			return under(string(key), err)
		}
		if c.peek() == ',' {
			c.i++
			continue
		}
		return c.expect('}')
	}
}

// A keySet is the keys of one object that were read: those of the cursor from
// first on. They are few; most are known to be new by a hash.
type keySet struct {
	first  int
	hashes uint64 // a bit for each
}

// add reports whether the key is new.
func (s *keySet) add(c *cursor, key []byte) bool {
	hash := uint64(1)
	if n := len(key); n > 0 {
		hash <<= (uint(n)*7 + uint(key[0]) + uint(key[n-1])*3) % 64
	}
	if s.hashes&hash != 0 && slices.ContainsFunc(c.keys[s.first:], func(k []byte) bool { return bytes.Equal(k, key) }) {
		return false
	}
	s.hashes |= hash
	c.keys = append(c.keys, key)
	return true
}

// array calls f at each element with its index; f must consume the element.
func (c *cursor) array(f func(i int) error) error {
	if err := c.expect('['); err != nil {
		return err
	}
	if c.peek() == ']' {
		c.i++
		return nil
	}
	for i := 0; ; i++ {
		if err := f(i); err != nil {
			return under("["+strconv.Itoa(i)+"]", err)
		}
		if c.peek() == ',' {
			c.i++
			continue
		}
		c.skipped = false // though its elements may have been
		return c.expect(']')
	}
}

// null consumes a null if there is one.
func (c *cursor) null() bool {
	if c.peek() == 'n' && bytes.HasPrefix(c.b[c.i:], []byte("null")) {
		c.i += len("null")
		return true
	}
	return false
}

// numberLength is the length of the number, by JSON's grammar, that s begins
// with; 0 if there is none.
func numberLength(s []byte) int {
	digits := func(i int) int {
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i
	}
	start := 0
	if len(s) > 0 && s[0] == '-' {
		start = 1
	}
	i := digits(start)
	if i == start || s[start] == '0' && i > start+1 {
		return 0
	}
	if i < len(s) && s[i] == '.' {
		j := digits(i + 1)
		if j == i+1 {
			return 0
		}
		i = j
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		k := digits(j)
		if k == j {
			return 0
		}
		i = k
	}
	return i
}

// number is the text of the number at the cursor.
func (c *cursor) number() ([]byte, error) {
	c.space()
	n := numberLength(c.b[c.i:])
	if n == 0 {
		return nil, c.errorf("a number expected, found %s", c.found())
	}
	s := c.b[c.i : c.i+n]
	c.i += n
	return s, nil
}

// str is the decoded string at the cursor. It may share the cursor's bytes.
func (c *cursor) str() ([]byte, error) {
	raw, escaped, err := c.rawString()
	if err != nil {
		return nil, err
	}
	body := raw[1 : len(raw)-1]
	if !escaped {
		return body, nil
	}
	return unescape(body), nil
}

// rawString is the string at the cursor with its quotes, as it stands.
func (c *cursor) rawString() (raw []byte, escaped bool, err error) {
	if c.peek() != '"' {
		return nil, false, c.errorf("a string expected, found %s", c.found())
	}
	start := c.i
	for i := start + 1; i < len(c.b); i++ {
		switch b := c.b[i]; {
		case b == '"':
			c.i = i + 1
			return c.b[start:c.i], escaped, nil
		case b == '\\':
			escaped = true
			i++
		case b < ' ':
			c.i = i
			return nil, false, c.errorf("control character in a string")
		}
	}
	c.i = len(c.b)
	return nil, false, c.errorf("a string does not end")
}

// unescape decodes the escapes of a JSON string's body. What is no valid escape
// stays as it is.
func unescape(s []byte) []byte {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, n := unescapeRune(s[i-1:])
			out = utf8.AppendRune(out, r)
			i += n - 2
		default:
			out = append(out, s[i])
		}
	}
	return out
}

// unescapeRune decodes \uXXXX, or two that make a surrogate pair, at the start of
// s and says how many bytes it took, at least the two of \u.
func unescapeRune(s []byte) (r rune, n int) {
	one := func(s []byte) (rune, bool) {
		if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
			return utf8.RuneError, false
		}
		v, err := strconv.ParseUint(string(s[2:6]), 16, 32)
		return rune(v), err == nil
	}
	r, ok := one(s)
	if !ok {
		return utf8.RuneError, 2
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, ok := one(s[6:])
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// skip consumes the value at the cursor.
func (c *cursor) skip() error {
	err := c.skipBelow(0)
	c.skipped = true
	return err
}

func (c *cursor) skipBelow(depth int) error {
	if depth > maxDepth {
		return c.errorf("nested deeper than %d", maxDepth)
	}
	switch b := c.peek(); {
	case b == '{':
		return c.members(func([]byte) error { return c.skipBelow(depth + 1) }, false)
	case b == '[':
		return c.array(func(int) error { return c.skipBelow(depth + 1) })
	case b == '"':
		_, _, err := c.rawString()
		return err
	}
	for _, word := range []string{"null", "true", "false", "NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(c.b[c.i:], []byte(word)) {
			c.i += len(word)
			return nil
		}
	}
	if _, err := c.number(); err != nil {
		return c.errorf("a value expected, found %s", c.found())
	}
	return nil
}

// maxTokens bounds every token count, above any model's context: a larger one is a
// mistake, and would cost memory.
const maxTokens = 1 << 24

// count is a token count; absent for null.
func (c *cursor) count() (Optional[int], error) {
	if c.null() {
		return Optional[int]{}, nil
	}
	s, err := c.number()
	if err != nil {
		return Optional[int]{}, err
	}
	n, err := parseCount(s)
	if err != nil {
		return Optional[int]{}, c.errorf("%s %v", s, err)
	}
	return Some(n), nil
}

// parseCount reads a whole number from 0 to maxTokens; 5.0 is one too.
func parseCount(s []byte) (int, error) {
	d := parseDecimal(s)
	v, ok := d.uint64()
	switch {
	case d.negative && d.n > 0:
		return 0, errors.New("is negative")
	case ok && v <= maxTokens:
		return int(v), nil
	case !d.whole():
		return 0, errors.New("is not a whole number")
	default:
		return 0, fmt.Errorf("is above %d", maxTokens)
	}
}

// countInto is count with 0 for null.
func (c *cursor) countInto(dst *int) error {
	n, err := c.count()
	*dst = n.Value
	return err
}

// instant is a time in unit u; absent for null. fraction says that it is no whole
// number of the unit.
func (c *cursor) instant(u TimeUnit) (t Optional[instant], fraction bool, err error) {
	if c.null() {
		return t, false, nil
	}
	s, err := c.number()
	if err != nil {
		return t, false, err
	}
	d := parseDecimal(s)
	at, err := d.instant(u)
	if err != nil {
		return t, false, c.errorf("%s %v", s, err)
	}
	return Some(at), !d.whole(), nil
}

// span is a duration in unit u; absent for null.
func (c *cursor) span(u TimeUnit) (Optional[simtime.Time], error) {
	at, _, err := c.instant(u)
	if err != nil || !at.Present {
		return Optional[simtime.Time]{}, err
	}
	t, ok := at.Value.since(instant{})
	if !ok {
		return Optional[simtime.Time]{}, c.errorf("duration beyond %d s", maxSpanSeconds)
	}
	return Some(t), nil
}

// spanInto is span into a field.
func (c *cursor) spanInto(dst *Optional[simtime.Time], u TimeUnit) (err error) {
	*dst, err = c.span(u)
	return err
}

// text is a string, or a whole number as it stands; "" for null. Names and ids
// come as either.
func (c *cursor) text() (string, error) {
	if c.null() {
		return "", nil
	}
	if c.peek() == '"' {
		s, err := c.str()
		return string(s), err
	}
	s, err := c.number()
	if err != nil {
		return "", c.errorf("a string or a number expected, found %s", c.found())
	}
	return string(s), nil
}

// textInto is text into a field.
func (c *cursor) textInto(dst *string) (err error) {
	*dst, err = c.text()
	return err
}

// flag is a boolean; false for null.
func (c *cursor) flag() (bool, error) {
	switch {
	case c.null():
		return false, nil
	case c.peek() == 't' && bytes.HasPrefix(c.b[c.i:], []byte("true")):
		c.i += len("true")
		return true, nil
	case c.peek() == 'f' && bytes.HasPrefix(c.b[c.i:], []byte("false")):
		c.i += len("false")
		return false, nil
	}
	return false, c.errorf("true or false expected, found %s", c.found())
}

// hashIDs reads a list of block ids into row. A null is an empty list.
func (c *cursor) hashIDs(row *Row) error {
	row.HashIDs, row.HashText = nil, nil
	if c.null() {
		return nil
	}
	start := c.i
	ids := make([]uint64, 0, 16)
	fits := true
	err := c.array(func(int) error {
		token, err := c.hashID()
		if err != nil {
			return err
		}
		d := decimal{}
		if token[0] != '"' {
			d = parseDecimal(token)
		}
		v, ok := d.uint64()
		fits = fits && ok && token[0] != '"'
		ids = append(ids, v)
		return nil
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	if fits {
		row.HashIDs = ids
		return nil
	}
	c.i = start
	return c.array(func(int) error {
		token, err := c.hashID()
		row.HashText = append(row.HashText, canonicalID(token))
		return err
	})
}

// hashID is the token of one block id: a string or a whole number.
func (c *cursor) hashID() ([]byte, error) {
	if c.peek() == '"' {
		raw, _, err := c.rawString()
		return raw, err
	}
	s, err := c.number()
	if err != nil {
		return nil, err
	}
	if bytes.ContainsAny(s, ".eE") {
		return nil, c.errorf("block id %s is no whole number: it may have been rounded, and two ids become one", s)
	}
	return s, nil
}

// canonicalID makes equal ids equal text, whatever escapes they are written
// with.
func canonicalID(token []byte) string {
	if token[0] != '"' {
		return string(token)
	}
	return string(appendString(nil, string(unescape(token[1:len(token)-1]))))
}

// appendString appends s as a JSON string. Bytes that are no UTF-8 stay as they
// are, so that reading gives the same bytes back.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b < ' ':
			dst = fmt.Appendf(dst, "\\u%04x", b)
		default:
			dst = append(dst, b)
		}
	}
	return append(dst, '"')
}
