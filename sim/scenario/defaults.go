package scenario

import (
	"slices"
	"strconv"

	"fleetsim/simtime"
	"fleetsim/workload/trace"
)

// defaults is a scenario as it is when its file says nothing. docs/scenarios.md
// gives each value's source.
func defaults(name string) *Scenario {
	return &Scenario{
		Name:     name,
		Seed:     1,
		Profile:  "qwen3.8-27b-fp8-l20",
		Policies: []string{"random", "least-request", "prefix-cache"},
		Cluster:  Cluster{Replicas: 1},
		Workload: Workload{
			Output: 128,
			Prompt: Prompt{
				SaltChars: 256, SaltTokens: 211, SaltTokensSpread: 4,
				HeadChars: 24, HeadTokens: 8,
				BodyRepeat: 30, BodyChars: 95, BodyTokens: 16,
				QuestionChars: 90, QuestionTokens: 26,
			},
		},
		SLO:    SLO{TTFT: span(2 * simtime.Second), TPOT: span(150 * simtime.Millisecond), E2E: span(30 * simtime.Second)},
		Router: Router{Gateways: 1, MetricsInterval: span(50 * simtime.Millisecond)},
		Start:  Start{EngineCache: "cold", RouterIndex: "cold"},
		Admission: Admission{
			Proxies:       1,
			RejectLatency: span(simtime.Millisecond),
		},
		Autoscale: Autoscale{Min: 1, Interval: span(10 * simtime.Second)},
		Drain:     Drain{GracePeriod: span(30 * simtime.Second)},
		Rollout:   Rollout{MaxSurge: "25%", MaxUnavailable: "25%"},
		Observe:   Observe{SnapshotInterval: span(5 * simtime.Second)},
	}
}

func span(t simtime.Time) Duration { return Duration{t} }

// complete fills in what depends on the rest of a scenario that has passed all
// checks.
func complete(sc *Scenario) {
	sc.Cluster.Names = replicaNames(sc.Cluster)[:sc.Cluster.Replicas]
	if pd := sc.Cluster.PD; pd != nil && pd.RoleSets == 0 {
		pd.RoleSets = 1
	}
	if a := sc.Workload.Arrivals; a != nil {
		if a.Process == "" {
			a.Process = "constant"
		}
		if a.Burstiness == 0 {
			a.Burstiness = 1
		}
	}
	if t := sc.Workload.Trace; t != nil {
		completeTrace(t)
	}
	l := &sc.Lifecycle
	for _, s := range []*Span{&l.Schedule, &l.ImagePull, &l.ModelLoad, &l.Compile, &l.Readiness} {
		if s.Distribution == "" {
			s.Distribution = "constant"
		}
	}
	if len(sc.Start.Owners) == 0 && (sc.Start.EngineCache == "owners" || sc.Start.RouterIndex == "owners") {
		sc.Start.Owners = roundRobin(sc.Workload.Prompt.Families, sc.Cluster.Names)
	}
}

func completeTrace(t *Trace) {
	for _, share := range []*float64{&t.Thin, &t.Sample, &t.Rate} {
		if *share == 0 {
			*share = 1
		}
	}
	if t.CharsPerToken == 0 {
		t.CharsPerToken = trace.DefaultCharsPerToken
	}
	if t.Sessions == "" {
		t.Sessions = "recorded"
	}
}

// replicaNames is c's names, with one made for every further replica.
func replicaNames(c Cluster) []string {
	names := slices.Clone(c.Names)
	for i := len(names); i < c.Replicas; i++ {
		names = append(names, podName(i))
	}
	return names
}

func podName(i int) string { return "pod-" + strconv.Itoa(i) }

func roundRobin(families int, replicas []string) [][]string {
	owners := make([][]string, families)
	for f := range owners {
		owners[f] = []string{replicas[f%len(replicas)]}
	}
	return owners
}
