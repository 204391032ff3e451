package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

var null = []byte("null")

// maxInt is the largest count a reader takes: up to it every integer has its own
// float64, which is what other tools read numbers as.
const maxInt = min(1<<53, math.MaxInt)

// checkObject says what is wrong with a line as one JSON object.
func checkObject(line []byte) error {
	if !json.Valid(line) {
		at, problem := syntaxProblem(line)
		return fmt.Errorf("column %d: %s", at+1, problem)
	}
	if line[0] != '{' {
		return fmt.Errorf("%s instead of a JSON object", kindOf(line))
	}
	return nil
}

// syntaxProblem says where, and why, data do not begin with a JSON value.
func syntaxProblem(data []byte) (at int, problem string) {
	var v json.RawMessage
	if json.NewDecoder(bytes.NewReader(data)).Decode(&v) == io.ErrUnexpectedEOF {
		return len(data), "the record is unfinished: cut off here?"
	}
	err := json.Unmarshal(data, &v)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return 0, "not JSON: a value is not expected here"
	}
	at = int(max(syntax.Offset-1, 0))                  // Offset counts the byte found wrong
	for _, word := range []string{"NaN", "Infinity"} { // Python writes them bare
		if bytes.HasPrefix(data[at:], []byte(word)) {
			return at, word + " is no number in JSON; what was not measured is null"
		}
	}
	return at, fmt.Sprintf("not JSON: %v", err)
}

// kindOf is what kind of JSON value data are, for messages.
func kindOf(data []byte) string {
	switch data[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return "a number"
}

// isTwice is the problem with a member whose name stands twice in its object:
// which of the values is meant nobody knows.
const isTwice = "is there twice"

// A nameSet holds names. It is for the few of one object that are read: they are
// compared one by one, and mostly not even that.
type nameSet struct {
	names  []string
	hashes uint64 // a bit for each name
}

func (s *nameSet) clear() { s.names, s.hashes = s.names[:0], 0 }

// add reports whether the name is new.
func (s *nameSet) add(name string) bool {
	hash := uint64(1) << (uint(len(name)*7+int(name[0])+int(name[len(name)-1])*3) % 64)
	if s.hashes&hash != 0 && slices.Contains(s.names, name) {
		return false
	}
	s.hashes |= hash
	s.names = append(s.names, name)
	return true
}

// members calls f with name and value of each member of object, in order. object
// must be a valid JSON object.
func (p *parser) members(object []byte, f func(name string, value []byte)) {
	at := skipSpace(object, 1)
	for object[at] != '}' {
		end := skipValue(object, at)
		name := p.remember(object[at:end])
		at = skipSpace(object, end)  // at ':'
		at = skipSpace(object, at+1) // at the value
		end = skipValue(object, at)  // behind it
		f(name, object[at:end])
		at = skipSpace(object, end) // at ',' or '}'
		if object[at] == ',' {
			at = skipSpace(object, at+1)
		}
	}
}

// elements calls f with each element of list, which must be a valid JSON list.
func elements(list []byte, f func(value []byte)) {
	at := skipSpace(list, 1)
	for list[at] != ']' {
		end := skipValue(list, at)
		f(list[at:end])
		at = skipSpace(list, end)
		if list[at] == ',' {
			at = skipSpace(list, at+1)
		}
	}
}

func skipSpace(data []byte, at int) int {
	for data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n' {
		at++
	}
	return at
}

// skipValue is where the value that begins at at ends.
func skipValue(data []byte, at int) int {
	depth := 0
	for ; at < len(data); at++ {
		switch data[at] {
		case '"':
			at = stringEnd(data, at)
			if depth == 0 {
				return at + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at // a number or word ended before it
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return at
			}
		}
	}
	return at
}

// stringEnd is the place of the quote that closes the string that begins at at.
func stringEnd(data []byte, at int) int {
	for at++; data[at] != '"'; at++ {
		if data[at] == '\\' {
			at++
		}
	}
	return at
}

// unquote is the text of a valid JSON string.
func unquote(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		panic("record: unreachable: the string has been checked")
	}
	return s
}

// A parser turns the values of one record into Go values and collects what is
// wrong with them.
type parser struct {
	texts    map[string]string
	read     nameSet // of the request at hand
	problems []error
}

// maxTexts bounds how many strings a parser remembers.
const maxTexts = 4096

func (p *parser) complain(name, format string, args ...any) {
	p.problems = append(p.problems, errors.New(name+": "+fmt.Sprintf(format, args...)))
}

// float takes a number of at least 0, or null.
func (p *parser) float(name string, value []byte) Float {
	if bytes.Equal(value, null) {
		return Float{}
	}
	v, ok := p.number(name, value)
	if !ok {
		return Float{}
	}
	if v < 0 {
		p.complain(name, "%s is negative; allowed is a number from 0, or null", clip(value))
		return Float{}
	}
	return Some(v + 0) // -0 is 0
}

// ratio takes a number from 0 to 1, or null.
func (p *parser) ratio(name string, value []byte) Float {
	v := p.float(name, value)
	if v.Or(0) > 1 {
		p.complain(name, "%s is over 1; allowed is a ratio from 0 to 1, or null", clip(value))
		return Float{}
	}
	return v
}

// number takes any number.
func (p *parser) number(name string, value []byte) (float64, bool) {
	if c := value[0]; c != '-' && (c < '0' || c > '9') {
		p.complain(name, "%s instead of a number", kindOf(value))
		return 0, false
	}
	v, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		p.complain(name, "%s is beyond what a number can hold", clip(value))
		return 0, false
	}
	return v, true
}

// int takes a whole number from 0 to limit, written as 8 or 8.0, or null.
func (p *parser) int(name string, value []byte, limit int) Int {
	if bytes.Equal(value, null) {
		return Int{}
	}
	if n, err := strconv.Atoi(string(value)); err == nil && 0 <= n && n <= limit {
		return Some(n)
	}
	v, ok := p.number(name, value)
	if !ok {
		return Int{}
	}
	if v != math.Trunc(v) || v < 0 || v > float64(limit) {
		p.complain(name, "%s; allowed is a whole number from 0 to %d, or null", clip(value), limit)
		return Int{}
	}
	return Some(int(v))
}

func (p *parser) count(name string, value []byte) Int { return p.int(name, value, maxInt) }

// uint takes a whole number of 64 bits, or null.
func (p *parser) uint(name string, value []byte) Uint {
	if bytes.Equal(value, null) {
		return Uint{}
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		p.complain(name, "%s; allowed is a whole number from 0 to %d, or null", clip(value), uint64(math.MaxUint64))
		return Uint{}
	}
	return Some(n)
}

func (p *parser) bool(name string, value []byte) Bool {
	switch string(value) {
	case "true":
		return Some(true)
	case "false":
		return Some(false)
	case "null":
		return Bool{}
	}
	p.complain(name, "%s instead of true, false or null", kindOf(value))
	return Bool{}
}

// text takes a string, or null for "". A number stands for its digits: some
// sources number their tenants.
func (p *parser) text(name string, value []byte) string {
	switch c := value[0]; {
	case c == '"':
		return p.remember(value)
	case c == '-' || '0' <= c && c <= '9':
		return string(value)
	case c != 'n':
		p.complain(name, "%s instead of a string or null", kindOf(value))
	}
	return ""
}

// remember is unquote, without a new string for each record that says the same.
func (p *parser) remember(quoted []byte) string {
	if s, ok := p.texts[string(quoted)]; ok {
		return s
	}
	s := unquote(quoted)
	if p.texts == nil {
		p.texts = make(map[string]string)
	}
	if len(p.texts) < maxTexts {
		p.texts[string(quoted)] = s
	}
	return s
}

// object calls f with the members of an object; null has none, and no two have one
// name. It reports whether there was an object.
func (p *parser) object(name string, value []byte, f func(name string, value []byte)) bool {
	switch value[0] {
	case '{':
		seen := make(map[string]bool)
		p.members(value, func(member string, value []byte) {
			if seen[member] {
				p.complain(name, "%q %s", member, isTwice)
			}
			seen[member] = true
			f(member, value)
		})
		return true
	case 'n':
		return false
	}
	p.complain(name, "%s instead of an object or null", kindOf(value))
	return false
}

// list calls f with the elements of a list; null has none. It reports whether
// there was a list.
func (p *parser) list(name string, value []byte, f func(value []byte)) bool {
	switch value[0] {
	case '[':
		elements(value, f)
		return true
	case 'n':
		return false
	}
	p.complain(name, "%s instead of a list or null", kindOf(value))
	return false
}

// keep stores a member that the schema does not know.
func keep(other *map[string]json.RawMessage, name string, value []byte) {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		panic("record: unreachable: the record has been checked")
	}
	if *other == nil {
		*other = make(map[string]json.RawMessage)
	}
	(*other)[name] = b.Bytes()
}

// clip is a value for a message, cut to a length that a person will read.
func clip(value []byte) string {
	const most = 40
	if len(value) <= most {
		return string(value)
	}
	return string(value[:most]) + "…"
}
