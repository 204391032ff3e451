package sim

import (
	"fleetsim/sim/autoscale/lifecycle"
	"fleetsim/simtime"
)

// The control plane: what the deployment does to its replicas happens to their
// engines, and the gateway hears of it after the endpoint delay.

// An endpointChange is a replica that comes on or goes off the gateway's list.
type endpointChange struct {
	rep    *replica
	listed bool
}

// nextStage carries out what the deployment has due.
func (r *run) nextStage() {
	if r.expected == r.now {
		r.follow(r.deployment.Advance(r.now))
	}
}

// follow lets the changes of the deployment take effect.
func (r *run) follow(events []lifecycle.Event) {
	for _, e := range events {
		if e.From == lifecycle.None {
			r.newReplica(e.ID)
		}
		r.enter(r.replicas[e.ID], e)
	}
	if at, id := r.deployment.Next(); at != r.expected {
		if r.expected = at; at != simtime.Never {
			r.schedule(at, evLifecycle, id)
		}
	}
	if r.scaling != nil {
		r.scaling.record(r)
	}
}

// enter is a replica's change of stage.
func (r *run) enter(rep *replica, e lifecycle.Event) {
	switch e.To {
	case lifecycle.Readiness:
		rep.serve()
	case lifecycle.Ready:
		if e.From == lifecycle.Crashed {
			r.boot(rep)
		}
		rep.serve()
		r.list(rep, true)
	case lifecycle.Terminating:
		r.list(rep, false)
		r.planDrain(rep)
	case lifecycle.Crashed, lifecycle.Gone:
		r.list(rep, false)
	}
}

// serve opens the replica's port.
func (rep *replica) serve() { rep.state, rep.served = up, true }

// list tells the gateway that the replica is, or is not, an endpoint.
func (r *run) list(rep *replica, listed bool) {
	if rep.listed == listed {
		return
	}
	rep.listed = listed
	r.endpoints = append(r.endpoints, endpointChange{rep, listed})
	// Changes of one instant reach the gateway in their order.
	r.schedule(r.now+r.Scenario.Router.EndpointDelay.Time, evEndpoint, len(r.endpoints)-1)
}

// endpoint is the gateway hearing of a change.
func (r *run) endpoint(c endpointChange) {
	if c.listed {
		r.gateways.addPod(r.now, c.rep.id, c.rep.name, c.rep.role, c.rep.roleSet)
	} else {
		r.gateways.removePod(c.rep.id)
	}
}
