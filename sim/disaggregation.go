package sim

import (
	"strconv"

	"fleetsim/router"
	"fleetsim/sim/autoscale/lifecycle"
	"fleetsim/simtime"
)

// Prefill/decode disaggregation. The gateway sends the prompt to a prefill pod,
// which computes it and one token that nobody wants, hands the KV over to the
// decode pod, and only then sends the request there, where its last prompt token
// is computed again and all of its answer. Until the prefill is over the request
// is not counted as in flight anywhere but in the policy's own counts.
//
// Approximated: the prefill pod's blocks are free as soon as the prefill ends,
// not when the KV has been fetched; transfers do not slow each other down; the
// decode pod makes room when the KV is there, not before.

// A leg is the part of its way that a disaggregated request is on.
type leg uint8

const (
	whole      leg = iota // it takes one engine for all
	prefilling            // from the choice to the end of the prefill
	decoding              // from there on
)

// prefillRecord is what remains of a request's prefill.
type prefillRecord struct {
	waited simtime.Time // in the prefill engine's queue
	cached int          // prompt tokens that its cache had
}

// disaggregation is what a phase's record says about it.
type disaggregation struct {
	Prefills    map[string]int `json:"prefills"` // by replica, those that were completed
	Timeouts    int            `json:"timeouts"` // prefills that took too long for the gateway
	Transferred int            `json:"transferred_tokens"`
}

// role is the role and role set of a replica that is being made: those of the
// scenario for the first ones, and then what lacks.
func (r *run) role(id int) (role, roleSet string) {
	pd := r.Scenario.Cluster.PD
	if pd == nil {
		return "", ""
	}
	prefills := pd.Prefill
	decodes := r.Scenario.Cluster.Replicas - prefills
	if id < prefills {
		return router.RolePrefill, setName(id % pd.RoleSets)
	}
	if id < prefills+decodes {
		return router.RoleDecode, setName((id - prefills) % pd.RoleSets)
	}
	return r.lackingRole(decodes)
}

// lackingRole is the role of the first replica in order that is not there any
// more and that no later one has taken the place of.
func (r *run) lackingRole(decodes int) (role, roleSet string) {
	pd := r.Scenario.Cluster.PD
	missing := func(role string, want, set int) bool {
		for _, rep := range r.replicas {
			there, ok := r.deployment.Replica(rep.id)
			if ok && there.Stage != lifecycle.Terminating && rep.role == role && rep.roleSet == setName(set) {
				want--
			}
		}
		return want > 0
	}
	for set := range pd.RoleSets {
		if missing(router.RolePrefill, dealt(pd.Prefill, pd.RoleSets, set), set) {
			return router.RolePrefill, setName(set)
		}
	}
	for set := range pd.RoleSets {
		if missing(router.RoleDecode, dealt(decodes, pd.RoleSets, set), set) {
			return router.RoleDecode, setName(set)
		}
	}
	return router.RoleDecode, setName(0)
}

// dealt is how many of n things the i-th of so many gets when they are dealt out
// in turn.
func dealt(n, among, i int) int { return (n - i + among - 1) / among }

func setName(i int) string { return "roleset-" + strconv.Itoa(i) }

// prefill sends the request to its prefill pod.
func (r *run) prefill(q *request) {
	q.leg = prefilling
	q.replica = r.replicas[q.routing.choice.PrefillID]
	r.push(r.now+r.gateways.prefillTimeout, evPrefillTimeout, q)
	if q.replica.state == lost {
		return // until the gateway's patience ends
	}
	r.deliver(q)
	if q.inEngine {
		q.status = 0 // the client has no answer yet
	}
}

// prefilled takes the result of a prefill, and reports false for any other
// request that an engine has completed.
func (r *run) prefilled(q *request) bool {
	if q.leg != prefilling {
		return false
	}
	q.leg = decoding
	q.prefill = prefillRecord{waited: q.seq.Scheduled - q.seq.Queued, cached: q.seq.Cached}
	q.seq.Outputs, q.seq.First, q.seq.Shown, q.seq.Scheduled = 0, simtime.Never, simtime.Never, simtime.Never
	r.pd.Prefills[q.replica.name]++
	r.pd.Transferred += q.seq.Prompt
	rt := &q.routing
	rt.gateway.PrefillFinished(r.now, &rt.asked, rt.choice)
	r.gateways.begin(r.now, q)
	q.replica = r.replicas[rt.choice.PodID]
	pd := r.Scenario.Cluster.PD
	r.push(r.now+pd.TransferLatency.Time+simtime.Time(q.seq.Prompt)*pd.TransferPerToken.Time, evDeliver, q)
	return true
}

// prefillTimesOut is the gateway giving up a prefill, if it has no result yet.
func (r *run) prefillTimesOut(q *request) {
	if q.leg != prefilling || q.err != "" {
		return
	}
	r.pd.Timeouts++
	if q.inEngine {
		r.abort(q)
	}
	r.answer(q, 503, errPrefill)
}

// prefillLost is the end of the engine that ran the request's prefill. The
// gateway knows of a broken connection at once.
func (r *run) prefillLost(q *request, f fate) {
	if f == cut {
		r.answer(q, 503, errPrefill)
	}
}

// waited is how long the request has waited in its engines' queues before they
// began with it.
func (q *request) waited() simtime.Time {
	return q.prefill.waited + q.seq.Scheduled - q.seq.Queued
}

// cached is how many of the prompt's tokens were in the cache of the engine that
// computed it.
func (q *request) cached() int {
	if q.leg == decoding {
		return q.prefill.cached
	}
	return q.seq.Cached
}

// wanted is how many tokens the engine that the request is sent to is to
// generate.
func (q *request) wanted() int {
	if q.leg == prefilling {
		return 1
	}
	return q.Output
}

// received is how many prompt tokens' KV come with the request.
func (q *request) received() int {
	if q.leg == decoding {
		return q.seq.Prompt
	}
	return 0
}
