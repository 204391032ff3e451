package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
	"fleetsim/strict"
)

// minimal is a scenario that says nothing but its load.
const minimal = `[workload.arrivals]
stages = [{ duration = "10s", rate_per_second = 1.0 }]
`

func TestEmbeddedScenariosLoad(t *testing.T) {
	require.NotEmpty(t, Names())
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			sc, err := Load(name)
			require.NoError(t, err)
			require.Equal(t, name, sc.Name)
			require.NotEmpty(t, sc.Description)
		})
	}
	require.Equal(t, []string{"production-study", "routing-study"}, StudyNames())
}

func TestNameAndFileAreTheSameScenario(t *testing.T) {
	byName, err := Load("hot90")
	require.NoError(t, err)
	byFile, err := Load("../../scenarios/hot90.toml")
	require.NoError(t, err)
	require.Equal(t, byName, byFile)
}

func TestHot90(t *testing.T) {
	sc, err := Load("hot90")
	require.NoError(t, err)
	require.Equal(t, []string{"random", "least-request", "prefix-cache"}, sc.Policies)
	require.Equal(t, Cluster{Replicas: 2, Names: []string{"L20-A", "L20-B"}}, sc.Cluster)
	w := sc.Workload
	require.Equal(t, 96, w.Requests)
	require.Equal(t, 128, w.Output)
	require.Equal(t, 48, w.InFlightCap)
	require.Equal(t, &Arrivals{Process: "constant", Rate: 1.6, Burstiness: 1}, w.Arrivals)
	p := w.Prompt
	require.Equal(t, 5045, p.SaltTokens+p.HeadTokens+p.BodyRepeat*p.BodyTokens+p.QuestionTokens)
	require.Equal(t, SLO{span(2 * simtime.Second), span(150 * simtime.Millisecond), span(30 * simtime.Second)}, sc.SLO)
	require.Equal(t, [][]string{{"L20-B"}, {"L20-B"}, {"L20-B"}, {"L20-B"}, {"L20-A"}, {"L20-A"}, {"L20-A"}, {"L20-A"}}, sc.Start.Owners)
	require.Equal(t, map[string]int{"L20-A": 3, "L20-B": 5}, sc.Start.Spare)
}

func TestDefaults(t *testing.T) {
	sc, err := Parse("dir/small.toml", []byte(minimal))
	require.NoError(t, err)
	want := defaults("small")
	want.Cluster.Names = []string{"pod-0"}
	want.Workload.Arrivals = &Arrivals{Process: "constant", Burstiness: 1, Stages: []Stage{{span(10 * simtime.Second), 1}}}
	constant := Span{Distribution: "constant"}
	want.Lifecycle = Lifecycle{constant, constant, constant, constant, constant}
	require.Equal(t, want, sc)
}

func TestCompleteFillsNamesAndOwners(t *testing.T) {
	sc, err := ParseWith("s.toml", []byte(minimal), []string{
		"cluster.replicas=3", `cluster.names=["a"]`, "workload.prompt.families=4", "start.router_index=owners",
	})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "pod-1", "pod-2"}, sc.Cluster.Names)
	require.Equal(t, [][]string{{"a"}, {"pod-1"}, {"pod-2"}, {"a"}}, sc.Start.Owners)
}

func TestNamesBeyondTheReplicasAreUnused(t *testing.T) {
	sc, err := ParseWith("s.toml", []byte(minimal), []string{`cluster.names=["a", "b"]`})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, sc.Cluster.Names)
}

// Every kind of problem, each as an addition to the minimal scenario, at the
// line it must be reported at. Where the message is another package's, … stands
// for its words.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"seed = -1", `1: seed must be a whole number from 0 to 9223372036854775807, not -1`},
		{"seed = 9223372036854775808", `1: not valid TOML: …`},
		{`name = ""`, `1: name must not be empty`},
		{`name = "a\u0000b"`, `1: name must not have control characters, such as U+0000 in "a\x00b"`},
		{`name = "a\u202Eb"`, `1: name must not have control characters, such as U+202E in "a\u202eb"`},
		{`profile = "qwen3.8-27b-fp8-l40"`, `1: unknown profile "qwen3.8-27b-fp8-l40"; did you mean "qwen3.8-27b-fp8-l20"?; a file's name ends in .toml`},
		{`policies = []`, `1: policies must list at least one of …`},
		{"policies = [\n\"random\",\n\"prefix-cach\",\n]", `3: unknown policy "prefix-cach"…`},
		{"policies = [\"random\",\n\"random\"]", `2: policy "random" is listed twice`},
		{`policies = ["least-request:1000001"]`, `1: policy "least-request:1000001": …`},
		{"polcies = []", `1: unknown key "polcies"; did you mean "policies"?`},

		{"[cluster]\nreplicas = 0", `2: cluster.replicas must be a whole number from 1 to 10000, not 0`},
		{"[cluster]\nreplicas = -3", `2: cluster.replicas must be a whole number from 1 to 10000, not -3`},
		{"[cluster]\nreplicas = 1.5", `2: cluster.replicas must be a whole number, not 1.5`},
		{"[cluster]\nreplicas = 3\ngpus = 2", `3: cluster.gpus is 2, too few for 3 replicas; allowed: at least one each, or 0 for no limit`},
		{"[cluster]\nnames = [\"a\",\n\"\"]", `3: a replica's name must not be empty`},
		{"[cluster]\nnames = [\"a\",\n\"\\u001B[2J\"]", `3: a replica's name must not have control characters, such as U+001B in "\x1b[2J"`},
		{"[cluster]\nnames = [\"a\",\n\"a\"]", `3: the name "a" is given to two replicas`},
		{"[cluster]\nreplicas = 2\nnames = [\"pod-1\"]", `3: the name "pod-1" belongs to replica 1, which has no name of its own`},

		{"[engine]\nmax_num_seqs = 0", `2: engine.max_num_seqs must be a whole number from 1 to 100000000, not 0`},
		{"[engine]\nblocks = 1", `2: engine.blocks must be a whole number from 2 to 16777216, not 1`},
		{"[engine]\nblocks = 16777216\n[cluster]\nreplicas = 40", `2: engine.blocks is 16777216, which for up to 40 replicas makes 671088640; allowed: at most 67108864 in all, so 1677721 each`},
		{"[engine]\nblocks = 16777216\n[autoscale]\nstrategy = \"kpa\"\nmetric = \"in_flight\"\nmax_replicas = 5\ntarget = 1", `2: engine.blocks is 16777216, which for up to 5 replicas makes 83886080; allowed: at most 67108864 in all, so 13421772 each`},
		{"[engine]\nblocks = 16777216\n[cluster]\nreplicas = 100000", `4: cluster.replicas must be a whole number from 1 to 10000, not 100000`},
		{"[engine]\nprefix_caching = \"yes\"", `2: engine.prefix_caching must be true or false, not the string "yes"`},

		{"workload.output_tokens = 0", `1: workload.output_tokens must be a whole number from 1 to 100000000, not 0`},
		{"workload.in_flight_cap = -1", `1: workload.in_flight_cap must be a whole number from 0 to 100000000, not -1`},
		{"workload.read_timeout = 90", `1: workload.read_timeout must be a duration with its unit, such as "1.5s" (units: ns, us, ms, s, m, h), not 90`},
		{"workload.read_timeout = \"90\"", `1: workload.read_timeout must be a duration with its unit, such as "1.5s" (units: ns, us, ms, s, m, h), not "90"`},
		{"workload.read_timeout = \"-1s\"", `1: workload.read_timeout must be 0s or more, not "-1s"`},
		{"workload.read_timeout = \"9000h\"", `1: workload.read_timeout must be at most 8760h (a year), not "9000h"`},
		{"workload.read_timeout = \"9000000000h\"", `1: workload.read_timeout must be at most 8760h (a year), not "9000000000h"`},
		{"workload.read_timeout = \"-9000000000h\"", `1: workload.read_timeout must be 0s or more, not "-9000000000h"`},
		{"workload.read_timeout = \"1h99999999999999999999.5s\"", `1: workload.read_timeout must be at most 8760h (a year), not "1h99999999999999999999.5s"`},
		{"workload.read_timeout = \"soon\"", `1: workload.read_timeout must be a duration with its unit, such as "1.5s" (units: ns, us, ms, s, m, h), not "soon"`},

		{"workload.read_timeout = \"1ns\"", `1: workload.read_timeout must be 0s, or at least 1ms, not 1ns`},
		{"workload.closed_loop = { concurrency = 4, duration = \"1s\" }", `1: the workload has 2 loads; allowed: exactly one of [workload.arrivals], [workload.closed_loop] and [workload.trace]`},
		{"workload.prompt.hot_fraction = 1.01", `1: workload.prompt.hot_fraction must be from 0 to 1, not 1.01`},
		{"workload.prompt.hot_fraction = 1", `1: workload.prompt.hot_fraction needs at least 1 families, not 0`},
		{"workload.prompt.hot_fraction = 0.5", `1: workload.prompt.hot_fraction needs at least 2 families, not 0`},
		{"workload.prompt = { families = 2, hot_fraction = nan }", `1: workload.prompt.hot_fraction must be a finite number, not NaN`},
		{"workload.requests = 3\nworkload.prompt = { families = 2, family_order = [\n0,\n2, -1] }", `4: workload.prompt.family_order.1 names family 2; allowed: 0 to families - 1 = 1
s.toml:4: workload.prompt.family_order.2 names family -1; allowed: 0 to families - 1 = 1`},
		{"workload.requests = 3\nworkload.prompt = { families = 2, family_order = [0, 1] }", `2: workload.prompt.family_order lists 2 families for workload.requests = 3; allowed: one for each request`},
		{"workload.prompt.salt_tokens_spread = 212", `1: workload.prompt.salt_tokens_spread must be a whole number from 0 to 211, not 212`},
		{"workload.prompt.body_repeat = 9999999", `1: workload.prompt.body_repeat makes a prompt of over 100000000 tokens or characters`},
		{"workload.tenants = [{ name = \"A\" },\n{ name = \"A\" }]", `2: the name "A" is given to two tenants`},
		{"workload.tenants = [{ quota = 1 }]", `1: a tenant's name must not be empty`},
		{"workload.tenants = [{ name = \"A\", quota = 0 }]", `1: workload.tenants.0.quota must be from 1 to 100000000, not 0; leave it out for no quota`},
		{"workload.tenants = [{ name = \"A\", quota = -2 }]", `1: workload.tenants.0.quota must be from 1 to 100000000, not -2; leave it out for no quota`},
		{"workload.retry.max_attempts = 2\nworkload.retry.jitter = 2", `2: workload.retry.jitter must be from 0 to 1, not 2`},
		{"workload.retry = { max_attempts = 2, back_off = \"2s\", max_back_off = \"1s\" }", `1: workload.retry.max_back_off must not be shorter than back_off, 2s`},
		{"workload.cancel.fraction = 0.5", `1: workload.cancel.after must be longer than 0s`},

		{"router.gateways = 0", `1: router.gateways must be a whole number from 1 to 10000, not 0`},
		{"router.metrics_interval = \"0s\"", `1: router.metrics_interval must be at least 1ms, not 0s`},
		{"router.metrics_interval = \"999us\"", `1: router.metrics_interval must be at least 1ms, not 999µs`},
		{"router.prometheus_interval = \"1ns\"", `1: router.prometheus_interval must be 0s, or at least 1ms, not 1ns`},
		{"[router.env]\nAIBRIX_PREFIX_CACHE_BLOCKSIZE = \"128\"", `2: AIBRIX_PREFIX_CACHE_BLOCKSIZE…`},
		{"[router.env]\nAIBRIX_PREFIX_CACHE_BLOCK_SIZE = \"0\"", `2: AIBRIX_PREFIX_CACHE_BLOCK_SIZE = "0"…`},
		{"[router.env]\nAIBRIX_PREFIX_CACHE_BLOCK_SIZE = 128", `2: router.env.AIBRIX_PREFIX_CACHE_BLOCK_SIZE must be a string in quotes, not 128`},
		{"router.upstream_fixed = [\"dead_pod_leaves\"]", `1: router.upstream_fixed.0 "dead_pod_leaves" is unknown; did you mean "dead_pods_leave"?`},

		{"start.engine_cache = \"warm\"", `1: start.engine_cache "warm" is unknown; allowed: all, cold, owners`},
		{"start.engine_cache = \"all\"", `1: start.engine_cache must be "cold" where workload.prompt.families is 0`},
		{"start.router_index = \"all\"", `1: start.router_index "all" is unknown; allowed: cold, owners`},
		{"start.owners = [[\"pod-0\"]]", `1: start.owners lists 1 families; allowed: at most workload.prompt.families = 0`},
		{"workload.prompt.families = 2\nstart.engine_cache = \"owners\"\nstart.owners = [\n[\"pod-0\"],\n[\"pod-1\"]]", `5: start.owners.1.0: no replica is called "pod-1"; did you mean "pod-0"?`},
		{"workload.prompt.families = 2\nstart.engine_cache = \"owners\"\nstart.owners = [[\"pod-0\",\n\"pod-0\"]]", `4: start.owners.0.1 names "pod-0" twice`},
		{"cluster = { names = [\"\"], replicas = 2 }\nstart.spare = { other = 1 }", "1: a replica's name must not be empty"},
		{"start.spare = { other = 1 }", `1: start.spare.other: no replica is called "other"; allowed: pod-0`},
		{"start.spare = { pod-0 = -1 }", `1: start.spare.pod-0 must be a whole number from 0 to 100000, not -1`},

		{"admission.quota = -1", `1: admission.quota must be a whole number from 0 to 100000000, not -1`},
		{"admission.rate_per_second = -0.5", `1: admission.rate_per_second must be from 0 to 1e+06, not -0.5`},
		{"admission.rate_per_second = 1", `1: admission.burst must be at least 1 with a rate, or no request ever passes; it is 0`},

		{"[autoscale]\nmax_replicas = 4", `2: autoscale.max_replicas does nothing without autoscale.strategy; allowed: with it, or not at all`},
		{"[autoscale]\nstrategy = \"kba\"\nmetric = \"in_flight\"\nmax_replicas = 2\ntarget = 1", `2: autoscale.strategy "kba" is unknown; did you mean "kpa"?`},
		{"[autoscale]\nstrategy = \"kpa\"\nmetric = \"num_request_waiting\"\nmax_replicas = 2\ntarget = 1", `3: autoscale.metric "num_request_waiting" is unknown; did you mean "num_requests_waiting"?`},
		{"[autoscale]\nstrategy = \"kpa\"\nmetric = \"in_flight\"\nmin_replicas = 3\nmax_replicas = 2\ntarget = 1", `5: autoscale.max_replicas must be a whole number from 3 to 10000, not 2`},
		{"[autoscale]\nstrategy = \"kpa\"\nmetric = \"in_flight\"\nmax_replicas = 2\ntarget = 0", `5: autoscale.target must be above 0 and at most 1e+12, not 0`},
		{"[autoscale]\nstrategy = \"kpa\"\nmetric = \"in_flight\"\nmax_replicas = 2\ntarget = 1\npre_scale = [{ at = \"2s\", replicas = 1 },\n{ at = \"1s\", replicas = 3 }]",
			"7: autoscale.pre_scale.1.at must be later than the one before, 2s\ns.toml:7: autoscale.pre_scale.1.replicas must be a whole number from 0 to 2, not 3"},
		{"[autoscale]\nstrategy = \"kpa\"\nmetric = \"in_flight\"\nmax_replicas = 2\ntarget = 1\n[autoscale.annotations]\nmax-scale-up = \"2\"", `7: annotation "max-scale-up"…`},

		{"[autoscale]\nstrategy = \"kpa\"\nmetric = \"in_flight\"\nmax_replicas = 2\ntarget = 1\ninterval = \"99ms\"", `6: autoscale.interval must be at least 100ms, not 99ms`},
		{"[autoscale]\nstrategy = \"kpa\"\nmetric = \"in_flight\"\nmax_replicas = 2\ntarget = 1\nscrape_interval = \"9ms\"", `6: autoscale.scrape_interval must be 0s, or at least 10ms, not 9ms`},

		{"lifecycle.compile.distribution = \"norml\"", `1: lifecycle.compile.distribution "norml" is unknown; did you mean "normal"?`},
		{"lifecycle.compile = { mean = \"1s\", sd = \"1s\" }", `1: lifecycle.compile.sd is for distribution = "uniform", "normal" or "lognormal"`},
		{"lifecycle.compile = { sd = \"1s\", distribution = \"lognormal\" }", `1: lifecycle.compile.mean must be longer than 0s`},
		{"lifecycle.compile = { mean = \"1s\", sd = \"1s\", distribution = \"uniform\" }", `1: lifecycle.compile.sd is too large: a uniform span begins sqrt(3) sd below its mean, 1s, and not below 0s`},
		{"lifecycle.compile = { mean = \"25h\" }", `1: lifecycle.compile: mean and sd must be at most 24h`},
		{"rollout = { at = \"9s\", max_surge = \"0\", max_unavailable = \"0%\" }", `1: rollout.max_unavailable must be above 0 where max_surge is 0, or no replica could be replaced`},
		{"rollout.at = \"9s\"\nrollout.max_surge = \"a few\"", `2: rollout.max_surge must be a number of replicas, such as "2", or a percentage, such as "25%", not "a few"`},
		{"rollout.at = \"9s\"\nrollout.max_unavailable = \"1001%\"", `2: rollout.max_unavailable must be a number of replicas, such as "2", or a percentage, such as "25%", not "1001%"`},

		{"[[faults]]\nkind = \"crashes\"\nreplica = \"pod-0\"", `2: faults.0.kind "crashes" is unknown; did you mean "crash"?`},
		{"[[faults]]\nkind = \"crash\"\nreplica = \"pod-0\"\n[[faults]]\nkind = \"crash\"\nreplica = \"pod-1\"", `6: faults.1.replica: no replica is called "pod-1"; did you mean "pod-0"?`},
		{"[[faults]]\nkind = \"slow\"\nreplica = \"pod-0\"", `1: faults.0.factor must be from 1e-06 to 1e+06, not 0`},
		{"[[faults]]\nkind = \"slow\"\nreplica = \"pod-0\"\nfactor = 1e-7", `4: faults.0.factor must be from 1e-06 to 1e+06, not 1e-07`},
		{"[[faults]]\nkind = \"slow\"\nreplica = \"pod-0\"\nfactor = 2\nreplace = false", `5: faults.0.replace is for kind = "delete", "crash" or "node_loss" only`},
		{"[[faults]]\nkind = \"cache_reset\"\nreplica = \"pod-0\"\nreplace = true", `4: faults.0.replace is for kind = "delete", "crash" or "node_loss" only`},
		{"[[faults]]\nkind = \"crash\"\nreplica = \"pod-0\"\nfactor = 2", `4: faults.0.factor is for kind = "slow" only`},
		{"[[faults]]\nkind = \"delete\"\nreplica = \"pod-0\"\nduration = \"1s\"", `4: faults.0.duration is for kind = "slow" or "crash" only`},
		{"[autoscale]\nstrategy = \"hpa\"\nmetric = \"in_flight\"\nmax_replicas = 2\ntarget = 0.5", `5: autoscale.target must be at least 1 for hpa, which cuts it to a whole number; it is 0.5`},
		{"observe.snapshot_interval = \"0s\"", `1: observe.snapshot_interval must be at least 1ms, not 0s`},
		{"observe.snapshot_interval = \"999us\"", `1: observe.snapshot_interval must be at least 1ms, not 999µs`},
		{"[[phases]]\nphase = \"x\"", `1: this is a study, a list of phases, not a scenario; sim compare runs it`},
	} {
		_, err := Parse("s.toml", []byte(c.text+"\n"+minimal))
		var problems Problems
		require.ErrorAs(t, err, &problems, "%s", c.text)
		if want, ok := strings.CutSuffix(c.want, "…"); ok {
			require.Contains(t, err.Error(), "s.toml:"+want, "%s", c.text)
			require.Len(t, problems, 1)
			continue
		}
		require.EqualError(t, err, "s.toml:"+c.want, "%s", c.text)
	}
}

func TestLoadProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"name = \"x\"", `1: the workload has no load; allowed: exactly one of [workload.arrivals], [workload.closed_loop] and [workload.trace]`},
		{"[workload.arrivals]\nrate_per_second = -1.6", "1: workload.requests must be at least 1 where the rate has no stages to end it\ns.toml:2: workload.arrivals.rate_per_second must be above 0 and at most 1e+06, not -1.6"},
		{"[workload]\nrequests = 4\n[workload.arrivals]\nrate_per_second = 0", `4: workload.arrivals.rate_per_second must be above 0 and at most 1e+06, not 0`},
		{"[workload]\nrequests = 96\n[workload.arrivals]\nrate_per_second = 1e-7", `4: workload.arrivals.rate_per_second is 1e-07, at which 96 requests would take 9.6e+08 s; allowed: at most a year, 31536000 s`},
		{"[workload]\nrequests = 96\n[workload.arrivals]\nrate_per_second = 1e-300", `4: workload.arrivals.rate_per_second is 1e-300, at which 96 requests would take 9.6e+301 s; allowed: at most a year, 31536000 s`},
		{"[workload]\nrequests = 4\n[workload.arrivals]\nprocess = \"possion\"\nrate_per_second = 1", `4: workload.arrivals.process "possion" is unknown; did you mean "poisson"?`},
		{"[workload]\nrequests = 4\n[workload.arrivals]\nburstiness = 0.5\nrate_per_second = 1", `4: workload.arrivals.burstiness is for process = "gamma" only`},
		{"[workload]\nrequests = 4\n[workload.arrivals]\nprocess = \"gamma\"\nburstiness = 0\nrate_per_second = 1", `5: workload.arrivals.burstiness must be above 0 and at most 1e+06, not 0`},
		{"[workload]\nrequests = 4\n[workload.arrivals]\nprocess = \"gama\"\nburstiness = 0.5\nrate_per_second = 1", `4: workload.arrivals.process "gama" is unknown; did you mean "gamma"?`},
		{"[workload.arrivals]\nrate_per_second = 1\nstages = [{ duration = \"1s\", rate_per_second = 1 }]", `2: workload.arrivals has both rate_per_second and stages; allowed: one of them`},
		{"[workload.arrivals]\nstages = [{ duration = \"1s\", rate_per_second = 1 },\n{ rate_per_second = -1 }]", "3: workload.arrivals.stages.1.duration must be longer than 0s\ns.toml:3: workload.arrivals.stages.1.rate_per_second must be from 0 to 1e+06, not -1"},
		{"[workload.arrivals]\nstages = [{ duration = \"8760h\", rate_per_second = 1 },\n{ duration = \"1s\", rate_per_second = 1 }]", `2: the stages must end within a year`},
		{"[workload.arrivals]\nstages = [{ duration = \"1000h\", rate_per_second = 1e3 }]", `2: the stages hold 3600000000 arrivals; allowed: at most 100000000`},
		{"[workload.trace]\nformat = \"mooncake\"", `1: workload.trace.path must name a file`},
		{"[workload.trace]\npath = \"x\"\nformat = \"moonkake\"", `3: workload.trace.format "moonkake" is unknown; did you mean "mooncake"?`},
		{"[workload.closed_loop]\nconcurrency = 0\nduration = \"1s\"", `2: workload.closed_loop.concurrency must be a whole number from 1 to 100000, not 0`},
		{"[workload.closed_loop]\nconcurrency = 4", `1: workload.closed_loop never ends; give it a duration, or workload.requests`},
	} {
		_, err := Parse("s.toml", []byte(c.text))
		require.EqualError(t, err, "s.toml:"+c.want, "%s", c.text)
	}
}

func TestAllProblemsAtOnceInTheOrderOfTheFile(t *testing.T) {
	_, err := ParseWith("s.toml", []byte(`polices = ["random"]
[cluster]
replicas = 0
[workload]
requests = 3
output_tokens = "many"
[workload.arrivals]
rate_per_second = -1.0
[workload.prompt]
families = 2
hot_fraction = 1.5
`), []string{"slo.ttft=2", "router.gateway=2"})
	require.EqualError(t, err, `--set router.gateway: unknown key "gateway" in router; did you mean "gateways"?
--set slo.ttft: slo.ttft must be a duration with its unit, such as "1.5s" (units: ns, us, ms, s, m, h), not "2"
s.toml:1: unknown key "polices"; did you mean "policies"?
s.toml:3: cluster.replicas must be a whole number from 1 to 10000, not 0
s.toml:6: workload.output_tokens must be a whole number, not the string "many"
s.toml:8: workload.arrivals.rate_per_second must be above 0 and at most 1e+06, not -1
s.toml:11: workload.prompt.hot_fraction must be from 0 to 1, not 1.5`)
}

func TestAListThatIsWrongThroughoutIsCutShort(t *testing.T) {
	_, err := Parse("s.toml", []byte("workload.requests = 5000\nworkload.prompt.family_order = ["+strings.Repeat("7,", 5000)+"]\n"+minimal))
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, strict.MaxProblems)
}

// Settings without the switch that they belong to, one for each.
func TestSettingsThatDoNothing(t *testing.T) {
	const admission = "admission.quota, a tenant's quota or admission.rate_per_second"
	for set, needs := range map[string]string{
		"workload.retry.back_off=1s":      "workload.retry.max_attempts",
		"workload.retry.max_back_off=1s":  "workload.retry.max_attempts",
		"workload.retry.jitter=0.5":       "workload.retry.max_attempts",
		"workload.retry.budget=0.1":       "workload.retry.max_attempts",
		"workload.cancel.after=1s":        "workload.cancel.fraction",
		`start.owners.0=[]`:               "start.engine_cache or start.router_index",
		"admission.proxies=2":             admission,
		"admission.queue_length=4":        admission,
		"admission.reject_latency=2ms":    admission,
		"admission.queue_timeout=3s":      "admission.queue_length",
		"admission.burst=3":               "admission.rate_per_second",
		"autoscale.min_replicas=3":        "autoscale.strategy",
		"autoscale.max_replicas=3":        "autoscale.strategy",
		"autoscale.metric=in_flight":      "autoscale.strategy",
		"autoscale.target=3":              "autoscale.strategy",
		"autoscale.interval=3s":           "autoscale.strategy",
		"autoscale.metric_delay=3s":       "autoscale.strategy",
		"autoscale.scrape_interval=3s":    "autoscale.strategy",
		`autoscale.annotations={foo="1"}`: "autoscale.strategy",
		"autoscale.pre_scale=[]":          "autoscale.strategy",
		"rollout.max_surge=5":             "rollout.at",
		"rollout.max_unavailable=5":       "rollout.at",
	} {
		key, _, _ := strings.Cut(set, "=")
		_, err := ParseWith("s.toml", []byte(minimal), []string{"workload.prompt.families=1", set})
		require.EqualError(t, err, "--set "+key+": "+key+" does nothing without "+needs+"; allowed: with it, or not at all")
	}
}

// Every setting of the autoscaler does nothing without a strategy.
func TestAutoscaleWithoutAStrategyIsRefusedInFull(t *testing.T) {
	var sets []string
	for _, key := range keysOf(reflect.TypeFor[Autoscale](), "autoscale.") {
		if key != "autoscale.strategy" && !strings.HasPrefix(key, "autoscale.pre_scale.") {
			sets = append(sets, key+"={}")
		}
	}
	_, err := ParseWith("s.toml", []byte(minimal), sets)
	for _, set := range sets {
		require.ErrorContains(t, err, "--set "+strings.TrimSuffix(set, "={}")+": ")
	}
}

// What a file sets in full can be switched off by an override, and an override
// may set what a sweep switches on and off.
func TestSwitchedOff(t *testing.T) {
	const full = minimal + `[workload.retry]
max_attempts = 3
back_off = "1s"
[workload.cancel]
fraction = 0.5
after = "1s"
[admission]
quota = 4
queue_length = 2
queue_timeout = "3s"
rate_per_second = 2
burst = 3
[autoscale]
strategy = "kpa"
metric = "in_flight"
min_replicas = 2
max_replicas = 3
target = 1
[autoscale.annotations]
max-scale-up-rate = "3"
[[autoscale.pre_scale]]
replicas = 2
[rollout]
at = "9s"
max_surge = "2"
`
	off := []string{
		"workload.retry.max_attempts=1", "workload.cancel.fraction=0", "admission.quota=0", "admission.queue_length=0",
		"admission.rate_per_second=0", "autoscale.strategy=", "rollout.at=0s",
	}
	for _, set := range append(off, "admission={}", "autoscale={}") {
		_, err := ParseWith("s.toml", []byte(full), []string{set})
		require.NoError(t, err, set)
	}
	_, err := ParseWith("s.toml", []byte(full), off)
	require.NoError(t, err)
	_, err = ParseWith("s.toml", []byte(minimal), []string{"start.owners=[]"})
	require.NoError(t, err, "no owners are what there is without the setting")
	_, err = ParseWith("s.toml", []byte(minimal), []string{"workload.retry.back_off=1s", "workload.retry.max_attempts=1"})
	require.NoError(t, err)
}

// A problem does not bring about others with what is reckoned from the value.
func TestConsequencesAreLeftOut(t *testing.T) {
	for _, set := range []string{
		"cluster.replicas=1e9", "cluster.replicas=100000", "cluster.replicas=0", "cluster.names=3", `cluster.names=["L20-A",""]`,
		"workload.prompt.families=1e3", "workload.prompt.families=-1", "workload.requests=1e3", "workload.requests=-1",
	} {
		_, err := LoadWith("hot90", []string{set, `faults.0={kind="crash",replica="L20-B"}`, "start.spare.L20-B=1"})
		var problems Problems
		require.ErrorAs(t, err, &problems)
		require.Len(t, problems, 1, "%s: %v", set, err)
	}
	for _, sets := range [][]string{
		{"workload.prompt.salt_tokens=-1", "workload.prompt.salt_tokens_spread=3"},
		{"workload.prompt.salt_tokens=few", "workload.prompt.salt_tokens_spread=300"},
		{"workload.retry.max_attempts=2", "workload.retry.back_off=2", "workload.retry.max_back_off=1s"},
		{"workload.arrivals.process=3", "workload.arrivals.burstiness=3"},
		{"faults.0.kind=slwo", "faults.0.factor=3", "faults.0.replica=L20-A"},
		{"faults.0.replica=pod-3", "faults.0.kind=crash", "autoscale.strategy=kpa", "autoscale.metric=in_flight", "autoscale.target=1", "autoscale.max_replicas=4e0"},
		{"autoscale.strategy=kpa", "autoscale.metric=in_flight", "autoscale.target=1", "autoscale.min_replicas=20000", "autoscale.max_replicas=4"},
		{"autoscale.strategy=kpa", "autoscale.metric=in_flight", "autoscale.target=1", "autoscale.max_replicas=few", "autoscale.pre_scale.0.replicas=3"},
		{"lifecycle.compile.distribution=3", "lifecycle.compile.sd=1s", "lifecycle.compile.mean=9s", "lifecycle.compile.distribution=nrmal"},
		{"lifecycle.compile.distribution=uniform", "lifecycle.compile.sd=1s", "lifecycle.compile.mean=9"},
		{"cluster.gpus=1", "cluster.replicas=2.5"},
		{"admission.rate_per_second=2", "admission.burst=big"},
	} {
		_, err := LoadWith("hot90", sets)
		var problems Problems
		require.ErrorAs(t, err, &problems)
		require.Len(t, problems, 1, "%s: %v", sets, err)
	}
}

// The time for a large scenario grows with its size, not with the square of it.
func TestLargeScenarios(t *testing.T) {
	const n = 50_000
	var names, tenants strings.Builder
	for i := range n {
		fmt.Fprintf(&names, "\"n%d\",", i)
		fmt.Fprintf(&tenants, "[[workload.tenants]]\nname = \"t%d\"\n", i)
	}
	_, err := Parse("s.toml", []byte(minimal+"[cluster]\nnames = ["+names.String()+"]\n"+tenants.String()))
	require.NoError(t, err)
	wrong := strings.Repeat("{ duration = 1, rate_per_second = -1 },", n)
	_, err = Parse("s.toml", []byte("[workload.arrivals]\nstages = ["+wrong+"]\n"))
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, strict.MaxProblems)
}

func TestByteOrderMark(t *testing.T) {
	sc, err := Parse("s.toml", []byte("\ufeffname = \"x\"\n"+minimal))
	require.NoError(t, err)
	require.Equal(t, "x", sc.Name)
}

func TestSetsReachAllParts(t *testing.T) {
	sc, err := LoadWith("hot90", []string{
		"seed=7", "slo.ttft=3s", "router.env.AIBRIX_PREFIX_CACHE_BLOCK_SIZE=64", "start.owners.0.0=L20-A",
		`faults.0={at = "10s", kind = "crash", replica = "L20-A"}`, "faults.0.at=20s", "model.noise=true", "profile=mine.toml",
	})
	require.NoError(t, err)
	require.Equal(t, uint64(7), sc.Seed)
	require.Equal(t, span(3*simtime.Second), sc.SLO.TTFT)
	require.Equal(t, "64", sc.Router.Env["AIBRIX_PREFIX_CACHE_BLOCK_SIZE"])
	require.Equal(t, []string{"L20-A"}, sc.Start.Owners[0])
	require.Equal(t, []Fault{{At: span(20 * simtime.Second), Kind: "crash", Replica: "L20-A"}}, sc.Faults)
	require.True(t, *sc.Model.Noise)
	require.Equal(t, "mine.toml", sc.Profile)
}

// The least values that are allowed, and the 0s that stand for none.
func TestLeastValuesLoad(t *testing.T) {
	scaling := []string{"autoscale.strategy=kpa", "autoscale.metric=in_flight", "autoscale.max_replicas=2", "autoscale.target=1"}
	for _, set := range []string{
		"workload.arrivals.rate_per_second=4e-6", // 96 requests in 278 days
		"observe.snapshot_interval=1ms", "router.metrics_interval=1ms",
		"router.prometheus_interval=1ms", "router.prometheus_interval=0s",
		"workload.read_timeout=1ms", "workload.read_timeout=0s",
		"autoscale.interval=100ms", "autoscale.scrape_interval=10ms", "autoscale.scrape_interval=0s",
	} {
		_, err := LoadWith("hot90", append(scaling, set))
		require.NoError(t, err, set)
	}
}

func TestOpenProblems(t *testing.T) {
	_, err := Load("hot9")
	require.EqualError(t, err, `hot9: no scenario has this name; did you mean "hot90"?`)
	_, err = Load("absent/hot9.toml")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Contains(t, err.Error(), "absent/hot9.toml: ")
	_, err = Load("hot9.jsonl")
	require.ErrorContains(t, err, "hot9.jsonl: no such file or directory; allowed: a file, or one of apa-scale, ")
	t.Chdir(t.TempDir())
	require.NoError(t, errors.Join(os.Mkdir("runs", 0o777), os.Mkdir("hot90", 0o777)))
	_, err = Load("runs")
	require.ErrorContains(t, err, "runs: is a directory; allowed: a file, or one of ")
	_, err = Load("hot90")
	require.NoError(t, err, "the embedded one")
	_, err = Load("routing-study")
	require.ErrorContains(t, err, "scenarios/routing-study.toml:")
	require.ErrorContains(t, err, "this is a study")
	file := filepath.Join(t.TempDir(), "own.toml")
	require.NoError(t, os.WriteFile(file, []byte(minimal), 0o600))
	sc, err := Load(file)
	require.NoError(t, err)
	require.Equal(t, "own", sc.Name)
}

// encode writes sc as a file would have it.
func encode(t require.TestingT, sc *Scenario) []byte {
	var out bytes.Buffer
	require.NoError(t, toml.NewEncoder(&out).Encode(sc))
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	for _, name := range Names() {
		sc, err := Load(name)
		require.NoError(t, err)
		again, err := Parse("again.toml", encode(t, sc))
		require.NoError(t, err, name)
		require.Equal(t, sc, again)
		require.Equal(t, Digest(sc), Digest(again))
	}
}

func TestRoundTripOfAnyValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sc, err := Load(rapid.SampledFrom(Names()).Draw(t, "base"))
		require.NoError(t, err)
		upTo := func(longest simtime.Time) *rapid.Generator[Duration] {
			return rapid.Map(rapid.Int64Range(int64(minPeriod/simtime.Nanosecond), int64(longest/simtime.Nanosecond)), func(ns int64) Duration {
				return span(simtime.Time(ns) * simtime.Nanosecond)
			})
		}
		spans, stages := upTo(yearOfTicks), upTo(maxStage)
		sc.Seed = rapid.Uint64Range(0, 1<<63-1).Draw(t, "seed")
		sc.Description = rapid.String().Draw(t, "description")
		sc.SLO.TTFT = spans.Draw(t, "ttft")
		sc.Workload.ReadTimeout = spans.Draw(t, "read timeout")
		sc.Workload.Retry.Jitter = rapid.Float64Range(0, 1).Draw(t, "jitter")
		sc.Lifecycle.Compile = Span{Mean: stages.Draw(t, "mean"), SD: stages.Draw(t, "sd"), Distribution: "lognormal"}
		seqs := rapid.IntRange(1, maxTokens).Draw(t, "seqs")
		sc.Engine.MaxNumSeqs = &seqs
		again, err := Parse("again.toml", encode(t, sc))
		require.NoError(t, err)
		require.Equal(t, sc, again)
	})
}

func TestDigest(t *testing.T) {
	load := func(sets ...string) string {
		sc, err := LoadWith("hot90", sets)
		require.NoError(t, err)
		return Digest(sc)
	}
	base := load()
	require.Len(t, base, 64)
	require.Equal(t, base, load("description=other words", "drain.grace_period=30000ms")) // a default, spelled out
	for _, set := range []string{"seed=103", "slo.ttft=2.001s", "engine.max_num_seqs=8", "start.spare.L20-A=4", "router.env.AIBRIX_PREFIX_CACHE_BLOCK_SIZE=129"} {
		require.NotEqual(t, base, load(set), set)
	}
}

// Whatever is read either is refused with a place for each problem, or is
// complete and reads the same when it is written out.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	for _, name := range Names() {
		_, data, err := Open(name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkParsed(t, data, nil) })
}

func FuzzOverride(f *testing.F) {
	_, hot90, err := Open("hot90")
	require.NoError(f, err)
	for _, set := range []string{"seed=5", "faults.0.at=10s", "cluster.replicas=3", "start.owners.0.0=x", "workload.closed_loop={concurrency=1}", "policies.3=random:2", "slo={}"} {
		f.Add(set)
	}
	f.Fuzz(func(t *testing.T, set string) { checkParsed(t, hot90, []string{set}) })
}

func checkParsed(t *testing.T, data []byte, sets []string) {
	sc, err := ParseWith("s.toml", data, sets)
	if err == nil {
		again, err := Parse("again.toml", encode(t, sc))
		require.NoError(t, err)
		require.Equal(t, Digest(sc), Digest(again))
		return
	}
	var problems Problems
	require.ErrorAs(t, err, &problems)
	for _, p := range problems {
		require.NotEmpty(t, p.Msg)
		require.True(t, p.File == "s.toml" && p.Line > 0 || len(sets) > 0 && strings.HasPrefix(p.File, "--set "), "%+v", p)
	}
}
