package sim

import (
	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/simtime"
)

// gateways is the routing layer as the event loop sees it.
type gateways struct {
	gateway *router.Gateway
}

// newGateways builds the routing layer with the named replicas routable.
func newGateways(s Setup, names []string) (*gateways, error) {
	settings, err := router.ParseSettings(s.Scenario.Router.Env)
	if err != nil {
		return nil, err
	}
	policy, err := router.New(s.Policy, settings, router.Options{})
	if err != nil {
		return nil, err
	}
	g := &gateways{gateway: router.NewGateway(policy, random.Stream(s.Seed, "routing"))}
	for id, name := range names {
		g.gateway.AddPod(id, name, "", "")
	}
	return g, nil
}

// route picks a pod for q and counts the request there; it returns the pod and
// what was outstanding at it before.
func (g *gateways) route(now simtime.Time, q *request) (pod, outstanding int, err error) {
	choice, err := g.gateway.Route(now, &router.Request{Prompt: q.Prompt})
	if err != nil {
		return 0, 0, err
	}
	q.decision = choice.Decision
	outstanding = g.gateway.Running(choice.PodID)
	g.gateway.Begin(choice.PodID)
	return choice.PodID, outstanding, nil
}

// ended stops counting a request that was routed to pod.
func (g *gateways) ended(pod int) { g.gateway.End(pod) }

// remember makes the index believe that pod has served the request.
func (g *gateways) remember(req *router.Request, pod int) { g.gateway.Remember(0, req, pod) }

// running is the in-flight count of pod, over all gateways.
func (g *gateways) running(pod int) int { return g.gateway.Running(pod) }

// counters are AIBrix's counters, summed over the gateways.
func (g *gateways) counters() []router.Counter { return g.gateway.Counters() }
