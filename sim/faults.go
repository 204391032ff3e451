package sim

import (
	"fmt"
	"math"

	"fleetsim/model"
	"fleetsim/sim/autoscale/lifecycle"
	"fleetsim/sim/scenario"
)

// planFaults puts the scenario's faults and its rolling update in the queue.
func (r *run) planFaults() {
	for i := range r.Scenario.Faults {
		r.schedule(r.begin+r.Scenario.Faults[i].At.Time, evFault, i)
	}
	if ro := r.Scenario.Rollout; ro.At.Time > 0 {
		r.schedule(r.begin+ro.At.Time, evRollout, 0)
	}
}

// fault lets a fault strike its replica, if there is one of that name.
func (r *run) fault(i int) {
	f := &r.Scenario.Faults[i]
	rep := r.victim(f.Replica)
	if rep == nil {
		r.notes = append(r.notes, fmt.Sprintf("faults[%d] (%s at %v) struck nothing: there was no replica %q then", i, f.Kind, f.At, f.Replica))
		return
	}
	replace := f.Replace == nil || *f.Replace
	switch f.Kind {
	case "delete":
		r.follow(r.deployment.Delete(r.now, rep.id, replace))
	case "crash":
		r.crash(rep, f, replace)
	case "node_loss":
		r.stop(rep, lost, hung)
		r.follow(r.deployment.Lose(r.now, rep.id, replace))
	case "slow":
		r.slowDown(rep, f)
	case "cache_reset":
		if !r.resetCache(rep) {
			r.notes = append(r.notes, fmt.Sprintf("the cache of %s was not reset at %v: blocks were in use, or the engine did not answer", rep.name, f.At))
		}
	}
}

// victim is the replica of that name that is not gone.
func (r *run) victim(name string) *replica {
	for _, rep := range r.replicas {
		if rep.name == name {
			if _, there := r.deployment.Replica(rep.id); there {
				return rep
			}
		}
	}
	return nil
}

// crash ends the replica's container. For a time, the container is restarted in
// its place and serves again, cold; for good, the pod is given up, and made up
// for if it is to be replaced. A container that is not running cannot crash.
func (r *run) crash(rep *replica, f *scenario.Fault, replace bool) {
	there, _ := r.deployment.Replica(rep.id)
	switch {
	case there.Stage == lifecycle.Terminating:
		r.exit(rep, cut)
	case there.Stage < lifecycle.ModelLoad:
		r.notes = append(r.notes, fmt.Sprintf("the crash of %s at %v struck nothing: its container was not running", rep.name, f.At))
	case f.Duration.Time > 0:
		r.stop(rep, down, cut)
		r.follow(r.deployment.Crash(r.now, rep.id, r.now+f.Duration.Time))
	default:
		r.stop(rep, down, cut)
		r.follow(r.deployment.Delete(r.now, rep.id, replace))
		r.follow(r.deployment.Finish(r.now, rep.id))
	}
}

// slowDown multiplies the replica's step times, for a time or for good. A later
// slowness takes the place of an earlier one.
func (r *run) slowDown(rep *replica, f *scenario.Fault) {
	r.setSpeed(rep, ratioOf(f.Factor))
	rep.slowUntil = 0
	if f.Duration.Time > 0 {
		rep.slowUntil = r.now + f.Duration.Time
		r.schedule(rep.slowUntil, evRecovery, rep.id)
	}
}

// speedUp ends a slowness, unless another has taken its place.
func (r *run) speedUp(rep *replica) {
	if rep.slowUntil == r.now {
		r.setSpeed(rep, model.Ratio{})
	}
}

func (r *run) setSpeed(rep *replica, speed model.Ratio) {
	rep.speed = speed
	if rep.answers() {
		rep.SyncGauges(r.now)
		rep.SetSpeed(r.now, speed)
		r.expect(rep)
	}
}

// ratioOf is the factor as a fraction of integers, to the millionth, so that
// slow steps are as exact as others.
func ratioOf(factor float64) model.Ratio {
	const parts = 1_000_000
	num := max(int64(math.Round(factor*parts)), 1)
	d := gcd(num, parts)
	return model.Ratio{Num: num / d, Den: parts / d}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
