package sim

import "fleetsim/simtime"

// kind is what an event does. At one instant events happen in the order of
// their kinds: what frees comes before what takes, an engine sees all that has
// arrived before a step of its ends, and whoever interferes with an engine or
// looks at it finds the step's results taken.
type kind uint8

const (
	evStreamEnd      kind = iota // the client has the end of a stream
	evAdmission                  // a wait in the admission proxies ends
	evLifecycle                  // a replica enters its next stage
	evEndpoint                   // the gateway hears of a changed endpoint
	evKVEvents                   // the gateways hear what an engine has stored and evicted
	evArrival                    // the client is due to send
	evRetry                      // the client sends again what was refused
	evRoute                      // the gateway picks a pod
	evForward                    // the gateway counts a request and sends it on
	evDeliver                    // the engine receives a request
	evStepEnd                    // an engine's oldest step ends
	evPrefillTimeout             // the gateway gives up a prefill
	evSilence                    // a client looks whether it has heard anything
	evCancel                     // a client gives up
	evFault                      // a fault of the scenario strikes
	evRecovery                   // a slow replica is fast again
	evTerminate                  // a deleted replica's SIGTERM
	evShutdown                   // the engine's shutdown timeout is over
	evKill                       // a deleted replica's SIGKILL
	evRollout                    // a rolling update begins
	evScrape                     // the autoscaler's metrics are read
	evPreScale                   // the minimum of replicas changes
	evReconcile                  // the autoscaler decides
	evSnapshot                   // the engines' gauges are read
)

// ofCluster reports whether events of the kind outlive the load: what has begun
// in the cluster goes on in the phase that continues it.
func (k kind) ofCluster() bool {
	switch k {
	case evLifecycle, evEndpoint, evKVEvents, evStepEnd, evRecovery, evTerminate, evShutdown, evKill:
		return true
	}
	return false
}

// An event is something that will happen.
type event struct {
	at   simtime.Time
	kind kind
	id   int // the order among equals: a request's, a replica's or a list's index
	req  *request
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	if e.kind != o.kind {
		return e.kind < o.kind
	}
	return e.id < o.id
}

// eventQueue is a 4-ary heap: shallower than a binary one, and a node's
// children lie side by side.
type eventQueue []event

func (q *eventQueue) push(e event) {
	*q = append(*q, e)
	h := *q
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

func (q *eventQueue) pop() event {
	h := *q
	top, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	*q = h
	if len(h) > 0 {
		h.sink(last)
	}
	return top
}

// sink puts e at the root and moves it down to its place.
func (q eventQueue) sink(e event) {
	i := 0
	for {
		child := 4*i + 1
		if child >= len(q) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(q)); c++ {
			if q[c].before(&q[least]) {
				least = c
			}
		}
		if !q[least].before(&e) {
			break
		}
		q[i] = q[least]
		i = least
	}
	q[i] = e
}
