package router

import (
	"math/rand/v2"

	"fleetsim/simtime"
)

func init() {
	Register("session-affinity", func(Settings, Options) (Policy, error) {
		return &sessionAffinity{pods: make(map[string]int)}, nil
	})
}

// sessionAffinity sends a session to the pod that it was last sent to, and to any
// pod with the same chance when it is new or that pod is gone.
//
// In the original the client holds the state: every response carries an
// x-session-id header with the pod's address, which the client sends back. Here
// Request.Session names the conversation and the policy keeps, for each, the
// header that its client has; so a second request that is sent before the first
// one's response already follows it.
type sessionAffinity struct {
	pods map[string]int // by session
}

func (p *sessionAffinity) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	chosen := p.last(req, pods)
	if chosen < 0 {
		chosen = rng.IntN(len(pods))
	}
	p.Routed(now, req, pods, chosen)
	return Decision{Pod: chosen}, nil
}

// last is the index of the pod that the session was last sent to, or -1.
func (p *sessionAffinity) last(req *Request, pods []Pod) int {
	id, known := p.pods[req.Session]
	if !known {
		return -1
	}
	for i := range pods {
		if pods[i].ID == id {
			return i
		}
	}
	return -1
}

// Score gives 1 to the session's pod and 0 to the others.
func (p *sessionAffinity) Score(_ simtime.Time, req *Request, pods []Pod, _ *rand.Rand, scores []float64) {
	clear(scores)
	if i := p.last(req, pods); i >= 0 {
		scores[i] = 1
	}
}

// LowerIsBetter is false: 1 marks the session's pod.
func (p *sessionAffinity) LowerIsBetter() bool { return false }

// Routed notes where the session went.
func (p *sessionAffinity) Routed(_ simtime.Time, req *Request, pods []Pod, chosen int) {
	if req.Session != "" {
		p.pods[req.Session] = pods[chosen].ID
	}
}

// ReadsMetrics is false.
func (*sessionAffinity) ReadsMetrics() bool { return false }
