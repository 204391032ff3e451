package router

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"fleetsim/simtime"
	"fleetsim/workload"
)

func init() {
	registerSLO("slo", leastLoadPulling)
	registerSLO("slo-least-load-pulling", leastLoadPulling)
	registerSLO("slo-least-load", leastLoad)
	registerSLO("slo-pack-load", packLoad)
}

// sloPolicy places requests by the load that GPU profiles foretell. Each request
// takes a share of a pod's capacity, 1/(rate*latency) of its profile at the
// request's input length and predicted output length; a pod's utilisation is the
// sum over its requests.
//
// Pods are tried profile by profile, the one that leaves the SLO the most slack
// first, and a further one only as long as it is expected to keep the SLO. When
// no profile covers a pod, or one has no SLO, the choice is least-request's.
//
// Approximated: the original holds a request that fits nowhere in a queue in the
// gateway, grouped by length and ordered by slack. Here such a request goes at
// once to the least utilised pod of the first profile and waits in its engine.
type sloPolicy struct {
	profiles  []GPUProfile
	pick      sloPick
	fallback  leastRequest
	predictor outputPredictor
	pods      map[int]*sloPod
	groups    []sloGroup // scratch
}

// A sloPod is what the policy has charged to a pod.
type sloPod struct {
	utilization float64
	requests    int // that have a load
}

// A sloGroup is the pods with one profile.
type sloGroup struct {
	late float64 // seconds by which the request is expected to miss its SLO
	load float64 // share of a pod that it takes
	pods []int
}

// A sloPick picks among pods by their utilisation and the request's load.
type sloPick func(utilization func(i int) float64, load float64, pods []int) (chosen int, ok bool)

// sloCapacity is the utilisation that a pod is filled up to.
const sloCapacity = 1.0

func registerSLO(name string, pick sloPick) {
	Register(name, func(_ Settings, o Options) (Policy, error) {
		return &sloPolicy{profiles: slices.Clone(o.Profiles), pick: pick, pods: make(map[int]*sloPod)}, nil
	})
}

// leastLoadPulling picks the lowest utilisation that still has room, the last of
// equals.
func leastLoadPulling(utilization func(int) float64, load float64, pods []int) (chosen int, ok bool) {
	least := sloCapacity
	for _, i := range pods {
		if u := utilization(i) + load; u <= least {
			least, chosen, ok = u, i, true
		}
	}
	return chosen, ok
}

// leastLoad picks the lowest utilisation, room or not, the last of equals.
func leastLoad(utilization func(int) float64, _ float64, pods []int) (chosen int, ok bool) {
	least := math.Inf(1)
	for _, i := range pods {
		if u := utilization(i); u <= least {
			least, chosen, ok = u, i, true
		}
	}
	return chosen, ok
}

// packLoad picks the highest utilisation that still has room, the first of
// equals.
func packLoad(utilization func(int) float64, load float64, pods []int) (chosen int, ok bool) {
	most := 0.0
	for _, i := range pods {
		if u := utilization(i) + load; u <= sloCapacity && u > most {
			most, chosen, ok = u, i, true
		}
	}
	return chosen, ok
}

// OrderSensitive is true: the place in the list breaks ties.
func (p *sloPolicy) OrderSensitive() bool { return true }

func (p *sloPolicy) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	if !p.group(now, req, pods, rng) {
		return p.fallback.Route(now, req, pods, rng)
	}
	utilization := func(i int) float64 {
		if pod := p.pods[pods[i].ID]; pod != nil {
			return pod.utilization
		}
		return 0
	}
	waited := (now - req.Arrived).Seconds()
	for n, g := range p.groups {
		if n > 0 && waited+g.late > 0 {
			break
		}
		if i, ok := p.pick(utilization, g.load, g.pods); ok {
			return p.charge(pods, i, g.load), nil
		}
	}
	g := p.groups[0]
	i, _ := leastLoad(utilization, g.load, g.pods)
	return p.charge(pods, i, g.load), nil
}

// group sets p.groups to the profiles that have pods, with the most slack first;
// it reports false when the profiles cannot serve the request.
func (p *sloPolicy) group(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) bool {
	p.groups = p.groups[:0]
	if len(p.profiles) == 0 {
		return false
	}
	input := promptTokens(req)
	output := p.predictor.predict(now, input, rng)
	for n := range p.profiles {
		profile := &p.profiles[n]
		members := p.members(n, pods)
		if len(members) == 0 {
			continue
		}
		s := profile.signature(float64(output), float64(input))
		late, ok := profile.slack(s, float64(output), float64(input))
		if !ok {
			return false
		}
		p.groups = append(p.groups, sloGroup{late, profile.load(s), members})
	}
	slices.SortStableFunc(p.groups, func(a, b sloGroup) int { return cmp.Compare(a.late, b.late) })
	return len(p.groups) > 0
}

// members are the pods whose first matching profile is the n-th.
func (p *sloPolicy) members(n int, pods []Pod) (members []int) {
	for i := range pods {
		first := slices.IndexFunc(p.profiles, func(g GPUProfile) bool { return g.covers(pods[i].Name) })
		if first == n {
			members = append(members, i)
		}
	}
	return members
}

func (p *sloPolicy) charge(pods []Pod, i int, load float64) Decision {
	if load > 0 {
		pod := p.pods[pods[i].ID]
		if pod == nil {
			pod = &sloPod{}
			p.pods[pods[i].ID] = pod
		}
		pod.utilization += load
		pod.requests++
	}
	return Decision{Pod: i, Load: load}
}

// Finished gives back the request's load and learns its output length.
func (p *sloPolicy) Finished(now simtime.Time, req *Request, c Choice, outputTokens int) {
	p.predictor.add(now, promptTokens(req), outputTokens)
	if c.Load == 0 {
		return // nothing was charged
	}
	pod := p.pods[c.PodID]
	pod.requests--
	pod.utilization -= c.Load
	if pod.requests == 0 {
		pod.utilization = 0 // what rounding has left
	}
}

func promptTokens(req *Request) int {
	if req.Prompt == nil {
		return 0
	}
	return req.Prompt.Len(workload.Tokens)
}

// ReadsMetrics is false: the slo policies go by their own ledger.
func (*sloPolicy) ReadsMetrics() bool { return false }
