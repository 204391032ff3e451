package sim

import (
	"strconv"

	"fleetsim/router"
	"fleetsim/sim/record"
	"fleetsim/workload"
)

// Two ledgers say where KV is: the gateways' prefix indexes, of what was sent
// where, and the engines' caches, of what is there. They cut prompts differently:
// an index into blocks of 128 bytes, say, an engine into blocks of 1,568 tokens.
// To compare them, the sim notes for every pair of an index block and a pod which
// engine block held the end of it in the latest prompt that the pod was sent.

// ledgers compares the two. A nil *ledgers does nothing.
type ledgers struct {
	scheme  router.IndexScheme
	tokens  int                  // of an engine block
	behind  map[placement]uint64 // index block at a pod -> engine block, 0 for none
	ahead   map[placement]uint64 // engine block at a pod -> index block that names its end
	hashes  []uint64             // scratch: index blocks of a prompt
	engine  []uint64             // scratch: engine blocks of a prompt
	ends    []int                // scratch: by index block, where it ends, in tokens
	samples int
	// The comparisons with the highest shares.
	mostGone, mostUnknown LedgerCount
}

// A placement is a block, by its hash, at a pod.
type placement struct {
	hash uint64
	pod  int
}

// A LedgerCount is a comparison of the two ledgers.
type LedgerCount struct {
	Entries     int `json:"entries"`     // blocks that the indexes list, once for each pod and gateway
	Gone        int `json:"gone"`        // of these, blocks whose KV the pod's engine does not hold in its cache
	Tails       int `json:"tails"`       // of these, ends of prompts, which fill no engine block and are not kept
	Unmatchable int `json:"unmatchable"` // entries under a hash that no prompt has, from events that v0.7.0 misreads
	Cached      int `json:"cached"`      // blocks that the engines hold in their caches, once for each gateway
	Unknown     int `json:"unknown"`     // of these, blocks that the gateway's index does not list for the pod
}

func (c *LedgerCount) add(o LedgerCount) {
	c.Entries += o.Entries
	c.Gone += o.Gone
	c.Tails += o.Tails
	c.Unmatchable += o.Unmatchable
	c.Cached += o.Cached
	c.Unknown += o.Unknown
}

func sumOf(counts []LedgerCount) (sum LedgerCount) {
	for _, c := range counts {
		sum.add(c)
	}
	return sum
}

// goneShare is the share of index entries whose KV is gone.
func (c *LedgerCount) goneShare() record.Float {
	return record.Ratio(record.Some(c.Gone), record.Some(c.Entries))
}

// unknownShare is the share of cached KV that the index does not know.
func (c *LedgerCount) unknownShare() record.Float {
	return record.Ratio(record.Some(c.Unknown), record.Some(c.Cached))
}

// openLedgers sets r.ledgers for the phase: those of its policy, which an earlier
// phase may have begun; nil when the scenario does not ask for the comparison, or
// the policy has no index.
func (r *run) openLedgers() {
	gw := r.gateways.processes[0]
	auditor, asked := gw.Auditor(), gw.HearsKVEvents()
	set(&asked, r.Scenario.Observe.Ledgers)
	if r.ledgers = nil; auditor == nil || !asked {
		return
	}
	if r.ledgers = r.ledgersOf[gw.Gateway]; r.ledgers == nil {
		r.ledgers = &ledgers{
			scheme: auditor.IndexScheme(), tokens: r.replicas[0].Limits().BlockTokens,
			behind: make(map[placement]uint64), ahead: make(map[placement]uint64),
		}
		r.ledgersOf[gw.Gateway] = r.ledgers
	}
	r.ledgers.samples, r.ledgers.mostGone, r.ledgers.mostUnknown = 0, LedgerCount{}, LedgerCount{}
}

// sent notes the request's prompt, and the answer that follows it, for the pod
// that it goes to, or whose engine computes it.
func (l *ledgers) sent(q *request) {
	if l == nil {
		return
	}
	pod := q.routing.choice.PodID
	if q.routing.choice.Disaggregated {
		pod = q.routing.choice.PrefillID
	}
	q.prompt = append(q.prompt[:len(q.Prompt)], answerOf(q))
	l.learn(q.prompt, pod)
}

// learn notes which engine block holds the end of each of the prompt's index
// blocks, and which index block holds the end of each of its engine blocks.
func (l *ledgers) learn(p workload.Prompt, pod int) {
	if l == nil {
		return
	}
	s := l.scheme
	l.hashes = p.AppendHashes(l.hashes[:0], s.Seed, s.Block, s.Unit)
	l.engine = p.AppendHashes(l.engine[:0], 0, l.tokens, workload.Tokens)
	l.locate(p)
	for i, h := range l.hashes {
		l.behind[placement{h, pod}] = l.holder(i)
	}
	i := 0 // the index block that the engine block ends in
	for b, h := range l.engine {
		for i < len(l.ends) && l.ends[i] < (b+1)*l.tokens {
			i++
		}
		if i == len(l.ends) {
			break // the gateway does not see so far
		}
		l.ahead[placement{h, pod}] = l.hashes[i]
	}
}

// holder is the hash of the engine block that holds the end of the i-th index
// block; 0 for none.
func (l *ledgers) holder(i int) uint64 {
	if b := (l.ends[i] - 1) / l.tokens; b < len(l.engine) {
		return l.engine[b]
	}
	return 0
}

// locate sets l.ends for the prompt. Inside a segment bytes and tokens are in
// proportion; a token that a block has a part of counts as its own.
func (l *ledgers) locate(p workload.Prompt) {
	l.ends = l.ends[:0]
	segment, before, tokens := 0, 0, 0 // the segment that the block ends in; units and tokens ahead of it
	for i := range l.hashes {
		end := (i + 1) * l.scheme.Block
		for end > before+l.length(p[segment]) {
			before += l.length(p[segment])
			tokens += p[segment].Tokens
			segment++
		}
		inside, length := end-before, l.length(p[segment])
		l.ends = append(l.ends, max(tokens+(inside*p[segment].Tokens+length-1)/length, 1))
	}
}

func (l *ledgers) length(s workload.Segment) int {
	if l.scheme.Unit == workload.Bytes {
		return s.Bytes
	}
	return s.Tokens
}

// compareLedgers counts the ledgers' disagreement, by replica, of engines that are
// up to date.
func (r *run) compareLedgers() []LedgerCount {
	l := r.ledgers
	counts := make([]LedgerCount, len(r.replicas))
	entries := 0
	for _, p := range r.gateways.processes {
		auditor := p.Auditor()
		auditor.EachHolding(r.now, func(hash uint64, pod int) {
			l.entry(&counts[pod], r.replicas[pod], hash)
			entries++
		})
		for _, rep := range r.replicas {
			if rep.answers() {
				rep.EachCached(func(hash uint64) { l.cached(&counts[rep.id], auditor, hash, rep.id) })
			}
		}
	}
	l.prune(r, entries)
	l.note(sumOf(counts))
	return counts
}

// entry counts one entry of an index.
func (l *ledgers) entry(c *LedgerCount, rep *replica, hash uint64) {
	c.Entries++
	engine, known := l.behind[placement{hash, rep.id}]
	switch {
	case !known:
		c.Unmatchable++
	case engine == 0:
		c.Gone++
		c.Tails++
	case !rep.answers() || !rep.Caches(engine):
		c.Gone++
	}
}

// cached counts one block of an engine's cache.
func (l *ledgers) cached(c *LedgerCount, index router.IndexAuditor, hash uint64, pod int) {
	c.Cached++
	if name, known := l.ahead[placement{hash, pod}]; !known || !index.Lists("", name, pod) {
		c.Unknown++
	}
}

// prune forgets what neither ledger has any more, when that is most of it.
func (l *ledgers) prune(r *run, entries int) {
	const few = 10_000
	if len(l.behind) < 2*entries+few {
		return
	}
	behind := make(map[placement]uint64, entries)
	for _, p := range r.gateways.processes {
		p.Auditor().EachHolding(r.now, func(hash uint64, pod int) {
			if engine, known := l.behind[placement{hash, pod}]; known {
				behind[placement{hash, pod}] = engine
			}
		})
	}
	l.behind = behind
	ahead := make(map[placement]uint64)
	for _, rep := range r.replicas {
		rep.EachCached(func(hash uint64) {
			if name, known := l.ahead[placement{hash, rep.id}]; known {
				ahead[placement{hash, rep.id}] = name
			}
		})
	}
	l.ahead = ahead
}

// note keeps the highest shares.
func (l *ledgers) note(c LedgerCount) {
	l.samples++
	if c.goneShare().Or(0) > l.mostGone.goneShare().Or(0) {
		l.mostGone = c
	}
	if c.unknownShare().Or(0) > l.mostUnknown.unknownShare().Or(0) {
		l.mostUnknown = c
	}
}

// A LedgerSummary is the ledgers member of a phase record: the comparison at its
// end, and the highest shares of it and of those at the snapshots.
type LedgerSummary struct {
	LedgerCount
	GoneShare        record.Float `json:"gone_share"`
	UnknownShare     record.Float `json:"unknown_share"`
	GoneSharePeak    record.Float `json:"gone_share_peak"`
	UnknownSharePeak record.Float `json:"unknown_share_peak"`
	Comparisons      int          `json:"comparisons"`
}

// summary compares a last time.
func (r *run) ledgerSummary() LedgerSummary {
	end, l := sumOf(r.compareLedgers()), r.ledgers
	return LedgerSummary{
		LedgerCount: end, GoneShare: end.goneShare(), UnknownShare: end.unknownShare(),
		GoneSharePeak: l.mostGone.goneShare(), UnknownSharePeak: l.mostUnknown.unknownShare(), Comparisons: l.samples,
	}
}

// appendMembers appends the count's members to those of a timeline's sample.
func (c *LedgerCount) appendMembers(dst []byte) []byte {
	for _, m := range [...]struct {
		name string
		n    int
	}{
		{"index_entries", c.Entries}, {"index_gone", c.Gone}, {"index_tails", c.Tails},
		{"index_unmatchable", c.Unmatchable}, {"kv_cached", c.Cached}, {"kv_unknown", c.Unknown},
	} {
		dst = append(append(append(dst, `,"`...), m.name...), `":`...)
		dst = strconv.AppendInt(dst, int64(m.n), 10)
	}
	return dst
}
