package text

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"fleetsim/workload"
)

// A Generator writes the text of symbolic prompts: equal segments give equal
// text, and prompts share exactly the text whose segments they share. The same
// shape and salt give the same text everywhere; another salt gives text that
// shares nothing but the body sentence, as a fresh salt a phase does in the
// routing study.
type Generator struct {
	shape    workload.Shape
	salt     string
	sentence string
	heads    map[uint64]string
}

// New returns a generator for prompts of the shape.
func New(shape workload.Shape, salt string) *Generator {
	g := &Generator{shape: shape, salt: salt, heads: make(map[uint64]string)}
	g.sentence = prose(stream("sentence", 0), shape.BodyBytes, shape.BodyTokens, "")
	return g
}

// Salt is the salt that the generator was made with.
func (g *Generator) Salt() string { return g.salt }

// Text is the text of p, which has the three segments that workload.Generator
// gives a prompt: head, body and question.
func (g *Generator) Text(p workload.Prompt) Text {
	var b strings.Builder
	b.Grow(p.Len(workload.Bytes))
	head, body, question := p[0], p[1], p[2]
	b.WriteString(g.head(head))
	for n := body.Bytes; n > 0; n -= len(g.sentence) {
		b.WriteString(g.sentence)
	}
	b.WriteString(prose(stream(g.salt, question.ID), question.Bytes, question.Tokens, number(question.ID)))
	return Text(b.String())
}

// head is the salt of a document and its first words. It is kept for the
// families, whose heads come again and again.
func (g *Generator) head(s workload.Segment) string {
	if h, ok := g.heads[s.ID]; ok {
		return h
	}
	return g.write(s)
}

func (g *Generator) write(s workload.Segment) string {
	rng := stream(g.salt, s.ID)
	salt := hexText(rng, g.shape.SaltBytes, s.Tokens-g.shape.HeadTokens)
	return salt + prose(rng, g.shape.HeadBytes, g.shape.HeadTokens, number(s.ID))
}

// Assign makes document number candidate the head of the segment from now on:
// a controlled start picks, for each family, a document that the gateway sent
// where the family is to be. Candidates have the shape's tokens, without the
// spread that families have.
func (g *Generator) Assign(s workload.Segment, candidate int) { g.heads[s.ID] = g.candidate(candidate) }

// Candidate is p with the head of document number candidate.
func (g *Generator) Candidate(p workload.Prompt, candidate int) Text {
	other := *g
	other.heads = map[uint64]string{p[0].ID: g.candidate(candidate)}
	return other.Text(p)
}

func (g *Generator) candidate(number int) string {
	return g.write(workload.Segment{ID: candidates | uint64(number), Tokens: g.shape.SaltTokens + g.shape.HeadTokens})
}

// candidates is a kind of content that workload.Generator does not use.
const candidates = 0x80 << 56

// number is the document's or the question's number, as the text states it.
func number(id uint64) string { return strconv.FormatUint(id&0xffffffff, 10) }

// stream is the source of the words of one piece of content.
func stream(salt string, id uint64) *rand.Rand {
	return rand.New(rand.NewPCG(xxhash.Sum64String(salt), id))
}
