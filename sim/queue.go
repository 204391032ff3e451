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
	at    simtime.Time
	order uint64   // among those of one instant: by kind, and then by id
	req   *request // nil: it is no request's
}

// idBits are those of an event's order that hold its id: a request's, a replica's or
// a list's index.
const idBits = 56

func newEvent(at simtime.Time, k kind, id int, req *request) event {
	return event{at: at, order: uint64(k)<<idBits | uint64(id), req: req}
}

func (e *event) kind() kind { return kind(e.order >> idBits) }

func (e *event) id() int { return int(e.order & (1<<idBits - 1)) }

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
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

// stepEnds is when the next step of each replica ends, as a tournament: a binary
// tree whose leaves are the replicas and whose every other node is the earlier of
// its two children, the left one of equals. A replica's time changes at every step,
// often to an earlier one, which a heap would leave the old event for.
type stepEnds struct {
	nodes  []stepEndOf // nodes[1] is the root, the second half the leaves
	leaves int         // a power of two
}

type stepEndOf struct {
	at      simtime.Time // Never: no step is under way
	replica int
}

// newStepEnds has room for replicas 0 to n-1, at least one, and more later.
func newStepEnds(n int) stepEnds {
	s := stepEnds{leaves: 1}
	for s.leaves < n {
		s.leaves *= 2
	}
	s.nodes = make([]stepEndOf, 2*s.leaves)
	for i := range s.nodes {
		s.nodes[i] = stepEndOf{at: simtime.Never, replica: max(i-s.leaves, 0)}
	}
	return s
}

// first is the earliest; at Never it is of no replica.
func (s *stepEnds) first() stepEndOf { return s.nodes[1] }

// set makes at the end of the replica's next step.
func (s *stepEnds) set(replica int, at simtime.Time) {
	if replica >= s.leaves {
		s.grow(replica + 1)
	}
	i := s.leaves + replica
	s.nodes[i].at = at
	for i > 1 {
		i /= 2
		winner := s.nodes[2*i]
		if right := s.nodes[2*i+1]; right.at < winner.at {
			winner = right
		}
		if s.nodes[i] == winner {
			return // and so everywhere above
		}
		s.nodes[i] = winner
	}
}

// grow makes room for n replicas.
func (s *stepEnds) grow(n int) {
	old := s.nodes[s.leaves:]
	*s = newStepEnds(n)
	for _, end := range old {
		s.set(end.replica, end.at)
	}
}
