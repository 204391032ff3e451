package scenario

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

// published reads a study's phase records as they were published.
func published(t *testing.T, file string) []record.Phase {
	path := "../../../shared/measurements/" + file
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("the published records are not beside the checkout: %v", err)
	}
	defer f.Close()
	phases, err := record.ReadPhases(path, f)
	require.NoError(t, err)
	return phases
}

// The study's file holds the published figures to the last digit.
func TestRoutingStudyIsAsPublished(t *testing.T) {
	study, err := LoadStudy("routing-study")
	require.NoError(t, err)
	want := published(t, "routing-study-phases.jsonl")
	require.Len(t, study.Phases, len(want))
	for i, p := range study.Phases {
		want[i].Other = nil
		require.Equal(t, want[i], *p.Measured)
	}
}

func TestProductionStudyIsAsPublished(t *testing.T) {
	study, err := LoadStudy("production-study")
	require.NoError(t, err)
	want := published(t, "production-study-phases.jsonl")
	require.Len(t, study.Phases, len(want))
	for i, p := range study.Phases {
		want[i].Other = nil
		want[i].Scenario, want[i].Route = p.Scenario.Name, p.Policy
		got := *p.Measured
		got.Notes = nil // from the article's text
		require.Equal(t, want[i], got)
	}
}

// The orders are those recovered from the published seeds.
func TestRoutingStudyOrders(t *testing.T) {
	data, err := os.ReadFile("../../../shared/measurements/family-sequences.json")
	if err != nil {
		t.Skipf("the recovered orders are not beside the checkout: %v", err)
	}
	var want map[string][]int
	require.NoError(t, json.Unmarshal(data, &want))
	study, err := LoadStudy("routing-study")
	require.NoError(t, err)
	kind := map[string]string{"cold-uniform": "uniform", "warm-uniform": "uniform", "hot50": "hot50", "hot90": "hot90"}
	for _, p := range study.Phases {
		require.Equal(t, want[p.Name[:3]+kind[p.Scenario.Name]], p.Scenario.Workload.Prompt.FamilyOrder, p.Name)
	}
}

func TestRoutingStudyPhases(t *testing.T) {
	study, err := LoadStudy("routing-study")
	require.NoError(t, err)
	require.Equal(t, "routing-study", study.Name)
	byName := map[string]*Phase{}
	for i := range study.Phases {
		p := &study.Phases[i]
		byName[p.Name] = p
		require.Equal(t, []string{p.Policy}, p.Scenario.Policies)
		require.False(t, p.Continue)
		requests := 0
		for _, f := range p.Measured.Families {
			requests += f.Requests.Or(0)
		}
		require.Equal(t, p.Scenario.Workload.Requests, requests, p.Name)
	}

	p := byName["r2-hot50-random"].Scenario
	require.Equal(t, uint64(103), p.Seed)
	require.Equal(t, [][]string{{"L20-B"}, {"L20-B"}, {"L20-B"}, {"L20-B"}, {"L20-A"}, {"L20-A"}, {"L20-A"}, {"L20-A"}}, p.Start.Owners)
	require.Equal(t, map[string]int{"L20-A": 6, "L20-B": 2}, p.Start.Spare) // 16 documents, 8 of them used
	require.Equal(t, "owners", p.Start.EngineCache)

	p = byName["r1-warm-uniform-least-request"].Scenario
	require.Equal(t, uint64(102), p.Seed)
	require.Equal(t, "all", p.Start.EngineCache)
	require.Equal(t, []string{"L20-A"}, p.Start.Owners[6])

	m := byName["r1-hot90-prefix-cache"].Measured
	require.Equal(t, record.Some(68), m.Good)
	require.Len(t, m.RoutingCounterDeltas, 5)
	require.Nil(t, byName["r1-cold-uniform-random"].Measured.RoutingCounterDeltas)
	require.NotNil(t, byName["r2-cold-uniform-random"].Measured.RoutingCounterDeltas)
}

func TestProductionStudyPhases(t *testing.T) {
	study, err := LoadStudy("production-study")
	require.NoError(t, err)
	var names, continued []string
	for _, p := range study.Phases {
		names = append(names, p.Name)
		if p.Continue {
			continued = append(continued, p.Name)
		}
	}
	require.Equal(t, []string{
		"fixed1-wave", "apa-cold-wave", "apa-min2-wave", "fixed2-wave", "drain-native", "drain-graceful",
		"tenants-baseline", "tenants-protected",
		"cache-online-least-a", "cache-online-prefix-a", "cache-online-prefix-b", "cache-online-least-b", "kpa-min2-wave",
	}, names)
	require.Equal(t, names[9:12], continued)

	kpa := study.Phases[12].Scenario
	require.Equal(t, "kpa", kpa.Autoscale.Strategy)
	require.Equal(t, 2, kpa.Autoscale.Min)
	require.Equal(t, []string{"pod-0", "pod-1"}, kpa.Cluster.Names)
}

const smallStudy = `[family_orders]
three = [0, 1, 2]

[[phases]]
phase = "one"
scenario = "base.toml"
policy = "random"
family_order = "three"
set.workload.prompt.families = 3

[[phases]]
phase = "two"
scenario = "base.toml"
policy = "least-request"
continue = true
[phases.measured]
good = 2
`

const smallBase = `[workload]
requests = 3
[workload.arrivals]
rate_per_second = 1
`

// small parses a study that stands beside its base scenario.
func small(t *testing.T, study, base string, sets ...string) (*Study, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "base.toml"), []byte(base), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s.toml"), []byte(study), 0o600))
	t.Chdir(dir)
	return LoadStudyWith("s.toml", sets)
}

func TestStudy(t *testing.T) {
	study, err := small(t, smallStudy, smallBase, "model.noise=true")
	require.NoError(t, err)
	require.Equal(t, "s", study.Name)
	require.Len(t, study.Phases, 2)
	one, two := study.Phases[0], study.Phases[1]
	require.Equal(t, []int{0, 1, 2}, one.Scenario.Workload.Prompt.FamilyOrder)
	require.Nil(t, two.Scenario.Workload.Prompt.FamilyOrder)
	require.Equal(t, "base", one.Scenario.Name)
	require.True(t, *one.Scenario.Model.Noise && *two.Scenario.Model.Noise)
	require.Nil(t, one.Measured)
	require.Equal(t, record.Some(2), two.Measured.Good)
	require.Equal(t, "two", two.Measured.Phase)
	require.Equal(t, "least-request", two.Measured.Route)
	require.False(t, two.Measured.Success.Valid())
	require.True(t, two.Continue)
}

func TestStudyProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[[phases]]", "1: the phase must name the scenario it starts from: scenario = \"…\"\ns.toml:1: the phase must have a name: phase = \"…\""},
		{"[[phases]]\nphase = \"a\\u202eb\"\nscenario = \"hot90\"\npolicy = \"random\"", `2: a phase's name must not have control characters, such as U+202E in "a\u202eb"`},
		{"name = \"a\\u0000b\"\n[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"", `1: name must not have control characters, such as U+0000 in "a\x00b"`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot9\"\npolicy = \"random\"", `3: hot9: no scenario has this name; did you mean "hot90"?`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"", `1: the phase must say which policy it ran: policy = "…"`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\ncontinue = true", `5: the first phase has no phase before it to continue`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\n[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"", `6: the name "a" is given to two phases`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\nset.seed = -1", `5: seed must be a whole number from 0 to 9223372036854775807, not -1`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\nset.start.spares.x = 1", `5: unknown key "spares" in start; did you mean "spare"?`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\nset.name.x = 1", `5: name must be a string in quotes, not a table`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\nfamily_order = \"r1-hot9\"\n[family_orders]\nr1-hot90 = []", `5: [family_orders] has no "r1-hot9"; did you mean "r1-hot90"?`},
		{"[family_orders]\nx = [1,\n2]\n[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\nfamily_order = \"x\"", `2: workload.prompt.family_order lists 2 families for workload.requests = 96; allowed: one for each request`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\n[phases.measured]\ngoood = 1", `6: a phase record has no "goood"`},
		{"[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\n[phases.measured.replicas.x]\nhits = 1", `6: the replicas of a phase record have no "hits"`},
		{"[[phases]]\nphase = \"a\"\nscenarios = \"hot90\"\npolicy = \"random\"", "1: the phase must name the scenario it starts from: scenario = \"…\"\ns.toml:3: unknown key \"scenarios\" in phases.0; did you mean \"scenario\"?"},
		{"name = \"x\"", `1: this is no study, it has no [[phases]]; sim run runs a scenario`},
	} {
		_, err := ParseStudy("s.toml", []byte(c.text), nil)
		require.EqualError(t, err, "s.toml:"+c.want, "%s", c.text)
	}
}

func TestStudyNamesAProblemOfItsBaseOnce(t *testing.T) {
	_, err := small(t, smallStudy, smallBase+"burst = 2\n", "seeds=1")
	require.EqualError(t, err, `--set seeds: unknown key "seeds"; did you mean "seed"?
base.toml:5: unknown key "burst" in workload.arrivals; did you mean "burstiness"?`)
}

func TestStudyRefusesAMeasuredFigureOfTheWrongKind(t *testing.T) {
	_, err := small(t, smallStudy+"success = \"many\"\n", smallBase)
	require.ErrorContains(t, err, "s.toml:16: not a phase record: ")
	require.NotContains(t, err.Error(), "\n")
}

func FuzzParseStudy(f *testing.F) {
	f.Add([]byte("[[phases]]\nphase = \"a\"\nscenario = \"hot90\"\npolicy = \"random\"\nset.seed = 1\n[phases.measured]\ngood = 1\nreplicas.x.requests = 2\n"))
	f.Add([]byte("phases = [{ phase = 1, scenario = \"cold-uniform\", set = { workload = 5 }, measured = [] }]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		study, err := ParseStudy("s.toml", data, nil)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for _, p := range study.Phases {
			require.NotNil(t, p.Scenario)
			require.Equal(t, []string{p.Policy}, p.Scenario.Policies)
		}
	})
}

func BenchmarkLoadRoutingStudy(b *testing.B) {
	for b.Loop() {
		_, _ = LoadStudy("routing-study")
	}
}
