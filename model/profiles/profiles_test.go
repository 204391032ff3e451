package profiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model"
)

func TestBuiltIn(t *testing.T) {
	require.Equal(t, []string{"qwen3.8-27b-fp8-l20", "qwen3.8-27b-fp8-l20-pod"}, Names())
	lab, err := Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	pod, err := Load("qwen3.8-27b-fp8-l20-pod")
	require.NoError(t, err)
	require.Equal(t, lab.Limits, pod.Limits, "inherited")
	require.Equal(t, lab.Cost.Decode, pod.Cost.Decode, "inherited")
	require.Less(t, pod.RequestOverhead, lab.RequestOverhead, "overridden")
	require.Less(t, pod.Cost.Launch, lab.Cost.Launch, "overridden")
	for _, p := range []*model.Profile{lab, pod} {
		for _, q := range p.Coefficients {
			require.NotEmpty(t, q.Source, q.Name)
			if strings.HasPrefix(q.Source, "fitted") {
				require.Len(t, q.Interval, 2, q.Name)
				require.LessOrEqual(t, q.Interval[0], q.Value, q.Name)
				require.GreaterOrEqual(t, q.Interval[1], q.Value, q.Name)
				require.NotEmpty(t, q.Data, q.Name)
			}
		}
	}
}

// A profile that is written reads back the same.
func TestRoundTrip(t *testing.T) {
	for _, name := range Names() {
		p, err := Load(name)
		require.NoError(t, err)
		p.Description = "with \"quotes\", a \\ and a\ttab"
		path := filepath.Join(t.TempDir(), "out.toml")
		require.NoError(t, WriteFile(path, p))
		again, err := Load(path)
		require.NoError(t, err)
		require.Equal(t, p, again)
	}
}

const minimal = `name = "small"
[engine]
max_model_len = 100
max_num_seqs = 2
max_num_batched_tokens = 100
block_tokens = 16
blocks = 20
[cost]
base = { value = 0.01, unit = "s/step", source = "test" }
per_prefill_token = { value = 1e-4, unit = "s/token", source = "test" }
[overhead]
request = { value = 0.001, unit = "s", source = "test" }
response = { value = 0.002, unit = "s", source = "test" }
`

func TestMinimal(t *testing.T) {
	p, err := Parse("small.toml", []byte(minimal))
	require.NoError(t, err)
	require.EqualValues(t, 1e9, p.Cost.Base)
	require.Empty(t, p.Cost.Decode)
	require.Len(t, p.Coefficients, 4)
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		want           []string
	}{
		{"syntax", `name = "small"`, `name = `, []string{"p.toml:1: "}},
		{"type", `max_num_seqs = 2`, `max_num_seqs = "two"`, []string{"p.toml:4: "}},
		{"no name", `name = "small"`, ``, []string{"p.toml: name is missing"}},
		{"unknown key", `blocks = 20`, "blocks = 20\nblocs = 1", []string{"p.toml:8: unknown key engine.blocs"}},
		{"limits", `max_num_seqs = 2`, `max_num_seqs = 0`, []string{"p.toml:2: engine: "}},
		{"negative", `value = 0.01,`, `value = -1,`, []string{"p.toml:9: base = -1 s/step: allowed is 0 to 3600"}},
		{"unit", `"s/step"`, `"ms"`, []string{`p.toml:9: base: the unit is "s/step", not "ms"`}},
		{"unknown coefficient", `[overhead]`, "speed = { value = 1, unit = \"s\", source = \"x\" }\n[overhead]", []string{`p.toml:11: unknown coefficient "speed": allowed are decode_1`}},
		{"missing", `base = { value = 0.01, unit = "s/step", source = "test" }`, ``, []string{"p.toml: cost.base is missing"}},
		{"interval", `source = "test" }`, `source = "test", interval = [2, 1] }`, []string{"p.toml:9: base: interval = [2 1]: allowed are two values, the lower first"}},
		{"hole", `[overhead]`, "decode_2 = { value = 1, unit = \"s/step\", source = \"x\" }\n[overhead]", []string{"p.toml:8: decode_1 is missing"}},
		{"noise", `[overhead]`, "[noise]\nstep_sd = 2.0\n[overhead]", []string{"noise: step_sd = 2"}},
		{"parent", `name = "small"`, "name = \"small\"\ninherits = \"nobody\"", []string{`p.toml:2: inherits: unknown profile "nobody": built in are`}},
		{"several", `value = 0.01, unit = "s/step"`, `value = -1, unit = "s/step"`, []string{"base = -1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("p.toml", []byte(strings.Replace(minimal, c.from, c.to, 1)))
			require.Error(t, err)
			for _, want := range c.want {
				require.Contains(t, err.Error(), want)
			}
		})
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	text := strings.NewReplacer("value = 0.01", "value = -1", "value = 0.002", "value = -2", "blocks = 20", "blocks = 20\nextra = 1").Replace(minimal)
	_, err := Parse("p.toml", []byte(text))
	require.Error(t, err)
	require.Equal(t, []string{
		"p.toml:8: unknown key engine.extra",
		"p.toml:10: base = -1 s/step: allowed is 0 to 3600",
		"p.toml:14: response_overhead = -2 s: allowed is 0 to 3600",
	}, strings.Split(err.Error(), "\n"))
}

func TestInheritance(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("base.toml", minimal)
	heir := write("heir.toml", `name = "heir"
inherits = "base.toml"
[engine]
max_num_seqs = 4
[overhead]
request = { value = 0.005, unit = "s", source = "other gateway" }
`)
	p, err := Load(heir)
	require.NoError(t, err)
	require.Equal(t, "heir", p.Name)
	require.Equal(t, 4, p.Limits.MaxNumSeqs)
	require.Equal(t, 100, p.Limits.MaxModelLen)
	require.EqualValues(t, 5e8, p.RequestOverhead)
	require.EqualValues(t, 2e8, p.ResponseOverhead)

	write("a.toml", "name = \"a\"\ninherits = \"b.toml\"\n")
	write("b.toml", "name = \"b\"\ninherits = \"a.toml\"\n")
	_, err = Load(filepath.Join(dir, "a.toml"))
	require.ErrorContains(t, err, "inherits from itself")
}

func TestUnknown(t *testing.T) {
	_, err := Load("nobody")
	require.ErrorContains(t, err, `unknown profile "nobody": built in are qwen3.8-27b-fp8-l20, qwen3.8-27b-fp8-l20-pod`)
	_, err = Load(filepath.Join(t.TempDir(), "none.toml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// No input makes the reader panic, and what it takes can be written and read
// again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("name = \"x\"\ninherits = \"qwen3.8-27b-fp8-l20\"\n[cost]\ndecode_9 = { value = 1, unit = \"s/step\", source = \"\" }\n"))
	f.Add([]byte("[cost]\nbase = 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("f.toml", data)
		if err != nil {
			return
		}
		again, err := Parse("g.toml", Append(nil, p))
		require.NoError(t, err)
		require.Equal(t, p.Cost, again.Cost)
		require.Equal(t, p.Limits, again.Limits)
	})
}
