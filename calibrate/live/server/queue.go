package server

import (
	"container/heap"

	"fleetsim/simtime"
)

// kind is what an event does. At one instant events happen in the order of
// their kinds, as in package sim: what frees comes before what takes.
type kind uint8

const (
	evDeliver kind = iota // tokens, and ends of streams, reach the clients
	evRoute               // the gateway picks a pod
	evStepEnd             // an engine's oldest step ends
)

type event struct {
	at        simtime.Time
	kind      kind
	id        int64 // the order among equals
	order     int64 // the order among an engine's deliveries: two steps can end at one instant
	call      *Call
	pod       *pod
	delivered []delivery
}

// A delivery is news for one call.
type delivery struct {
	call   *Call
	tokens int
	finish string // finish reason; "" while the answer goes on
	err    *Error // instead of an answer
}

// queue is the events to come.
type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	a, b := &q[i], &q[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	if a.id != b.id {
		return a.id < b.id
	}
	return a.order < b.order
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return last
}

func (q *queue) push(e event) { heap.Push(q, e) }
func (q *queue) pop() event   { return heap.Pop(q).(event) }
