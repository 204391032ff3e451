package router

import (
	"math/bits"
	"slices"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// A syncIndex is the prefix index of AIBrix's KV-event-sync branch. The router's
// own adds and the engines' events both feed it. It keeps a table for each model
// (the original for each model and LoRA adapter), which is dropped whole when
// neither a match nor an add has touched it for longer than the time to live.
//
// Its match does not narrow: a pod that lacks an early block but has a later one
// is credited with the later one's percentage. The surprises of v0.7.0 in how it
// takes events are reproduced unless their switch in fixed is on.
//
// AIBRIX_SYNC_MAX_CONTEXTS has no part here: a surplus of models only brings the
// original's next look for idle ones forward.
type syncIndex struct {
	settings SyncSettings
	seed     uint64
	fixed    map[string]bool
	contexts map[string]*syncContext
	swept    simtime.Time // the last sweep that has run
	expired  int64
	removed  []uint64 // scratch
	path     []podSet // scratch: the holders of a prompt's blocks
	left     slotSet  // scratch
	unused   []podSet // sets to use again
}

// A syncContext is the index of one model.
type syncContext struct {
	holders map[uint64]podSet // by own hash
	// counted is what the cap on adds is compared with. BlockRemoved lowers it
	// even for a block that is gone already, as in the original.
	counted int
	own     map[uint64]uint64 // engine's block name -> own hash
	touched simtime.Time      // the last match or add
}

// A podSet holds pods by number: bit b of word w is pod 64*w+b.
type podSet []uint64

func (s podSet) has(pod int) bool {
	return pod/64 < len(s) && s[pod/64]&(1<<(pod%64)) != 0
}

// word is the w-th word, 0 beyond the last.
func (s podSet) word(w uint32) uint64 {
	if int(w) < len(s) {
		return s[w]
	}
	return 0
}

// hasAny reports whether one of a roster's pods is in the set.
func (s podSet) hasAny(words []uint32, pods slotSet) bool {
	for w, word := range words {
		if s.word(word)&pods[w] != 0 {
			return true
		}
	}
	return false
}

func (s podSet) with(pod int) podSet {
	for len(s) <= pod/64 {
		s = append(s, 0)
	}
	s[pod/64] |= 1 << (pod % 64)
	return s
}

// without takes a pod out and reports whether another is left.
func (s podSet) without(pod int) (left bool) {
	if pod/64 < len(s) {
		s[pod/64] &^= 1 << (pod % 64)
	}
	return slices.ContainsFunc(s, func(word uint64) bool { return word != 0 })
}

// size is the number of pods.
func (s podSet) size() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

func newSyncIndex(s Settings) *syncIndex {
	return &syncIndex{
		settings: s.Sync, seed: s.Prefix.HashSeed, fixed: s.UpstreamFixed,
		contexts: make(map[string]*syncContext),
	}
}

// match walks as long as any of the pods has a block; each counts for the last
// that it has.
func (x *syncIndex) match(now simtime.Time, model string, p *promptBlocks, r *roster, among slotSet, m *matches) {
	x.sweep(now)
	m.reset(r, p.blocks)
	c := x.contexts[model]
	if c == nil {
		return
	}
	c.touched = now
	x.path = x.path[:0]
	for _, h := range p.hashes {
		holders := c.holders[h]
		if !holders.hasAny(r.words, among) {
			break
		}
		x.path = append(x.path, holders)
	}
	x.left = append(x.left[:0], among...)
	for depth := len(x.path); depth > 0; depth-- {
		for w, word := range r.words {
			if found := x.path[depth-1].word(word) & x.left[w]; found != 0 {
				m.add(depth, w, found)
				x.left[w] &^= found
			}
		}
	}
	m.reverse()
}

// add notes that the router sent the blocks to pod. At the cap it stops, even
// before a block that is already held.
func (x *syncIndex) add(now simtime.Time, model string, p *promptBlocks, pod int) {
	x.sweep(now)
	c := x.context(now, model)
	c.touched = now
	for _, h := range p.hashes {
		if c.counted >= x.settings.MaxPrefixes {
			return
		}
		x.hold(c, h, pod)
	}
}

func (x *syncIndex) context(now simtime.Time, model string) *syncContext {
	c := x.contexts[model]
	if c == nil {
		c = &syncContext{holders: make(map[uint64]podSet), own: make(map[uint64]uint64), touched: now}
		x.contexts[model] = c
	}
	return c
}

func (x *syncIndex) hold(c *syncContext, hash uint64, pod int) {
	set, known := c.holders[hash]
	if !known {
		c.counted++
		if n := len(x.unused); n > 0 {
			set, x.unused = x.unused[n-1], x.unused[:n-1]
		}
	}
	c.holders[hash] = set.with(pod)
}

// release drops a block for every pod.
func (x *syncIndex) release(c *syncContext, hash uint64) {
	if set, known := c.holders[hash]; known {
		delete(c.holders, hash)
		x.unused = append(x.unused, set[:0])
	}
}

// stored takes an engine's event. A block with a known name only gains the pod.
// In v0.7.0 every other block is hashed under the event's one parent, so that of
// several new blocks only the first can match a prompt. The cap is not looked at.
func (x *syncIndex) stored(now simtime.Time, e *BlockStored) {
	x.sweep(now)
	if len(e.Blocks) == 0 {
		return
	}
	c := x.context(now, e.Model)
	parent := x.seed
	if e.HasParent {
		if own, known := c.own[e.Parent]; known {
			parent = own
		}
	}
	for i, name := range e.Blocks {
		own, known := c.own[name]
		if !known {
			own = e.Prompt.HashBlock(x.seed, parent, e.Start+i*e.BlockTokens, e.BlockTokens, workload.Tokens)
			c.own[name] = own
		}
		x.hold(c, own, e.Pod)
		if x.fixed[FixSyncChain] {
			parent = own
		}
	}
}

// blocksRemoved takes an engine's event. In v0.7.0 the blocks are dropped for every
// pod of the model, whichever pod the event came from.
func (x *syncIndex) blocksRemoved(now simtime.Time, e *BlockRemoved) {
	x.sweep(now)
	c := x.contexts[e.Model]
	if c == nil {
		return
	}
	if x.fixed[FixBlockRemoved] {
		x.removeFrom(c, e)
		return
	}
	x.removed = x.removed[:0]
	for _, name := range e.Blocks {
		if own, known := c.own[name]; known {
			delete(c.own, name)
			x.removed = append(x.removed, own)
		}
	}
	slices.Sort(x.removed)
	for _, own := range slices.Compact(x.removed) {
		x.release(c, own)
		c.counted--
	}
}

// removeFrom takes the blocks of an event from the reporting pod alone. A block
// keeps its name as long as another pod holds it.
func (x *syncIndex) removeFrom(c *syncContext, e *BlockRemoved) {
	for _, name := range e.Blocks {
		own, known := c.own[name]
		if known && !x.drop(c, own, e.Pod) {
			delete(c.own, name)
		}
	}
}

// drop takes a pod from a block and the block out when no pod is left.
func (x *syncIndex) drop(c *syncContext, hash uint64, pod int) (left bool) {
	set, known := c.holders[hash]
	if !known {
		return false
	}
	if set.without(pod) {
		return true
	}
	x.release(c, hash)
	c.counted--
	return false
}

// cleared takes the event that a pod's engine emptied its cache, which v0.7.0
// ignores.
func (x *syncIndex) cleared(pod int) {
	if x.fixed[FixCacheCleared] {
		x.podRemoved(pod)
	}
}

// podRemoved takes a pod out of all blocks; unlike the local index, this one
// hears of pods that leave.
func (x *syncIndex) podRemoved(pod int) {
	for _, c := range x.contexts {
		for hash, set := range c.holders {
			if set.has(pod) {
				x.drop(c, hash, pod)
			}
		}
	}
}

// sweep brings the periodic sweep for idle models up to now.
func (x *syncIndex) sweep(now simtime.Time) {
	last := now - now%x.settings.EvictionInterval
	if last <= x.swept {
		return
	}
	x.swept = last
	for model, c := range x.contexts {
		if last-c.touched > x.settings.EvictionDuration {
			x.expired += int64(len(c.holders))
			delete(x.contexts, model)
		}
	}
}

// Go's sizes for what the original keeps a block in: a slot of the outer map and
// a small map by pod, and for each pod an entry with time and name.
const (
	bytesPerSyncBlock    = 260
	bytesPerSyncBlockPod = 64
)

func (x *syncIndex) stats(now simtime.Time) IndexStats {
	x.sweep(now)
	s := IndexStats{Expired: x.expired}
	for _, c := range x.contexts {
		s.Entries += len(c.holders)
		for _, set := range c.holders {
			s.Bytes += bytesPerSyncBlock + bytesPerSyncBlockPod*int64(set.size())
		}
	}
	return s
}

func (x *syncIndex) eachHolding(now simtime.Time, f func(hash uint64, pod int)) {
	x.sweep(now)
	for _, c := range x.contexts {
		for hash, set := range c.holders {
			for w, pods := range set {
				for ; pods != 0; pods &= pods - 1 {
					f(hash, 64*w+bits.TrailingZeros64(pods))
				}
			}
		}
	}
}

func (x *syncIndex) lists(model string, hash uint64, pod int) bool {
	c := x.contexts[model]
	return c != nil && c.holders[hash].has(pod)
}
