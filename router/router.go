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
}

// A Policy picks a pod for a request.
type Policy interface {
	// Route picks one of pods, which holds at least two, and updates the policy's
	// own state as the original does at selection time.
	Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error)
}

// ErrNoPod is returned when no pod is routable; the gateway answers 503.
var ErrNoPod = errors.New("router: no routable pod")
