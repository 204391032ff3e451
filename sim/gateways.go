package sim

import (
	"errors"
	"math/rand/v2"
	"strconv"

	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// gateways is the routing layer as the event loop sees it: gateway processes
// that each keep counts, an index and whatever else the policy knows for
// themselves, and of which each request meets one, drawn at random as by a load
// balancer that knows nothing of them.
type gateways struct {
	config    scenario.Router
	processes []*gateway
	spread    *rand.Rand // nil with one process
	pods      []podEntry // by pod number
	refresh   simtime.Time
	reads     bool // the policy in use reads metrics
	shares    bool // counts are shared between the processes
	drains    bool // pods have roles, so that completions are counted for them
	sessions  bool // a request had one
	users     bool // a request had one

	prefillTimeout simtime.Time
}

// A gateway is one process.
type gateway struct {
	*router.Gateway // of the policy in use
	byPolicy        map[string]*router.Gateway
	rng             *rand.Rand
	views           []podView // by pod number
	read, shared    int64     // number of the refresh that the policy has everything of; noRefresh: none
	requests        int       // that it has been given in the phase
}

// A podEntry is a replica that the gateways have heard of.
type podEntry struct {
	name          string
	role, roleSet string
	listed        bool
}

// A podView is what one process knows of a pod beside the router's own state.
type podView struct {
	since     simtime.Time // the pod is listed since then
	refreshed int64        // number of the refresh whose metrics the policy has; noRefresh: none
	inFlight  history
	completed history
}

// A routing is what the gateways have done with a request.
type routing struct {
	gateway *gateway
	asked   router.Request
	choice  router.Choice
	chosen  bool // a pod has been chosen
	counted bool // the request is counted at it
}

// The categories of requests that a gateway has given up.
const (
	errRouting = "routing_error"  // the policy had no answer
	errPrefill = "prefill_failed" // the prefill pod had none, or took too long
)

// newGateways builds the routing layer, without a pod.
func newGateways(s Setup) (*gateways, error) {
	sc := s.Scenario
	g := &gateways{drains: sc.Cluster.PD != nil}
	for i := range max(sc.Router.Gateways, 1) {
		g.processes = append(g.processes, &gateway{
			byPolicy: map[string]*router.Gateway{}, rng: random.Stream(s.Seed, streamOf(i)),
			read: noRefresh, shared: noRefresh,
		})
	}
	if len(g.processes) > 1 {
		g.spread = random.Stream(s.Seed, "gateways")
	}
	return g, g.use(s)
}

// streamOf names the stream of a gateway's draws.
func streamOf(gateway int) string {
	if gateway == 0 {
		return "routing"
	}
	return "routing/" + strconv.Itoa(gateway)
}

// use routes by the setup's policy from now on. A policy that was used before
// goes on with the state it had: the prefix index of prefix-cache, for one,
// which other policies neither read nor write. Nothing may be in flight.
func (g *gateways) use(s Setup) error {
	settings, err := s.Scenario.Router.Settings()
	if err != nil {
		return err
	}
	g.config, g.refresh = s.Scenario.Router, s.Scenario.Router.RefreshInterval()
	g.shares = len(g.processes) > 1 && (g.config.StateSync || settings.StateSync)
	g.prefillTimeout = settings.PD.PrefillTimeout
	g.sessions, g.users = false, false
	for _, p := range g.processes {
		if err := p.use(s, settings); err != nil {
			return err
		}
		p.requests = 0
		for id := range g.pods {
			g.tell(p, id)
		}
	}
	g.reads = g.processes[0].ReadsMetrics()
	return nil
}

func (p *gateway) use(s Setup, settings router.Settings) error {
	next, known := p.byPolicy[s.Policy]
	if !known {
		policy, err := router.New(s.Policy, settings, s.Scenario.Router.Options())
		if err != nil {
			return err
		}
		next = router.NewGateway(policy, p.rng)
		p.byPolicy[s.Policy] = next
	}
	p.Gateway = next
	return nil
}

// tell brings the process's list of pods up to date for one of them. What the
// policy in use has of its metrics may be another policy's, so it is read again.
func (g *gateways) tell(p *gateway, id int) {
	pod := g.pods[id]
	p.views[id].refreshed = noRefresh
	p.read, p.shared = noRefresh, noRefresh
	if pod.listed {
		p.AddPod(id, pod.name, pod.role, pod.roleSet)
	} else {
		p.RemovePod(id)
	}
}

// addPod makes pod id routable.
func (g *gateways) addPod(now simtime.Time, id int, name, role, roleSet string) {
	for len(g.pods) <= id {
		g.pods = append(g.pods, podEntry{})
		for _, p := range g.processes {
			p.views = append(p.views, podView{})
		}
	}
	g.pods[id] = podEntry{name, role, roleSet, true}
	for _, p := range g.processes {
		p.views[id].since = now
		g.tell(p, id)
	}
}

// removePod takes pod id off the routable list.
func (g *gateways) removePod(id int) {
	if id >= len(g.pods) {
		return
	}
	g.pods[id].listed = false
	for _, p := range g.processes {
		g.tell(p, id)
	}
}

// next is the process that the next request meets.
func (g *gateways) next() *gateway {
	i := 0
	if g.spread != nil {
		i = g.spread.IntN(len(g.processes))
	}
	return g.processes[i]
}

// route lets a gateway pick a pod for the request, without counting it there.
func (r *run) route(q *request) {
	g := r.gateways
	p := g.next()
	p.requests++
	if g.reads {
		r.readMetrics(p)
	}
	if g.shares {
		g.share(r.now, p)
	}
	g.sessions, g.users = g.sessions || q.Session != "", g.users || q.Tenant != ""
	rt := &q.routing
	rt.gateway, rt.chosen, rt.counted = p, false, false
	rt.asked.Prompt, rt.asked.User, rt.asked.Session = &q.Prompt, q.Tenant, q.Session
	rt.asked.Arrived = r.now - g.config.RoutingLatency.Time
	var err error
	if rt.choice, err = p.Route(r.now, &rt.asked); err != nil {
		r.answer(q, 503, routingError(err))
		return
	}
	rt.chosen = true
	q.replica = r.replicas[rt.choice.PodID]
	q.replica.chosen = max(q.replica.chosen, p.Running(rt.choice.PodID))
	r.ledgers.sent(q)
	if delay := g.config.ChoiceToCountDelay.Time; delay > 0 {
		r.push(r.now+delay, evForward, q)
	} else {
		r.forward(q)
	}
}

// routingError is the category of a request that no pod was chosen for.
func routingError(err error) string {
	if errors.Is(err, router.ErrNoPod) {
		return errNoPod
	}
	return errRouting
}

// forward sends the request on to the pod that was chosen for it, which is
// counted first; a pod of its own may have to run the prefill before.
func (r *run) forward(q *request) {
	if q.routing.choice.Disaggregated {
		r.prefill(q)
		return
	}
	r.gateways.begin(r.now, q)
	r.deliver(q)
}

// begin counts the request as in flight on the pod that was chosen for it.
func (g *gateways) begin(now simtime.Time, q *request) {
	pod, p := q.routing.choice.PodID, q.routing.gateway
	q.routing.counted = true
	p.Begin(pod)
	if g.shares {
		p.views[pod].inFlight.add(now, p.Running(pod), g.refresh+snapshotInterval)
	}
}

// ended is the end of a request for the gateway that it met, however it ended.
func (g *gateways) ended(now simtime.Time, q *request) {
	rt := &q.routing
	if !rt.chosen {
		return
	}
	pod, p := rt.choice.PodID, rt.gateway
	if rt.counted {
		p.End(pod)
		view := &p.views[pod]
		if g.shares {
			view.inFlight.add(now, p.Running(pod), g.refresh+snapshotInterval)
		}
		if g.drains {
			view.completed.add(now, view.completed.last()+1, drainHistory+g.config.MetricsDelay.Time+g.refresh)
		}
	}
	if rt.choice.Disaggregated && q.leg != decoding {
		p.PrefillFinished(now, &rt.asked, rt.choice)
	}
	p.Finished(now, &rt.asked, rt.choice, q.seq.Outputs)
	rt.chosen, rt.counted = false, false
}

// remember makes the index of every gateway believe that pod has served the
// request.
func (g *gateways) remember(req *router.Request, pod int) {
	for _, p := range g.processes {
		p.Remember(0, req, pod)
	}
}

// running is the in-flight count of pod, over all gateways.
func (g *gateways) running(pod int) int {
	n := 0
	for _, p := range g.processes {
		n += p.Running(pod)
	}
	return n
}

// requests are those that each process has been given in the phase.
func (g *gateways) requests() []int {
	var n []int
	for _, p := range g.processes {
		n = append(n, p.requests)
	}
	return n
}

// counters are AIBrix's counters, summed over the gateways.
func (g *gateways) counters() []router.Counter {
	var sums []router.Counter
	for _, p := range g.processes {
		sums = router.AddCounters(sums, p.Counters())
	}
	return sums
}

// indexStats describe the prefix indexes of all gateways together; nil when the
// policy in use has none.
func (g *gateways) indexStats(now simtime.Time) *IndexSummary {
	if g.processes[0].Auditor() == nil {
		return nil
	}
	var sum IndexSummary
	for _, p := range g.processes {
		s := p.IndexStats(now)
		sum.Entries += s.Entries
		sum.Bytes += s.Bytes
		sum.Evicted += s.Evicted
		sum.Expired += s.Expired
	}
	return &sum
}

// An IndexSummary is the router_index member of a phase record: the gateways'
// prefix indexes at its end, and what they dropped during it.
type IndexSummary struct {
	Entries int   `json:"entries"` // blocks
	Bytes   int64 `json:"bytes"`   // estimate of what AIBrix takes for them
	Evicted int64 `json:"evicted"` // blocks dropped for capacity
	Expired int64 `json:"expired"` // blocks dropped for age
}

// since leaves out what was dropped before.
func (s *IndexSummary) since(before *IndexSummary) *IndexSummary {
	if s != nil && before != nil {
		s.Evicted -= before.Evicted
		s.Expired -= before.Expired
	}
	return s
}
