package workload

import (
	"math"
	"math/rand/v2"
)

// A Shape is how prompts are built: a salt and a document head that a family
// shares, a sentence repeated, and a numbered question last.
type Shape struct {
	SaltBytes, SaltTokens         int
	SaltSpread                    int // a salt has SaltTokens ± this many tokens, uniformly
	HeadBytes, HeadTokens         int
	BodyRepeat                    int
	BodyBytes, BodyTokens         int // of one sentence
	QuestionBytes, QuestionTokens int // without the number, whose digits are a token each
}

// A Generator makes prompts. Requests of one family share everything but the
// question; a request without a family shares nothing.
type Generator struct {
	shape Shape
	base  uint64 // keeps the contents of generators apart
	heads []Segment
	rng   *rand.Rand
}

// Kinds of content, in the top byte of a segment's identity.
const (
	familyHead uint64 = (iota + 1) << 56
	uniqueHead
	body
	question
)

// NewGenerator returns a generator for the given number of families. Two
// generators with different base, which must be below 2^24, share no content
// but the body sentence; with the same base and families they share theirs.
func NewGenerator(shape Shape, families int, base uint64, rng *rand.Rand) *Generator {
	g := &Generator{shape: shape, base: base << 32, rng: rng}
	for f := range families {
		g.heads = append(g.heads, g.head(familyHead|g.base|uint64(f)))
	}
	return g
}

// Families is the number of families.
func (g *Generator) Families() int { return len(g.heads) }

// Prompt appends to dst the prompt number index of the family, or a unique one
// if family is negative.
func (g *Generator) Prompt(dst Prompt, family, index int, repeat int) Prompt {
	head := Segment{}
	if family >= 0 {
		head = g.heads[family]
	} else {
		head = g.head(uniqueHead | g.base | uint64(index))
	}
	digits := digitsOf(index)
	return append(dst, head,
		Segment{ID: body, Tokens: repeat * g.shape.BodyTokens, Bytes: repeat * g.shape.BodyBytes},
		Segment{ID: question | g.base | uint64(index), Tokens: g.shape.QuestionTokens + digits, Bytes: g.shape.QuestionBytes + digits})
}

func (g *Generator) head(id uint64) Segment {
	spread := 0
	if g.shape.SaltSpread > 0 {
		spread = g.rng.IntN(2*g.shape.SaltSpread+1) - g.shape.SaltSpread
	}
	return Segment{ID: id,
		Tokens: max(g.shape.SaltTokens+spread, 0) + g.shape.HeadTokens,
		Bytes:  g.shape.SaltBytes + g.shape.HeadBytes}
}

// digitsOf is how many decimal digits n, which is not negative, has.
func digitsOf(n int) int {
	digits := 1
	for ; n >= 10; n /= 10 {
		digits++
	}
	return digits
}

// Order is the order in which n requests ask for their families: with a hot
// fraction above 0 that share, rounded, asks for family 0 and the rest for the
// others in turn; otherwise all in turn. The whole is then shuffled.
func Order(n, families int, hot float64, rng *rand.Rand) []int {
	order := make([]int, n)
	first := 0
	if hot > 0 && families > 1 {
		first = int(math.Round(hot * float64(n)))
	}
	for i := first; i < n; i++ {
		if first > 0 {
			order[i] = 1 + (i-first)%(families-1)
		} else {
			order[i] = i % families
		}
	}
	rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
