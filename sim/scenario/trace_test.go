package scenario

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
)

func TestTraceDefaults(t *testing.T) {
	sc, err := Parse("dir/s.toml", []byte("[workload.trace]\npath = \"t.csv\""))
	require.NoError(t, err)
	tr := sc.Workload.Trace
	require.Equal(t, []float64{1, 1, 1, 4}, []float64{tr.Thin, tr.Sample, tr.Rate, tr.CharsPerToken})
	require.Equal(t, "recorded", tr.Sessions)
	require.Zero(t, tr.To.Time)
}

// A path is relative to where it is written.
func TestTracePathIsRelativeToItsFile(t *testing.T) {
	file := func(name, text string, sets ...string) string {
		sc, err := ParseWith(name, []byte(text), sets)
		require.NoError(t, err)
		return sc.Workload.Trace.File()
	}
	const text = "[workload.trace]\npath = \"t.csv\""
	require.Equal(t, filepath.Join("dir", "t.csv"), file("dir/s.toml", text))
	require.Equal(t, "t.csv", file("s.toml", text))
	require.Equal(t, "/t.csv", file("dir/s.toml", "[workload.trace]\npath = \"/t.csv\""))
	require.Equal(t, "u.csv", file("dir/s.toml", text, "workload.trace.path=u.csv"))
	require.Equal(t, filepath.Join("dir", "t.csv"), file("dir/s.toml", text, "workload.trace.from=1s"))

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "base.toml"), []byte(text), 0o600))
	study, err := ParseStudy(filepath.Join(dir, "study.toml"), []byte("[[phases]]\nphase = \"a\"\nscenario = \"base.toml\"\npolicy = \"random\"\n"), nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "t.csv"), study.Phases[0].Scenario.Workload.Trace.File())
}

// Two checkouts of one scenario have one digest.
func TestDigestIsThatOfThePathAsWritten(t *testing.T) {
	digest := func(name, path string) string {
		sc, err := Parse(name, []byte("name = \"n\"\n[workload.trace]\npath = \""+path+"\""))
		require.NoError(t, err)
		return Digest(sc)
	}
	require.Equal(t, digest("a/s.toml", "t.csv"), digest("b/s.toml", "t.csv"))
	require.NotEqual(t, digest("a/s.toml", "t.csv"), digest("a/s.toml", "u.csv"))
}

func TestTraceProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`time_unit = "min"`, `3: workload.trace.time_unit "min" is unknown; allowed: ms, ns, s, us`},
		{`block_tokens = -1`, `3: workload.trace.block_tokens must be a whole number from 0 to 100000000, not -1`},
		{`max_errors = -2`, `3: workload.trace.max_errors must be a whole number from -1 to 100000000, not -2`},
		{`chars_per_token = 0.0`, `3: workload.trace.chars_per_token must be above 0 and at most 1000, not 0`},
		{`thin = 1.5`, `3: workload.trace.thin must be above 0 and at most 1, not 1.5`},
		{`sample = 0.0`, `3: workload.trace.sample must be above 0 and at most 1, not 0`},
		{`rate = 0`, `3: workload.trace.rate must be from 1e-06 to 1e+06, not 0`},
		{`rate = 9e-7`, `3: workload.trace.rate must be from 1e-06 to 1e+06, not 9e-07`},
		{`rate = 1000001`, `3: workload.trace.rate must be from 1e-06 to 1e+06, not 1.000001e+06`},
		{`untimed_rate_per_second = 1e-300`, `3: workload.trace.untimed_rate_per_second must be from 1e-06 to 1e+06, not 1e-300`},
		{`untimed_rate_per_second = -1.0`, `3: workload.trace.untimed_rate_per_second must be from 1e-06 to 1e+06, not -1`},
		{"from = \"5s\"\nto = \"5s\"", `4: workload.trace.to must be later than from, 5s; leave it out for the trace's end`},
		{`sessions = "closed"`, `3: workload.trace.sessions "closed" is unknown; did you mean "closed_loop"?`},
		{`think_time = "1s"`, `3: workload.trace.think_time is for sessions = "closed_loop" only`},
		{"[workload.prompt]\nfamilies = 2", `4: workload.prompt.families is for generated prompts; those of a trace are in it`},
		{"[[workload.tenants]]\nname = \"a\"\noutput_tokens = 4", `3: workload.tenants.0 has lengths; those of a trace are in it, only the quota counts`},
	} {
		_, err := Parse("s.toml", []byte("[workload.trace]\npath = \"t.csv\"\n"+c.text))
		require.EqualError(t, err, "s.toml:"+c.want, "%s", c.text)
	}
	sc, err := Parse("s.toml", []byte("[workload.trace]\npath = \"t.csv\"\nsessions = \"closed_loop\"\nthink_time = \"2s\"\nmax_errors = -1"))
	require.NoError(t, err)
	require.Equal(t, 2*simtime.Second, sc.Workload.Trace.ThinkTime.Time)
}
