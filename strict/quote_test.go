package strict

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is quoted is read as what it was, whatever is in it.
func TestQuote(t *testing.T) {
	for _, s := range []string{"", "prefix-cache", `a"b\c`, "a\tb\nc\x00\x1b\x7f", "käse 漢字\u2028"} {
		doc, err := Parse("q.toml", []byte("v = "+Quote(s)))
		require.NoError(t, err, "%q", s)
		var into struct {
			V string `toml:"v"`
		}
		require.Empty(t, doc.Decode(&into))
		require.Equal(t, s, into.V)
	}
}
