package router

import (
	"fleetsim/simtime"
	"fleetsim/workload"
)

// An IndexScheme is how a prefix index cuts prompts into blocks and hashes them.
type IndexScheme struct {
	Seed  uint64
	Block int // length of a block in Unit
	Unit  workload.Unit
}

// An IndexAuditor is a policy whose prefix index can be compared with what the
// engines hold. Looking changes nothing in it but what the time has done.
type IndexAuditor interface {
	IndexScheme() IndexScheme
	// EachHolding calls f once for each pod that the index lists for each block of
	// any model, in an order that means nothing.
	EachHolding(now simtime.Time, f func(hash uint64, pod int))
	// Lists reports whether the index lists the pod for the model's block.
	Lists(model string, hash uint64, pod int) bool
}

// Auditor is the policy's index for comparison, nil without one. Of a weighted
// list it is that of the first strategy that has one.
func (g *Gateway) Auditor() IndexAuditor {
	if m, ok := g.policy.(*multiStrategy); ok {
		return m.auditor()
	}
	a, _ := g.policy.(IndexAuditor)
	return a
}
