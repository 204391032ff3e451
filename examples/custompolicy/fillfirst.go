package main

import (
	"math/rand/v2"

	"fleetsim/router"
	"fleetsim/simtime"
)

func init() {
	router.Register("fill-first", func(router.Settings, router.Options) (router.Policy, error) {
		return &fillFirst{seats: 8}, nil
	})
}

// fillFirst fills one pod after the other up to a number of requests in flight,
// so that the last pods stay idle when there is little to do and an autoscaler
// could take them away. When all are full it takes the least busy.
type fillFirst struct {
	seats int // requests that a pod runs at once
}

// Route takes the busiest pod that has a seat left, the one with the lowest number
// of equals.
func (p *fillFirst) Route(_ simtime.Time, _ *router.Request, pods []router.Pod, _ *rand.Rand) (router.Decision, error) {
	best := 0
	for i := range pods {
		if p.before(&pods[i], &pods[best]) {
			best = i
		}
	}
	return router.Decision{Pod: best}, nil
}

func (p *fillFirst) before(a, b *router.Pod) bool {
	switch free, other := a.Running < p.seats, b.Running < p.seats; {
	case free != other:
		return free
	case a.Running == b.Running:
		return a.ID < b.ID
	case free:
		return a.Running > b.Running
	default:
		return a.Running < b.Running
	}
}

// ReadsMetrics is false, which saves the simulator reading the engines for it.
func (p *fillFirst) ReadsMetrics() bool { return false }
