package strict

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnprintable(t *testing.T) {
	for _, s := range []string{"", "L20-A", "käse 漢字", "\u05d0\u05d1", "a\u200db", "\ufffd"} {
		_, found := unprintable(s)
		require.False(t, found, "%q", s)
	}
	for s, want := range map[string]rune{
		"a\x00b": 0, "a\nb": '\n', "\x1b[2J": 0x1b, "\u009b": 0x9b, "a\u202eb": 0x202e, "\u2066": 0x2066, "\u2028": 0x2028, "a\xff": 0xfffd,
	} {
		r, found := unprintable(s)
		require.True(t, found, "%q", s)
		require.Equal(t, want, r, "%q", s)
	}
}
