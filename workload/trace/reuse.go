package trace

import (
	"math"
	"math/bits"
	"slices"

	"fleetsim/simtime"
)

// A reuseTracker watches a stream of block hashes: which were seen before, and how
// much else came between. When there are more blocks than it may hold it follows
// a fixed share of them, chosen by their hash, and takes them for all (spatially
// hashed sampling, SHARDS: Waldspurger and others, FAST 2015); as long as all
// fit, it is exact.
type reuseTracker struct {
	limit     int
	threshold uint64 // hashes up to it are followed
	at        map[uint64]int
	slots     []reuseSlot // in the order of last use
	live      fenwick     // 1 at every slot that is its hash's last use
}

type reuseSlot struct {
	hash uint64
	when simtime.Time
	dead bool
}

// newReuseTracker returns a tracker of at most limit blocks.
func newReuseTracker(limit int) *reuseTracker {
	return &reuseTracker{
		limit:     limit,
		threshold: math.MaxUint64,
		at:        make(map[uint64]int),
		live:      make(fenwick, 2*limit+1),
	}
}

// weight is how many blocks one that is followed stands for.
func (t *reuseTracker) weight() float64 { return math.Exp2(float64(bits.LeadingZeros64(t.threshold))) }

// A reuse is what the tracker says of one use of a block.
type reuse struct {
	followed bool
	weight   float64 // blocks it stands for
	again    bool    // it was used before
	between  float64 // other blocks used since then, estimated
	after    simtime.Time
}

// use books a use of the block at a time not before the last use's.
func (t *reuseTracker) use(hash uint64, now simtime.Time) reuse {
	if hash > t.threshold {
		return reuse{}
	}
	u := reuse{followed: true, weight: t.weight()}
	if i, ok := t.at[hash]; ok {
		u.again = true
		u.between = float64(t.live.sum(len(t.slots))-t.live.sum(i+1)) * u.weight
		u.after = now - t.slots[i].when
		t.slots[i].dead = true
		t.live.add(i, -1)
	}
	if len(t.slots) == 2*t.limit {
		t.compact()
	}
	t.at[hash] = len(t.slots)
	t.live.add(len(t.slots), 1)
	t.slots = append(t.slots, reuseSlot{hash: hash, when: now})
	for len(t.at) > t.limit {
		t.threshold >>= 1
		t.compact()
	}
	return u
}

// compact drops dead slots and hashes that are no longer followed.
func (t *reuseTracker) compact() {
	t.slots = slices.DeleteFunc(t.slots, func(s reuseSlot) bool {
		if !s.dead && s.hash > t.threshold {
			delete(t.at, s.hash)
		}
		return s.dead || s.hash > t.threshold
	})
	clear(t.live)
	for i, s := range t.slots {
		t.at[s.hash] = i
		t.live.add(i, 1)
	}
}

// A fenwick tree gives prefix sums of a list of counts.
type fenwick []int32

// add adds d to the i-th count, from 0.
func (f fenwick) add(i int, d int32) {
	for i++; i < len(f); i += i & -i {
		f[i] += d
	}
}

// sum is the sum of the first n counts.
func (f fenwick) sum(n int) (total int32) {
	for ; n > 0; n -= n & -n {
		total += f[n]
	}
	return total
}

// A logHistogram counts values in buckets of an eighth of the power of two below
// them, so that quantiles are right to about 6%. Values below 1 are as good as 0.
type logHistogram struct {
	counts [64 * 8]float64
	zeros  float64
	total  float64
}

// bucketShift leaves of a float64 its exponent and the first three bits of its
// fraction, which number the buckets; firstBucket is that of 1.
const (
	bucketShift = 52 - 3
	firstBucket = 1023 << 3
)

func (h *logHistogram) add(v, weight float64) {
	h.total += weight
	if v < 1 {
		h.zeros += weight
		return
	}
	h.counts[min(int(math.Float64bits(v)>>bucketShift)-firstBucket, len(h.counts)-1)] += weight
}

// quantile is the value below which the share q lies: the middle of its bucket; 0
// without values.
func (h *logHistogram) quantile(q float64) float64 {
	value := 0.0
	rank := q*h.total - h.zeros
	for i := 0; rank > 0 && i < len(h.counts); i++ {
		if rank -= h.counts[i]; h.counts[i] > 0 {
			low := math.Float64frombits(uint64(i+firstBucket) << bucketShift)
			high := math.Float64frombits(uint64(i+1+firstBucket) << bucketShift)
			value = (low + high) / 2
		}
	}
	return value
}
