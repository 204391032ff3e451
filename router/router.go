// Package router holds the routing policies of an AIBrix v0.7.0 gateway and the
// state they keep: the prefix index, in-flight counts, token windows.
//
// A policy is a pure state machine: it is told the time, a request and the
// routable pods with their counts, and answers with a pod. It does no I/O,
// reads no clock and draws chance only from the generator it is handed, so a
// run is reproducible and a decision can be compared with the original's.
//
// Two ledgers are kept apart: what the router believes (this package) and what
// an engine holds (package model).
package router

import (
	"errors"
	"math/rand/v2"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// A Prompt is what a gateway can know of an input. workload.Prompt and Text
// implement it.
type Prompt interface {
	// Len is the length in unit u.
	Len(u workload.Unit) int
	// AppendHashes appends the chained hashes of the full blocks of length block.
	AppendHashes(dst []uint64, seed uint64, block int, u workload.Unit) []uint64
}

// A Request is what the router sees of one request.
type Request struct {
	Prompt  Prompt
	Model   string // "" for the cluster's only model
	User    string // the `user` header; "" when absent
	Session string // the `x-session-id` header; "" when absent
	// Arrived is when the request reached the gateway. power-of-two counts by the
	// hour in which that was, and slo policies rank by the time since.
	Arrived simtime.Time
}

// A Pod is one routable replica as the gateway knows it.
type Pod struct {
	// ID is the replica's number; it never changes and is never reused.
	ID   int
	Name string
	// Running is the gateway's in-flight count: requests routed to the pod whose
	// stream has not ended.
	Running int
	// Metrics are the engine metrics that have last arrived.
	Metrics Metrics
	// Role and RoleSet are the pod's labels for prefill/decode disaggregation.
	Role, RoleSet string
}

// A Decision is a policy's answer.
type Decision struct {
	// Pod is the index in the list that the policy was handed.
	Pod int
	// MatchPercent is how much of the prompt the index believed to be on the
	// chosen pod, 0 to 100; it says nothing about the engine's cache.
	MatchPercent int
	// Selection is the metric label of a prefix-cache decision; "" elsewhere.
	Selection string
	// Imbalanced reports that the load-imbalance rule narrowed the candidates.
	Imbalanced bool
	// Disaggregated reports that another pod runs the prefill, and Prefill is
	// that pod's index in the list; Prefill means nothing otherwise.
	Disaggregated bool
	Prefill       int
	// Load is what a policy that keeps a ledger of its own has charged the pod
	// for the request, in its own unit; Tracker gives it back.
	Load float64
}

// A Policy picks a pod for a request.
type Policy interface {
	// Route picks one of pods, which holds at least two, and updates the policy's
	// own state as the original does at selection time.
	Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error)
}

// OrderSensitive is implemented by a policy whose answer depends on the order
// of the list, such as "the first of equals". The gateway shuffles the list
// before it asks such a policy, as AIBrix does before each.
type OrderSensitive interface {
	OrderSensitive() bool
}

// A Tracker is a policy that hears how requests went on.
type Tracker interface {
	// Finished reports that the stream of a request that the policy routed as c
	// says has ended, whatever its outcome, after outputTokens tokens.
	Finished(now simtime.Time, req *Request, c Choice, outputTokens int)
}

// A PrefillTracker is a policy that hears of the end of a prefill which it gave
// to a pod of its own. The original counts a request as in flight on its decode
// pod only then, so the caller's Begin belongs there, too.
type PrefillTracker interface {
	PrefillFinished(now simtime.Time, req *Request, c Choice)
}

// A PodWatcher is a policy that hears of pods leaving the routable list.
type PodWatcher interface {
	PodRemoved(pod int)
}

// A Rememberer is a policy with a prefix index that can be told of a prompt
// without routing it: the state in which a run starts.
type Rememberer interface {
	Remember(now simtime.Time, req *Request, pod int)
}

// An IndexHolder is a policy with a prefix index.
type IndexHolder interface {
	IndexStats(now simtime.Time) IndexStats
}

// IndexStats describes a prefix index.
type IndexStats struct {
	Entries int   // blocks held
	Bytes   int64 // estimate of the memory that the original takes for them
	Evicted int64 // blocks dropped for capacity so far
	Expired int64 // blocks dropped for age so far
}

// ErrNoPod is returned when no pod is routable; the gateway answers 503.
var ErrNoPod = errors.New("router: no routable pod")
