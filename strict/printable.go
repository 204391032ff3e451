package strict

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Printable reports the first character of s, which messages call what, that must not
// reach a terminal: a control, a line or paragraph separator, a mark that changes the
// direction of text, or a byte that is not UTF-8, as U+FFFD.
func Printable(what, s string) error {
	if r, found := unprintable(s); found {
		return fmt.Errorf("%s must not have control characters, such as %U in %q", what, r, s)
	}
	return nil
}

func unprintable(s string) (r rune, found bool) {
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
