package calibrate

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// file writes a file into dir and gives its path.
func file(t *testing.T, dir, name string, lines ...string) string {
	path := filepath.Join(dir, name)
	content := []byte(strings.Join(lines, "\n"))
	if strings.HasSuffix(name, ".gz") {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(content)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		content = packed.Bytes()
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

const (
	requestA = `{"phase":"a","result":"ok","http_status":200,"ttft":0.5,"e2e":1.5,"output_tokens":11,"started_relative_seconds":1}`
	requestB = `{"phase":"b","result":"ok","http_status":200,"ttft":1.5,"e2e":3.5,"output_tokens":11,"started_relative_seconds":2}`
	refusedA = `{"phase":"a","result":"rejected","http_status":429,"started_relative_seconds":3}`
	phaseA   = `{"phase":"a","route":"random","planned":3,"requests":2,"success":1,"good":1,"ttft":{"p50":0.5},"cache_hit_ratio":0.25}`
)

func TestReadMeasured(t *testing.T) {
	dir := t.TempDir()
	requests := file(t, dir, "r.jsonl.gz", requestB, requestA, refusedA)
	phases := file(t, dir, "p.jsonl", phaseA)
	run := filepath.Join(dir, "run")
	require.NoError(t, os.Mkdir(run, 0o700))
	file(t, run, record.PhasesFile, phaseA)
	file(t, run, record.RequestsFile, requestA)
	file(t, run, sim.TimelineFile,
		`{"phase":"a","route":"random","seed":7,"relative_seconds":5,"replica":"x","running":2,"waiting":1,"kv_usage":0.5,"in_flight":3}`,
		`{"phase":"a","route":"random","seed":7,"relative_seconds":5,"desired":1}`)

	measured, err := ReadMeasured(requests, phases, run)
	require.NoError(t, err)
	require.Len(t, measured, 3)
	require.Equal(t, []string{"b", "a", "a"}, phaseNames(measured))
	require.Nil(t, measured[0].Record)
	require.Equal(t, requests, measured[0].Source)
	require.Len(t, measured[1].Requests, 2, "files belong together")
	require.Equal(t, "random", measured[1].Policy())
	require.Len(t, measured[2].Requests, 1, "a directory is for itself")

	p := measured[1].summary(record.StudySLO())
	require.Equal(t, record.Some(3), p.Planned)
	require.Equal(t, record.Some(1), p.Dropped, "3 planned, 2 on record")
	require.Equal(t, record.Some(1), p.Rejected)
	require.Equal(t, record.Some(0.25), p.CacheHitRatio)
	require.Empty(t, p.Notes)

	p = measured[0].summary(record.StudySLO())
	require.False(t, p.Planned.Valid(), "nobody counted what was not sent")
	require.False(t, p.Dropped.Valid())
	require.Equal(t, record.Some(1), p.Requests)

	require.Contains(t, measured[2].summary(record.StudySLO()).Notes, "the phase record says requests 2, its request records give 1")
}

// A timeline's samples belong to the phase of their name, policy and seed, and
// replicas are summed.
func TestTimelineSamples(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, record.PhasesFile, `{"phase":"a","route":"random","seed":7,"success":1}`, `{"phase":"a","route":"random","seed":8,"success":1}`)
	sample := func(seed, at, replica string) string {
		return `{"phase":"a","route":"random","seed":` + seed + `,"relative_seconds":` + at + `,"replica":"` + replica + `","running":2,"waiting":1}`
	}
	file(t, dir, sim.TimelineFile, sample("7", "5", "x"), sample("7", "5", "y"), "", sample("7", "10", "x"), sample("8", "5", "x"))
	measured, err := ReadMeasured(dir)
	require.NoError(t, err)
	require.Equal(t, gauges{{5, 4, 2}, {10, 2, 1}}, measured[0].gauges)
	require.Equal(t, gauges{{5, 2, 1}}, measured[1].gauges)
}

// Whatever a timeline holds is read or refused at its line, and what is read has
// a replica.
func FuzzSamples(f *testing.F) {
	f.Add([]byte(`{"phase":"a","route":"random","seed":7,"relative_seconds":5,"replica":"x","running":2,"waiting":1}`))
	f.Add([]byte("\n{}\n"))
	f.Add([]byte(`{"relative_seconds":1e300,"replica":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(text)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		samples, err := readSamples("fuzz", &packed)
		if err != nil {
			require.Regexp(t, `^fuzz:\d+: `, err.Error())
		}
		for _, s := range samples {
			require.NotEmpty(t, s.Replica)
		}
	})
}

// Several gzip streams are one timeline; what else follows them is named.
func TestSamplesOfSeveralStreams(t *testing.T) {
	dir := t.TempDir()
	const line = `{"phase":"a","relative_seconds":5,"replica":"x"}`
	one, err := os.ReadFile(file(t, dir, "t.gz", line, ""))
	require.NoError(t, err)
	samples, err := readSamples("t", bytes.NewReader(append(bytes.Clone(one), one...)))
	require.NoError(t, err)
	require.Len(t, samples, 2)
	samples, err = readSamples("t", bytes.NewReader(append(bytes.Clone(one), "garbage"...)))
	require.EqualError(t, err, "t:2: cannot read on: the gzip data end, and something that is no gzip follows")
	require.Len(t, samples, 1)
}

// A run of several seeds has one list of requests, cut by the phase records.
func TestRequestsOfSeveralSeeds(t *testing.T) {
	dir := t.TempDir()
	one := func(seed, planned string) string {
		return `{"phase":"a","route":"random","seed":` + seed + `,"planned":` + planned + `,"success":1}`
	}
	file(t, dir, record.PhasesFile, one("7", "1"), one("8", "2"))
	file(t, dir, record.RequestsFile, requestA, refusedA, requestA)
	measured, err := ReadMeasured(dir)
	require.NoError(t, err)
	require.Len(t, measured[0].Requests, 1)
	require.Len(t, measured[1].Requests, 2)
	require.Equal(t, []string{"a random seed 7", "a random seed 8"}, labelsOf(measured))

	file(t, dir, record.RequestsFile, requestA, refusedA)
	_, err = ReadMeasured(dir)
	require.ErrorContains(t, err, `phase "a": 2 phase records have this name and 2 requests do not say whose they are: by the phase records there should be 3`)
}

func TestPlannedOf(t *testing.T) {
	numbered := func(indices ...int) []record.Request {
		var requests []record.Request
		for _, i := range indices {
			requests = append(requests, record.Request{Result: record.OK, Index: record.Some(i)})
		}
		return requests
	}
	require.Equal(t, record.Some(3), plannedOf(numbered(2, 0, 1)))
	require.False(t, plannedOf(numbered(3, 0, 1)).Valid(), "one is missing")
	require.False(t, plannedOf(numbered(1, 0, 1)).Valid(), "one is there twice")
	require.False(t, plannedOf([]record.Request{{Result: record.OK}}).Valid())
	require.Equal(t, record.Some(2), plannedOf([]record.Request{{Result: record.OK}, {Result: record.Dropped}}))
}

// Everything wrong in the input is said at once, with its place.
func TestBadMeasured(t *testing.T) {
	dir := t.TempDir()
	empty, run := filepath.Join(dir, "empty"), filepath.Join(dir, "run")
	require.NoError(t, os.Mkdir(empty, 0o700))
	require.NoError(t, os.Mkdir(run, 0o700))
	file(t, run, record.PhasesFile, phaseA)
	timeline := file(t, run, sim.TimelineFile, `{"relative_seconds":1,"replica":"x"}`, `{"replica":"x"}`)
	bad := file(t, dir, "bad.jsonl", requestA, `{"phase":"a","result":"ok","ttft":"soon"}`, `{`)
	blank := file(t, dir, "blank.jsonl", "", "")
	_, err := ReadMeasured(bad, blank, empty, filepath.Join(dir, "none"), run)
	for _, want := range []string{
		bad + ":2: ", bad + ":3: ", blank + ": no records", empty + ": no run directory", "none: no such file", timeline + ":2: no relative_seconds",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.WriteFile(timeline, []byte("plain"), 0o600))
	_, err = ReadMeasured(run)
	require.ErrorContains(t, err, timeline+":1: no gzip data")
}

func measuredPhases(names ...string) []*Measured {
	var all []*Measured
	for _, name := range names {
		all = append(all, &Measured{Source: "f", phase: name, Record: &record.Phase{Phase: name, Success: record.Some(1)}})
	}
	return all
}

func TestPlanByStudy(t *testing.T) {
	plan, err := PlanRuns("production-study", nil, nil, measuredPhases("kpa-min2-wave", "cache-online-prefix-b"))
	require.NoError(t, err)
	var names []string
	var extra []bool
	for i, p := range plan.Study.Phases {
		names, extra = append(names, p.Name), append(extra, plan.runs[i].extra)
	}
	require.Equal(t, []string{"cache-online-least-a", "cache-online-prefix-a", "cache-online-prefix-b", "kpa-min2-wave"}, names, "with what prefix-b continues")
	require.Equal(t, []bool{true, true, false, false}, extra)

	_, err = PlanRuns("production-study", nil, nil, measuredPhases("kpa-min2-waves", "fixed1-wave", "fixed1-wave"))
	require.ErrorContains(t, err, `f: phase "kpa-min2-waves": scenarios/production-study.toml has no phase of this name; did you mean "kpa-min2-wave"?`)
	require.ErrorContains(t, err, `f: phase "fixed1-wave": it was read from f already`)
	_, err = PlanRuns("production-study", nil, map[string]string{"": "random"}, measuredPhases("fixed1-wave"))
	require.ErrorContains(t, err, "names the policy of each phase itself")
}

func TestPlanByScenario(t *testing.T) {
	measured := measuredPhases("x", "y", "z")
	measured[1].Record.Route = "least-request"
	measured[2].Record.Route, measured[2].Record.Simulated, measured[2].Record.Seed = "random", true, record.Some(uint64(77))
	measured[0].Record.Seed = record.Some(uint64(66)) // of another random generator
	plan, err := PlanRuns("hot90", []string{"cluster.replicas=3"}, map[string]string{"x": "prefix-cache"}, measured)
	require.NoError(t, err)
	var got []string
	var seeds []uint64
	for _, p := range plan.Study.Phases {
		got, seeds = append(got, p.Name+" "+p.Policy), append(seeds, p.Scenario.Seed)
		require.Equal(t, []string{p.Policy}, p.Scenario.Policies)
		require.Equal(t, 3, p.Scenario.Cluster.Replicas)
	}
	require.Equal(t, []string{"x prefix-cache", "y least-request", "z random"}, got)
	require.Equal(t, []uint64{seeds[0], seeds[0], 77}, seeds)
	require.NotEqual(t, uint64(66), seeds[0])

	for name, c := range map[string]struct {
		policies map[string]string
		phases   []string
		want     string
	}{
		"no policy":      {nil, []string{"x"}, `f: phase "x": its records do not say the policy`},
		"unknown policy": {map[string]string{"": "prefix-cash"}, []string{"x"}, `prefix-cache`},
		"unknown phase":  {map[string]string{"w": "random"}, []string{"x"}, `"w"`},
		"twice":          {map[string]string{"": "random"}, []string{"x", "x"}, `is there twice`},
	} {
		_, err := PlanRuns("hot90", nil, c.policies, measuredPhases(c.phases...))
		require.ErrorContains(t, err, c.want, name)
	}
	_, err = PlanRuns("hot9", nil, nil, measured)
	require.ErrorContains(t, err, "hot90")
}

func loadProfile(sc *scenario.Scenario) (*model.Profile, error) { return profiles.Load(sc.Profile) }

// What a simulation wrote is, compared with itself, the same to the last digit.
func TestRunComparedWithItself(t *testing.T) {
	sc, err := scenario.LoadWith("hot90", []string{`policies=["prefix-cache"]`})
	require.NoError(t, err)
	profile, err := loadProfile(sc)
	require.NoError(t, err)
	var requests []record.Request
	phase, err := sim.Run(sim.Setup{Scenario: sc, Profile: profile, Policy: "prefix-cache", Seed: 31,
		Each: func(r *record.Request) { requests = append(requests, *r) }})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, record.WriteDir(dir, []record.Phase{*phase}, requests))

	measured, err := ReadMeasured(dir)
	require.NoError(t, err)
	plan, err := PlanRuns("hot90", nil, nil, measured)
	require.NoError(t, err)
	c, err := CompareRuns(context.Background(), plan, loadProfile, 1, 1, nil)
	require.NoError(t, err)
	require.Len(t, c.Phases, 1)
	require.Empty(t, c.Phases[0].Warnings)
	for _, m := range c.Phases[0].Groups[0].Metrics {
		require.Equal(t, Same, m.Verdict)
		at(t, 0, m.Wasserstein)
		at(t, 0, m.KS.D)
	}
	require.Equal(t, phase.Good, c.Phases[0].Measured.Good)
}

// The published request records of the production study: what is computed from
// them is what was published, to their rounding, and only what was not measured is
// absent.
func TestPublishedRequests(t *testing.T) {
	const path = "../../shared/measurements/production-requests.jsonl"
	if _, err := os.Stat(path); err != nil {
		t.Skip("the published measurements are not beside the checkout")
	}
	measured, err := ReadMeasured(path)
	require.NoError(t, err)
	require.Len(t, measured, 7)
	plan, err := PlanRuns("production-study", nil, nil, measured)
	require.NoError(t, err)
	c, err := CompareRuns(context.Background(), plan, loadProfile, 3, 0, nil)
	require.NoError(t, err)
	require.Len(t, c.Phases, 7, "without the phases that are only continued")

	published, err := scenario.LoadStudy("production-study")
	require.NoError(t, err)
	for _, p := range c.Phases {
		var said *record.Phase
		for _, phase := range published.Phases {
			if phase.Name == p.Phase {
				said = phase.Measured
			}
		}
		require.NotNil(t, said, p.Phase)
		require.Equal(t, said.Success, p.Measured.Success, p.Phase)
		require.Equal(t, said.Good, p.Measured.Good, p.Phase)
		require.False(t, p.Measured.Planned.Valid(), p.Phase)
		require.Len(t, p.Groups, 1)
		for m, want := range []record.Percentiles{said.TTFT, said.TPOT, said.E2E} {
			got := p.Groups[0].Metrics[m]
			require.InDelta(t, want.P50.Or(0), got.Quantiles[0].Measured.Or(-1), 1e-4, p.Phase)
			require.InDelta(t, want.P95.Or(0), got.Quantiles[1].Measured.Or(-1), 1e-4, p.Phase)
			require.InDelta(t, want.P99.Or(0), got.Quantiles[2].Measured.Or(-1), 1e-4, p.Phase)
			require.True(t, got.Wasserstein.Valid() && got.KS.P.Valid(), p.Phase)
		}
	}
	for _, m := range c.Phases[0].Groups[0].Metrics {
		require.Contains(t, []Verdict{Same, Close}, m.Verdict, "fixed1-wave %s: %s", m.Metric, m.Reason())
	}
}
