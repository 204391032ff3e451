package text

import (
	"math/rand/v2"
	"strings"
)

// lexicon has words by their number of letters, from 1 on.
var lexicon = [...][]string{
	{"a"},
	{"of", "to", "in", "it", "is", "as", "at", "by", "we", "on", "or", "an"},
	{"the", "and", "for", "you", "all", "can", "was", "one", "our", "out", "day", "new"},
	{"that", "with", "this", "from", "they", "have", "each", "when", "time", "page", "line", "many"},
	{"which", "there", "their", "about", "other", "these", "first", "water", "river", "point", "house", "world"},
	{"number", "people", "should", "letter", "before", "always", "system", "second", "market", "public", "winter", "garden"},
	{"through", "between", "another", "thought", "country", "nothing", "history", "morning", "science", "surface", "current", "special"},
	{"children", "together", "sentence", "question", "business", "thousand", "complete", "distance", "mountain", "language", "material", "evidence"},
	{"different", "important", "something", "according", "community", "knowledge", "education", "structure", "operation", "direction"},
	{"understand", "government", "themselves", "department", "experience", "difference", "management", "production"},
	{"information", "development", "environment", "performance", "temperature", "traditional"},
	{"relationship", "organization", "particularly", "professional", "construction", "introduction"},
}

// word is a word of n letters, at least 1.
func word(rng *rand.Rand, n int) string {
	if n <= len(lexicon) {
		words := lexicon[n-1]
		return words[rng.IntN(len(words))]
	}
	long := lexicon[len(lexicon)-1]
	return long[rng.IntN(len(long))] + word(rng, n-len(lexicon))
}

// prose is text of exactly the given bytes and, as far as such text exists, of
// the given tokens: words, the digits of number if they fit, and marks. It
// begins with a space or a mark, so that nothing before it joins its first
// token; two calls differ in number or in their words.
func prose(rng *rand.Rand, bytes, tokens int, number string) string {
	if bytes <= 0 {
		return ""
	}
	tokens = min(max(tokens, 1), bytes)
	digits := len(number)
	switch left := tokens - digits; {
	case left == 0 && bytes == digits:
		return number
	case left < 1 || bytes-digits < left:
		number = ""
	default:
		bytes, tokens = bytes-digits, left
	}
	// A mark is a token of one byte, a word one of at least two.
	marks := max(0, 2*tokens-bytes)
	if marks == 0 && tokens > 1 {
		marks = 1 // bytes >= 2*tokens, so the words have room
	}
	var b strings.Builder
	for _, n := range lengths(rng, bytes-marks, tokens-marks) {
		b.WriteByte(' ')
		b.WriteString(word(rng, n))
	}
	b.WriteString(number)
	b.WriteString(strings.Repeat(".", marks))
	return b.String()
}

// lengths shares bytes, at least 2 a word, among words with a space each: it
// returns their numbers of letters.
func lengths(rng *rand.Rand, bytes, words int) []int {
	if words == 0 {
		return nil
	}
	letters := bytes - words
	out := make([]int, words)
	for i := range out {
		out[i] = letters / words
		if i < letters%words {
			out[i]++
		}
	}
	for i := 1; i < words; i++ { // vary neighbours, keeping their sum
		if d := rng.IntN(4); d < out[i] && out[i-1]+d <= len(lexicon) {
			out[i-1] += d
			out[i] -= d
		}
	}
	return out
}

// hexText is hexadecimal text of exactly the given bytes and, as far as such
// text exists, of the given tokens: a digit is one, a run of letters is one.
func hexText(rng *rand.Rand, bytes, tokens int) string {
	if bytes <= 0 {
		return ""
	}
	tokens = min(max(tokens, 1), bytes)
	runs := runsOf(rng, bytes, tokens)
	out := make([]byte, 0, bytes)
	for _, letters := range runs {
		if letters == 0 {
			out = append(out, "0123456789"[rng.IntN(10)])
		}
		for range letters {
			out = append(out, "abcdef"[rng.IntN(6)])
		}
	}
	return string(out)
}

// runsOf is, for each of tokens, the length of its run of letters, or 0 for a
// digit, so that all take bytes and no two runs touch.
func runsOf(rng *rand.Rand, bytes, tokens int) []int {
	runs := make([]int, tokens)
	var places []int
	extra := bytes - tokens // letters beyond the first of their run
	// Random hexadecimal text has a run of letters every fourth token or so.
	for i := 0; i < tokens; i++ {
		if rng.IntN(3) == 0 || i == 0 && extra > 0 {
			runs[i] = 1
			places = append(places, i)
			i++ // its neighbour is a digit
		}
	}
	for range extra {
		runs[places[rng.IntN(len(places))]]++
	}
	return runs
}
