package strict

import (
	"unicode"
	"unicode/utf8"
)

// Unprintable is the first character of s, if any is found, that must not reach a
// terminal: a control, a line or paragraph separator, a mark that changes the
// direction of text, or a byte that is not UTF-8, as U+FFFD.
func Unprintable(s string) (r rune, found bool) {
	for i, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return r, true
		}
		if _, size := utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && size == 1 {
			return r, true
		}
	}
	return 0, false
}
