// Package workload describes what clients send: prompts with their shared
// prefixes, arrivals over time, closed-loop lanes and tenants.
package workload

import "fleetsim/simtime"

// A Request is one planned arrival. It is immutable once sent; what happens to
// it is recorded elsewhere.
type Request struct {
	// Index is the arrival's place in the plan, from 0.
	Index int
	// At is when the arrival is due.
	At simtime.Time
	// Tenant names the sender; "" when the workload has one.
	Tenant string
	// Family is the number of the shared-prefix family, or -1 for a prompt that
	// shares nothing.
	Family int
	// Session identifies a conversation for session affinity; "" for none.
	Session string
	// Prompt is the input.
	Prompt Prompt
	// Answer is the identity of the content that the model generates, as a later
	// prompt of the conversation holds it; 0 for content like no other.
	Answer uint64
	// Output is the number of output tokens asked for, at least 1 (EOS is
	// ignored, as in both studies).
	Output int
}
