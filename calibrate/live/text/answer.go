package text

import (
	"strings"

	"github.com/cespare/xxhash/v2"
)

// An Answer is what the simulated model says: unlike any other answer, each
// token a word with the space before it.
type Answer uint64

// AnswerTo is the answer to the request called id.
func AnswerTo(id string) Answer { return Answer(xxhash.Sum64String(id)) }

// Append appends the tokens from the from-th to before the to-th, from 0.
func (a Answer) Append(dst []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		dst = append(append(dst, ' '), a.word(i)...)
	}
	return dst
}

// word mixes the position into the answer's hash: a multiplication spreads it
// over the high bits, which pick the word.
func (a Answer) word(i int) string {
	h := (uint64(a) ^ uint64(i)*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
	words := lexicon[2+h>>62]
	return words[h>>32%uint64(len(words))]
}

// Text is the answer's first n tokens.
func (a Answer) Text(n int) Text {
	var b strings.Builder
	b.Write(a.Append(nil, 0, n))
	return Text(b.String())
}
