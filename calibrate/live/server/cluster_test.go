package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/calibrate/live/plan"
	"fleetsim/calibrate/live/text"
	"fleetsim/model/profiles"
	"fleetsim/router"
	"fleetsim/sim"
	"fleetsim/sim/metrics"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
	"fleetsim/workload"
)

func testCluster(t *testing.T, sets ...string) (*Cluster, *scenario.Scenario) {
	sc, err := scenario.LoadWith("hot90", sets)
	require.NoError(t, err)
	profile, err := profiles.Load(sc.Profile)
	require.NoError(t, err)
	c, err := NewCluster(sc, profile, sc.Seed, "salt")
	require.NoError(t, err)
	return c, sc
}

// A client records what it hears.
type client struct {
	sent, first, last simtime.Time
	hidden            bool
	tokens            int
	cached            int
	finish            string
	pod               string
	decision          router.Decision
	err               *Error
}

func (c *client) Accepted(pod string, d router.Decision) { c.pod, c.decision = pod, d }
func (c *client) Refused(err *Error)                     { c.err = err }
func (c *client) Tokens(now simtime.Time, n int, finish string, cached int) {
	if c.first == 0 && (!c.hidden || c.tokens+n > 1) {
		c.first = now
	}
	c.tokens, c.last, c.finish, c.cached = c.tokens+n, now, finish, cached
}

func newCall(c *Cluster, id string, prompt text.Text, output int, policy string) (*Call, *client) {
	l := &client{hidden: c.Hides(prompt)}
	return &Call{ID: id, Prompt: prompt, Input: prompt.Len(workload.Tokens), Output: output,
		Hashes: c.Hashes(prompt + text.AnswerTo(id).Text(output)), Policy: policy, Listener: l}, l
}

// Fed with the scenario's arrivals as text, the cluster behind the front end
// gives, to the last tick, what the simulator gives for the symbolic ones.
func TestClusterIsTheSimulator(t *testing.T) {
	for _, policy := range []string{"random", "least-request", "prefix-cache"} {
		t.Run(policy, func(t *testing.T) {
			c, sc := testCluster(t)
			profile, err := profiles.Load(sc.Profile)
			require.NoError(t, err)
			want := make(map[int]record.Request)
			phase, err := sim.Run(sim.Setup{Scenario: sc, Profile: profile, Policy: policy, Seed: sc.Seed,
				Each: func(r *record.Request) { want[r.Index.Or(-1)] = *r }})
			require.NoError(t, err)

			p, err := plan.New(sc, sc.Seed)
			require.NoError(t, err)
			var clients []*client
			for r, ok := p.Next(); ok; r, ok = p.Next() {
				call, l := newCall(c, fmt.Sprint("cmpl-", r.Index), c.texts.Text(r.Prompt), r.Output, policy)
				l.sent = r.At
				c.Submit(r.At, call)
				clients = append(clients, l)
			}
			c.Advance(simtime.Hour)
			for i, l := range clients {
				w := want[i]
				require.Equal(t, w.Replica, l.pod, "request %d", i)
				require.Equal(t, w.TTFT.Or(-1), (l.first - l.sent).Seconds(), "request %d", i)
				require.Equal(t, w.E2E.Or(-1), (l.last - l.sent).Seconds(), "request %d", i)
				require.Equal(t, w.OutputTokens.Or(-1), l.tokens)
				require.Equal(t, w.CachedTokens.Or(-1), l.cached)
				require.Equal(t, w.Selection, l.decision.Selection)
				require.Equal(t, finishLength, l.finish)
			}
			for i, rep := range phase.Replicas {
				stats := c.pods[i].Stats()
				require.EqualValues(t, rep.CacheQueriesTokens.Or(-1), stats.QueryTokens)
				require.EqualValues(t, rep.CacheHitTokens.Or(-1), stats.HitTokens)
				require.Zero(t, c.inFlight(c.pods[i]))
			}
		})
	}
}

// The counts of all policies are one process's: a policy that is first asked
// for in the middle knows what is in flight.
func TestPoliciesShareCounts(t *testing.T) {
	c, _ := testCluster(t)
	first, l := newCall(c, "a", "What is it", 5, "random")
	c.Submit(0, first)
	c.Advance(simtime.Second / 10)
	require.NotEmpty(t, l.pod)
	second, m := newCall(c, "b", "What is it", 5, "least-request")
	c.Submit(simtime.Second/10, second)
	c.Advance(2 * simtime.Second / 10)
	require.NotEqual(t, l.pod, m.pod)
	c.Advance(simtime.Hour)
	require.Equal(t, 5, m.tokens)
}

func TestAbort(t *testing.T) {
	c, _ := testCluster(t)
	calls := map[string]simtime.Time{ // when the client leaves
		"before it is routed": simtime.Millisecond,
		"in its prefill":      100 * simtime.Millisecond,
		"in its answer":       simtime.Second,
		"when all is said":    simtime.Hour,
	}
	for name, at := range calls {
		call, l := newCall(c, name, "What is it", 100, "least-request")
		c.Submit(c.now, call)
		begin := c.now
		c.Abort(begin+at, call)
		heard := l.tokens
		c.Abort(begin+at, call) // again is nothing
		c.Advance(begin + 2*simtime.Hour)
		require.Equal(t, heard, l.tokens, name)
		require.Equal(t, at == simtime.Hour, l.finish == finishLength, name)
		for _, p := range c.pods {
			require.Zero(t, p.Gauges().Running, name)
			require.Zero(t, c.inFlight(p), name)
			require.Empty(t, p.calls, name)
			require.True(t, c.ResetPrefixCache(c.now, p.name), "no block is held: %s", name)
		}
	}
}

func TestRefusals(t *testing.T) {
	c, _ := testCluster(t)
	long, l := newCall(c, "long", "What is it", 40_000, "least-request")
	c.Submit(0, long)
	unknown, m := newCall(c, "unknown", "What is it", 4, "least-requests")
	c.Submit(0, unknown)
	c.Advance(simtime.Hour)
	require.Equal(t, 400, l.err.Status)
	require.Equal(t, "input_tokens", l.err.Param)
	require.Contains(t, l.err.Message, "32768")
	require.Equal(t, 400, m.err.Status)
	require.Contains(t, m.err.Message, "least-request")
	for _, pod := range c.Pods() {
		c.Drain(c.now, pod, true)
	}
	for _, policy := range []string{"least-request", ""} {
		call, l := newCall(c, "nowhere", "What is it", 4, policy)
		c.Submit(c.now, call)
		c.Advance(c.now + simtime.Hour)
		require.Equal(t, 503, l.err.Status, policy)
	}
	c.Drain(c.now, "L20-A", false)
	call, back := newCall(c, "back", "What is it", 4, "least-request")
	c.Submit(c.now, call)
	c.Advance(c.now + simtime.Hour)
	require.Equal(t, "L20-A", back.pod)
}

func TestAbortAll(t *testing.T) {
	c, _ := testCluster(t)
	var clients []*client
	for i := range 12 {
		call, l := newCall(c, fmt.Sprint(i), "What is it", 100, "")
		c.Submit(0, call)
		clients = append(clients, l)
	}
	c.AbortAll(simtime.Second, "L20-A")
	aborted := 0
	for _, l := range clients {
		if l.finish == finishAbort {
			require.Equal(t, "L20-A", l.pod)
			aborted++
		}
	}
	require.Equal(t, 6, aborted, "without a policy the pods take turns")
	c.Advance(simtime.Hour)
	for _, l := range clients {
		require.NotEmpty(t, l.finish)
	}
}

func TestDirectCall(t *testing.T) {
	c, _ := testCluster(t)
	call, l := newCall(c, "a", "What is it", 3, "")
	call.Pod = "L20-B"
	c.Submit(0, call)
	c.Advance(simtime.Hour)
	require.Equal(t, "L20-B", l.pod)
	require.Equal(t, 3, l.tokens)
}

func TestClusterMetrics(t *testing.T) {
	c, _ := testCluster(t)
	for i := range 3 {
		call, _ := newCall(c, fmt.Sprint(i), "What is it", 10, "prefix-cache")
		c.Submit(0, call)
	}
	value := func(families []metrics.Family, name string) float64 {
		total := 0.0
		for _, f := range families {
			if f.Name == name {
				for _, s := range f.Series {
					if h := s.Points[0].Histogram; h != nil {
						total += float64(h.Count())
					}
					total += s.Points[0].Value
				}
			}
		}
		return total
	}
	during := c.Metrics(simtime.Second/3, "m", "")
	require.Equal(t, 3.0, value(during, metrics.Running.Name))
	require.Equal(t, 3.0, value(during, metrics.InFlight.Name))
	after := c.Metrics(simtime.Hour, "m", "")
	require.Equal(t, 0.0, value(after, metrics.Running.Name))
	require.Equal(t, 0.0, value(after, metrics.InFlight.Name))
	require.Equal(t, 3.0, value(after, metrics.TTFT.Name))
	require.Equal(t, 27.0, value(after, metrics.ITL.Name))
	require.Equal(t, 30.0, value(after, metrics.OutputTokens.Name))
	require.Equal(t, 3.0, value(after, metrics.Finished.Name))
	require.Equal(t, 3.0, value(after, "aibrix_prefix_cache_routing_selection"))
	one := c.Metrics(simtime.Hour, "m", "L20-A")
	require.Zero(t, value(one, metrics.InFlight.Name), "an engine's own page has nothing of the gateway's")
}

// While the host launches a prefill, steps end that it takes only afterwards,
// several at one instant: their tokens reach the client in order, none is lost,
// and the end comes last.
func TestStepsTakenAtOneInstant(t *testing.T) {
	c, _ := testCluster(t)
	var clients []*client
	for i := range 2000 {
		call, l := newCall(c, fmt.Sprint("cmpl-", i), text.Text(fmt.Sprint("What is ", i)), 1+i%4, "least-request")
		c.Submit(simtime.Time(i)*simtime.Second/400, call)
		clients = append(clients, l)
	}
	c.Advance(simtime.Hour)
	for i, l := range clients {
		require.Equal(t, 1+i%4, l.tokens, "call %d", i)
		require.Equal(t, finishLength, l.finish, "call %d", i)
	}
}
