package router

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"fleetsim/simtime"
)

// A fleetPolicy is a policy that asks a fleet what it needs to know instead of
// looking at each pod, so that a decision costs much the same for two pods and
// for a thousand. A gateway prefers routeFleet, which answers as Route does and
// leaves the policy and the generator in the same state.
type fleetPolicy interface {
	Policy
	routeFleet(now simtime.Time, req *Request, f *fleet, rng *rand.Rand) (Decision, error)
}

// A roster gives each pod of a list a slot, in the order of the pods' numbers:
// bit b of word w of a slotSet is pod 64*words[w]+b. So what an index keeps by pod
// number is compared with the pods of the list 64 at a time, and numbers that
// nobody has any more take no room.
type roster struct {
	words   []uint32 // numbers of the words that have a pod, ascending
	slots   []int    // by index in the list
	index   []int    // by slot: index in the list
	all     slotSet
	ordered bool // the list is in the order of the pods' numbers
}

// A slotSet is a set of pods of a roster.
type slotSet []uint64

func (s slotSet) has(slot int) bool { return s[slot/64]&(1<<(slot%64)) != 0 }
func (s slotSet) put(slot int)      { s[slot/64] |= 1 << (slot % 64) }
func (s slotSet) drop(slot int)     { s[slot/64] &^= 1 << (slot % 64) }

// size is the number of pods.
func (s slotSet) size() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// nth is the n-th lowest slot, from 0; the set has more than n.
func (s slotSet) nth(n int) int {
	w := 0
	for c := bits.OnesCount64(s[0]); n >= c; c = bits.OnesCount64(s[w]) {
		n -= c
		w++
	}
	word := s[w]
	for ; n > 0; n-- {
		word &= word - 1
	}
	return 64*w + bits.TrailingZeros64(word)
}

// enrol makes the roster that of a list.
func (r *roster) enrol(pods []Pod) {
	r.words = r.words[:0]
	for i := range pods {
		word := uint32(pods[i].ID / 64)
		if at, found := slices.BinarySearch(r.words, word); !found {
			r.words = slices.Insert(r.words, at, word)
		}
	}
	r.all = resize(r.all, len(r.words))
	clear(r.all)
	r.slots = resize(r.slots, len(pods))
	r.index = resize(r.index, 64*len(r.words))
	r.ordered = true
	for i := range pods {
		at, _ := slices.BinarySearch(r.words, uint32(pods[i].ID/64))
		slot := 64*at + pods[i].ID%64
		r.slots[i], r.index[slot] = slot, i
		r.all.put(slot)
		r.ordered = r.ordered && (i == 0 || slot > r.slots[i-1])
	}
}

// draw is a pod of the set, each with the same chance, as its index in the list.
// It draws, as draw does, a place among the set's pods in the order of the list,
// and nothing when there is one.
func (r *roster) draw(rng *rand.Rand, set slotSet, size int) int {
	n := 0
	if size > 1 {
		n = rng.IntN(size)
	}
	if r.ordered {
		return r.index[set.nth(n)]
	}
	for i, slot := range r.slots {
		if set.has(slot) {
			if n == 0 {
				return i
			}
			n--
		}
	}
	panic("router: drawn from beyond the set")
}

// A fleet is a list of pods together with what policies ask of their in-flight
// counts: which pods have the lowest, how far they are apart, how they scatter.
type fleet struct {
	roster
	pods   []Pod
	levels []level // that have a pod, by count
	sets   []uint64
	unused []int32 // sets that no level has; they are empty
	// Sums over the pods of the counts and of their squares. Go's integers wrap, so
	// they are right again whenever the sums that belong to the counts fit.
	sum, squares int
}

// A level is the pods with one in-flight count.
type level struct {
	count int
	size  int32 // number of pods
	set   int32 // number of their set
}

// reset makes the fleet that of a list, which it goes on to refer to.
func (f *fleet) reset(pods []Pod) {
	f.enrol(pods)
	f.pods = pods
	f.levels, f.sets, f.unused = f.levels[:0], f.sets[:0], f.unused[:0]
	f.sum, f.squares = 0, 0
	for i := range pods {
		n := pods[i].Running
		f.sum, f.squares = f.sum+n, f.squares+n*n
		f.join(f.search(n), n, f.slots[i])
	}
}

// count notes that the pod at an index of the list has now n in flight.
func (f *fleet) count(i, n int) {
	old, slot := f.pods[i].Running, f.slots[i]
	if n == old {
		return
	}
	f.pods[i].Running = n
	f.sum, f.squares = f.sum+n-old, f.squares+n*n-old*old

	// Counts change by one, mostly, so the level to go to is next to this one.
	from := f.search(old)
	to := from
	for to < len(f.levels) && f.levels[to].count < n {
		to++
	}
	for to > 0 && f.levels[to-1].count >= n {
		to--
	}
	if l := &f.levels[from]; l.size == 1 && (to == from || to == from+1) && !f.hasLevel(to, n) {
		l.count = n // the pod takes its level along
		return
	}
	if f.join(to, n, slot) && to <= from {
		from++
	}
	f.leave(from, slot)
}

// hasLevel reports whether the level at a place is the one with a count.
func (f *fleet) hasLevel(at, count int) bool {
	return at < len(f.levels) && f.levels[at].count == count
}

// search is the place of the level with a count, or where it would be.
func (f *fleet) search(count int) int {
	at, end := 0, len(f.levels)
	for at < end {
		if middle := (at + end) / 2; f.levels[middle].count < count {
			at = middle + 1
		} else {
			end = middle
		}
	}
	return at
}

// join adds a pod to the level with a count, which is at a place or belongs there,
// and reports whether it is new.
func (f *fleet) join(at, count, slot int) (opened bool) {
	if opened = !f.hasLevel(at, count); opened {
		f.levels = append(f.levels, level{})
		copy(f.levels[at+1:], f.levels[at:])
		f.levels[at] = level{count: count, set: f.emptySet()}
	}
	l := &f.levels[at]
	l.size++
	f.set(l).put(slot)
	return opened
}

// leave takes a pod out of the level at a place.
func (f *fleet) leave(at, slot int) {
	l := &f.levels[at]
	f.set(l).drop(slot)
	if l.size--; l.size == 0 {
		f.unused = append(f.unused, l.set)
		f.levels = append(f.levels[:at], f.levels[at+1:]...)
	}
}

// set is the pods of a level.
func (f *fleet) set(l *level) slotSet {
	width := len(f.words)
	return f.sets[int(l.set)*width:][:width]
}

// emptySet is the number of a set that no level has.
func (f *fleet) emptySet() int32 {
	if n := len(f.unused); n > 0 {
		set := f.unused[n-1]
		f.unused = f.unused[:n-1]
		return set
	}
	for range f.words {
		f.sets = append(f.sets, 0)
	}
	return int32(len(f.sets)/len(f.words) - 1)
}

// least is the pods with the lowest count.
func (f *fleet) least() slotSet { return f.set(&f.levels[0]) }

// drawLeast is one of them.
func (f *fleet) drawLeast(rng *rand.Rand) int {
	return f.draw(rng, f.least(), int(f.levels[0].size))
}

// leastOf sets least to the pods with the lowest count of a set that is not empty
// and returns that count.
func (f *fleet) leastOf(set, least slotSet) int {
	for i := range f.levels {
		found := uint64(0)
		for w, pods := range f.set(&f.levels[i]) {
			least[w] = pods & set[w]
			found |= least[w]
		}
		if found != 0 {
			return f.levels[i].count
		}
	}
	panic("router: a set without a pod of the fleet")
}

// spread is how far the counts are apart.
func (f *fleet) spread() int { return f.levels[len(f.levels)-1].count - f.levels[0].count }

// exactSums bounds the counts, times the number of pods, for which the deviation
// follows from the sums: their squares fit an int64 then.
const exactSums = 1 << 31

// beyondGate reports whether a pod's count is above deviationGate of all counts:
// the very answer of that sum of floating-point numbers, which the order of the
// list may sway in the last digits.
//
// The sums give the gate with less work. Neither is exact: with n counts from 0
// to c and u = 2^-53, the mean is off by at most u*c, so each difference from it by
// 2*u*c, the root of the sum of n squares by 2*u*c*sqrt(n) for that and by a share
// of (n+4)*u for the n roundings that follow, and hence both gates by less than
// (1+factor)*(2n+16)*u*c. A count further away than that from the one is on the same
// side of the other, and only one closer is compared with the sum itself.
func (f *fleet) beyondGate(count int, factor float64) bool {
	n, most := len(f.pods), f.levels[len(f.levels)-1].count
	if factor >= 0 && f.levels[0].count >= 0 && most <= exactSums/n {
		mean := float64(f.sum) / float64(n)
		if float64(count) <= mean {
			return false // the gate is at the mean or above, however it is rounded
		}
		limit := mean + factor*math.Sqrt(float64(n*f.squares-f.sum*f.sum)/float64(n)/float64(n-1))
		doubt := (1 + factor) * float64(2*n+16) * float64(most) * 0x1p-52
		if distance := float64(count) - limit; math.Abs(distance) > doubt {
			return distance > 0
		}
	}
	return float64(count) > gate(f.pods, factor)
}
