package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/random"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	traces "fleetsim/workload/trace"
)

const own = `{"fleetsim_trace":1}` + "\n"

// replay is a scenario of four replicas with the trace of the given content.
func replay(t testing.TB, content string, sets ...string) *scenario.Scenario {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return replayFile(t, path, sets...)
}

func replayFile(t testing.TB, path string, sets ...string) *scenario.Scenario {
	sets = append([]string{"workload.trace.path=" + strconv.Quote(path), "cluster.replicas=4"}, sets...)
	sc, err := scenario.ParseWith("replay.toml", nil, sets)
	require.NoError(t, err)
	return sc
}

// flat is the even profile without state groups, in blocks of 16 tokens, counting
// a request once.
func flat(t require.TestingT) *model.Profile {
	p := plain(t)
	p.Limits.StateGroups, p.Limits.BlockTokens, p.Limits.Blocks, p.Limits.CountStatsAtLookup = 0, 16, 20_000, false
	p.Limits.AsyncScheduling = false // which caches a generated block a step late
	return p
}

// summary is the phase's account of its trace.
func summary(t require.TestingT, p *record.Phase) (s traceSummary) {
	require.NoError(t, json.Unmarshal(p.Other["trace"], &s))
	return s
}

func end(t require.TestingT, r record.Request) float64 { return value(t, r.Started) + value(t, r.E2E) }

func TestTraceIsReplayedAtItsTimes(t *testing.T) {
	sc := replay(t, `{"timestamp": 500, "input_length": 40, "output_length": 3, "hash_ids": [0]}
{"timestamp": 500, "input_length": 600, "output_length": 2, "hash_ids": [0, 7]}
{"timestamp": 1250, "input_length": 30, "output_length": 0, "hash_ids": [1]}
{"timestamp": 2000, "input_length": 40000, "output_length": 1, "hash_ids": [2]}
`)
	phase, requests := simulate(t, sc, flat(t), "random", 1)
	byIndex(requests)
	require.Equal(t, record.Some(3), phase.Planned)
	for i, want := range []struct {
		start         float64
		input, output int
	}{{0.5, 40, 3}, {0.5, 600, 2}, {2, 40000, 1}} {
		require.InDelta(t, want.start, value(t, requests[i].Started), 1e-12)
		require.Equal(t, record.Some(want.input), requests[i].InputTokens)
		require.Equal(t, record.Some(want.output), requests[i].RequestedOutput)
	}
	require.Equal(t, record.Some(400), requests[2].HTTPStatus)
	s := summary(t, phase)
	require.Equal(t, "trace.jsonl", s.File)
	require.Equal(t, "mooncake", s.Format)
	require.Equal(t, modeReplayed, s.Mode)
	require.Equal(t, map[string]int{"without output length": 1}, s.Skipped)
	require.Equal(t, 3, s.Rows)
	notes := strings.Join(phase.Notes, "\n")
	require.Contains(t, notes, "every request sent at its time")
	require.Contains(t, notes, "rows skipped: 1 without output length")
	require.Contains(t, notes, "1 of 3 requests were longer than the engine takes")
	require.Contains(t, notes, "fewer than 0.05 requests in flight")
}

// A second turn is sent when the answer before has ended and the think time is
// over; replayed at its time, it is sent then; with both, at the later.
func TestThinkTimeCountsFromTheAnswersEnd(t *testing.T) {
	turns := func(second string) string {
		return own + `{"at":1,"input_tokens":100,"output_tokens":200,"session":"s"}
{"at":1.25,"input_tokens":50,"output_tokens":1}
{"input_tokens":100,"output_tokens":1,"session":"s",` + second + `}
`
	}
	run := func(content string, sets ...string) (*record.Phase, []record.Request) {
		phase, requests := simulate(t, replay(t, content, sets...), flat(t), "least-request", 1)
		return phase, byIndex(requests)
	}
	phase, r := run(turns(`"wait":true,"think":2`))
	// The first answer: 1 ms there, one prefill and 199 decode steps, 2 ms back.
	require.InDelta(t, 1+0.001+2+0.002, end(t, r[0]), 1e-9)
	require.InDelta(t, end(t, r[0])+2, value(t, r[2].Started), 1e-9)
	require.Equal(t, modeClosedLoop, summary(t, phase).Mode)
	require.Contains(t, strings.Join(phase.Notes, "\n"), "1 of 3 requests were turns sent after the answer before")

	_, r = run(turns(`"wait":true,"think":2,"at":1.5`))
	require.InDelta(t, end(t, r[0])+2, value(t, r[2].Started), 1e-9)
	_, r = run(turns(`"wait":true,"think":2,"at":60`))
	require.InDelta(t, 60, value(t, r[2].Started), 1e-9)

	phase, r = run(turns(`"at":1.5`))
	require.InDelta(t, 1.5, value(t, r[2].Started), 1e-9)
	require.Equal(t, modeReplayed, summary(t, phase).Mode)
	phase, r = run(turns(`"at":1.5`), "workload.trace.sessions=closed_loop", "workload.trace.think_time=4s")
	require.InDelta(t, end(t, r[0])+4, value(t, r[2].Started), 1e-9)
	require.Equal(t, modeClosedLoop, summary(t, phase).Mode)
	_, r = run(turns(`"wait":true,"think":2,"at":1.5`), "workload.trace.sessions=replayed")
	require.InDelta(t, 1.5, value(t, r[2].Started), 1e-9)
}

// A turn whose session has no turn before it waits for nothing; one after a turn
// that failed or was dropped is sent all the same.
func TestTurnsWithoutAnswerBefore(t *testing.T) {
	_, r := simulate(t, replay(t, own+`{"at":1,"input_tokens":10,"output_tokens":1}
{"input_tokens":10,"output_tokens":1,"session":"lone","wait":true,"think":9}
{"at":2,"input_tokens":90000,"output_tokens":1,"session":"s"}
{"input_tokens":10,"output_tokens":1,"session":"s","wait":true,"think":3}
`), flat(t), "random", 1)
	byIndex(r)
	require.InDelta(t, 1, value(t, r[1].Started), 1e-9)
	require.Equal(t, record.Error, r[2].Result)
	require.InDelta(t, 2+0.003+3, value(t, r[3].Started), 1e-9)

	phase, r := simulate(t, replay(t, own+`{"at":1,"input_tokens":10,"output_tokens":50}
{"at":1,"input_tokens":10,"output_tokens":1,"session":"s"}
{"input_tokens":10,"output_tokens":1,"session":"s","wait":true,"think":3}
`, "workload.in_flight_cap=1"), flat(t), "random", 1)
	byIndex(r)
	require.Equal(t, record.Some(1), phase.Dropped)
	require.InDelta(t, 4, value(t, r[2].Started), 1e-9)
}

// The prompt of a later turn is the turns before with their answers, and the cache
// has all of it but the last generated token, in whole blocks.
func TestHistoryHitsTheCache(t *testing.T) {
	sc := replay(t, own+`{"at":0,"input_tokens":100,"output_tokens":61,"session":"s","history":true}
{"input_tokens":40,"output_tokens":20,"session":"s","wait":true,"think":1,"history":true}
{"input_tokens":10,"output_tokens":1,"session":"s","wait":true,"think":1,"history":true}
`, "cluster.replicas=1")
	phase, r := simulate(t, sc, flat(t), "random", 1)
	byIndex(r)
	require.Equal(t, []record.Int{record.Some(100), record.Some(201), record.Some(231)},
		[]record.Int{r[0].InputTokens, r[1].InputTokens, r[2].InputTokens})
	// 160 = 10 blocks of 161 tokens were computed; then 220 = 13 blocks and 12 tokens.
	require.Equal(t, []record.Int{record.Some(0), record.Some(160), record.Some(208)},
		[]record.Int{r[0].CachedTokens, r[1].CachedTokens, r[2].CachedTokens})
	bound := value(t, summary(t, phase).HitRatioBound)
	require.InDelta(t, (160+208.0)/(100+201+231), bound, 1e-12)
	require.InDelta(t, bound, value(t, phase.CacheHitRatio), 1e-12, "one replica and much memory reach the bound")
}

// conversations is a closed-loop trace of interleaved sessions in our own format.
func conversations(sessions, turns int) string {
	var b strings.Builder
	b.WriteString(own)
	for turn := range turns {
		for s := range sessions {
			if turn == 0 {
				fmt.Fprintf(&b, `{"at":%d.5,"input_tokens":%d,"output_tokens":40,"session":"s%d","history":true}`+"\n", s, 50+s, s)
			} else {
				fmt.Fprintf(&b, `{"input_tokens":%d,"output_tokens":30,"session":"s%d","wait":true,"think":0.5,"history":true}`+"\n", 20+turn, s)
			}
		}
	}
	return b.String()
}

func TestSessionAffinityKeepsConversationsTogether(t *testing.T) {
	const sessions, turns = 12, 5
	run := func(policy string) (homes []map[string]bool, hits float64) {
		phase, r := simulate(t, replay(t, conversations(sessions, turns)), flat(t), policy, 1)
		homes = make([]map[string]bool, sessions)
		for i, q := range byIndex(r) {
			if homes[i%sessions] == nil {
				homes[i%sessions] = map[string]bool{}
			}
			homes[i%sessions][q.Replica] = true
		}
		require.Len(t, r, sessions*turns)
		bound := value(t, summary(t, phase).HitRatioBound)
		hits = value(t, phase.CacheHitRatio)
		require.LessOrEqual(t, hits, bound+1e-12)
		return homes, bound - hits
	}
	homes, short := run("session-affinity")
	for _, h := range homes {
		require.Len(t, h, 1)
	}
	require.InDelta(t, 0, short, 1e-12, "every turn finds its history")
	_, short = run("random")
	require.Greater(t, short, 0.1)
}

// Turns of a session never overlap, whatever the trace, and none comes before its
// time; every row ends once.
func TestTurnsAreInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type row struct {
			session     int
			at          float64
			timed, wait bool
			think       float64
		}
		var b strings.Builder
		b.WriteString(own)
		var rows []row
		at := 0.0
		for range rapid.IntRange(1, 30).Draw(rt, "rows") {
			at += float64(rapid.IntRange(0, 40).Draw(rt, "gap")) / 100
			r := row{session: rapid.IntRange(0, 3).Draw(rt, "session"), at: at, wait: rapid.Bool().Draw(rt, "wait")}
			r.timed = !r.wait || rapid.Bool().Draw(rt, "timed")
			b.WriteString(`{"input_tokens":40,"output_tokens":` + strconv.Itoa(rapid.IntRange(1, 60).Draw(rt, "output")))
			fmt.Fprintf(&b, `,"session":"s%d"`, r.session)
			if r.timed {
				fmt.Fprintf(&b, `,"at":%.2f`, r.at)
			}
			if r.wait {
				r.think = float64(rapid.IntRange(0, 30).Draw(rt, "think")) / 10
				fmt.Fprintf(&b, `,"wait":true,"think":%g`, r.think)
			}
			b.WriteString("}\n")
			rows = append(rows, r)
		}
		sc := replay(t, b.String())
		phase, requests := simulate(rt, sc, flat(rt), "least-request", 1)
		require.Len(rt, requests, len(rows))
		require.Equal(rt, record.Some(len(rows)), phase.Success)
		byIndex(requests)
		for i, r := range rows {
			start := value(rt, requests[i].Started)
			if !r.wait {
				require.InDelta(rt, r.at, start, 1e-9)
				continue
			}
			if r.timed {
				require.GreaterOrEqual(rt, start, r.at-1e-9)
			}
			for j := range i {
				if rows[j].session == r.session {
					require.GreaterOrEqual(rt, start, end(rt, requests[j])-1e-9)
				}
			}
		}
	})
}

// What is held of a trace is what is in flight, and one row ahead.
func TestTraceIsReadAsItIsReached(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": 100, "output_length": 2, "hash_ids": [%d]}`+"\n", 100*i, i%50)
	}
	r, err := newRun(Setup{Scenario: replay(t, b.String()), Profile: flat(t), Policy: "least-request"})
	require.NoError(t, err)
	defer r.client.close()
	r.start()
	most := 0
	for !r.over() {
		r.step()
		most = max(most, r.client.live-r.client.inFlight)
	}
	require.Equal(t, 5000, r.client.planned)
	require.Equal(t, 1, most)
	require.Less(t, len(r.client.free), 10)
}

func TestTraceErrorsAreLocated(t *testing.T) {
	good := `{"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": [0]}` + "\n"
	for name, c := range map[string]struct {
		content string
		sets    []string
		want    string
	}{
		"bad row":         {good + good + `{"timestamp": 1, "input_length": -3, "output_length": 5}` + "\n", nil, "trace.jsonl:3: input_length: "},
		"unknown format":  {"a,b\n1,2\n", nil, "trace.jsonl: neither JSON nor a CSV of a known format"},
		"empty":           {"", nil, "trace.jsonl: empty"},
		"no time":         {own + `{"input_tokens":3,"output_tokens":4}` + "\n", nil, "trace.jsonl:2: no arrival time"},
		"unlisted tenant": {own + `{"at":1,"input_tokens":3,"output_tokens":4,"tenant":"b"}` + "\n", []string{"workload.tenants.0.name=a"}, `trace.jsonl:2: tenant "b" is not among [[workload.tenants]]`},
		"strict":          {strings.Repeat(`{"timestamp": 0.5, "input_length": 10, "output_length": 5, "hash_ids": [0]}`+"\n", 3), []string{"workload.trace.strict=true"}, "fraction"},
	} {
		t.Run(name, func(t *testing.T) {
			setup := Setup{Scenario: replay(t, c.content, c.sets...), Profile: flat(t), Policy: "random"}
			_, err := Run(setup)
			require.ErrorContains(t, err, c.want)
			phases, err := RunAll(context.Background(), []Setup{setup}, 1, nil)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, []*record.Phase{nil}, phases)
		})
	}
	_, err := Run(Setup{Scenario: replayFile(t, "nowhere.jsonl"), Profile: flat(t), Policy: "random"})
	require.ErrorContains(t, err, "nowhere.jsonl")

	bad := good + "{}\n" + good
	phase, _ := simulate(t, replay(t, bad, "workload.trace.max_errors=-1"), flat(t), "random", 1)
	require.Equal(t, record.Some(2), phase.Planned)
}

// What is selected comes in the same order as on the command line.
func TestTraceSelection(t *testing.T) {
	var b strings.Builder
	b.WriteString(own)
	for i := range 40 {
		fmt.Fprintf(&b, `{"at":%d,"input_tokens":%d,"output_tokens":1,"tenant":%q}`+"\n", i, 10+i, string(rune('a'+i%2)))
	}
	_, r := simulate(t, replay(t, b.String(), "workload.trace.from=10s", "workload.trace.to=30s", "workload.trace.tenant=b",
		"workload.trace.rate=2", "workload.requests=3"), flat(t), "random", 1)
	byIndex(r)
	require.Len(t, r, 3)
	for i, q := range r {
		require.InDelta(t, 0.5+float64(i), value(t, q.Started), 1e-9) // 11, 13, 15 less 10, at twice the rate
		require.Equal(t, record.Some(21+2*i), q.InputTokens)
		require.Equal(t, "b", q.Tenant)
	}
	phase, _ := simulate(t, replay(t, b.String(), "workload.trace.thin=0.5"), flat(t), "random", 1)
	require.InDelta(t, 20, float64(phase.Planned.Or(0)), 8)
}

// The quotas of listed tenants hold for the rows of a trace.
func TestTraceTenantsHaveQuotas(t *testing.T) {
	var b strings.Builder
	b.WriteString(own)
	for i := range 12 {
		fmt.Fprintf(&b, `{"at":%d,"input_tokens":20,"output_tokens":300,"tenant":%q}`+"\n", i/12, []string{"a", "b", "b"}[i%3])
	}
	phase, _ := simulate(t, replay(t, b.String(), "workload.tenants.0.name=a", "workload.tenants.1.name=b", "workload.tenants.1.quota=3"),
		flat(t), "random", 1)
	require.Equal(t, record.Some(0), phase.Tenants[0].Rejected)
	require.Equal(t, record.Some(5), phase.Tenants[1].Rejected)
}

// A phase that replays a trace in the cluster that another has left finds its
// blocks in the caches, but not what no other prompt has.
func TestTraceContinuesInAWarmCluster(t *testing.T) {
	sc := replay(t, own+`{"at":0,"input_tokens":160,"output_tokens":1,"block_tokens":16,"hash_ids":[1,2,3,4,5,6]}
{"at":1,"input_tokens":160,"output_tokens":1}
`, "cluster.replicas=1")
	cached := [2][]record.Int{}
	var setups []Setup
	for i := range 2 {
		setups = append(setups, Setup{Scenario: sc, Profile: flat(t), Policy: "random", Continue: i > 0,
			Each: func(r *record.Request) { cached[i] = append(cached[i], r.CachedTokens) }})
	}
	_, err := RunAll(context.Background(), setups, 1, nil)
	require.NoError(t, err)
	require.Equal(t, []record.Int{record.Some(0), record.Some(0)}, cached[0])
	require.Equal(t, []record.Int{record.Some(96), record.Some(0)}, cached[1])
}

// A block longer than what prompts share makes hits impossible, and that is said.
func TestBlockLongerThanWhatIsShared(t *testing.T) {
	var b strings.Builder
	b.WriteString(own)
	for i := range 20 {
		fmt.Fprintf(&b, `{"at":%d,"input_tokens":1200,"output_tokens":5,"family":"f%d","family_tokens":1024}`+"\n", i, i%2)
	}
	const note = "the engine's block of 1600 tokens is longer than any prefix that prompts share (the longest prompt has 1200 tokens)"
	phase, _ := simulate(t, replay(t, b.String(), "engine.block_tokens=1600"), plain(t), "prefix-cache", 1)
	require.Equal(t, record.Some(0.0), phase.CacheHitRatio)
	require.Contains(t, strings.Join(phase.Notes, "\n"), note)
	require.Equal(t, record.Some(0.0), summary(t, phase).HitRatioBound)

	phase, _ = simulate(t, replay(t, b.String(), "engine.block_tokens=512"), plain(t), "prefix-cache", 1)
	require.Greater(t, phase.CacheHitRatio.Or(0), 0.0)
	require.NotContains(t, strings.Join(phase.Notes, "\n"), "longer than any prefix")

	// Longer prompts do not help when what they share is short.
	long := strings.ReplaceAll(b.String(), "1200", "2400")
	phase, _ = simulate(t, replay(t, long, "engine.block_tokens=1600"), plain(t), "prefix-cache", 1)
	require.Contains(t, strings.Join(phase.Notes, "\n"), "longest prompt has 2400 tokens")

	// Generated prompts are told apart in the same way.
	sets := []string{"start.engine_cache=cold", "start.router_index=cold", "start.owners=[]", "start.spare={}", "workload.prompt.body_repeat=30"}
	phase, _ = simulate(t, load(t, append(sets, "engine.block_tokens=1600")...), plain(t), "prefix-cache", 1)
	require.Contains(t, strings.Join(phase.Notes, "\n"), "block of 1600 tokens")
	phase, _ = simulate(t, load(t, append(sets, "engine.block_tokens=256")...), plain(t), "prefix-cache", 1)
	require.NotContains(t, strings.Join(phase.Notes, "\n"), "longer than any prefix")
}

// No policy hits more than the trace's bound, which is that of its statistics.
func TestMooncakeSample(t *testing.T) {
	const file = "../../shared/samples/mooncake/conversation_excerpt.jsonl"
	if _, err := os.Stat(file); err != nil {
		t.Skip("the shared samples are not beside the checkout")
	}
	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	checkBound(t, file, flat(t), in)
}

// checkBound runs the trace through eight replicas and returns the hit ratios of
// random, least-request and prefix-cache.
func checkBound(t testing.TB, file string, p *model.Profile, in *os.File) (ratios []float64, bound float64) {
	info := traces.NewInfo(traces.InfoOptions{EngineBlock: p.Limits.BlockTokens})
	r, err := traces.Open(file, in, traces.Options{})
	require.NoError(t, err)
	for row, err := range r.Rows() {
		require.NoError(t, err)
		info.Add(&row)
	}
	bound = *info.Summary().HitRatioBound
	for _, policy := range []string{"random", "least-request", "prefix-cache"} {
		phase, _ := simulate(t, replayFile(t, file, "cluster.replicas=8"), p, policy, 1)
		s := summary(t, phase)
		require.False(t, s.Estimated)
		require.InDelta(t, bound, value(t, s.HitRatioBound), 1e-12)
		require.Contains(t, strings.Join(phase.Notes, "\n"), fmt.Sprintf("at most %.3f of the prompt tokens can hit", bound))
		ratio := value(t, phase.CacheHitRatio)
		require.LessOrEqual(t, ratio, bound)
		ratios = append(ratios, ratio)
	}
	return ratios, bound
}

// mooncakeLike is a trace like Mooncake's: a block that all share, conversations
// whose prompts grow by 512-token blocks, arrivals in bursts.
func mooncakeLike(n int) []byte {
	var b bytes.Buffer
	rng := random.Stream(7, "mooncake-like")
	var open [][]int
	next := 1
	for i := range n {
		at := i / 6 * 3000
		if len(open) < 20 || rng.Float64() < 0.2 {
			open = append(open, []int{0})
		}
		k := rng.IntN(len(open))
		for range 1 + rng.IntN(6) {
			open[k] = append(open[k], next)
			next++
		}
		tokens := 512*len(open[k]) - rng.IntN(512)
		ids, _ := json.Marshal(open[k])
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": %s}`+"\n", at, tokens, 1+rng.IntN(300), ids)
		if len(open[k]) > 40 || len(open) > 60 {
			open = slices.Delete(open, k, k+1)
		}
	}
	return b.Bytes()
}

// On a Mooncake-like trace through eight replicas, routing by prefix comes closest
// to what an unlimited cache would hit.
func TestMooncakeLikeTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mooncake-like.jsonl")
	require.NoError(t, os.WriteFile(path, mooncakeLike(1500), 0o600))
	in, err := os.Open(path)
	require.NoError(t, err)
	defer in.Close()
	ratios, bound := checkBound(t, path, flat(t), in)
	t.Logf("random %.3f, least-request %.3f, prefix-cache %.3f, bound %.3f", ratios[0], ratios[1], ratios[2], bound)
	require.Greater(t, ratios[2], ratios[0]+0.1)
	require.Greater(t, ratios[2], ratios[1]+0.1)
}

func TestTraceRunsAreReproducible(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, mooncakeLike(200), 0o600))
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	var setups []Setup
	for _, policy := range []string{"random", "prefix-cache"} {
		for seed := range uint64(2) {
			setups = append(setups, Setup{Scenario: replayFile(t, path, "workload.trace.sample=0.8"), Profile: p, Policy: policy, Seed: seed})
		}
	}
	var outputs []string
	for _, workers := range []int{1, 4} {
		phases, err := RunAll(context.Background(), setups, workers, nil)
		require.NoError(t, err)
		out, err := json.Marshal(phases)
		require.NoError(t, err)
		outputs = append(outputs, string(out))
	}
	require.Equal(t, outputs[0], outputs[1])
}

// BenchmarkTrace replays 100,000 rows and reports what is held on the way, the
// request records, which the summary needs, set apart.
func BenchmarkTrace(b *testing.B) {
	var trace bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 100_000 {
		fmt.Fprintf(&trace, `{"timestamp": %d, "input_length": 1500, "output_length": %d, "hash_ids": [0, %d, %d]}`+"\n", 50*i, 1+rng.IntN(50), 1+rng.IntN(200), 1000+i)
	}
	sc := replay(b, trace.String(), "cluster.replicas=8")
	p := flat(b)
	held := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	b.ReportAllocs()
	for b.Loop() {
		ended := 0
		r, err := newRun(Setup{Scenario: sc, Profile: p, Policy: "prefix-cache", Seed: 1, Sketch: true,
			Each: func(*record.Request) { ended++ }})
		require.NoError(b, err)
		r.start()
		marks := map[int]float64{20_000: 0, 100_000: 0}
		for !r.over() {
			r.step()
			if at, ok := marks[ended]; ok && at == 0 {
				b.StopTimer()
				marks[ended] = held()
				b.StartTimer()
			}
		}
		r.client.close()
		require.Equal(b, 100_000, r.client.planned)
		b.ReportMetric(marks[20_000], "MB-held/20k-rows")
		b.ReportMetric(marks[100_000], "MB-held/100k-rows")
	}
	b.ReportMetric(100_000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
