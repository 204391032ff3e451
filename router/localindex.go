package router

import (
	"math/bits"
	"slices"

	"fleetsim/simtime"
	"fleetsim/workload"
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
//
// The original keeps each block by itself. Here the blocks of a run that were
// last put together, for the same pods, are one span: adding and matching a
// prompt cost its runs, not its blocks, and eviction takes blocks off a span's
// old end, exactly as it would take them one by one.
type localIndex struct {
	capacity  int
	interval  simtime.Time // between sweeps
	ttl       simtime.Time // an entry may be exactly this old
	headsKept bool         // put blocks last to first, so that tails go first
	deadLeave bool         // drop removed pods

	table          blockTable // of nodes, by the first hash of the run
	nodes          []runNode
	unusedNode     int32 // chain of unused nodes through head
	spans          []blockSpan
	unusedSpan     int32 // chain of unused spans through older
	newest, oldest int32
	spill          []holding
	unusedSpill    int32 // chain of unused spill through next
	models         map[string]uint32
	swept          simtime.Time // the last sweep that has run
	blocks         int

	evicted, expired int64
	holdings         int // (block, model) pairs

	left, held slotSet // match's scratch
	listed     listedBlocks
}

// A runNode is a run of blocks of which some are held.
type runNode struct {
	first, step uint64
	head        int32 // its spans, in the order of the blocks
}

// A blockSpan is some consecutive blocks of a run, put at one time and held for the
// same pods. All spans are in a list from newest to oldest put; within one the
// first block is the oldest.
type blockSpan struct {
	node         int32
	start, end   int32
	next         int32 // in the node
	newer, older int32
	put          simtime.Time
	holding
}

func (s *blockSpan) len() int { return int(s.end - s.start) }

// A holding says which of 64 pods were sent the blocks for one model. A span has
// one inside and further ones, for other models and pods, chained in spill.
type holding struct {
	pods  uint64 // bit b: pod 64*word+b
	model uint32
	word  uint32
	next  int32
}

func newLocalIndex(s PrefixSettings, fixed map[string]bool) *localIndex {
	return &localIndex{
		capacity: s.BlockNumber, interval: s.EvictionInterval, ttl: s.EvictionDuration,
		headsKept: fixed[FixLRUHeads], deadLeave: fixed[FixDeadPods],
		newest: noEntry, oldest: noEntry, unusedNode: noEntry, unusedSpan: noEntry, unusedSpill: noEntry,
		models: make(map[string]uint32),
	}
}

// match sets m to the shares of the blocks that the pods among the roster's were
// sent without a gap from the first on, rounded down. A pod that lacks a block is
// out for good.
func (x *localIndex) match(now simtime.Time, model string, p *promptBlocks, r *roster, among slotSet, m *matches) {
	x.sweep(now)
	m.reset(r, p.blocks)
	id, known := x.models[model]
	if !known {
		return
	}
	x.left = append(x.left[:0], among...)
	depth := x.walk(id, p.runs, r.words, m)
	for w, pods := range x.left {
		if pods != 0 {
			m.add(depth, w, pods)
		}
	}
}

// walk narrows the pods that are left along the prompt and returns how many blocks
// those that are left at the end have.
func (x *localIndex) walk(model uint32, runs []workload.Run, words []uint32, m *matches) (depth int) {
	for _, r := range runs {
		n := x.table.get(r.First)
		if n == noEntry {
			return depth
		}
		pos := 0
		for s := x.nodes[n].head; s != noEntry && pos < r.Blocks && int(x.spans[s].start) == pos; s = x.spans[s].next {
			if !x.narrow(s, model, depth+pos, words, m) {
				return depth + pos
			}
			pos = min(int(x.spans[s].end), r.Blocks)
		}
		depth += pos
		if pos < r.Blocks {
			return depth
		}
	}
	return depth
}

// narrow drops the pods that do not hold the span, which begins depth blocks into
// the prompt, and reports whether any are left.
func (x *localIndex) narrow(s int32, model uint32, depth int, words []uint32, m *matches) bool {
	x.findHolders(s, model, words)
	left := uint64(0)
	for w, pods := range x.left {
		if lost := pods &^ x.held[w]; lost != 0 {
			m.add(depth, w, lost)
			x.left[w] = pods & x.held[w]
		}
		left |= x.left[w]
	}
	return left != 0
}

// findHolders sets x.held to the pods of the roster's words that were sent span s
// for the model.
func (x *localIndex) findHolders(s int32, model uint32, words []uint32) {
	x.held = resize(x.held, len(words))
	clear(x.held)
	for h := &x.spans[s].holding; ; h = &x.spill[h.next] {
		if h.model == model {
			if w, found := placeOf(h.word, words); found {
				x.held[w] = h.pods
			}
		}
		if h.next == noEntry {
			return
		}
	}
}

// placeOf finds a word in a roster's. Where no pod has gone it is in its own place.
func placeOf(word uint32, words []uint32) (place int, found bool) {
	if int(word) < len(words) && words[word] == word {
		return int(word), true
	}
	return slices.BinarySearch(words, word)
}

// add notes that pod was sent the blocks and makes them the newest.
func (x *localIndex) add(now simtime.Time, model string, p *promptBlocks, pod int) {
	x.sweep(now)
	id, known := x.models[model]
	if !known {
		id = uint32(len(x.models))
		x.models[model] = id
	}
	h := holding{pods: 1 << (pod % 64), model: id, word: uint32(pod / 64), next: noEntry}
	if !x.headsKept {
		for _, r := range p.runs {
			x.put(now, r, 0, r.Blocks, h)
		}
		return
	}
	for i := len(p.runs) - 1; i >= 0; i-- {
		for b := p.runs[i].Blocks - 1; b >= 0; b-- {
			x.put(now, p.runs[i], b, b+1, h)
		}
	}
}

// put puts the blocks from start to end of a run, in this order.
func (x *localIndex) put(now simtime.Time, r workload.Run, start, end int, h holding) {
	for pos := start; pos < end; {
		n := x.node(r)
		before, at := x.find(n, pos)
		if at != noEntry && int(x.spans[at].start) <= pos {
			pos = x.renew(now, at, end, h)
		} else {
			stop := end
			if at != noEntry {
				stop = min(stop, int(x.spans[at].start))
			}
			at = x.insert(now, n, before, pos, stop, h)
			pos = stop
		}
		if before != noEntry {
			x.merge(before, at)
		}
		x.evict(x.blocks - x.capacity)
	}
}

// node is the run's node, made if it has none.
func (x *localIndex) node(r workload.Run) int32 {
	if n := x.table.get(r.First); n != noEntry {
		return n
	}
	n := x.unusedNode
	if n != noEntry {
		x.unusedNode = x.nodes[n].head
	} else {
		n = int32(len(x.nodes))
		x.nodes = append(roomy(x.nodes), runNode{})
	}
	x.nodes[n] = runNode{first: r.First, step: r.Step, head: noEntry}
	x.table.put(r.First, n)
	return n
}

// find is the first span of the node that ends beyond pos, and the one before.
func (x *localIndex) find(n int32, pos int) (before, at int32) {
	before, at = noEntry, x.nodes[n].head
	for at != noEntry && int(x.spans[at].end) <= pos {
		before, at = at, x.spans[at].next
	}
	return before, at
}

// renew makes span s, as far as end, the newest and adds to its holders; it
// returns where the span ends then.
func (x *localIndex) renew(now simtime.Time, s int32, end int, h holding) int {
	if int(x.spans[s].end) > end {
		x.split(s, int32(end))
	}
	x.unlink(s)
	x.link(s)
	x.spans[s].put = now
	x.hold(s, h)
	return int(x.spans[s].end)
}

// split cuts span s in two at a block; the later part is the next newer one.
func (x *localIndex) split(s, at int32) {
	t := x.takeSpan()
	left, right := &x.spans[s], &x.spans[t]
	*right = *left
	left.end, right.start = at, at
	right.holding.next = x.copySpill(left.holding.next)
	left.next = t
	right.older = s
	if left.newer == noEntry {
		x.newest = t
	} else {
		x.spans[left.newer].older = t
	}
	left.newer = t
}

// insert adds a new span to node n, behind the one before.
func (x *localIndex) insert(now simtime.Time, n, before int32, start, end int, h holding) int32 {
	s := x.takeSpan()
	x.spans[s] = blockSpan{node: n, start: int32(start), end: int32(end), put: now, holding: h}
	if before == noEntry {
		x.spans[s].next, x.nodes[n].head = x.nodes[n].head, s
	} else {
		x.spans[s].next, x.spans[before].next = x.spans[before].next, s
	}
	x.link(s)
	x.blocks += end - start
	x.holdings += end - start
	return s
}

// merge joins span s to the one before it in the run when nothing tells them
// apart any more.
func (x *localIndex) merge(before, s int32) {
	b, e := &x.spans[before], &x.spans[s]
	if x.headsKept || b.end != e.start || b.put != e.put || e.older != before || !x.sameHolders(before, s) {
		return
	}
	b.end, b.next = e.end, e.next
	x.release(s)
}

func (x *localIndex) sameHolders(a, b int32) bool {
	g, h := &x.spans[a].holding, &x.spans[b].holding
	for {
		if g.pods != h.pods || g.model != h.model || g.word != h.word || (g.next == noEntry) != (h.next == noEntry) {
			return false
		}
		if g.next == noEntry {
			return true
		}
		g, h = &x.spill[g.next], &x.spill[h.next]
	}
}

// hold adds to the holders of span s.
func (x *localIndex) hold(s int32, add holding) {
	known := false
	h := &x.spans[s].holding
	for {
		if h.model == add.model {
			known = true
			if h.word == add.word {
				h.pods |= add.pods
				return
			}
		}
		if h.next == noEntry {
			break
		}
		h = &x.spill[h.next]
	}
	if !known {
		x.holdings += x.spans[s].len()
	}
	// The link is set before spill can move, as h may point into it.
	if x.unusedSpill != noEntry {
		h.next = x.unusedSpill
	} else {
		h.next = int32(len(x.spill))
	}
	x.takeSpill(add)
}

func (x *localIndex) takeSpill(h holding) int32 {
	s := x.unusedSpill
	if s != noEntry {
		x.unusedSpill = x.spill[s].next
	} else {
		s = int32(len(x.spill))
		x.spill = append(x.spill, holding{})
	}
	x.spill[s] = h
	return s
}

// copySpill copies a chain of holdings.
func (x *localIndex) copySpill(from int32) int32 {
	if from == noEntry {
		return noEntry
	}
	h := x.spill[from]
	h.next = x.copySpill(h.next)
	return x.takeSpill(h)
}

// roomy is s with room for more. It doubles what is full: append alone, in smaller
// steps, copies a large index five times over while it fills.
func roomy[T any](s []T) []T {
	if len(s) < cap(s) {
		return s
	}
	return slices.Grow(s, max(64, len(s)))
}

// takeSpan is an unused span's number.
func (x *localIndex) takeSpan() int32 {
	if s := x.unusedSpan; s != noEntry {
		x.unusedSpan = x.spans[s].older
		return s
	}
	x.spans = append(roomy(x.spans), blockSpan{})
	return int32(len(x.spans) - 1)
}

// evict drops the n least recently put blocks.
func (x *localIndex) evict(n int) {
	for n > 0 {
		s := x.oldest
		take := min(n, x.spans[s].len())
		x.spans[s].start += int32(take)
		x.blocks -= take
		x.holdings -= take * x.modelsOf(s)
		x.evicted += int64(take)
		n -= take
		if x.spans[s].len() == 0 {
			x.remove(s)
		}
	}
}

// remove drops span s with what blocks it has, and its node when it was the last.
func (x *localIndex) remove(s int32) {
	x.blocks -= x.spans[s].len()
	x.holdings -= x.spans[s].len() * x.modelsOf(s)
	n := x.spans[s].node
	for link := &x.nodes[n].head; ; link = &x.spans[*link].next {
		if *link == s {
			*link = x.spans[s].next
			break
		}
	}
	x.release(s)
	if x.nodes[n].head == noEntry {
		x.table.remove(x.nodes[n].first)
		x.nodes[n].head, x.unusedNode = x.unusedNode, n
	}
}

// release takes span s, out of its node already, off the list and frees it.
func (x *localIndex) release(s int32) {
	x.unlink(s)
	for h := x.spans[s].holding.next; h != noEntry; {
		next := x.spill[h].next
		x.spill[h].next, x.unusedSpill = x.unusedSpill, h
		h = next
	}
	x.spans[s].older, x.unusedSpan = x.unusedSpan, s
}

// modelsOf counts the models that span s is held for.
func (x *localIndex) modelsOf(s int32) int {
	n := 0
	for h := &x.spans[s].holding; ; h = &x.spill[h.next] {
		if x.firstOfModel(s, h) {
			n++
		}
		if h.next == noEntry {
			return n
		}
	}
}

// firstOfModel reports whether no holding of span s before h is of h's model.
func (x *localIndex) firstOfModel(s int32, h *holding) bool {
	for f := &x.spans[s].holding; f != h; f = &x.spill[f.next] {
		if f.model == h.model {
			return false
		}
	}
	return true
}

// link makes s the newest span.
func (x *localIndex) link(s int32) {
	x.listed.stale = true
	x.spans[s].newer, x.spans[s].older = noEntry, x.newest
	if x.newest == noEntry {
		x.oldest = s
	} else {
		x.spans[x.newest].newer = s
	}
	x.newest = s
}

func (x *localIndex) unlink(s int32) {
	x.listed.stale = true
	newer, older := x.spans[s].newer, x.spans[s].older
	if newer == noEntry {
		x.newest = older
	} else {
		x.spans[newer].older = older
	}
	if older == noEntry {
		x.oldest = newer
	} else {
		x.spans[older].newer = newer
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
	for x.oldest != noEntry && last-x.spans[x.oldest].put > x.ttl {
		x.expired += int64(x.spans[x.oldest].len())
		x.remove(x.oldest)
	}
}

// podRemoved keeps the pod's blocks, as the original does, unless that is fixed.
func (x *localIndex) podRemoved(pod int) {
	if x.deadLeave {
		x.forget(pod)
	}
}

// forget takes a pod out of every span and drops those that nobody has then.
func (x *localIndex) forget(pod int) {
	word, bit := uint32(pod/64), uint64(1)<<(pod%64)
	for s := x.newest; s != noEntry; {
		older := x.spans[s].older
		left := uint64(0)
		for h := &x.spans[s].holding; ; h = &x.spill[h.next] {
			if h.word == word {
				h.pods &^= bit
			}
			left |= h.pods
			if h.next == noEntry {
				break
			}
		}
		if left == 0 {
			x.remove(s)
		}
		s = older
	}
	x.listed.stale = true
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
		Entries: x.blocks,
		Bytes:   int64(x.blocks)*bytesPerBlock + int64(x.holdings)*bytesPerBlockModel,
		Evicted: x.evicted,
		Expired: x.expired,
	}
}

func (x *localIndex) eachHolding(now simtime.Time, f func(hash uint64, pod int)) {
	x.sweep(now)
	for s := x.newest; s != noEntry; s = x.spans[s].older {
		x.eachBlock(s, func(hash uint64) {
			for h := &x.spans[s].holding; ; h = &x.spill[h.next] {
				for pods := h.pods; pods != 0; pods &= pods - 1 {
					f(hash, 64*int(h.word)+bits.TrailingZeros64(pods))
				}
				if h.next == noEntry {
					break
				}
			}
		})
	}
}

// eachBlock calls f for the hash of each block of span s, the newest first.
func (x *localIndex) eachBlock(s int32, f func(hash uint64)) {
	n := &x.nodes[x.spans[s].node]
	run := workload.Run{First: n.first, Step: n.step}
	for i := x.spans[s].end - 1; i >= x.spans[s].start; i-- {
		f(run.Hash(int(i)))
	}
}

// listedBlocks finds a span by the hash of any of its blocks. Routing has no
// use for that, so it is made when somebody asks.
type listedBlocks struct {
	stale bool
	spans map[uint64]int32
}

func (x *localIndex) lists(model string, hash uint64, pod int) bool {
	if x.listed.stale || x.listed.spans == nil {
		x.listed = listedBlocks{spans: make(map[uint64]int32, x.blocks)}
		for s := x.newest; s != noEntry; s = x.spans[s].older {
			x.eachBlock(s, func(hash uint64) { x.listed.spans[hash] = s })
		}
	}
	id, known := x.models[model]
	s, held := x.listed.spans[hash]
	return known && held && x.holds(s, id, pod)
}

// holds reports whether pod was sent span s for the model.
func (x *localIndex) holds(s int32, model uint32, pod int) bool {
	for h := &x.spans[s].holding; ; h = &x.spill[h.next] {
		if h.model == model && h.word == uint32(pod/64) {
			return h.pods&(1<<(pod%64)) != 0
		}
		if h.next == noEntry {
			return false
		}
	}
}
