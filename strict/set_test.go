package strict

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type target struct {
	Name    string            `toml:"name"`
	N       int               `toml:"n"`
	X       float64           `toml:"x"`
	On      *bool             `toml:"on"`
	Seed    uint64            `toml:"seed"`
	Env     map[string]string `toml:"env"`
	Items   []item            `toml:"items"`
	Any     any               `toml:"any"`
	Targets []item            `toml:"targets"`
	Plain   int
}

type item struct {
	Key string `toml:"key"`
	Ns  []int  `toml:"ns"`
}

const targetText = `name = "a"
n = 1

[[items]]
key = "k"
ns = [1, 2]
`

func decodeWith(t *testing.T, sets ...string) (target, error) {
	t.Helper()
	doc, err := Parse("f.toml", []byte(targetText))
	require.NoError(t, err)
	for _, s := range sets {
		if err := doc.Set(s); err != nil {
			return target{}, err
		}
	}
	var v target
	return v, doc.Decode(&v).Err()
}

func TestSet(t *testing.T) {
	yes := true
	base := target{Name: "a", N: 1, Items: []item{{Key: "k", Ns: []int{1, 2}}}}
	with := func(change func(*target)) target {
		v := base
		v.Items = []item{{Key: "k", Ns: []int{1, 2}}}
		change(&v)
		return v
	}
	for _, c := range []struct {
		set  string
		want target
	}{
		{"n=5", with(func(v *target) { v.N = 5 })},
		{" n = 5 ", with(func(v *target) { v.N = 5 })},
		{"x=2", with(func(v *target) { v.X = 2 })},
		{"x=-2.5e3", with(func(v *target) { v.X = -2500 })},
		{"on=true", with(func(v *target) { v.On = &yes })},
		{"name=plain text = with more", with(func(v *target) { v.Name = "plain text = with more" })},
		{`name="quoted"`, with(func(v *target) { v.Name = "quoted" })},
		{"name=007", with(func(v *target) { v.Name = "007" })},
		{"name=7", with(func(v *target) { v.Name = "7" })}, // the text, as a string is wanted
		{"name=", with(func(v *target) { v.Name = "" })},
		{"env.BLOCK=128", with(func(v *target) { v.Env = map[string]string{"BLOCK": "128"} })},
		{`env."a.b"=true`, with(func(v *target) { v.Env = map[string]string{"a.b": "true"} })},
		{"items.0.key=z", with(func(v *target) { v.Items[0].Key = "z" })},
		{"items.0.ns.1=9", with(func(v *target) { v.Items[0].Ns[1] = 9 })},
		{"items.0.ns.2=9", with(func(v *target) { v.Items[0].Ns = []int{1, 2, 9} })},
		{"items.0.ns=[]", with(func(v *target) { v.Items[0].Ns = []int{} })},
		{"items.1.ns.0=4", with(func(v *target) { v.Items = append(v.Items, item{Ns: []int{4}}) })},
		{`items=[{key = "q"}]`, with(func(v *target) { v.Items = []item{{Key: "q"}} })},
	} {
		got, err := decodeWith(t, c.set)
		require.NoError(t, err, "%s", c.set)
		require.Equal(t, c.want, got, "%s", c.set)
	}
}

func TestSetProblems(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"n", "--set n: there must be a value: --set path.to.key=value"},
		{"=5", "--set : a key is empty; allowed: path.to.key=value"},
		{"a..b=5", "--set a..b: a key is empty; allowed: path.to.key=value"},
		{`"a=5`, `--set "a: the quoted key "a does not end; allowed: path.to.key=value`},
		{"a b=5", `--set a b: the key "a b" must be in quotes; allowed: path.to.key=value`},
		{`"a"b=5`, `--set "a"b: unexpected "b" after "a"; allowed: path.to.key=value`},
		{"items.2.key=x", `--set items.2.key: items is an array, so "2" must be an index; allowed: 0 to 1`},
		{"items.-1.key=x", `--set items.-1.key: items is an array, so "-1" must be an index; allowed: 0 to 1`},
		{"items.00.key=x", `--set items.00.key: items is an array, so "00" must be an index; allowed: 0 to 1`},
		{`items."+0"=x`, `--set items."+0": items is an array, so "+0" must be an index; allowed: 0 to 1`},
		{"targets.5.key=x", `--set targets.5.key: targets.5 is beyond the end of targets, which is empty; allowed: targets.0`},
		{"targets.x=1", `--set targets.x: targets must be an array, not a table`},
		{"items.key=x", `--set items.key: items is an array, so "key" must be an index; allowed: 0 to 1`},
		{"name.x=1", `--set name.x: name is the string "a", not a table, so it has no "x"`},
		{"nam=x", `--set nam: unknown key "nam"; did you mean "name"?`},
		{"Plain=1", `--set Plain: unknown key "Plain"; allowed: any, env, items, n, name, on, seed, targets, x`},
		{"items.0.kye=x", `--set items.0.kye: unknown key "kye" in items.0; did you mean "key"?`},
		{"n=many", `--set n: n must be a whole number, not the string "many"`},
		{"n=1.0", `--set n: n must be a whole number, not 1.0`},
		{"x=nan", `--set x: x must be a finite number, not NaN`},
		{"seed=-1", `--set seed: seed must be a whole number from 0 to 9223372036854775807, not -1`},
		{"on=yes", `--set on: on must be true or false, not the string "yes"`},
		{"env=5", `--set env: env must be a table, not 5`},
		{"items=1979-05-27", `--set items: items must be an array, not the date or time 1979-05-27`},
		{"items.0=1", `--set items.0: items.0 must be a table, not 1`},
	} {
		_, err := decodeWith(t, c.set)
		require.EqualError(t, err, c.want, "%s", c.set)
	}
}

// A setting changes its path and nothing else.
func FuzzSet(f *testing.F) {
	for _, s := range []string{"n=5", "items.0.ns.2=9", `env."a.b"=true`, "items={x=1}", "a..b", "name.x=1", "items.0=[[1]]", "00.0=", "items.00="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		doc, err := Parse("f.toml", []byte(targetText))
		require.NoError(t, err)
		before := doc.Clone()
		if err := doc.Set(expr); err != nil {
			require.Equal(t, before.root, doc.root)
			return
		}
		changed := 0
		for p := range before.places {
			if v, ok := doc.get(p); ok {
				was, _ := before.get(p)
				if !isHolder(was) && was != v {
					changed++
				}
			}
		}
		require.LessOrEqual(t, changed, 3, "%q", expr) // items.0 holds three values at most
		var v target
		for _, p := range doc.Decode(&v) {
			require.NotEmpty(t, p.Msg)
			require.NotContains(t, p.File, "f.toml", "%q: the file is right, so only the setting can be wrong: %v", expr, p)
		}
	})
}

func isHolder(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}
