package router

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
)

// podList is a list of n pods p00, p01, …
func podList(n int) []Pod {
	var pods []Pod
	for i := range n {
		pods = append(pods, Pod{ID: i, Name: goldenPod(i)})
	}
	return pods
}

// route asks a policy without a gateway, so that the list keeps its order.
func route(t *testing.T, p Policy, now simtime.Time, req *Request, pods []Pod) int {
	t.Helper()
	d, err := p.Route(now, req, pods, newRand())
	require.NoError(t, err)
	return d.Pod
}

func newPolicy[T Policy](t *testing.T, name string, o Options) T {
	t.Helper()
	p, err := New(name, DefaultSettings(), o)
	require.NoError(t, err)
	return p.(T)
}

func TestPowerOfTwoTakesTheLowerCount(t *testing.T) {
	p := newPolicy[*powerOfTwo](t, "power-of-two", Options{})
	pods, req := podList(2), &Request{}
	first := route(t, p, 0, req, pods)
	other := 1 - first
	require.Equal(t, other, route(t, p, 0, req, pods), "0 against 1")
	p.Finished(0, req, Choice{PodID: first}, 1)
	require.Equal(t, first, route(t, p, 0, req, pods), "0 against 1 again")
}

func TestPowerOfTwoDrawsTwoDifferentPods(t *testing.T) {
	p := newPolicy[*powerOfTwo](t, "power-of-two", Options{})
	pods, req := podList(5), &Request{}
	for i := 0; i < 4; i++ {
		p.counts[po2KeyOf(req, i)] = po2Count{100, simtime.Never}
	}
	rng, seen := newRand(), map[int]bool{}
	for range 300 {
		d, err := p.Route(0, req, pods, rng)
		require.NoError(t, err)
		seen[d.Pod] = true
		p.Finished(0, req, Choice{PodID: d.Pod}, 1)
	}
	require.Len(t, seen, 5, "two full pods can be drawn as well")
}

func TestPowerOfTwoCountsExpire(t *testing.T) {
	p := newPolicy[*powerOfTwo](t, "power-of-two", Options{})
	pods, req := podList(2), &Request{}
	first := route(t, p, 0, req, pods)
	require.Equal(t, 1, p.count(po2Expiry-1, po2KeyOf(req, first)).n)
	require.Equal(t, 0, p.count(po2Expiry, po2KeyOf(req, first)).n)
	p.Finished(po2Expiry, req, Choice{PodID: first}, 1)
	require.Equal(t, -1, p.count(simtime.Hour, po2KeyOf(req, first)).n, "the end of a forgotten request")
	require.Equal(t, first, route(t, p, simtime.Hour, req, pods), "-1 against 0")

	later := &Request{Arrived: simtime.Hour}
	require.Equal(t, 0, p.count(simtime.Hour, po2KeyOf(later, first)).n, "the next hour counts afresh")
}

func TestSessionAffinity(t *testing.T) {
	g := newTestGateway(t, "session-affinity", DefaultSettings(), 8)
	req := &Request{Session: "s"}
	first := mustRoute(t, g, 0, req).PodID
	for range 20 {
		require.Equal(t, first, mustRoute(t, g, 0, req).PodID)
	}
	g.RemovePod(first)
	second := mustRoute(t, g, 0, req).PodID
	require.NotEqual(t, first, second)
	g.AddPod(first, "back", "", "")
	require.Equal(t, second, mustRoute(t, g, 0, req).PodID)

	seen := map[int]bool{}
	for range 200 {
		seen[mustRoute(t, g, 0, &Request{}).PodID] = true
	}
	require.Len(t, seen, 8, "requests without a session go anywhere")
}

func TestSessionAffinityScores(t *testing.T) {
	p := newPolicy[*sessionAffinity](t, "session-affinity", Options{})
	pods, scores := podList(3), make([]float64, 3)
	req := &Request{Session: "s"}
	p.Score(0, req, pods, nil, scores)
	require.Equal(t, []float64{0, 0, 0}, scores)
	p.Routed(0, req, pods, 1)
	p.Score(0, req, pods, nil, scores)
	require.Equal(t, []float64{0, 1, 0}, scores)
}

// A prompt of 4,000 bytes is 1,000 tokens in and 1,500 out: 1,000 + 2*1,500 =
// 4,000 tokens charged. Alone, the user sets the unit: place 4,000/4,000 = 1.
func TestVTCByHand(t *testing.T) {
	p := newPolicy[*vtcBasic](t, "vtc-basic", Options{})
	pods := podList(3)
	heavy := &Request{User: "heavy", Prompt: longText("h", 4000)}
	light := &Request{User: "light", Prompt: longText("l", 397)} // 100 in, 150 out: 400
	require.Zero(t, p.place(0, "heavy", 3))
	require.Equal(t, 0, route(t, p, 0, heavy, pods))
	require.Equal(t, 4000.0, p.users["heavy"].total)
	require.Equal(t, 1.0, p.place(0, "heavy", 3))
	require.Equal(t, 1, route(t, p, 0, heavy, pods))
	require.Equal(t, 0, route(t, p, 0, light, pods))
	// 8,000 and 400 tokens: unit 4,200, places 1.905 and 0.095.
	require.InDelta(t, 8000.0/4200, p.place(0, "heavy", 3), 1e-12)
	require.InDelta(t, 400.0/4200, p.place(0, "light", 3), 1e-12)
	require.Equal(t, 2, route(t, p, 0, heavy, pods))
	require.Equal(t, 1.0, p.place(0, "heavy", 2), "at most the last place")

	// Full load adds 1, which outweighs a distance of 0.81.
	pods[0].Metrics.EngineRunning = Some(250)
	require.Equal(t, 1, route(t, p, 0, light, pods))

	// 5 minutes on the tokens are still in the window, a second later not.
	require.Equal(t, 12_000.0, p.users["heavy"].total)
	p.place(5*simtime.Minute, "heavy", 3)
	require.Equal(t, 12_000.0, p.users["heavy"].total)
	p.place(5*simtime.Minute+simtime.Second, "heavy", 3)
	require.Zero(t, p.users["heavy"].total)
	least, most := p.extremes()
	require.Equal(t, []float64{800, 800}, []float64{least, most}, "nobody has asked for the light user since")
}

func TestVTCWithoutUsersUsesTheDefaults(t *testing.T) {
	p := newPolicy[*vtcBasic](t, "vtc-basic", Options{})
	least, most := p.extremes()
	require.Equal(t, []float64{1000, 8000}, []float64{least, most})
	seen := map[int]bool{}
	rng := newRand()
	for range 100 {
		d, err := p.Route(0, &Request{}, podList(4), rng)
		require.NoError(t, err)
		seen[d.Pod] = true
	}
	require.Len(t, seen, 4, "a request without a user goes anywhere")
	require.Empty(t, p.users)
}

// The fits at hand-computed points, in milliseconds.
func TestPrebleFits(t *testing.T) {
	for _, c := range []struct {
		gpu  prebleGPU
		t, c int
		want float64
	}{
		{prebleV100, 64, 64, 55 + 0.8},
		{prebleV100, 256, 1024, -295 + 3.125*256 - 6.4e-3*65536 + 0.8},
		{prebleV100, 400, 2000, 0.27106428*400 + 10.52444263 + (4.65e-4*2000+0.398)/2},
		{prebleV100, 2000, 2000, 0.27106428*2000 + 10.52444263 + 4.65e-4*2000 + 0.398},
		{prebleV100, 5000, 5000, 0.27106428*5000 + 10.52444263 + 4.65e-4*5000 + 0.398 - 18.425 + 48.25 + 135},
		{prebleA6000, 64, 64, 22 + 0.32},
		{prebleA6000, 5000, 5000, 0.10842571*5000 + 4.209777054806409 + 1.86e-4*5000 + 0.159 - 7.37 + 19.3 + 54},
	} {
		require.InDelta(t, c.want/900, c.gpu.prefill(c.t, c.c), 1e-9, "%d of %d tokens", c.t, c.c)
	}
}

// Texts of 256 bytes are 64 tokens, 4 blocks of the tree.
func TestPrebleByHand(t *testing.T) {
	p := newPolicy[*preble](t, "prefix-cache-preble", Options{})
	pods := podList(2)
	a, b := longText("a", 256), longText("b", 256)
	require.Equal(t, 0, route(t, p, 0, &Request{Prompt: a}, pods), "all cost 0: the first")
	require.Equal(t, 1, route(t, p, 0, &Request{Prompt: b}, pods), "the other costs nothing")
	require.Equal(t, 1, route(t, p, 0, &Request{Prompt: b}, pods), "all of the prompt is there")

	// Pod 0: one request of 64 tokens; pod 1: two. 45 tokens at 0.15 s each.
	costs := make([]float64, 2)
	p.costs(pods, costs)
	require.InDeltaSlice(t, []float64{0.0558/0.9 + 6.75, 2*0.0558/0.9 + 6.75}, costs, 1e-9)

	half := a[:128] + longText("c", 128)
	require.Equal(t, 0, route(t, p, 0, &Request{Prompt: half}, pods), "half is not enough: the cheaper")
	threeQuarters := b[:192] + longText("d", 64)
	require.Equal(t, 1, route(t, p, 0, &Request{Prompt: threeQuarters}, pods), "the prefix decides, whatever the load")
}

// The upper half of a split node knows the pods, and a pod's load counts the
// requests that ended at nodes that it holds.
func TestPrebleSplitAndLoads(t *testing.T) {
	p := newPolicy[*preble](t, "prefix-cache-preble", Options{})
	pods := podList(2)
	a := longText("a", 256)
	p.Remember(0, &Request{Prompt: a}, 0)
	p.Remember(0, &Request{Prompt: a}, 1)
	p.Remember(0, &Request{Prompt: longText("b", 256)}, 1)
	require.Equal(t, []float64{2, 3}, []float64{p.load(0), p.load(1)})
	shared := &Request{Prompt: a[:192] + longText("c", 64)}
	require.Equal(t, 0, route(t, p, 0, shared, pods), "both have 3/4 of it; pod 0 has the lower load")
	upper := p.node.parent
	require.Equal(t, 48, upper.context)
	require.Equal(t, 2, upper.podCount())
	require.Zero(t, upper.window)
}

func TestPrebleForgets(t *testing.T) {
	p := newPolicy[*preble](t, "prefix-cache-preble", Options{})
	pods := podList(2)
	req := &Request{Prompt: longText("a", 256)}
	p.Remember(0, req, 1)
	p.sweep(3*simtime.Minute - 1)
	require.Len(t, p.recent, 1)
	p.sweep(3 * simtime.Minute)
	require.Empty(t, p.recent, "the window is half open")
	require.Empty(t, p.live)
	require.Equal(t, 1, route(t, p, 5*simtime.Minute, req, pods), "the tree still knows")
	require.Equal(t, 0, route(t, p, 10*simtime.Minute+simtime.Second, req, pods), "idle for more than 5 minutes")
}

func TestPrebleForgetsPodsThatHaveGone(t *testing.T) {
	p := newPolicy[*preble](t, "prefix-cache-preble", Options{})
	pods := podList(3)
	req := &Request{Prompt: longText("a", 256)}
	route(t, p, 0, &Request{}, pods)
	p.Remember(0, req, 2)
	require.Equal(t, 2, route(t, p, 0, req, pods))
	require.Equal(t, 0, route(t, p, 0, req, pods[:2]))
	require.Equal(t, 0, route(t, p, 0, req, pods), "back again, but forgotten")
}

// A profile with one length, 2 requests a second and 2 s each: a request is a
// quarter of a pod.
func quarterProfile(prefix string, e2e, slo float64) GPUProfile {
	return GPUProfile{
		PodPrefix: prefix, OutputTokens: []float64{1}, InputTokens: []float64{1},
		Rate: [][]float64{{4 / e2e}}, E2E: [][]float64{{e2e}}, SLO: ProfileSLO{E2E: slo},
	}
}

func TestSLOSelections(t *testing.T) {
	o := Options{Profiles: []GPUProfile{quarterProfile("", 2, 10)}}
	for name, want := range map[string][]int{
		"slo":                    {1, 0, 1, 0, 1, 0, 1, 0, 1},
		"slo-least-load-pulling": {1, 0, 1, 0, 1, 0, 1, 0, 1},
		"slo-least-load":         {1, 0, 1, 0, 1, 0, 1, 0, 1},
		"slo-pack-load":          {0, 0, 0, 0, 1, 1, 1, 1, 1},
	} {
		p := newPolicy[*sloPolicy](t, name, o)
		pods, req := podList(2), &Request{Prompt: longText("a", 40)}
		for i, w := range want {
			require.Equal(t, w, route(t, p, 0, req, pods), "%s request %d", name, i)
		}
		require.Equal(t, 1.0, p.pods[0].utilization)
		for range 4 {
			p.Finished(0, req, Choice{PodID: 0, Decision: Decision{Load: 0.25}}, 1)
		}
		require.Zero(t, p.pods[0].utilization)
		require.Equal(t, 0, route(t, p, 0, req, pods), "%s has room on pod 0 again", name)
	}
}

func TestSLOWithoutProfileIsLeastRequest(t *testing.T) {
	noSLO := quarterProfile("", 2, 0)
	for _, profiles := range [][]GPUProfile{nil, {noSLO}, {quarterProfile("another-deployment", 2, 10)}} {
		p := newPolicy[*sloPolicy](t, "slo", Options{Profiles: profiles})
		pods := podList(2)
		pods[0].Running = 3
		for range 10 {
			require.Equal(t, 1, route(t, p, 0, &Request{}, pods))
		}
		p.Finished(0, &Request{}, Choice{PodID: 1}, 5)
		require.Empty(t, p.pods)
	}
}

// The profile with the most slack comes first; the next is used only while it is
// expected to keep the SLO, which the time waited counts against.
func TestSLOTriesProfilesBySlack(t *testing.T) {
	pods := []Pod{{ID: 0, Name: "slow-0"}, {ID: 1, Name: "fast-0"}}
	full := func(slowE2E float64, arrived simtime.Time) int {
		p := newPolicy[*sloPolicy](t, "slo", Options{Profiles: []GPUProfile{
			quarterProfile("slow", slowE2E, 5), quarterProfile("fast", 1, 5),
		}})
		now := 2 * simtime.Second
		for range 4 {
			require.Equal(t, 1, route(t, p, now, &Request{Arrived: now}, pods))
		}
		return route(t, p, now, &Request{Arrived: arrived}, pods)
	}
	require.Equal(t, 0, full(4, 2*simtime.Second), "4 s keep the 5 s")
	require.Equal(t, 1, full(6, 2*simtime.Second), "6 s do not")
	require.Equal(t, 1, full(4, 0), "4 s after 2 s of waiting do not")
}

func TestProfileSignatures(t *testing.T) {
	lengths := []float64{4, 16, 64}
	for tokens, want := range map[float64]int{0: 0, 1: 0, 4: 0, 7: 0, 8: 1, 16: 1, 31: 1, 32: 2, 64: 2, 1000: 2} {
		require.Equal(t, want, nearestLength(lengths, tokens), "%g tokens", tokens)
	}
}

func TestProfileSlack(t *testing.T) {
	p := quarterProfile("", 3, 0)
	p.TTFT = [][]float64{{0.5}}
	for _, c := range []struct {
		slo  ProfileSLO
		want float64
	}{
		{ProfileSLO{TPOT: 0.1, TTFT: 1, E2E: 9}, 3 - (0.1*20 + 1)},
		{ProfileSLO{TTFT: 2, TPAT: 1}, 0.5 - 2},
		{ProfileSLO{TPAT: 0.01, E2E: 9}, 3 - 0.01*120},
		{ProfileSLO{E2E: 4}, 3 - 4},
	} {
		p.SLO = c.slo
		late, ok := p.slack(signature{}, 20, 100)
		require.True(t, ok)
		require.InDelta(t, c.want, late, 1e-12)
	}
	p.Rate[0][0] = 0
	require.Zero(t, p.load(signature{}), "no rate keeps the SLO: nothing is charged")
}

func TestProfilesAreChecked(t *testing.T) {
	bad := GPUProfile{
		PodPrefix: "gpu", OutputTokens: []float64{2, 1}, InputTokens: []float64{1},
		Rate: [][]float64{{1}}, E2E: [][]float64{{0}, {1}}, SLO: ProfileSLO{TTFT: 1},
	}
	_, err := New("slo", DefaultSettings(), Options{Profiles: []GPUProfile{bad}})
	for _, part := range []string{`GPU profile "gpu"`, "output tokens: want", "rate: want 2 rows", "e2e: want 2 rows", "ttft: want 2 rows"} {
		require.ErrorContains(t, err, part)
	}
}

func TestOutputPredictor(t *testing.T) {
	var o outputPredictor
	rng := newRand()
	require.Equal(t, 1, o.predict(0, 1000, rng), "nothing seen yet")
	o.add(0, 1000, 60)
	require.Equal(t, 64, o.predict(0, 900, rng))
	require.Equal(t, 1, o.predict(0, 100, rng), "another input length")
	require.Equal(t, 64, o.predict(240*simtime.Second, 1000, rng))
	require.Equal(t, 1, o.predict(250*simtime.Second, 1000, rng), "out of the window")
	o.add(260*simtime.Second, 1<<30, 0)
	require.Equal(t, 1, o.predict(260*simtime.Second, 1<<30, rng))
}

// pdPods are the role sets a (pods 0 and 1) and b (pods 2 and 3), each with a
// prefill and a decode pod, and pods that take no part.
func pdPods() []Pod {
	return []Pod{
		{ID: 0, Role: RolePrefill, RoleSet: "a"}, {ID: 1, Role: RoleDecode, RoleSet: "a"},
		{ID: 2, Role: RolePrefill, RoleSet: "b"}, {ID: 3, Role: RoleDecode, RoleSet: "b"},
		{ID: 4, Role: RolePrefill, RoleSet: "lonely"}, {ID: 5},
	}
}

func pdRoute(t *testing.T, p *pdPolicy, req *Request, pods []Pod) Decision {
	t.Helper()
	d, err := p.Route(0, req, pods, newRand())
	require.NoError(t, err)
	require.True(t, d.Disaggregated)
	require.Equal(t, pods[d.Prefill].RoleSet, pods[d.Pod].RoleSet)
	return d
}

// The second request finds all of its prompt on a, whose decode pod has one
// request pending: prefill (0 + 1)/10 + decode 2/2 = 1.1 against 10/10 + 1/2 on b.
func TestPDPrefersThePrefix(t *testing.T) {
	p := newPolicy[*pdPolicy](t, "pd", Options{})
	pods, req := pdPods(), &Request{Prompt: longText("a", 1024)}
	first := pdRoute(t, p, req, pods)
	require.Zero(t, first.MatchPercent)
	second := pdRoute(t, p, req, pods)
	require.Equal(t, first.Pod, second.Pod)
	require.Equal(t, 100, second.MatchPercent)
	require.Equal(t, 2, p.prefilling[pods[first.Prefill].ID])
	require.Equal(t, 2, p.pending[pods[first.Pod].ID])

	c := Choice{PodID: pods[first.Pod].ID, PrefillID: pods[first.Prefill].ID, Decision: first}
	p.PrefillFinished(0, req, c)
	require.Equal(t, 1, p.prefilling[c.PrefillID])
	require.Equal(t, 1, p.pending[c.PodID])
	require.Equal(t, 8, p.IndexStats(0).Entries)
}

func TestPDPrefillImbalanceIsStrict(t *testing.T) {
	for spread, want := range map[int]int{16: 0, 17: 2} {
		p := newPolicy[*pdPolicy](t, "pd", Options{})
		pods, req := pdPods(), &Request{Prompt: longText("a", 1024)}
		p.Remember(0, req, 0)
		p.prefilling[0] = spread
		require.Equal(t, want, pdRoute(t, p, req, pods).Prefill, "spread %d", spread)
	}
}

// With 15 requests a wins by its prefix, 0.1 + 1 against 1 + 0.5; with 16 decode
// is out of balance.
func TestPDDecodeImbalanceIncludesTheThreshold(t *testing.T) {
	for running, want := range map[int]int{15: 1, 16: 3} {
		p := newPolicy[*pdPolicy](t, "pd", Options{})
		pods, req := pdPods(), &Request{Prompt: longText("a", 1024)}
		p.Remember(0, req, 0)
		pods[1].Running = running
		require.Equal(t, want, pdRoute(t, p, req, pods).Pod, "%d running", running)
	}
}

func TestPDThroughputAndDrainImbalance(t *testing.T) {
	req := &Request{Prompt: longText("a", 1024)}
	for _, c := range []struct {
		name           string
		a, b           Metrics
		countA, countB int
		want           int
	}{
		{"throughput 2048 apart decides by score", Metrics{OutputRate: Some(2148)}, Metrics{OutputRate: Some(100)}, 0, 0, 1},
		{"throughput 2049 apart: the lowest", Metrics{OutputRate: Some(2149)}, Metrics{OutputRate: Some(100)}, 0, 0, 3},
		{"8 s against 2 s to drain", Metrics{DrainRate: Some(1)}, Metrics{DrainRate: Some(2)}, 8, 4, 3},
		{"3 s against 2 s is not above 1.5", Metrics{DrainRate: Some(2)}, Metrics{DrainRate: Some(3)}, 6, 6, 1},
		{"a missing rate", Metrics{DrainRate: Some(1)}, Metrics{}, 8, 4, 1},
	} {
		p := newPolicy[*pdPolicy](t, "pd", Options{})
		pods := pdPods()
		p.Remember(0, req, 0)
		pods[1].Metrics, pods[1].Running = c.a, c.countA
		pods[3].Metrics, pods[3].Running = c.b, c.countB
		require.Equal(t, c.want, pdRoute(t, p, req, pods).Pod, c.name)
	}
}

// Free cache divides the score: with equal requests the pod with 80% free beats
// the one with 20%.
func TestPDFreeCache(t *testing.T) {
	p := newPolicy[*pdPolicy](t, "pd", Options{})
	pods := pdPods()
	pods[1].Metrics, pods[3].Metrics = Metrics{KVCacheUsage: Some(0.8)}, Metrics{GPUCacheUsage: Some(0.2)}
	require.Equal(t, 3, pdRoute(t, p, &Request{}, pods).Pod)
	pods[1].Metrics.KVCacheUsage = Some(0.1)
	pods[3].Metrics.GPUCacheUsage = Some(1)
	require.Equal(t, 1, pdRoute(t, p, &Request{}, pods).Pod)
}

func TestPDScorePolicies(t *testing.T) {
	s := DefaultSettings()
	s.PD.PrefillScore, s.PD.DecodeScore = "least_request", "least_request"
	p := newPD(s)
	pods, req := pdPods(), &Request{Prompt: longText("a", 1024)}
	p.Remember(0, req, 0)
	p.prefilling[0] = 1
	require.Equal(t, 2, pdRoute(t, p, req, pods).Prefill, "the prefix counts for nothing")
}

func TestPDErrors(t *testing.T) {
	p := newPolicy[*pdPolicy](t, "pd", Options{})
	_, err := p.Route(0, &Request{}, []Pod{{Role: RolePrefill, RoleSet: "a"}, {ID: 1, Role: RoleDecode, RoleSet: "b"}}, newRand())
	require.ErrorIs(t, err, errNoRoleSet)

	pods := pdPods()[:2]
	pods[1].Metrics.OutputRate = Some(math.NaN())
	_, err = p.Route(0, &Request{}, pods, newRand())
	require.ErrorIs(t, err, errNoPair)
	require.Empty(t, p.prefilling)
}

// A prefill pod above mean + factor * deviation is left out, though it has all of
// the prompt: counts 9, 0, 0 have the mean 3 and the deviation 5.2.
func TestPDPrefillGate(t *testing.T) {
	for factor, want := range map[int]int{1: 1, 2: 0} {
		s := DefaultSettings()
		s.Prefix.DeviationFactor = factor
		p := newPD(s)
		pods := []Pod{
			{ID: 0, Role: RolePrefill}, {ID: 1, Role: RolePrefill}, {ID: 2, Role: RolePrefill}, {ID: 3, Role: RoleDecode},
		}
		req := &Request{Prompt: longText("a", 1024)}
		p.Remember(0, req, 0)
		p.prefilling[0] = 9
		require.Equal(t, want == 0, pdRoute(t, p, req, pods).Prefill == 0, "factor %d", factor)
	}
}

func TestPDThroughTheGateway(t *testing.T) {
	p := newPolicy[*pdPolicy](t, "pd", Options{})
	g := NewGateway(p, newRand())
	g.AddPod(10, "p", RolePrefill, "a")
	g.AddPod(11, "d", RoleDecode, "a")
	req := &Request{Prompt: longText("a", 1024)}
	c := mustRoute(t, g, 0, req)
	require.Equal(t, 11, c.PodID)
	require.Equal(t, 10, c.PrefillID)
	g.PrefillFinished(0, req, c)
	require.Zero(t, p.prefilling[10])
	g.Begin(c.PodID)
	g.Finished(0, req, c, 5)
	g.End(c.PodID)
}
