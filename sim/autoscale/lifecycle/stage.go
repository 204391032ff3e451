// Package lifecycle is what becomes of the replicas a deployment is asked for:
// each waits for a GPU, pulls its image, loads the model, compiles, is seen by
// the readiness probe, serves, and in the end holds its GPU until it is gone.
//
// A Deployment is a pure state machine standing for the Kubernetes Deployment
// controller, its ReplicaSets and the scheduler of a cluster where a replica
// takes one GPU. It is handed the time and says when it next has something to
// do; its only chance, the lengths of the stages, comes from the generator it is
// handed, always the same number of draws for a replica, at its creation. So
// the k-th replica takes equally long under every policy.
package lifecycle

import "fleetsim/sim/autoscale"

// A Stage is where a replica is in its life. Stages come in this order, but that
// a Ready replica may go to Crashed and back, and that any may be deleted.
type Stage uint8

const (
	// None is before creation; no replica is in it.
	None Stage = iota
	// Pending: there is no GPU for it.
	Pending
	// Scheduling: a GPU is set aside, the pod is not yet on its node.
	Scheduling
	// ImagePull: on its node; not running.
	ImagePull
	// ModelLoad: the container runs and reads the weights.
	ModelLoad
	// Compile: compilation, CUDA graphs, memory profiling.
	Compile
	// Readiness: it could serve; the probe has not seen it yet.
	Readiness
	// Ready: it is in the endpoint list.
	Ready
	// Crashed: its container is down; it holds its GPU.
	Crashed
	// Terminating: deleted, and holds its GPU until it is Gone.
	Terminating
	// Gone: it is no more.
	Gone
)

var stageNames = [...]string{
	"none", "pending", "scheduling", "image-pull", "model-load", "compile",
	"readiness", "ready", "crashed", "terminating", "gone",
}

func (s Stage) String() string { return stageNames[s] }

// MetricState is what an autoscaler learns of a replica in this stage. A
// terminating replica reports until its engine ends, which the caller knows.
func (s Stage) MetricState() autoscale.State {
	switch s {
	case ModelLoad, Compile, Crashed, Gone:
		return autoscale.Silent
	case Readiness, Ready, Terminating:
		return autoscale.Reported
	}
	return autoscale.NoAddress
}

// holdsGPU reports whether a replica in this stage takes a GPU.
func (s Stage) holdsGPU() bool { return s >= Scheduling && s < Gone }

// active reports whether the ReplicaSet counts the replica; a terminating one is
// replaced at once.
func (s Stage) active() bool { return s >= Pending && s <= Crashed }

// starting reports whether it has a GPU and does not serve yet.
func (s Stage) starting() bool { return s >= Scheduling && s <= Readiness }

// deletionClass orders stages for a scale-down as the ReplicaSet controller
// does: pods on no node first, then those not running, then not ready, then ready.
func (s Stage) deletionClass() int {
	switch s {
	case Pending, Scheduling:
		return 0
	case ImagePull:
		return 1
	case Ready:
		return 3
	}
	return 2
}
