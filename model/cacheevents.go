package model

import "fleetsim/simtime"

// A CacheEvent is a change of what an engine caches, as vLLM publishes it for
// the attention layers (v1/core/block_pool.py): the blocks that one allocation
// registers are one event, each evicted block is one of its own, whether or not
// another block holds the same content.
type CacheEvent struct {
	// Seq is the sequence whose blocks First to First+Blocks-1 have been stored;
	// nil: the block with the hash Removed has been evicted, or with Cleared all
	// of them.
	Seq           *Seq
	First, Blocks int
	Removed       uint64
	Cleared       bool
}

// A CacheWatcher hears of an engine's cache events in their order. They are
// published at at, together with the results that the engine takes then, which
// is not before the call. The events are only valid during the call.
type CacheWatcher func(at simtime.Time, events []CacheEvent)

// cacheLog collects the events of an engine that is watched.
type cacheLog struct {
	watch  CacheWatcher
	group  int // of the attention layers
	events []CacheEvent
}

// WatchCache makes the replica publish its cache events to w from now on. What
// it holds already is not told.
func (r *Replica) WatchCache(w CacheWatcher) {
	r.engine.pool.log = &cacheLog{watch: w, group: r.engine.attention()}
}

func (l *cacheLog) stored(s *Seq, first, end int) {
	if l != nil {
		l.events = append(l.events, CacheEvent{Seq: s, First: first, Blocks: end - first})
	}
}

func (l *cacheLog) removed(group int, hash uint64) {
	if l != nil && group == l.group {
		l.events = append(l.events, CacheEvent{Removed: hash})
	}
}

// publish tells the watcher what has happened up to now, as soon as it is known
// when the engine next takes results: the events go out with those.
func (r *Replica) publish(now simtime.Time) {
	if l := r.engine.pool.log; l != nil && len(l.events) > 0 && !r.pending {
		r.tell(now, l)
	}
}

func (r *Replica) tell(now simtime.Time, l *cacheLog) {
	at := now
	if r.engine.flight.n > 0 {
		at = r.seen()
	}
	l.watch(at, l.events)
	l.events = l.events[:0]
}

// EachCached calls f with the hash of each attention block that is cached, once
// for each content, in an order that means nothing.
func (r *Replica) EachCached(f func(hash uint64)) {
	for hash := range r.engine.pool.cached[r.engine.attention()] {
		f(hash)
	}
}

// Caches reports whether the attention block with that hash is cached.
func (r *Replica) Caches(hash uint64) bool {
	return r.engine.pool.lookup(r.engine.attention(), hash) != nullBlock
}
