package strict

import (
	"fmt"
	"strconv"
	"strings"
)

// A Path names a value of a document: keys and array indexes joined by dots,
// each quoted where TOML would want it quoted. "" is the document itself.
type Path string

// Key is the path of the value under key k of table p.
func (p Path) Key(k string) Path {
	if !isBare(k) {
		k = strconv.Quote(k)
	}
	if p == "" {
		return Path(k)
	}
	return p + "." + Path(k)
}

// Index is the path of element i of array p.
func (p Path) Index(i int) Path { return p.Key(strconv.Itoa(i)) }

// join is the path of the value at q inside the table at p.
func (p Path) join(q Path) Path {
	switch {
	case p == "":
		return q
	case q == "":
		return p
	}
	return p + "." + q
}

// contains reports whether q is p or lies below it.
func (p Path) contains(q Path) bool {
	rest, ok := strings.CutPrefix(string(q), string(p))
	return ok && (p == "" || rest == "" || rest[0] == '.')
}

// below is p, which q contains, as seen from q.
func (p Path) below(q Path) Path {
	if q == "" {
		return p
	}
	return Path(strings.TrimPrefix(strings.TrimPrefix(string(p), string(q)), "."))
}

// parent is the path of the table or array that holds p.
func (p Path) parent() Path {
	parts, err := p.split()
	if err != nil || len(parts) == 0 {
		return ""
	}
	return joinParts(parts[:len(parts)-1])
}

func joinParts(parts []string) Path {
	var p Path
	for _, s := range parts {
		p = p.Key(s)
	}
	return p
}

// maxDepth is the most parts that a path can have: more than any key needs, and
// few enough that it does not matter how often a path is taken apart.
const maxDepth = 32

var errTooDeep = fmt.Errorf("the key has over %d parts; allowed: at most %d", maxDepth, maxDepth)

// split takes the path apart into unquoted keys. It fails on an empty key, on a
// quoted one that does not end, and on a path that is too deep.
func (p Path) split() ([]string, error) {
	var parts []string
	for rest := string(p); ; {
		if len(parts) == maxDepth {
			return nil, errTooDeep
		}
		key, after, err := cutKey(rest)
		if err != nil {
			return nil, fmt.Errorf("%w; allowed: path.to.key=value", err)
		}
		parts = append(parts, key)
		if after == "" {
			return parts, nil
		}
		if after[0] != '.' {
			return nil, fmt.Errorf("unexpected %q after %q; allowed: path.to.key=value", after, key)
		}
		rest = after[1:]
	}
}

// cutKey takes the first key off s.
func cutKey(s string) (key, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", fmt.Errorf("the quoted key %s does not end", s)
		}
		key, err = strconv.Unquote(quoted)
		return key, s[len(quoted):], err
	}
	n := strings.IndexByte(s, '.')
	if n < 0 {
		n = len(s)
	}
	if n == 0 {
		return "", "", fmt.Errorf("a key is empty")
	}
	if !isBare(s[:n]) {
		return "", "", fmt.Errorf("the key %q must be in quotes", s[:n])
	}
	return s[:n], s[n:], nil
}

// isBare reports whether TOML takes k as a key without quotes.
func isBare(k string) bool {
	for _, c := range []byte(k) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return k != ""
}

// Overlaps reports whether one of p and q contains the other.
func (p Path) Overlaps(q Path) bool { return p.contains(q) || q.contains(p) }
