// Package text turns the simulator's symbolic prompts into real ones, and real
// ones into the blocks that a gateway and an engine compare.
//
// No tokenizer of a model is at hand, so the simulated cluster counts tokens by
// a rule of its own, which English text and hexadecimal salts come close to
// under the tokenizers of current models: a run of ASCII letters is one token,
// together with one space before it; every other character is a token by
// itself. Generated prompts have, under this rule, exactly the tokens of the
// symbolic ones and, under any rule, exactly their bytes. What a live engine
// counts is in its usage block, and a replay reports the difference.
package text

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"fleetsim/router"
	"fleetsim/workload"
)

// A Text is a prompt given by its words. It is what a gateway sees
// (router.Prompt), and an engine may hash it by tokens.
type Text string

// Len is the length in bytes, or in tokens by this package's rule.
func (t Text) Len(u workload.Unit) int {
	if u == workload.Bytes {
		return len(t)
	}
	n := 0
	for rest := string(t); rest != ""; rest = rest[token(rest):] {
		n++
	}
	return n
}

// AppendHashes appends the chained hash of every full block of the text: by
// bytes as AIBrix hashes it, by tokens with the same chaining over the bytes of
// block tokens. block must be positive.
func (t Text) AppendHashes(dst []uint64, seed uint64, block int, u workload.Unit) []uint64 {
	if u == workload.Bytes {
		return router.Text(t).AppendHashes(dst, seed, block, u)
	}
	var d xxhash.Digest
	parent, filled, begin, at := seed, 0, 0, 0
	for at < len(t) {
		at += token(string(t[at:]))
		if filled++; filled < block {
			continue
		}
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], parent)
		d.ResetWithSeed(seed)
		d.Write(word[:])
		d.WriteString(string(t[begin:at]))
		parent, filled, begin = d.Sum64(), 0, at
		dst = append(dst, parent)
	}
	return dst
}

// token is the length in bytes of the first token of s, which is not empty.
func token(s string) int {
	n := 0
	if s[0] == ' ' {
		n = 1
	}
	word := n
	for word < len(s) && isLetter(s[word]) {
		word++
	}
	switch {
	case word > n:
		return word
	case n == 1:
		return 1
	}
	_, size := utf8.DecodeRuneInString(s)
	return size
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
