package profiles

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"

	"fleetsim/model"
	"fleetsim/strict"
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
	marked, err := Parse("small.toml", []byte("\ufeff"+minimal))
	require.NoError(t, err)
	require.Equal(t, p, marked)
	require.EqualValues(t, 1e9, p.Cost.Base)
	require.Empty(t, p.Cost.Decode)
	require.Len(t, p.Coefficients, 4)
}

// placed is the problems that err is, each with its column too. What the TOML
// parser says is left out.
func placed(t *testing.T, err error) string {
	var problems strict.Problems
	require.ErrorAs(t, err, &problems)
	var b strings.Builder
	for _, p := range problems {
		msg := p.Msg
		if strings.HasPrefix(msg, "not valid TOML: ") {
			msg = "not valid TOML"
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s\n", filepath.Base(p.File), p.Line, p.Col, msg)
	}
	return b.String()
}

const engineKeys = "async_scheduling, block_tokens, blocks, count_stats_at_lookup, long_prefill_token_threshold, max_model_len, max_num_batched_tokens, max_num_seqs, prefix_caching, state_groups"

// Each case changes one thing of the minimal profile.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"syntax", `name = "small"`, `name = `, "p.toml:1:8: not valid TOML\n"},
		{"key twice", `blocks = 20`, "blocks = 20\nblocks = 21", "p.toml:8:1: not valid TOML\n"},
		{"type", `max_num_seqs = 2`, `max_num_seqs = "two"`, "p.toml:4:1: engine.max_num_seqs must be a whole number, not the string \"two\"\n"},
		{"fraction", `max_num_seqs = 2`, `max_num_seqs = 2.5`, "p.toml:4:1: engine.max_num_seqs must be a whole number, not 2.5\n"},
		{"no table", "[overhead]\n", "[engine.x]\n[overhead]\n", "p.toml:11:9: unknown key \"x\" in engine; allowed: " + engineKeys + "\n"},
		{"a number for a table", `name = "small"`, "name = \"small\"\nrange = 5", "p.toml:2:1: range must be a table, not 5\n"},
		{"a number for a quantity", `{ value = 0.01, unit = "s/step", source = "test" }`, `0.01`, "p.toml:9:1: cost.base must be a table, not 0.01\n"},
		{"no name", `name = "small"`, ``, "p.toml:1:1: name is missing\n"},
		{"unknown key", `blocks = 20`, "blocks = 20\nextra = 1", "p.toml:8:1: unknown key \"extra\" in engine; allowed: " + engineKeys + "\n"},
		{"misspelt key", `blocks = 20`, "blocks = 20\nblocs = 1", "p.toml:8:1: unknown key \"blocs\" in engine; did you mean \"blocks\"?\n"},
		{"capital", `blocks = 20`, "blocks = 20\nState_Groups = 1", "p.toml:8:1: unknown key \"State_Groups\" in engine; did you mean \"state_groups\"?\n"},
		{"misspelt table", `[overhead]`, "[rnage]\ndecodes = 8\n[overhead]", "p.toml:11:2: unknown key \"rnage\"; did you mean \"range\"?\n"},
		{"misspelt key of a quantity", `value = 0.01,`, `value = 0.01, sorce = "",`, "p.toml:9:24: unknown key \"sorce\" in cost.base; did you mean \"source\"?\n"},
		{"limits", `max_num_seqs = 2`, `max_num_seqs = 0`, "p.toml:4:1: engine: max_num_seqs = 0: allowed is 1 to 1073741824\n"},
		{"blocks", `blocks = 20`, `blocks = 7`, "p.toml:7:1: engine: blocks = 7: one request of max_model_len needs 7 besides the null block\n"},
		{"limits left out", "max_num_seqs = 2\nmax_num_batched_tokens = 100\n", "", "p.toml:2:2: engine: max_num_batched_tokens = 0: allowed is 1 to 1073741824\np.toml:2:2: engine: max_num_seqs = 0: allowed is 1 to 1073741824\n"},
		{"negative", `value = 0.01,`, `value = -1,`, "p.toml:9:10: base = -1 s/step: allowed is 0 to 3600\n"},
		{"not a number", `value = 0.01,`, `value = nan,`, "p.toml:9:10: cost.base.value must be a finite number, not NaN\n"},
		{"unit", `"s/step"`, `"ms"`, "p.toml:9:24: base: the unit is \"s/step\", not \"ms\"\n"},
		{"no unit", `, unit = "s/step"`, ``, "p.toml:9:1: base: the unit is \"s/step\", not \"\"\n"},
		{"unknown coefficient", `[overhead]`, "speed = { value = 1, unit = \"s\", source = \"x\" }\n[overhead]",
			"p.toml:11:1: unknown key \"speed\" in cost; allowed: base, decode_1 to decode_4096, launch, launch_lag, long_prefill_tokens, per_decode, per_decode_context, per_long_prefill_token, per_prefill_token, per_prefill_token_context, per_shared_context\n"},
		{"misspelt coefficient", "base = {", "bse = {", "p.toml:8:2: cost.base is missing\np.toml:9:1: unknown key \"bse\" in cost; did you mean \"base\"?\n"},
		{"misspelt overhead", "request = {", "reqest = {", "p.toml:11:2: overhead.request is missing\np.toml:12:1: unknown key \"reqest\" in overhead; did you mean \"request\"?\n"},
		{"a cost among the overheads", `[overhead]`, "[overhead]\nlaunch = { value = 1, unit = \"s/step\" }", "p.toml:12:1: unknown key \"launch\" in overhead; allowed: per_prompt_token, request, response\n"},
		{"two names of one", `[overhead]`, "request_overhead = { value = 1, unit = \"s\" }\n[overhead]", "p.toml:13:1: request_overhead is given twice\n"},
		{"missing", `base = { value = 0.01, unit = "s/step", source = "test" }`, ``, "p.toml:8:2: cost.base is missing\n"},
		{"interval", `source = "test" }`, `source = "test", interval = [2, 1] }`, "p.toml:9:58: base: interval = [2 1]: allowed are two values, the lower first\n"},
		{"one end of an interval", `source = "test" }`, `source = "test", interval = [2] }`, "p.toml:9:58: base: interval = [2]: allowed are two values, the lower first\n"},
		{"hole", `[overhead]`, "decode_2 = { value = 1, unit = \"s/step\", source = \"x\" }\n[overhead]", "p.toml:8:2: decode_1 is missing: the table goes from decode_1 to decode_2\n"},
		{"beyond the decode table", `[overhead]`, "decode_4097 = { value = 1, unit = \"s/step\" }\n[overhead]",
			"p.toml:11:1: unknown key \"decode_4097\" in cost; allowed: base, decode_1 to decode_4096, launch, launch_lag, long_prefill_tokens, per_decode, per_decode_context, per_long_prefill_token, per_prefill_token, per_prefill_token_context, per_shared_context\n"},
		{"noise", `[overhead]`, "[noise]\nstep_sd = 2.0\nstep_correlation = 1\nreplica_sd = -1\n[overhead]",
			"p.toml:12:1: noise: step_sd = 2: allowed is 0 to 0.2\np.toml:13:1: noise: step_correlation = 1: allowed is 0 up to but not 1\np.toml:14:1: noise: replica_sd = -1: allowed is 0 to 0.2\n"},
		{"parent", `name = "small"`, "name = \"small\"\ninherits = \"nobody\"", "p.toml:2:1: inherits: unknown profile \"nobody\": built in are qwen3.8-27b-fp8-l20, qwen3.8-27b-fp8-l20-pod; a file's name ends in .toml\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Contains(t, minimal, c.from)
			_, err := Parse("p.toml", []byte(strings.Replace(minimal, c.from, c.to, 1)))
			require.Equal(t, c.want, placed(t, err))
		})
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	text := strings.NewReplacer("max_num_seqs = 2", "max_num_seqs = 0", "blocks = 20", "blocks = 20\nblocs = 1",
		`value = 0.01, unit = "s/step"`, `value = -1, unit = "ms"`, "value = 1e-4", `value = "some"`, "value = 0.002", "value = -2").Replace(minimal)
	_, err := Parse("p.toml", []byte(text))
	require.EqualError(t, err, `p.toml:4: engine: max_num_seqs = 0: allowed is 1 to 1073741824
p.toml:8: unknown key "blocs" in engine; did you mean "blocks"?
p.toml:10: base = -1 s/step: allowed is 0 to 3600
p.toml:10: base: the unit is "s/step", not "ms"
p.toml:11: cost.per_prefill_token.value must be a finite number, not the string "some"
p.toml:14: response_overhead = -2 s: allowed is 0 to 3600`)
}

// A problem stands in the file that has the value, and what is missing in the
// file that was asked for.
func TestProblemsOfAFamily(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("base.toml", strings.NewReplacer("max_num_seqs = 2", "max_num_seqs = 0", "value = 0.01", "value = -1", "response =", "respnse =", "blocks = 20", "blocks = 2.5").Replace(minimal))
	write("broken.toml", "name = \"broken\"\n[engine\n")
	write("lost.toml", "inherits = \"nobody.toml\"\n[engine]\nblock_tokens = -1\n")
	write("a.toml", "inherits = \"b.toml\"\n")
	write("b.toml", "inherits = \"a.toml\"\n")
	const heir = `name = "heir"
inherits = "PARENT"
[engine]
blocks = 20
max_nm_seqs = 4
[overhead]
request = { value = 0.005, unit = "ms" }
`
	for _, c := range []struct{ parent, want string }{
		{"base.toml", `base.toml:4:1: engine: max_num_seqs = 0: allowed is 1 to 1073741824
base.toml:7:1: engine.blocks must be a whole number, not 2.5
base.toml:9:10: base = -1 s/step: allowed is 0 to 3600
base.toml:13:1: unknown key "respnse" in overhead; did you mean "response"?
heir.toml:5:1: unknown key "max_nm_seqs" in engine; did you mean "max_num_seqs"?
heir.toml:6:2: overhead.response is missing
heir.toml:7:28: request_overhead: the unit is "s", not "ms"
`},
		{"broken.toml", `broken.toml:2:8: not valid TOML
heir.toml:5:1: unknown key "max_nm_seqs" in engine; did you mean "max_num_seqs"?
heir.toml:7:28: request_overhead: the unit is "s", not "ms"
`},
		{"lost.toml", `heir.toml:5:1: unknown key "max_nm_seqs" in engine; did you mean "max_num_seqs"?
heir.toml:7:28: request_overhead: the unit is "s", not "ms"
lost.toml:1:1: inherits: open DIR/nobody.toml: no such file or directory
lost.toml:3:1: engine: block_tokens = -1: allowed is 1 to 1073741824
`},
		{"a.toml", `b.toml:1:1: inherits: DIR/a.toml inherits from itself: DIR/heir.toml → DIR/a.toml → DIR/b.toml → DIR/a.toml
heir.toml:5:1: unknown key "max_nm_seqs" in engine; did you mean "max_num_seqs"?
heir.toml:7:28: request_overhead: the unit is "s", not "ms"
`},
		{"qwen3.8-27b-fp8-l20", `heir.toml:4:1: engine: blocks = 20: one request of max_model_len needs 30 besides the null block
heir.toml:5:1: unknown key "max_nm_seqs" in engine; did you mean "max_num_seqs"?
heir.toml:7:28: request_overhead: the unit is "s", not "ms"
`},
	} {
		write("heir.toml", strings.Replace(heir, "PARENT", c.parent, 1))
		_, err := Load(filepath.Join(dir, "heir.toml"))
		require.Equal(t, c.want, strings.ReplaceAll(placed(t, err), dir, "DIR"), c.parent)
	}
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
}

func TestUnknown(t *testing.T) {
	_, err := Load("nobody")
	require.ErrorContains(t, err, `unknown profile "nobody": built in are qwen3.8-27b-fp8-l20, qwen3.8-27b-fp8-l20-pod`)
	_, err = Load(filepath.Join(t.TempDir(), "none.toml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// No input makes the reader panic. What it takes, another reader of TOML reads the
// same, and it can be written and read again; what it refuses has its places.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("name = \"x\"\ninherits = \"qwen3.8-27b-fp8-l20\"\n[cost]\ndecode_9 = { value = 1, unit = \"s/step\", source = \"\" }\n"))
	f.Add([]byte("[cost]\nbase = 1"))
	f.Add([]byte("\ufeff" + minimal))
	f.Add([]byte("inherits = \"qwen3.8-27b-fp8-l20\"\n[cost.base]\nvalue = 1\ninterval = [\n1, 2.5]\nunit = 's/step'\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("f.toml", data)
		if err != nil {
			var problems strict.Problems
			require.ErrorAs(t, err, &problems)
			for _, p := range problems {
				require.True(t, p.File != "" && p.Line > 0 && p.Col > 0 && p.Msg != "", "%+v", p)
			}
			return
		}
		var own, other file
		doc, err := strict.Parse("f.toml", bytes.TrimPrefix(data, []byte("\ufeff")))
		require.NoError(t, err)
		require.Empty(t, doc.Decode(&own))
		if _, err := toml.Decode(string(data), &other); err == nil { // it takes no float of 2^53 and more without a point
			require.Equal(t, other, own)
		}
		again, err := Parse("g.toml", Append(nil, p))
		require.NoError(t, err)
		require.Equal(t, p.Cost, again.Cost)
		require.Equal(t, p.Limits, again.Limits)
	})
}
