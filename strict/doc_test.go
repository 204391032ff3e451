package strict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const everyForm = `# a comment
title = "x" # another

[a.b]
c = 1
"d.e" = { f = 2, g.h = [3,
  4, # the four
  [5, 6],
] }

  [[list]]
  n = 1

  [[list]]
  n = 2
  text = """
two
lines"""
  sub.key = true
  [[list.inner]]
  z = 1979-05-27
  [list.table]
  y = 0.5
`

func TestPlaces(t *testing.T) {
	doc, err := Parse("f.toml", []byte(everyForm))
	require.NoError(t, err)
	for _, want := range []struct {
		path      Path
		line, col int
	}{
		{"title", 2, 1},
		{"a", 4, 2},
		{"a.b", 4, 4},
		{"a.b.c", 5, 1},
		{`a.b."d.e"`, 6, 1},
		{`a.b."d.e".f`, 6, 11},
		{`a.b."d.e".g`, 6, 18},
		{`a.b."d.e".g.h`, 6, 20},
		{`a.b."d.e".g.h.0`, 6, 25},
		{`a.b."d.e".g.h.1`, 7, 3},
		{`a.b."d.e".g.h.2`, 8, 4}, // where its first element is
		{`a.b."d.e".g.h.2.1`, 8, 7},
		{"list.0", 11, 5},
		{"list.0.n", 12, 3},
		{"list", 14, 5}, // the last header
		{"list.1", 14, 5},
		{"list.1.text", 16, 3},
		{"list.1.sub", 19, 3},
		{"list.1.sub.key", 19, 7},
		{"list.1.inner.0.z", 21, 3},
		{"list.1.table.y", 23, 3},
		{"list.1.table.absent", 22, 9}, // what holds it
		{"absent", 1, 1},
	} {
		require.Equal(t, Place{File: "f.toml", Line: want.line, Col: want.col}, doc.At(want.path), "%s", want.path)
	}
}

func TestSyntaxErrorHasItsPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a = 1\nb = \n", "f.toml:2: not valid TOML: "},
		{"a = 1\n\na = 2\n", "f.toml:3: not valid TOML: "},
		{"[t]\nx = 1\n[t]\n", "f.toml:3: not valid TOML: "},
		{"\xff = 1", "f.toml:1: not valid TOML: "},
	} {
		_, err := Parse("f.toml", []byte(c.text))
		var problems Problems
		require.ErrorAs(t, err, &problems, "%q", c.text)
		require.Len(t, problems, 1)
		require.Contains(t, err.Error(), c.want, "%q", c.text)
	}
}

// A byte order mark is no part of the text, nor of the columns.
func TestByteOrderMark(t *testing.T) {
	doc, err := Parse("f.toml", []byte("\ufeffa = 1\nb = 2\n"))
	require.NoError(t, err)
	require.Equal(t, Place{File: "f.toml", Line: 1, Col: 1}, doc.At("a"))
	require.Equal(t, Place{File: "f.toml", Line: 2, Col: 1}, doc.At("b"))
	_, err = Parse("f.toml", []byte("\ufeff\ufeffa = 1\n"))
	require.ErrorContains(t, err, "f.toml:1: not valid TOML: ")
}

// deep is n parts of a path.
func deep(n int) string { return strings.Repeat("a.", n-1) + "a" }

func TestKeysThatAreTooDeep(t *testing.T) {
	const want = "the key has over 32 parts; allowed: at most 32"
	for _, text := range []string{
		deep(32) + " = 1\n",
		"[" + deep(32) + "]\n",
		"[[" + deep(31) + "]]\n",
		"x = " + strings.Repeat("[", 31) + "1" + strings.Repeat("]", 31) + "\n",
		"[" + deep(30) + "]\nx = { y = 1 }\n",
	} {
		_, err := Parse("f.toml", []byte(text))
		require.NoError(t, err, "%s", text)
	}
	for _, c := range []struct {
		text string
		line int
	}{
		{"\n" + deep(33) + " = 1\n", 2},
		{"\n" + deep(200_000) + " = 1\n", 2},
		{"\n[" + deep(33) + "]\n", 2},
		{"\n[[" + deep(32) + "]]\n", 2},
		{"[[" + deep(31) + "]]\nx.y = 1\n", 2},
		{"x = " + strings.Repeat("[\n", 32) + "1" + strings.Repeat("]", 32) + "\n", 33},
		{"\nx = " + strings.Repeat("[", 33) + strings.Repeat("]", 33) + "\n", 2},
		{"[" + deep(30) + "]\nx = { y.z = 1 }\n", 2},
	} {
		_, err := Parse("f.toml", []byte(c.text))
		require.EqualError(t, err, fmt.Sprintf("f.toml:%d: %s", c.line, want))
	}
	for _, c := range []struct{ key, value string }{
		{deep(33), "1"}, {deep(200_000), "1"}, {"x", "{" + deep(32) + " = 1}"}, {"x.y", strings.Repeat("[", 31) + "1" + strings.Repeat("]", 31)},
	} {
		doc, err := Parse("f.toml", nil)
		require.NoError(t, err)
		require.EqualError(t, doc.Set(c.key+"="+c.value), "--set "+c.key+": "+want)
		require.Empty(t, doc.root)
	}
}

func TestCloneIsIndependent(t *testing.T) {
	doc, err := Parse("f.toml", []byte(everyForm))
	require.NoError(t, err)
	clone := doc.Clone()
	require.NoError(t, clone.Set("list.0.n=7"))
	require.NoError(t, clone.Set(`a.b."d.e".g.h.0=7`))
	n, _ := doc.get("list.0.n")
	require.Equal(t, int64(1), n)
	three, _ := doc.get(`a.b."d.e".g.h.0`)
	require.Equal(t, int64(3), three)
	require.Equal(t, 12, doc.At("list.0.n").Line)
}

// Whatever parses has a place for each of its values, and places for nothing
// else.
func FuzzParse(f *testing.F) {
	f.Add([]byte(everyForm))
	f.Add([]byte("a.b = []\na.c = [[], {}]\n[\"\"]\n'' = 1\n"))
	f.Add([]byte("[[a]]\n[a.b]\n[[a.c]]\n[[a]]\n[[a.c]]\n[[a.c]]\nx.y = [{}, {z = 1}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := Parse("f.toml", data)
		if err != nil {
			return
		}
		want := map[Path]bool{}
		walk("", doc.root, func(p Path) { want[p] = true })
		for p, at := range doc.places {
			if !want[p] {
				t.Errorf("%s has a place, %v, and no value", p, at)
			}
			if at.Line < 1 || at.Col < 1 {
				t.Errorf("%s is at %v", p, at)
			}
		}
		for p := range want {
			if at := doc.At(p); at.File != "f.toml" || at.Line < 1 {
				t.Errorf("%s is at %v", p, at)
			}
			if !doc.Has(p) {
				t.Errorf("%s cannot be found", p)
			}
		}
	})
}

func TestJSONKeepsTheOrder(t *testing.T) {
	doc, err := Parse("f.toml", []byte("[t]\nz = 1\na = [true, \"x\"]\nm = { y = 0.5, b = {} }\n"))
	require.NoError(t, err)
	got, err := doc.JSON("t")
	require.NoError(t, err)
	require.Equal(t, `{"z":1,"a":[true,"x"],"m":{"y":0.5,"b":{}}}`, string(got))
	_, err = doc.JSON("absent")
	require.Error(t, err)
}

func TestJSONRefusesInfinity(t *testing.T) {
	doc, err := Parse("f.toml", []byte("[t]\nz = inf\n"))
	require.NoError(t, err)
	_, err = doc.JSON("t")
	require.EqualError(t, err, "f.toml:2: t.z must be a finite number, not +Inf")
}

func TestMerge(t *testing.T) {
	base, err := Parse("base.toml", []byte("x = 1\n[t]\na = 1\nb = [1, 2]\n[t.u]\nc = 1\n"))
	require.NoError(t, err)
	over, err := Parse("over.toml", []byte("[set]\nt.b = [3]\nt.u.d = 2\ny.z = 4\n"))
	require.NoError(t, err)
	require.NoError(t, base.Merge("", over, "set"))
	require.Equal(t, map[string]any{
		"x": int64(1),
		"t": map[string]any{"a": int64(1), "b": []any{int64(3)}, "u": map[string]any{"c": int64(1), "d": int64(2)}},
		"y": map[string]any{"z": int64(4)},
	}, base.root)
	places := map[Path]string{}
	for _, p := range []Path{"t.a", "t.b", "t.b.0", "t.b.1", "t.u.c", "t.u.d", "y.z"} {
		places[p] = fmt.Sprint(base.At(p))
	}
	require.Equal(t, map[Path]string{
		"t.a": "{base.toml 3 1}", "t.b": "{over.toml 2 3}", "t.b.0": "{over.toml 2 8}", "t.b.1": "{over.toml 2 3}",
		"t.u.c": "{base.toml 6 1}", "t.u.d": "{over.toml 3 5}", "y.z": "{over.toml 4 3}",
	}, places)
	require.NoError(t, base.Merge("", over, "absent"))
	require.EqualError(t, base.Merge("", over, "set.t.b"), "over.toml:2: set.t.b must be a table, not an array")
	require.ElementsMatch(t, []string{"t", "x", "y"}, slices.Collect(maps.Keys(base.root)))
}
