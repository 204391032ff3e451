package router

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"fleetsim/simtime"
)

// A Gateway is one gateway process: the routable pods with its own in-flight
// counts, and the policy with its own state. It is a state machine without I/O;
// the caller says what happens and when, in order of time.
//
// Pods are named by their replica numbers, from 0 up: memory grows with the
// largest number.
type Gateway struct {
	policy  Policy
	byFleet fleetPolicy // policy, if it is one
	fleet   fleet       // for byFleet
	changed bool        // the list has, since the fleet was made
	rng     *rand.Rand
	shuffle bool
	pods    []Pod
	place   []int // by pod number: index in pods, or notRoutable
	running []int // by pod number: in-flight count, kept beyond removal
}

const notRoutable = -1

// A Choice is where a request goes.
type Choice struct {
	// PodID is the number of the chosen pod.
	PodID int
	// PrefillID is the number of the pod that runs the prefill when Disaggregated,
	// and PodID otherwise.
	PrefillID int
	// Bypassed reports that only one pod was routable, so that the policy was not
	// asked and learnt nothing.
	Bypassed bool
	Decision
}

// NewGateway is a gateway without pods. rng is the source of the policy's draws.
func NewGateway(p Policy, rng *rand.Rand) *Gateway {
	ordered, ok := p.(OrderSensitive)
	g := &Gateway{policy: p, rng: rng, shuffle: ok && ordered.OrderSensitive()}
	g.byFleet, _ = p.(fleetPolicy)
	return g
}

// AddPod makes pod id routable under name. A pod that was removed and comes back
// keeps its in-flight count; one that is routable already keeps everything.
// role and roleset are its labels for prefill/decode disaggregation, "" without.
func (g *Gateway) AddPod(id int, name, role, roleset string) {
	g.know(id)
	if g.place[id] != notRoutable {
		return
	}
	g.changed = true
	g.place[id] = len(g.pods)
	g.pods = append(g.pods, Pod{ID: id, Name: name, Running: g.running[id], Role: role, RoleSet: roleset})
}

// RemovePod takes pod id off the routable list. Its in-flight requests are
// counted until they end, and the local prefix index keeps its entries, as in
// v0.7.0.
func (g *Gateway) RemovePod(id int) {
	i := g.index(id)
	if i == notRoutable {
		return
	}
	g.changed = true
	g.pods = slices.Delete(g.pods, i, i+1)
	g.place[id] = notRoutable
	for ; i < len(g.pods); i++ {
		g.place[g.pods[i].ID] = i
	}
	if w, ok := g.policy.(PodWatcher); ok {
		w.PodRemoved(id)
	}
}

// know extends the tables to pod id.
func (g *Gateway) know(id int) {
	for len(g.place) <= id {
		g.place = append(g.place, notRoutable)
		g.running = append(g.running, 0)
	}
}

// index is pod id's place in the list, or notRoutable.
func (g *Gateway) index(id int) int {
	if id < 0 || id >= len(g.place) {
		return notRoutable
	}
	return g.place[id]
}

// Pods is the number of routable pods.
func (g *Gateway) Pods() int { return len(g.pods) }

// Route picks a pod for req, which it does not count: that is Begin's. Without a
// routable pod the error is ErrNoPod; a lone pod is taken without asking the
// policy. Other errors are the policy's.
func (g *Gateway) Route(now simtime.Time, req *Request) (Choice, error) {
	switch len(g.pods) {
	case 0:
		return Choice{}, ErrNoPod
	case 1:
		id := g.pods[0].ID
		return Choice{PodID: id, PrefillID: id, Bypassed: true}, nil
	}
	d, err := g.ask(now, req)
	if err != nil {
		return Choice{}, err
	}
	if uint(d.Pod) >= uint(len(g.pods)) || d.Disaggregated && uint(d.Prefill) >= uint(len(g.pods)) {
		return Choice{}, fmt.Errorf("router: policy %T chose pod %d of %d", g.policy, d.Pod, len(g.pods))
	}
	c := Choice{PodID: g.pods[d.Pod].ID, PrefillID: g.pods[d.Pod].ID, Decision: d}
	if d.Disaggregated {
		c.PrefillID = g.pods[d.Prefill].ID
	}
	return c, nil
}

// ask is the policy's answer.
func (g *Gateway) ask(now simtime.Time, req *Request) (Decision, error) {
	if g.byFleet != nil {
		if g.changed {
			g.fleet.reset(g.pods)
			g.changed = false
		}
		return g.byFleet.routeFleet(now, req, &g.fleet, g.rng)
	}
	if g.shuffle {
		g.shufflePods()
	}
	return g.policy.Route(now, req, g.pods, g.rng)
}

func (g *Gateway) shufflePods() {
	for i := len(g.pods) - 1; i > 0; i-- {
		j := g.rng.IntN(i + 1)
		g.pods[i], g.pods[j] = g.pods[j], g.pods[i]
		g.place[g.pods[i].ID] = i
	}
	g.place[g.pods[0].ID] = 0
}

// Begin counts a request as in flight on pod id.
func (g *Gateway) Begin(id int) {
	g.know(id)
	g.count(id, g.running[id]+1)
}

// End takes a request off pod id's in-flight count, which stays at 0 when it is
// there.
func (g *Gateway) End(id int) {
	g.know(id)
	g.count(id, max(0, g.running[id]-1))
}

func (g *Gateway) count(id, n int) {
	g.running[id] = n
	g.show(id, n)
}

// show makes n the count that policies see of pod id, if it is routable.
func (g *Gateway) show(id, n int) {
	switch i := g.index(id); {
	case i == notRoutable:
	case g.byFleet != nil && !g.changed:
		g.fleet.count(i, n)
	default:
		g.pods[i].Running = n
	}
}

// Share gives pod id the count that policies see between a metric refresh of a
// gateway with state sync and its next Begin or End for the pod: its own plus
// the other gateways'.
func (g *Gateway) Share(id, others int) {
	g.show(id, g.Running(id)+others)
}

// Running is the gateway's own in-flight count of pod id, routable or not.
func (g *Gateway) Running(id int) int {
	if id < 0 || id >= len(g.running) {
		return 0
	}
	return g.running[id]
}

// SetMetrics replaces the engine metrics of pod id, if it is routable.
func (g *Gateway) SetMetrics(id int, m Metrics) {
	if i := g.index(id); i != notRoutable {
		g.pods[i].Metrics = m
	}
}

// Finished tells the policy that the stream of req, routed as c says, has ended
// after outputTokens tokens. It does not count; that is End's.
func (g *Gateway) Finished(now simtime.Time, req *Request, c Choice, outputTokens int) {
	if t, ok := g.policy.(Tracker); ok && !c.Bypassed {
		t.Finished(now, req, c, outputTokens)
	}
}

// PrefillFinished tells the policy that the prefill of req on pod c.PrefillID is
// over. It does nothing for a request whose pod runs both.
func (g *Gateway) PrefillFinished(now simtime.Time, req *Request, c Choice) {
	if t, ok := g.policy.(PrefillTracker); ok && c.Disaggregated {
		t.PrefillFinished(now, req, c)
	}
}

// Remember adds the prompt of req to the policy's prefix index for pod id as if
// it had been routed there, without a decision and without counters.
func (g *Gateway) Remember(now simtime.Time, req *Request, id int) {
	if r, ok := g.policy.(Rememberer); ok {
		r.Remember(now, req, id)
	}
}

// Counters are the policy's counters that are not 0, sorted by name and labels.
func (g *Gateway) Counters() []Counter {
	s, ok := g.policy.(CounterSource)
	if !ok {
		return nil
	}
	counters := s.AppendCounters(nil)
	slices.SortFunc(counters, compareCounters)
	return counters
}

// IndexStats describes the policy's prefix index at now; all zero without one.
func (g *Gateway) IndexStats(now simtime.Time) IndexStats {
	if h, ok := g.policy.(IndexHolder); ok {
		return h.IndexStats(now)
	}
	return IndexStats{}
}
