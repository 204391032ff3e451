package sim

import (
	"fleetsim/model"
	"fleetsim/simtime"
)

// How a deleted replica ends: the preStop hook runs while the engine serves on;
// then comes SIGTERM, at which the engine drains or aborts; what is left is
// killed when the shutdown timeout or the grace period is over. The replica is
// gone, and its GPU free, when its engine has exited.

// planDrain puts SIGTERM and SIGKILL of a replica deleted now in the queue. The
// grace period includes the preStop hook.
func (r *run) planDrain(rep *replica) {
	d := &r.Scenario.Drain
	r.schedule(r.now+min(d.PreStop.Time, d.GracePeriod.Time), evTerminate, rep.id)
	r.schedule(r.now+d.GracePeriod.Time, evKill, rep.id)
}

// terminate is SIGTERM: with a shutdown timeout the engine takes nothing new
// and drains; without, it aborts what it has and exits.
func (r *run) terminate(rep *replica) {
	timeout := r.Scenario.Drain.ShutdownTimeout.Time
	if rep.state != up || timeout == 0 {
		r.exit(rep, hung)
		return
	}
	rep.state = closing
	r.schedule(r.now+timeout, evShutdown, rep.id)
	r.exitIfDrained(rep)
}

// exitIfDrained ends an engine that drains and has nothing left.
func (r *run) exitIfDrained(rep *replica) {
	if rep.state == closing && rep.active == 0 {
		r.exit(rep, cut)
	}
}

// A fate is what becomes of the streams of an engine that ends.
type fate uint8

const (
	// cut: the connections break, and the clients know it.
	cut fate = iota
	// hung: the clients hear nothing any more, and are not told.
	hung
)

// exit ends the engine of a terminating replica and with it the replica, which
// may have ended before.
func (r *run) exit(rep *replica, f fate) {
	r.stop(rep, down, f)
	r.follow(r.deployment.Finish(r.now, rep.id))
}

// stop ends the engine; its streams share a fate.
func (r *run) stop(rep *replica, to engineState, f fate) {
	if rep.answers() {
		rep.Sync(r.now)
		rep.Unfinished(func(s *model.Seq) { r.orphan(s.Owner.(*request), f) })
	}
	rep.state, rep.active = to, 0
	r.ends.set(rep.id, simtime.Never)
}

// orphan is a request whose engine has ended.
func (r *run) orphan(q *request, f fate) {
	q.inEngine = false
	if q.leg == prefilling {
		r.prefillLost(q, f)
	} else if f == cut {
		r.answer(q, q.status, errStreamCut)
	} else {
		r.hang(q, q.status, errStreamCut)
	}
}
