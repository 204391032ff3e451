package router

// A blockTable maps block hashes to entry numbers by open addressing with
// linear probing. The hashes are spread already, so their low bits serve as the
// place to start. It grows by doubling and never shrinks.
type blockTable struct {
	slots []blockSlot // a power of two, at most 3/4 used
	used  int
}

type blockSlot struct {
	hash  uint64
	entry int32 // entry number + 1; 0 marks a free slot
}

// noEntry is the number of no entry.
const noEntry = -1

// get is the entry of hash, or noEntry.
func (t *blockTable) get(hash uint64) int32 {
	if t.used == 0 {
		return noEntry
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch s := &t.slots[i]; {
		case s.entry == 0:
			return noEntry
		case s.hash == hash:
			return s.entry - 1
		}
	}
}

// put adds hash, which must be absent.
func (t *blockTable) put(hash uint64, entry int32) {
	if 4*(t.used+1) > 3*len(t.slots) {
		t.grow()
	}
	t.insert(blockSlot{hash, entry + 1})
	t.used++
}

func (t *blockTable) grow() {
	old := t.slots
	t.slots = make([]blockSlot, max(64, 2*len(old)))
	for _, s := range old {
		if s.entry != 0 {
			t.insert(s)
		}
	}
}

func (t *blockTable) insert(s blockSlot) {
	mask := uint64(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].entry != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// remove takes out hash, which must be present, and closes the gap: each later
// slot of the run moves back unless that would put it before its start.
func (t *blockTable) remove(hash uint64) {
	mask := uint64(len(t.slots) - 1)
	gap := hash & mask
	for t.slots[gap].hash != hash || t.slots[gap].entry == 0 {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; t.slots[i].entry != 0; i = (i + 1) & mask {
		if fromStart := (i - t.slots[i].hash) & mask; fromStart >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = blockSlot{}
	t.used--
}
