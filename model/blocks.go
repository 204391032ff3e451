package model

// blockPool is the engine's pool of KV blocks: reference counts, the hash
// table of cached blocks and the queue of free ones in eviction order
// (vLLM v1 core/block_pool.py).
//
// Invariants: a block is in the free queue exactly when its ref count is 0; a
// free block may still be cached, and is evicted only when it is taken for new
// content; the null block 0 is never in the queue and never counted.
type blockPool struct {
	blocks []block
	free   int // length of the free queue
	cached []map[uint64]int32
	evicts int64
	log    *cacheLog // nil: nobody watches
}

// nullBlock stands where a sequence holds no block.
const nullBlock int32 = 0

type block struct {
	ref        int32
	prev, next int32 // neighbours in the free queue; block 0 is the sentinel
	same       int32 // next cached block with the same hash and group, in the order of caching
	group      int16
	hashed     bool
	hash       uint64
	readers    int32 // sequences that decode with the block
}

// newBlockPool returns a pool of n blocks, one of them the null block, whose
// contents belong to groups cache groups.
func newBlockPool(n, groups int) *blockPool {
	p := &blockPool{blocks: make([]block, n), free: n - 1, cached: make([]map[uint64]int32, groups)}
	for i := range p.blocks {
		p.blocks[i].prev = int32((i + n - 1) % n)
		p.blocks[i].next = int32((i + 1) % n)
	}
	for g := range p.cached {
		p.cached[g] = make(map[uint64]int32)
	}
	return p
}

// used is the number of blocks that some sequence holds.
func (p *blockPool) used() int { return len(p.blocks) - 1 - p.free }

// lookup is the block that caches hash for the group, or the null block.
func (p *blockPool) lookup(group int, hash uint64) int32 { return p.cached[group][hash] }

// take pops the head of the free queue, which must not be empty, evicting what
// it cached.
func (p *blockPool) take() int32 {
	id := p.blocks[nullBlock].next
	p.unlink(id)
	if p.blocks[id].hashed {
		p.uncache(id)
		p.evicts++
		p.log.removed(int(p.blocks[id].group), p.blocks[id].hash)
	}
	p.blocks[id].ref = 1
	return id
}

// touch adds a reference to a cached block.
func (p *blockPool) touch(id int32) {
	if id == nullBlock {
		return
	}
	if p.blocks[id].ref == 0 {
		p.unlink(id)
	}
	p.blocks[id].ref++
}

// release drops a reference. At zero a cached block goes to the back of the
// free queue, to be evicted last, an uncached one to the front.
func (p *blockPool) release(id int32) {
	if id == nullBlock {
		return
	}
	b := &p.blocks[id]
	if b.ref--; b.ref > 0 {
		return
	}
	if b.hashed {
		p.insertBefore(id, nullBlock)
	} else {
		p.insertBefore(id, p.blocks[nullBlock].next)
	}
}

// cache registers a held block under hash. Several blocks may hold the same
// content; the one cached first is found first.
func (p *blockPool) cache(id int32, group int, hash uint64) {
	b := &p.blocks[id]
	b.hashed, b.hash, b.group, b.same = true, hash, int16(group), nullBlock
	head, ok := p.cached[group][hash]
	if !ok {
		p.cached[group][hash] = id
		return
	}
	for p.blocks[head].same != nullBlock {
		head = p.blocks[head].same
	}
	p.blocks[head].same = id
}

func (p *blockPool) uncache(id int32) {
	b := &p.blocks[id]
	m := p.cached[b.group]
	switch head := m[b.hash]; {
	case head != id:
		for p.blocks[head].same != id {
			head = p.blocks[head].same
		}
		p.blocks[head].same = b.same
	case b.same == nullBlock:
		delete(m, b.hash)
	default:
		m[b.hash] = b.same
	}
	b.hashed, b.same = false, nullBlock
}

// reset forgets all cached content. It fails, changing nothing, while any
// block is held; the order of the free queue stays.
func (p *blockPool) reset() bool {
	if p.used() > 0 {
		return false
	}
	for i := range p.blocks {
		p.blocks[i].hashed, p.blocks[i].same = false, nullBlock
	}
	for g := range p.cached {
		clear(p.cached[g])
	}
	return true
}

func (p *blockPool) unlink(id int32) {
	b := &p.blocks[id]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.free--
}

func (p *blockPool) insertBefore(id, at int32) {
	b := &p.blocks[id]
	b.prev, b.next = p.blocks[at].prev, at
	p.blocks[b.prev].next, p.blocks[at].prev = id, id
	p.free++
}
