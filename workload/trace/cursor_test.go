package trace

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSkipAgreesWithTheStandardLibrary: what encoding/json takes, the cursor does.
func TestSkipAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[\[\]{}",:0-9eE.+\- ntrueflasi\\u]{0,12}`).Draw(t, "text")
		c := &cursor{b: []byte(text)}
		ok := c.skip() == nil && c.end() == nil
		if json.Valid([]byte(text)) && !ok {
			t.Fatalf("%q is refused", text)
		}
	})
}

func TestSkipRefuses(t *testing.T) {
	for _, bad := range []string{"", "{", "[1,]", "{\"a\" 1}", "01", "1.", ".5", "+1", "1e", "tru", "\"a", "\"\n\"", "{1:2}", "[1 2]", "-"} {
		c := &cursor{b: []byte(bad)}
		require.False(t, c.skip() == nil && c.end() == nil, bad)
	}
	for _, good := range []string{"NaN", "-Infinity", "[Infinity, null]", `{"a":{"b":[]}}`} {
		c := &cursor{b: []byte(good)}
		require.NoError(t, c.skip(), good)
		require.NoError(t, c.end(), good)
	}
}

func TestStringsDecodeLikeTheStandardLibrary(t *testing.T) {
	check := func(t require.TestingT, quoted []byte) {
		var want string
		require.NoError(t, json.Unmarshal(quoted, &want))
		c := &cursor{b: quoted}
		got, err := c.str()
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		back := &cursor{b: appendString(nil, want)}
		again, err := back.str()
		require.NoError(t, err)
		require.Equal(t, want, string(again))
	}
	for _, s := range []string{`"\u00e9\u20ac\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ude00\ud83d"`, `"\/\b\f\n\r\t\"\\"`, `"é€😀"`} {
		check(t, []byte(s))
	}
	rapid.Check(t, func(t *rapid.T) {
		quoted, err := json.Marshal(rapid.String().Draw(t, "text"))
		require.NoError(t, err)
		check(t, quoted)
	})
}

func TestErrorsNameThePath(t *testing.T) {
	c := &cursor{b: []byte(`{"a": [{"b": 1}, {"b": "x"}]}`)}
	err := c.object(func([]byte) error {
		return c.array(func(int) error {
			return c.object(func([]byte) error {
				_, err := c.count()
				return err
			})
		})
	})
	require.EqualError(t, err, `a[1].b: a number expected, found "\"x\""`)
}

func TestLineAt(t *testing.T) {
	c := &cursor{b: []byte("a\nb\nc\n")}
	for _, step := range []struct{ off, line int }{{0, 1}, {2, 2}, {5, 3}, {1, 1}, {6, 4}, {3, 2}} {
		require.Equal(t, step.line, c.lineAt(step.off))
	}
}
