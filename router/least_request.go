package router

import (
	"math/rand/v2"

	"fleetsim/simtime"
)

func init() {
	Register("least-request", func(Settings, Options) (Policy, error) { return &leastRequest{}, nil })
}

// leastRequest takes a pod with the fewest requests in flight, drawing among
// equals.
type leastRequest struct {
	least []int // scratch
}

func (p *leastRequest) Route(_ simtime.Time, _ *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	p.least = appendLeastRunning(p.least[:0], pods)
	return Decision{Pod: draw(rng, p.least)}, nil
}

func (*leastRequest) routeFleet(_ simtime.Time, _ *Request, f *fleet, rng *rand.Rand) (Decision, error) {
	return Decision{Pod: f.drawLeast(rng)}, nil
}

// Score gives the in-flight counts; fewer is better.
func (p *leastRequest) Score(_ simtime.Time, _ *Request, pods []Pod, _ *rand.Rand, scores []float64) {
	for i := range pods {
		scores[i] = float64(pods[i].Running)
	}
}

func (p *leastRequest) LowerIsBetter() bool { return true }

// appendLeastRunning appends the indices of the pods with the lowest count.
func appendLeastRunning(dst []int, pods []Pod) []int {
	least := pods[0].Running
	for i := range pods {
		least = min(least, pods[i].Running)
	}
	for i := range pods {
		if pods[i].Running == least {
			dst = append(dst, i)
		}
	}
	return dst
}

// ReadsMetrics is false: least-request goes by the gateway's own counts.
func (*leastRequest) ReadsMetrics() bool { return false }
