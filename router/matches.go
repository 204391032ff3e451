package router

import "slices"

// matches is which pods of a roster an index lists for how much of a prompt: the
// sets of pods with equal percentages, from the lowest percentage to the highest.
type matches struct {
	blocks   int   // of the prompt
	width    int   // of a set, words
	percents []int // of the sets
	pods     []uint64
}

// noMatch tells a pod that is not listed from one whose share rounds down to 0.
const noMatch = -1

// reset makes m the empty answer for a prompt of so many blocks.
func (m *matches) reset(r *roster, blocks int) {
	m.blocks, m.width = blocks, len(r.words)
	m.percents, m.pods = m.percents[:0], m.pods[:0]
}

// add notes that pods of a word are listed for depth blocks, none of them for any
// other depth. Calls come in the order of their depths.
func (m *matches) add(depth, word int, pods uint64) {
	percent := percentOf(depth, m.blocks)
	if percent == noMatch {
		return
	}
	last := len(m.percents) - 1
	if last < 0 || m.percents[last] != percent {
		last++
		m.percents = append(m.percents, percent)
		for range m.width {
			m.pods = append(m.pods, 0)
		}
	}
	m.set(last)[word] |= pods
}

// percentOf is the percentage that depth blocks are of all, or noMatch for none.
func percentOf(depth, all int) int {
	if depth == 0 {
		return noMatch
	}
	return depth * 100 / all
}

// set is the i-th set.
func (m *matches) set(i int) slotSet { return m.pods[i*m.width : (i+1)*m.width] }

// of is a pod's percentage, or noMatch.
func (m *matches) of(slot int) int {
	for i := len(m.percents) - 1; i >= 0; i-- {
		if m.set(i).has(slot) {
			return m.percents[i]
		}
	}
	return noMatch
}

// reverse turns an answer that was added from the highest depth to the lowest.
func (m *matches) reverse() {
	slices.Reverse(m.percents)
	for i, j := 0, len(m.percents)-1; i < j; i, j = i+1, j-1 {
		a, b := m.set(i), m.set(j)
		for w := range a {
			a[w], b[w] = b[w], a[w]
		}
	}
}
