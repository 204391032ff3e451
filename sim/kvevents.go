package sim

import (
	"slices"

	"fleetsim/model"
	"fleetsim/router"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// Engines tell the gateways what they store and evict, if a policy listens. An
// engine publishes the events of its scheduling together with the results that it
// takes next; a gateway has them after the KV event delay, unless the pod has
// left its list by then.

// A kvMessage is what one engine published at one time.
type kvMessage struct {
	pod    int
	events []kvEvent
}

// A kvEvent is one of the three events.
type kvEvent struct {
	stored  *router.BlockStored
	removed *router.BlockRemoved // nil with stored nil: all blocks have been cleared
}

// kvEvents are the messages under way.
type kvEvents struct {
	sent     int // messages so far: each has a number, in the order of sending
	underWay map[int]kvMessage
}

// watchCache lets the replica's engine publish its events, if a policy listens.
func (r *run) watchCache(rep *replica) {
	if rep.watched || !r.gateways.hearKVEvents() {
		return
	}
	rep.watched = true
	block := rep.Limits().BlockTokens
	rep.WatchCache(func(at simtime.Time, events []model.CacheEvent) {
		m := kvMessage{pod: rep.id}
		for _, e := range events {
			m.events = append(m.events, kvEventOf(rep.id, block, e))
		}
		r.publish(at, m)
	})
}

// hearKVEvents reports whether any policy that is or has been in use listens.
func (g *gateways) hearKVEvents() bool {
	for _, gw := range g.processes[0].byPolicy {
		if gw.HearsKVEvents() {
			return true
		}
	}
	return false
}

// publish sends the message off at at.
func (r *run) publish(at simtime.Time, m kvMessage) {
	kv := &r.kvEvents
	if kv.underWay == nil {
		kv.underWay = make(map[int]kvMessage)
	}
	kv.underWay[kv.sent] = m
	r.schedule(at+r.Scenario.Router.KVEventDelay.Time, evKVEvents, kv.sent)
	kv.sent++
}

// kvEventOf is the event in the router's terms. It holds copies: the request goes
// on while the event is under way.
func kvEventOf(pod, block int, e model.CacheEvent) kvEvent {
	switch {
	case e.Cleared:
		return kvEvent{}
	case e.Seq == nil:
		return kvEvent{removed: &router.BlockRemoved{Pod: pod, Blocks: []uint64{e.Removed}}}
	}
	stored := &router.BlockStored{
		Pod:         pod,
		Blocks:      slices.Clone(e.Seq.Hashes[e.First : e.First+e.Blocks]),
		Prompt:      router.Symbolic(slices.Clone(contentOf(e.Seq))),
		Start:       e.First * block,
		BlockTokens: block,
	}
	if e.First > 0 {
		stored.Parent, stored.HasParent = e.Seq.Hashes[e.First-1], true
	}
	return kvEvent{stored: stored}
}

// contentOf is the sequence's prompt with its answer.
func contentOf(s *model.Seq) workload.Prompt { return s.Owner.(*request).prompt }

// hearKV is the arrival of a message at the gateways.
func (r *run) hearKV(number int) {
	m := r.kvEvents.underWay[number]
	delete(r.kvEvents.underWay, number)
	g := r.gateways
	if m.pod >= len(g.pods) || !g.pods[m.pod].listed {
		return
	}
	for _, p := range g.processes {
		for _, gw := range p.byPolicy {
			if gw.HearsKVEvents() {
				m.tell(r.now, gw)
			}
		}
	}
}

// tell hands the events to a gateway.
func (m *kvMessage) tell(now simtime.Time, gw *router.Gateway) {
	for _, e := range m.events {
		switch {
		case e.stored != nil:
			gw.BlockStored(now, e.stored)
		case e.removed != nil:
			gw.BlockRemoved(now, e.removed)
		default:
			gw.AllBlocksCleared(now, m.pod)
		}
	}
}

// resetCache is POST /reset_prefix_cache at the replica's engine, and reports
// whether it did anything.
func (r *run) resetCache(rep *replica) bool {
	if !rep.answers() {
		return false
	}
	rep.SyncGauges(r.now)
	return rep.ResetPrefixCache(r.now)
}
