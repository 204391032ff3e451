package router

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"fleetsim/workload"
)

// tokenBytes is what one token id takes in a hashed block: AIBrix writes ids as
// 4 big-endian bytes and counts its block size in bytes, whatever the tokenizer.
const tokenBytes = 4

// Text is a prompt given by its words: what AIBrix's character tokenizer reads.
// It has no tokens of its own; where tokens are asked for, 4 bytes of text stand
// for one, the size of a token id in the original's hashed blocks.
type Text string

// Len is the length of the text in bytes, or in 4-byte tokens rounded up.
func (t Text) Len(u workload.Unit) int {
	if u == workload.Bytes {
		return len(t)
	}
	return (len(t) + tokenBytes - 1) / tokenBytes
}

// AppendHashes appends AIBrix's chained hash of every full block of the text to
// dst and returns it: XXH64 with the given seed over the parent's hash as 8
// little-endian bytes (the seed itself for the first block) and the block's
// bytes. Runes may be split between blocks. block must be positive.
func (t Text) AppendHashes(dst []uint64, seed uint64, block int, u workload.Unit) []uint64 {
	if u == workload.Tokens {
		block *= tokenBytes
	}
	parent := seed
	for rest := string(t); len(rest) >= block; rest = rest[block:] {
		parent = hashText(seed, parent, rest[:block])
		dst = append(dst, parent)
	}
	return dst
}

// hashText is the hash of one block of text under its parent's.
func hashText(seed, parent uint64, block string) uint64 {
	var d xxhash.Digest
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], parent)
	d.ResetWithSeed(seed)
	d.Write(word[:])
	d.WriteString(block)
	return d.Sum64()
}
