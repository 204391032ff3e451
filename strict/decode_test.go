package strict

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type word struct{ s string }

func (w *word) UnmarshalText(text []byte) error {
	if string(text) == "bad" {
		return errors.New("must not be bad")
	}
	w.s = string(text)
	return nil
}

func TestDecodeReportsEverythingAtOnce(t *testing.T) {
	var v struct {
		Word  word            `toml:"word"`
		Other word            `toml:"other"`
		Words map[string]word `toml:"words"`
		Lists [][]string      `toml:"lists"`
		N     int64           `toml:"n"`
		Left  int             `toml:"left"`
	}
	v.Left = 7
	doc, err := Parse("f.toml", []byte(`word = "bad"
other = 5
n = 12
lists = [
  ["a", 1],
  "b",
]
extra = 1
[words]
a = "fine"
"b.c" = "bad"
`))
	require.NoError(t, err)
	require.EqualError(t, doc.Decode(&v).Err(), `f.toml:1: word must not be bad
f.toml:2: other must be a string, not 5
f.toml:5: lists.0.1 must be a string in quotes, not 1
f.toml:6: lists.1 must be an array, not the string "b"
f.toml:8: unknown key "extra"; allowed: left, lists, n, other, word, words
f.toml:11: words."b.c" must not be bad`)
	require.Equal(t, int64(12), v.N)
	require.Equal(t, 7, v.Left)
	require.Equal(t, "fine", v.Words["a"].s)
	require.Equal(t, "a", v.Lists[0][0])
}

func TestDecodeIntoATypeThatTOMLCannotFillIsAMistakeInTheProgram(t *testing.T) {
	doc, err := Parse("f.toml", []byte("c = 1"))
	require.NoError(t, err)
	require.Panics(t, func() {
		doc.Decode(&struct {
			C chan int `toml:"c"`
		}{})
	})
}

func TestAListThatIsWrongThroughoutIsCutShort(t *testing.T) {
	var v struct {
		Ns []int `toml:"ns"`
	}
	doc, err := Parse("f.toml", []byte("ns = ["+strings.Repeat("true,", MaxProblems+1)+"]"))
	require.NoError(t, err)
	require.Len(t, doc.Decode(&v), MaxProblems)
}
