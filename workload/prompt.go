package workload

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// A Segment is a run of prompt content known by identity instead of by its
// text. Segments with equal ID hold equal content at equal offsets, so a
// shorter one is a prefix of a longer one.
type Segment struct {
	// ID is the identity of the content.
	ID uint64
	// Tokens is the length as the engine's tokenizer counts it.
	Tokens int
	// Bytes is the length of the UTF-8 text, which a gateway with the character
	// tokenizer sees.
	Bytes int
}

// A Prompt is the sequence of its segments. Prompts may share one slice: it is
// never written to after it has been sent.
type Prompt []Segment

// A Unit says which length of a segment is meant.
type Unit int

// The two lengths of a segment.
const (
	Tokens Unit = iota // what an engine counts
	Bytes              // what a gateway's character tokenizer counts
)

func (s Segment) length(u Unit) int {
	if u == Bytes {
		return s.Bytes
	}
	return s.Tokens
}

// Len is the prompt's length in unit u.
func (p Prompt) Len(u Unit) int {
	n := 0
	for _, s := range p {
		n += s.length(u)
	}
	return n
}

// AppendHashes appends the chained hash of every full block of the prompt to
// dst and returns it; a trailing partial block has none. A hash covers its
// parent's hash (seed for the first block) and the identity of the block's
// content, so two prompts have equal hashes up to the last block that they
// share from the start, exactly as hashes over the text would. block is the
// block length in unit u and must be positive.
func (p Prompt) AppendHashes(dst []uint64, seed uint64, block int, u Unit) []uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	parent, filled := seed, 0
	var word [24]byte
	for _, s := range p {
		for off, n := 0, s.length(u); off < n; {
			take := min(block-filled, n-off)
			if filled == 0 {
				d.ResetWithSeed(seed)
				binary.LittleEndian.PutUint64(word[:8], parent)
				d.Write(word[:8])
			}
			binary.LittleEndian.PutUint64(word[0:], s.ID)
			binary.LittleEndian.PutUint64(word[8:], uint64(off))
			binary.LittleEndian.PutUint64(word[16:], uint64(take))
			d.Write(word[:])
			off += take
			if filled += take; filled == block {
				parent, filled = d.Sum64(), 0
				dst = append(dst, parent)
			}
		}
	}
	return dst
}
