package sim

import (
	"math/rand/v2"

	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/simtime"
)

// gateways is the routing layer as the event loop sees it: one gateway process,
// which keeps the state of every policy that has been used.
type gateways struct {
	gateway  *router.Gateway // of the policy in use
	byPolicy map[string]*router.Gateway
	pods     []podEntry // by pod number
	rng      *rand.Rand
}

// A podEntry is a replica that the gateway has heard of.
type podEntry struct {
	name   string
	listed bool
}

// newGateways builds the routing layer, without a pod.
func newGateways(s Setup) (*gateways, error) {
	g := &gateways{byPolicy: map[string]*router.Gateway{}, rng: random.Stream(s.Seed, "routing")}
	return g, g.use(s)
}

// use routes by the setup's policy from now on. A policy that was used before
// goes on with the state it had: the prefix index of prefix-cache, for one,
// which other policies neither read nor write. Nothing may be in flight.
func (g *gateways) use(s Setup) error {
	next, known := g.byPolicy[s.Policy]
	if !known {
		settings, err := router.ParseSettings(s.Scenario.Router.Env)
		if err != nil {
			return err
		}
		policy, err := router.New(s.Policy, settings, router.Options{})
		if err != nil {
			return err
		}
		next = router.NewGateway(policy, g.rng)
		g.byPolicy[s.Policy] = next
	}
	g.gateway = next
	for id, pod := range g.pods {
		if pod.listed {
			next.AddPod(id, pod.name, "", "")
		} else {
			next.RemovePod(id)
		}
	}
	return nil
}

// addPod makes pod id routable.
func (g *gateways) addPod(id int, name string) {
	for len(g.pods) <= id {
		g.pods = append(g.pods, podEntry{})
	}
	g.pods[id] = podEntry{name, true}
	g.gateway.AddPod(id, name, "", "")
}

// removePod takes pod id off the routable list.
func (g *gateways) removePod(id int) {
	if id < len(g.pods) {
		g.pods[id].listed = false
		g.gateway.RemovePod(id)
	}
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
