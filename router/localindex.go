package router

import (
	"math/bits"

	"fleetsim/simtime"
)

// A localIndex is AIBrix's local prefix index: which pods were sent which block,
// by the hash that a block has in its chain. It holds at most a fixed number of
// blocks of all models together and drops the least recently put; reading
// refreshes nothing. A block that no add has put for longer than the time to
// live is dropped by the next periodic sweep.
//
// Blocks of a prompt are put from first to last, so that a chain's head is older
// than its tail and capacity evicts heads first, which leaves tails that no walk
// can reach. That is reproduced unless headsKept is set.
type localIndex struct {
	capacity  int
	interval  simtime.Time // between sweeps
	ttl       simtime.Time // an entry may be exactly this old
	headsKept bool         // put blocks last to first, so that tails go first
	deadLeave bool         // drop removed pods

	table          blockTable
	entries        []indexEntry
	newest, oldest int32
	unused         int32 // chain of unused entries through older
	spill          []holding
	unusedSpill    int32 // chain of unused spill through next
	models         map[string]uint32
	swept          simtime.Time // the last sweep that has run

	evicted, expired int64
	holdings         int // (block, model) pairs

	active []podWord // match's scratch
	depths []int
}

// An indexEntry is one block, in the list of all from newest to oldest put.
type indexEntry struct {
	hash         uint64
	put          simtime.Time
	newer, older int32
	holding
}

// A holding says which of 64 pods were sent the block for one model. An entry
// has one inside and further ones, for other models and pods, chained in spill.
type holding struct {
	pods  uint64 // bit b: pod 64*word+b
	model uint32
	word  uint32
	next  int32
}

// A podWord is a set of pods with the same word number.
type podWord struct {
	word uint32
	pods uint64
}

func newLocalIndex(s PrefixSettings, fixed map[string]bool) *localIndex {
	return &localIndex{
		capacity: s.BlockNumber, interval: s.EvictionInterval, ttl: s.EvictionDuration,
		headsKept: fixed[FixLRUHeads], deadLeave: fixed[FixDeadPods],
		newest: noEntry, oldest: noEntry, unused: noEntry, unusedSpill: noEntry,
		models: make(map[string]uint32),
	}
}

// match sets percents[i], for each i of candidates, to the share of the blocks
// that pods[i] was sent without a gap from the first on, rounded down, or to
// noMatch when it was not sent the first. A candidate that lacks a block is out
// for good.
func (x *localIndex) match(now simtime.Time, model string, hashes []uint64, pods []Pod, candidates, percents []int) {
	x.sweep(now)
	x.activate(pods, candidates)
	id, known := x.models[model]
	blocks := 0
	if known {
		blocks = x.walk(id, hashes)
	}
	for w := range x.active {
		x.drop(w, x.active[w].pods, blocks)
	}
	for _, i := range candidates {
		w, bit := x.place(pods[i].ID)
		percents[i] = percentOf(x.depths[64*w+bit], len(hashes))
	}
}

// percentOf is the percentage that depth blocks are of all, or noMatch for none.
func percentOf(depth, all int) int {
	if depth == 0 {
		return noMatch
	}
	return depth * 100 / all
}

// walk narrows the active pods block by block and returns how many blocks those
// that are left at the end have.
func (x *localIndex) walk(model uint32, hashes []uint64) int {
	for i, h := range hashes {
		e := x.table.get(h)
		if e == noEntry {
			return i
		}
		left := uint64(0)
		for w := range x.active {
			a := &x.active[w]
			if a.pods == 0 {
				continue
			}
			if lost := a.pods &^ x.holders(e, model, a.word); lost != 0 {
				x.drop(w, lost, i)
				a.pods &^= lost
			}
			left |= a.pods
		}
		if left == 0 {
			return i
		}
	}
	return len(hashes)
}

// activate fills the active set with the candidates.
func (x *localIndex) activate(pods []Pod, candidates []int) {
	x.active = x.active[:0]
	for _, i := range candidates {
		id := pods[i].ID
		w, bit := x.place(id)
		if w == len(x.active) {
			x.active = append(x.active, podWord{word: uint32(id / 64)})
		}
		x.active[w].pods |= 1 << bit
	}
	for len(x.depths) < 64*len(x.active) {
		x.depths = append(x.depths, 0)
	}
}

// place is where the active set has a pod, or would have it.
func (x *localIndex) place(pod int) (word, bit int) {
	for word < len(x.active) && x.active[word].word != uint32(pod/64) {
		word++
	}
	return word, pod % 64
}

// drop notes that pods of the active set's word w have depth blocks.
func (x *localIndex) drop(w int, pods uint64, depth int) {
	for ; pods != 0; pods &= pods - 1 {
		x.depths[64*w+bits.TrailingZeros64(pods)] = depth
	}
}

// holders are the pods of a word that were sent block e for the model.
func (x *localIndex) holders(e int32, model, word uint32) uint64 {
	for h := &x.entries[e].holding; ; h = &x.spill[h.next] {
		if h.model == model && h.word == word {
			return h.pods
		}
		if h.next == noEntry {
			return 0
		}
	}
}

// add notes that pod was sent the blocks and makes them the newest.
func (x *localIndex) add(now simtime.Time, model string, hashes []uint64, pod int) {
	x.sweep(now)
	id, known := x.models[model]
	if !known {
		id = uint32(len(x.models))
		x.models[model] = id
	}
	for i := range hashes {
		if x.headsKept {
			i = len(hashes) - 1 - i
		}
		x.put(now, id, hashes[i], pod)
	}
}

func (x *localIndex) put(now simtime.Time, model uint32, hash uint64, pod int) {
	e := x.table.get(hash)
	if e == noEntry {
		if x.table.used >= x.capacity {
			x.evicted++
			x.remove(x.oldest)
		}
		e = x.take()
		x.entries[e] = indexEntry{hash: hash, holding: holding{model: model, word: uint32(pod / 64), next: noEntry}}
		x.holdings++
		x.table.put(hash, e)
	} else {
		x.unlink(e)
	}
	x.link(e)
	x.entries[e].put = now
	x.hold(e, model, uint32(pod/64), 1<<(pod%64))
}

// hold adds pods to those of block e.
func (x *localIndex) hold(e int32, model, word uint32, pods uint64) {
	known := false
	h := &x.entries[e].holding
	for {
		if h.model == model {
			known = true
			if h.word == word {
				h.pods |= pods
				return
			}
		}
		if h.next == noEntry {
			break
		}
		h = &x.spill[h.next]
	}
	if !known {
		x.holdings++
	}
	s := x.unusedSpill
	if s != noEntry {
		x.unusedSpill = x.spill[s].next
		h.next = s
	} else {
		s = int32(len(x.spill))
		h.next = s // before spill moves, as h may point into it
		x.spill = append(x.spill, holding{})
	}
	x.spill[s] = holding{pods: pods, model: model, word: word, next: noEntry}
}

// take is an unused entry's number.
func (x *localIndex) take() int32 {
	if e := x.unused; e != noEntry {
		x.unused = x.entries[e].older
		return e
	}
	x.entries = append(x.entries, indexEntry{})
	return int32(len(x.entries) - 1)
}

// remove drops block e.
func (x *localIndex) remove(e int32) {
	x.unlink(e)
	x.table.remove(x.entries[e].hash)
	x.holdings -= x.modelsOf(e)
	for s := x.entries[e].next; s != noEntry; {
		next := x.spill[s].next
		x.spill[s].next, x.unusedSpill = x.unusedSpill, s
		s = next
	}
	x.entries[e].older, x.unused = x.unused, e
}

// modelsOf counts the models that block e is held for.
func (x *localIndex) modelsOf(e int32) int {
	n := 0
	for h := &x.entries[e].holding; ; h = &x.spill[h.next] {
		if x.firstOfModel(e, h) {
			n++
		}
		if h.next == noEntry {
			return n
		}
	}
}

// firstOfModel reports whether no holding of block e before h is of h's model.
func (x *localIndex) firstOfModel(e int32, h *holding) bool {
	for f := &x.entries[e].holding; f != h; f = &x.spill[f.next] {
		if f.model == h.model {
			return false
		}
	}
	return true
}

// link makes e the newest entry.
func (x *localIndex) link(e int32) {
	x.entries[e].newer, x.entries[e].older = noEntry, x.newest
	if x.newest == noEntry {
		x.oldest = e
	} else {
		x.entries[x.newest].newer = e
	}
	x.newest = e
}

func (x *localIndex) unlink(e int32) {
	newer, older := x.entries[e].newer, x.entries[e].older
	if newer == noEntry {
		x.newest = older
	} else {
		x.entries[newer].older = older
	}
	if older == noEntry {
		x.oldest = newer
	} else {
		x.entries[older].newer = newer
	}
}

// sweep brings the periodic sweep up to now. A sweep at a multiple t of the
// interval drops what was last put before t-ttl; since nothing is put between
// two calls, the last of the sweeps in between does the work of all.
func (x *localIndex) sweep(now simtime.Time) {
	last := now - now%x.interval
	if last <= x.swept {
		return
	}
	x.swept = last
	for x.oldest != noEntry && last-x.entries[x.oldest].put > x.ttl {
		x.expired++
		x.remove(x.oldest)
	}
}

// podRemoved keeps the pod's blocks, as the original does, unless that is fixed.
func (x *localIndex) podRemoved(pod int) {
	if x.deadLeave {
		x.forget(pod)
	}
}

// forget takes a pod out of every block and drops the blocks that nobody has
// then.
func (x *localIndex) forget(pod int) {
	word, bit := uint32(pod/64), uint64(1)<<(pod%64)
	for e := x.newest; e != noEntry; {
		older := x.entries[e].older
		left := uint64(0)
		for h := &x.entries[e].holding; ; h = &x.spill[h.next] {
			if h.word == word {
				h.pods &^= bit
			}
			left |= h.pods
			if h.next == noEntry {
				break
			}
		}
		if left == 0 {
			x.remove(e)
		}
		e = older
	}
}

// Go's sizes for what the original keeps a block in: a slot of the outer map, a
// list node with key, time and links, and a small map by model (340 bytes); and
// for each model a small map of up to eight pods and times (400 bytes).
const (
	bytesPerBlock      = 340
	bytesPerBlockModel = 400
)

func (x *localIndex) stats(now simtime.Time) IndexStats {
	x.sweep(now)
	return IndexStats{
		Entries: x.table.used,
		Bytes:   int64(x.table.used)*bytesPerBlock + int64(x.holdings)*bytesPerBlockModel,
		Evicted: x.evicted,
		Expired: x.expired,
	}
}

func (x *localIndex) eachHolding(now simtime.Time, f func(hash uint64, pod int)) {
	x.sweep(now)
	for e := x.newest; e != noEntry; e = x.entries[e].older {
		for h := &x.entries[e].holding; ; h = &x.spill[h.next] {
			for pods := h.pods; pods != 0; pods &= pods - 1 {
				f(x.entries[e].hash, 64*int(h.word)+bits.TrailingZeros64(pods))
			}
			if h.next == noEntry {
				break
			}
		}
	}
}

func (x *localIndex) lists(model string, hash uint64, pod int) bool {
	id, known := x.models[model]
	e := x.table.get(hash)
	return known && e != noEntry && x.holders(e, id, uint32(pod/64))&(1<<(pod%64)) != 0
}
