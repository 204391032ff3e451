package model

import (
	"errors"
	"fmt"
	"slices"

	"fleetsim/simtime"
)

// Limits are an engine's settings: vLLM's flags and the geometry of its cache.
type Limits struct {
	MaxModelLen        int  // tokens of prompt and output together
	MaxNumSeqs         int  // running sequences
	MaxBatchedTokens   int  // token budget of a step
	LongPrefillTokens  int  // cap on one sequence's prefill tokens in a step; 0: none
	BlockTokens        int  // tokens in a KV block
	Blocks             int  // blocks in the pool, the null block included
	StateGroups        int  // cache groups of recurrent layers (mamba, GDN); 0 for attention only
	PrefixCaching      bool // reuse cached blocks
	AsyncScheduling    bool // schedule a step while the one before it runs
	CountStatsAtLookup bool // count prefix-cache statistics at each lookup (vLLM 0.26), not once at admission
}

// A Seq is a request inside an engine. The caller fills the first group of
// fields; the engine keeps the others up to date.
type Seq struct {
	ID     int      // the caller's
	Owner  any      // the caller's
	Prompt int      // prompt tokens, at least 1
	Output int      // output tokens to generate, at least 1
	Hashes []uint64 // chained hash of each full block of the prompt and its answer
	Hidden int      // leading output tokens without visible content, such as part of a character
	// Received is how many leading prompt tokens have their KV from another
	// engine: they take blocks, but are not computed unless the sequence is
	// preempted. The last prompt token always is.
	Received int

	Queued      simtime.Time // reached the engine
	Scheduled   simtime.Time // first admitted to the running batch; Never before
	First       simtime.Time // first output token; Never before
	Shown       simtime.Time // first output token with visible content; Never before
	Last        simtime.Time // latest output token
	Outputs     int          // output tokens so far
	Cached      int          // prompt tokens taken from the cache at the first admission
	Preemptions int

	progress
}

// progress is what the engine knows of a sequence.
type progress struct {
	computed  int // tokens scheduled so far, cache hits included
	processed int // of these, tokens whose step has ended
	target    int // tokens to compute before decoding: the prompt, and after a preemption its outputs too
	scheduled int // output tokens scheduled, of which Outputs have arrived
	junction  int // end of a prefix that attention has cached and the states have not; a chunk stops there
	epoch     int // counts preemptions, so that a step in flight knows it is stale
	cached    int // leading blocks already registered in the hash table
	state     seqState
	pace      pace
	attn      []int32
	states    []int   // saved or running recurrent states: each by the number of the block-sized stretch that it belongs to
	held      []int32 // the blocks of the states, one in each group
}

// A seqState is where a sequence is in its engine. From running to drained it is
// in the running batch.
type seqState uint8

const (
	waiting  seqState = iota
	running           // each step gives it its tokens by itself
	inStride          // it takes part in the steps of the stride
	drained           // its last token is under way
	ended
)

// known is the number of tokens whose value is known: the prompt and the
// outputs that have arrived.
func (s *Seq) known() int { return s.Prompt + s.Outputs }

// reset prepares s for a run in an engine, keeping its storage.
func (s *Seq) reset(now simtime.Time) {
	s.Queued, s.Scheduled, s.First, s.Shown, s.Last = now, simtime.Never, simtime.Never, simtime.Never, 0
	s.Outputs, s.Cached, s.Preemptions = 0, 0, 0
	s.progress = progress{target: s.Prompt, attn: s.attn[:0], states: s.states[:0], held: s.held[:0]}
}

// Stats are an engine's counters since the start.
type Stats struct {
	Steps        int64 // engine steps
	QueryTokens  int64 // vllm:prefix_cache_queries_total
	HitTokens    int64 // vllm:prefix_cache_hits_total
	Preemptions  int64 // vllm:num_preemptions_total
	PromptTokens int64 // vllm:prompt_tokens_total, added when a prefill ends
	OutputTokens int64 // vllm:generation_tokens_total
	Evictions    int64 // cached blocks taken for new content
}

// engine is the scheduler of one vLLM V1 engine with its block pool
// (v1/core/sched/scheduler.py, kv_cache_manager.py). It knows no time beyond
// what it is told and does nothing by itself.
type engine struct {
	Limits
	pool        *blockPool
	waiting     queue
	running     []*Seq
	stride      stride
	flight      flight
	stats       Stats
	lone        []*Seq   // scratch: those that decode by themselves in the current step
	freshStates []uint64 // hashes of states registered in the current step
	hit         hit      // of the latest lookup
	stepwise    bool     // nothing joins the stride
}

// An item is one sequence's share of a step.
type item struct {
	seq   *Seq
	n     int  // tokens
	epoch int  // the sequence's epoch when it was scheduled
	emits bool // the step produces an output token
}

// A step is one scheduled batch: the sequences that were in the stride then, and
// items for all others.
type step struct {
	number  int // that it has in the stride; 0: the stride takes no part
	members int // sequences of the stride
	items   []item
	work    Work
	end     simtime.Time
}

// flight is the ring of steps that have been formed and not finished.
type flight struct {
	steps [maxDepth]step
	first uint // the oldest, modulo maxDepth
	n     int
	depth int // how many there can be
}

// maxDepth is the largest depth; a power of two.
const maxDepth = 2

func (f *flight) full() bool { return f.n == f.depth }

// at is the i-th step in flight, from the oldest; at n the place of the next.
func (f *flight) at(i int) *step { return &f.steps[(f.first+uint(i))%maxDepth] }

// pop lets go of the oldest step. It stays readable until the next is formed.
func (f *flight) pop() *step {
	st := f.at(0)
	f.first++
	f.n--
	return st
}

func newEngine(l Limits) *engine {
	depth := 1
	if l.AsyncScheduling {
		depth = maxDepth
	}
	e := &engine{Limits: l, pool: newBlockPool(l.Blocks, l.StateGroups+1), flight: flight{depth: depth}}
	e.hit.states = make([]int32, l.StateGroups)
	return e
}

// attention is the cache group of the attention layers; the state groups come
// first, as vLLM numbers them.
func (e *engine) attention() int { return e.StateGroups }

// schedule forms the next step, which is then the last in flight, and returns it,
// or nil if there is nothing to do. The flight must not be full.
func (e *engine) schedule(now simtime.Time) *step {
	st := e.flight.at(e.flight.n)
	st.number, st.members = 0, 0
	st.items = st.items[:0]
	st.work = Work{}
	e.freshStates = e.freshStates[:0]
	budget, preempted := e.scheduleRunning(st)
	if !preempted {
		e.scheduleWaiting(now, st, budget)
	}
	if len(st.items) == 0 && st.members == 0 {
		return nil
	}
	if len(e.lone) > 0 {
		e.addLone(st)
	}
	e.stats.Steps++
	e.flight.n++
	return st
}

func (e *engine) scheduleRunning(st *step) (budget int, preempted bool) {
	budget = e.MaxBatchedTokens
	if e.onlyStride() {
		e.takeStride(st)
		return budget - st.members, false
	}
	i := 0
	for ; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		if e.strides(s) {
			budget--
			continue
		}
		e.settle(s)
		n := e.next(s, budget)
		if n == 0 {
			e.drain(s)
			continue
		}
		for !e.extend(s, n) {
			preempted = true
			if e.preemptLast() == s {
				n = 0
				break
			}
		}
		if n > 0 && !e.joins(s) {
			e.add(st, s, n)
		}
		budget -= n
	}
	for ; i < len(e.running); i++ {
		e.detach(e.running[i], false) // no token in this step
	}
	e.lookOut()
	e.takeStride(st)
	return budget, preempted
}

// next is the number of tokens that a running sequence wants in this step.
func (e *engine) next(s *Seq, budget int) int {
	if s.computed >= s.target {
		if s.scheduled >= s.Output {
			return 0 // the last token is already under way
		}
		return 1
	}
	return e.clip(s, s.computed, e.chunk(s.target-s.computed, budget))
}

func (e *engine) chunk(remaining, budget int) int {
	n := min(remaining, budget)
	if e.LongPrefillTokens > 0 {
		n = min(n, e.LongPrefillTokens)
	}
	return n
}

// clip shortens a prefill chunk that starts at start so that it ends where a
// recurrent state can be kept: on the block grid, except past its last point
// (scheduler.py, the mamba "align" mode).
func (e *engine) clip(s *Seq, start, n int) int {
	if !e.aligns() {
		return n
	}
	b := e.BlockTokens
	end, last := start+n, s.target/b*b
	if end < last {
		end = end / b * b
	}
	stop := end
	inside := func(at int) {
		if start < at && at < stop {
			stop = at
		}
	}
	if boundary := (start/b + 1) * b; start%b != 0 && boundary <= last {
		inside(boundary)
	}
	inside(last)
	inside(s.junction / b * b)
	return max(stop-start, 0)
}

func (e *engine) scheduleWaiting(now simtime.Time, st *step, budget int) {
	for e.waiting.len() > 0 && budget > 0 && len(e.running) < e.MaxNumSeqs {
		s := e.waiting.front()
		hit, junction := e.lookup(s)
		if e.CountStatsAtLookup {
			e.count(s, hit)
		}
		s.target, s.junction = s.known(), junction
		start := max(hit, s.received())
		n := e.clip(s, start, e.chunk(s.target-start, budget))
		if n == 0 || !e.admit(s, start, n) {
			return
		}
		if !e.CountStatsAtLookup {
			e.count(s, hit)
		}
		e.waiting.popFront()
		s.state = running
		if s.Scheduled == simtime.Never {
			s.Scheduled, s.Cached = now, min(hit, s.Prompt)
		}
		e.running = append(e.running, s)
		e.add(st, s, n)
		budget -= n
	}
}

// received is how many of the tokens to compute another engine has computed.
func (s *Seq) received() int {
	if s.Preemptions > 0 {
		return 0
	}
	return min(s.Received, s.Prompt-1)
}

// count adds a lookup to the prefix-cache statistics; those of preempted
// sequences are kept apart by vLLM and not exported.
func (e *engine) count(s *Seq, hit int) {
	if s.Preemptions == 0 && e.PrefixCaching {
		e.stats.QueryTokens += int64(s.known())
		e.stats.HitTokens += int64(hit)
	}
}

// add puts n tokens of s into the step.
func (e *engine) add(st *step, s *Seq, n int) {
	// The last token of a prompt that was computed elsewhere is decoded.
	decode := s.computed >= s.target || n == 1 && s.computed == s.received()
	if !decode {
		st.work.AddPrefill(s.computed, n)
	}
	s.computed += n
	emits := s.computed >= s.target
	if emits {
		s.scheduled++
	}
	st.items = append(st.items, item{seq: s, n: n, epoch: s.epoch, emits: emits})
	if decode {
		e.lone = append(e.lone, s)
	}
}

// addLone adds to the step's work the sequences that decode in it by themselves,
// which may share blocks with each other and with the stride.
func (e *engine) addLone(st *step) {
	for _, s := range e.lone {
		st.work.AddDecode(s.computed, e.read(s.attn[:s.cached]))
	}
	for _, s := range e.lone {
		e.unread(s.attn[:s.cached])
	}
	clear(e.lone)
	e.lone = e.lone[:0]
}

// read notes that one more sequence decodes with the blocks, and returns how many
// of their tokens others decode with too. Only registered blocks can be shared.
func (e *engine) read(blocks []int32) (shared int) {
	for _, id := range blocks {
		b := &e.pool.blocks[id]
		if b.readers > 0 {
			shared += e.BlockTokens
		}
		b.readers++
	}
	return shared
}

// unread takes back what read has noted, and returns how many of the tokens others
// still decode with.
func (e *engine) unread(blocks []int32) (shared int) {
	for _, id := range blocks {
		b := &e.pool.blocks[id]
		if b.readers--; b.readers > 0 {
			shared += e.BlockTokens
		}
	}
	return shared
}

// A hit is what a lookup has found: the blocks of the prefix that all groups
// have, of attention and of the state behind it.
type hit struct {
	attn   []int32
	states []int32
}

// lookup finds the longest cached prefix of a waiting sequence, in tokens, and
// the junction. At least one token is always computed. Attention is scanned
// from the start; of the states one suffices, the latest that all groups hold
// inside what attention has.
func (e *engine) lookup(s *Seq) (hit, junction int) {
	e.hit.attn = e.hit.attn[:0]
	if !e.PrefixCaching {
		return 0, 0
	}
	limit := min((s.known()-1)/e.BlockTokens, len(s.Hashes))
	for _, hash := range s.Hashes[:limit] {
		id := e.pool.lookup(e.attention(), hash)
		if id == nullBlock {
			break
		}
		e.hit.attn = append(e.hit.attn, id)
	}
	attn := len(e.hit.attn)
	common := attn
	for common > 0 && !e.findState(s.Hashes[common-1]) {
		common--
	}
	e.hit.attn = e.hit.attn[:common]
	if common < attn {
		junction = attn * e.BlockTokens
	}
	return common * e.BlockTokens, junction
}

// findState looks the state up in all groups.
func (e *engine) findState(hash uint64) bool {
	for g := range e.hit.states {
		id := e.pool.lookup(g, hash)
		if id == nullBlock {
			return false
		}
		e.hit.states[g] = id
	}
	return true
}

// admit gives a waiting sequence the prefix that the latest lookup has found and
// blocks up to n tokens beyond start, where computing begins, or changes nothing
// and reports false.
func (e *engine) admit(s *Seq, start, n int) bool {
	hits := len(e.hit.attn)
	if hits > 0 && e.isFresh(s.Hashes[hits-1]) {
		return false // the state is written by this very step
	}
	// The whole prompt must fit (scheduler_reserve_full_isl), not just the chunk.
	// Cached blocks that nobody holds leave the free queue, too.
	if e.needed(s, hits, s.target)+e.idle() > e.pool.free {
		return false
	}
	for _, id := range e.hit.attn {
		e.pool.touch(id)
	}
	s.attn = append(s.attn, e.hit.attn...)
	if hits > 0 && e.StateGroups > 0 {
		s.states = append(s.states, hits-1)
		for _, id := range e.hit.states {
			e.pool.touch(id)
			s.held = append(s.held, id)
		}
	}
	s.computed, s.processed, s.cached = start, start, hits
	e.grow(s, start+n)
	return true
}

func (e *engine) isFresh(hash uint64) bool {
	for _, h := range e.freshStates {
		if h == hash {
			return true
		}
	}
	return false
}

// needed is the number of new blocks that s takes to hold tokens in all, with
// its first hits blocks from the cache.
func (e *engine) needed(s *Seq, hits, tokens int) int {
	blocks := (tokens + e.BlockTokens - 1) / e.BlockTokens
	n := max(blocks-max(len(s.attn), hits), 0)
	if e.StateGroups > 0 && blocks > max(s.statePositions(), hits) {
		n += e.StateGroups
	}
	return n
}

// idle is how many blocks of the latest hit nobody holds.
func (e *engine) idle() int {
	n := 0
	for _, id := range e.hit.attn {
		if e.pool.blocks[id].ref == 0 {
			n++
		}
	}
	if len(e.hit.attn) > 0 {
		for _, id := range e.hit.states {
			if e.pool.blocks[id].ref == 0 {
				n++
			}
		}
	}
	return n
}

// statePositions is the number of block-sized stretches up to the running state.
func (s *Seq) statePositions() int {
	if len(s.states) == 0 {
		return 0
	}
	return s.states[len(s.states)-1] + 1
}

// extend gives a running sequence blocks for n more tokens, or reports false.
func (e *engine) extend(s *Seq, n int) bool {
	e.dropStates(s)
	tokens := s.computed + n
	if tokens > len(s.attn)*e.BlockTokens {
		if e.needed(s, 0, tokens) > e.pool.free {
			return false
		}
		e.grow(s, tokens)
		return true
	}
	// The blocks suffice: states cover as many tokens as attention does.
	if e.PrefixCaching && min(tokens, s.known()) >= (s.cached+1)*e.BlockTokens {
		e.register(s, min(tokens, s.known())/e.BlockTokens)
	}
	return true
}

// dropStates releases the states that the sequence has moved past: those below
// the running one whose stretch is wholly processed, not merely scheduled.
func (e *engine) dropStates(s *Seq) {
	for len(s.states) > 1 && (s.states[0]+1)*e.BlockTokens < s.processed {
		for _, id := range s.held[:e.StateGroups] {
			e.pool.release(id)
		}
		s.states = append(s.states[:0], s.states[1:]...)
		s.held = append(s.held[:0], s.held[e.StateGroups:]...)
	}
}

// grow allocates the blocks for tokens in all and registers those that are
// full in the hash table, before the step has run.
func (e *engine) grow(s *Seq, tokens int) {
	blocks := (tokens + e.BlockTokens - 1) / e.BlockTokens
	if e.StateGroups > 0 && blocks > s.statePositions() {
		s.states = append(s.states, blocks-1)
		for range e.StateGroups {
			s.held = append(s.held, e.pool.take())
		}
	}
	for len(s.attn) < blocks {
		s.attn = append(s.attn, e.pool.take())
	}
	if e.PrefixCaching {
		e.register(s, min(tokens, s.known())/e.BlockTokens)
	}
}

// register enters the blocks up to the full-th into the hash table; states
// exist only where a chunk ended.
func (e *engine) register(s *Seq, full int) {
	full = min(full, len(s.Hashes))
	if full <= s.cached {
		return
	}
	for i, pos := range s.states {
		if pos < s.cached || pos >= full {
			continue
		}
		for g := range e.StateGroups {
			e.pool.cache(s.held[i*e.StateGroups+g], g, s.Hashes[pos])
		}
		e.freshStates = append(e.freshStates, s.Hashes[pos])
	}
	for i := s.cached; i < full; i++ {
		e.pool.cache(s.attn[i], e.attention(), s.Hashes[i])
	}
	if s.state == inStride {
		e.stride.shared += e.read(s.attn[s.cached:full])
	}
	e.pool.log.stored(s, s.cached, full)
	s.cached = full
}

// preemptLast sends the sequence that was admitted last back to the front of the
// queue, to be computed again, and returns it.
func (e *engine) preemptLast() *Seq {
	s := e.running[len(e.running)-1]
	e.detach(s, false)
	e.running = e.running[:len(e.running)-1]
	e.freeBlocks(s)
	s.computed, s.processed, s.scheduled, s.cached = 0, 0, s.Outputs, 0
	s.epoch++
	s.Preemptions++
	s.state = waiting
	e.stats.Preemptions++
	e.waiting.pushFront(s)
	return s
}

// freeBlocks releases everything s holds, group by group and tail first, so
// that the tail is evicted before the head.
func (e *engine) freeBlocks(s *Seq) {
	for g := range e.StateGroups {
		for i := len(s.states) - 1; i >= 0; i-- {
			e.pool.release(s.held[i*e.StateGroups+g])
		}
	}
	for i := len(s.attn) - 1; i >= 0; i-- {
		e.pool.release(s.attn[i])
	}
	s.attn, s.states, s.held = s.attn[:0], s.states[:0], s.held[:0]
}

// finish takes the results of the oldest step in flight, and hands each sequence
// that is complete to done.
func (e *engine) finish(done func(*Seq)) {
	st := e.flight.pop()
	complete := e.endStride(st)
	for _, it := range st.items {
		s := it.seq
		if it.epoch == s.epoch {
			s.processed += it.n
		}
		if !it.emits {
			continue
		}
		if s.Outputs++; s.Outputs == 1 {
			s.First = st.end
			e.stats.PromptTokens += int64(s.Prompt)
		}
		if s.Outputs == s.Hidden+1 {
			s.Shown = st.end
		}
		s.Last = st.end
		e.stats.OutputTokens++
		complete = complete || s.Outputs == s.Output
	}
	if complete {
		e.complete(st, done)
	}
}

// complete takes out the sequences whose last token came with st, in the order of
// the batch that it was made of: running ones first, then preempted ones.
func (e *engine) complete(st *step, done func(*Seq)) {
	left := e.running[:0]
	for _, s := range e.running {
		if !e.isComplete(s) {
			left = append(left, s)
			continue
		}
		e.release(s)
		done(s)
	}
	clear(e.running[len(left):])
	e.running = left
	for _, it := range st.items {
		if s := it.seq; s.state == waiting && s.Outputs == s.Output {
			e.remove(s)
			done(s)
		}
	}
	e.lookOut()
}

// isComplete reports whether a running sequence has its last token.
func (e *engine) isComplete(s *Seq) bool {
	if s.state == running {
		return s.Outputs == s.Output
	}
	return s.pace.done <= e.stride.ended
}

// remove takes s out of the engine, whatever it is doing.
func (e *engine) remove(s *Seq) {
	if s.state == waiting {
		e.waiting.remove(s)
	} else {
		i := slices.Index(e.running, s)
		e.running = slices.Delete(e.running, i, i+1)
	}
	e.release(s)
}

// release ends s, which is in no queue any more, and forgets it, but for events yet
// to be published: its owner may use it for something else.
func (e *engine) release(s *Seq) {
	e.detach(s, true)
	e.freeBlocks(s)
	s.state = ended
	for i := range e.flight.n {
		if st := e.flight.at(i); len(st.items) > 0 {
			st.items = slices.DeleteFunc(st.items, func(it item) bool { return it.seq == s })
		}
	}
}

// MaxBlocks is the most blocks of one replica. It keeps a misplaced digit from
// taking all memory: a pool takes 40 bytes a block, and the largest real ones have
// some 100,000.
const MaxBlocks = 1 << 24

// aligns reports whether prefill chunks end on blocks, where the states that are
// cached lie.
func (l Limits) aligns() bool { return l.StateGroups > 0 && l.PrefixCaching }

// Validate reports the first thing that is wrong with the limits, or nil.
func (l Limits) Validate() error {
	if faults := l.faults(); len(faults) > 0 {
		return errors.New(faults[0].Msg)
	}
	return nil
}

// faults are what is wrong with the limits, each by the limit's key in a profile.
func (l Limits) faults() []Fault {
	var faults []Fault
	bad := func(key string, value int, allowed string, args ...any) {
		faults = append(faults, Fault{key, fmt.Sprintf("%s = %d: ", key, value) + fmt.Sprintf(allowed, args...)})
	}
	for _, c := range []struct {
		key   string
		value int
		least int
		most  int
	}{
		{"max_model_len", l.MaxModelLen, 1, 1 << 30},
		{"max_num_seqs", l.MaxNumSeqs, 1, 1 << 30},
		{"max_num_batched_tokens", l.MaxBatchedTokens, 1, 1 << 30},
		{"long_prefill_token_threshold", l.LongPrefillTokens, 0, 1 << 30},
		{"block_tokens", l.BlockTokens, 1, 1 << 30},
		{"blocks", l.Blocks, 2, MaxBlocks},
		{"state_groups", l.StateGroups, 0, 1 << 30},
	} {
		if c.value < c.least || c.value > c.most {
			bad(c.key, c.value, "allowed is %d to %d", c.least, c.most)
		}
	}
	if len(faults) > 0 {
		return faults // what follows reckons with limits in range
	}
	if l.aligns() && l.MaxBatchedTokens < l.BlockTokens {
		bad("max_num_batched_tokens", l.MaxBatchedTokens, "a recurrent model's prefill chunks end on blocks, so at least block_tokens = %d", l.BlockTokens)
	}
	if l.aligns() && l.LongPrefillTokens > 0 && l.LongPrefillTokens < l.BlockTokens {
		bad("long_prefill_token_threshold", l.LongPrefillTokens, "a recurrent model's prefill chunks end on blocks, so 0 or at least block_tokens = %d", l.BlockTokens)
	}
	if most := (l.MaxModelLen+l.BlockTokens-1)/l.BlockTokens + 3*l.StateGroups; most > l.Blocks-1 {
		bad("blocks", l.Blocks, "one request of max_model_len needs %d besides the null block", most)
	}
	return faults
}
