package trace

import (
	"fmt"
	"math"
	"slices"

	"fleetsim/workload"
)

// DefaultCharsPerToken is the usual rule of thumb for English text and the
// tokenizers of large models. Traces say nothing about text, so it is a guess
// that matters only to a router that counts characters.
const DefaultCharsPerToken = 4.0

// A segment's identity is a number in one of four name spaces, told apart by its
// top bits, so that content of one kind is never taken for content of another.
const (
	namespaceBits = 2
	namespaceAt   = 64 - namespaceBits

	internedIDs = 1 << namespaceAt // hash ids that are text or above 2^62
	uniqueIDs   = 2 << namespaceAt // content that no other prompt has
	familyIDs   = 3 << namespaceAt // families' prefixes
)

// A Prompter makes the symbolic prompts of the rows of one trace. It remembers
// the families, the hash ids that do not fit 62 bits, and the conversations whose
// prompts grow by their history; its memory is bounded by these.
type Prompter struct {
	charsPerToken float64
	interned      map[string]uint64
	families      map[string]int
	unique        uint64
	history       map[string]workload.Prompt
}

// NewPrompter returns a Prompter that gives each token charsPerToken bytes of
// UTF-8 text; 0 is DefaultCharsPerToken.
func NewPrompter(charsPerToken float64) *Prompter {
	if !(charsPerToken > 0) {
		charsPerToken = DefaultCharsPerToken
	}
	return &Prompter{
		charsPerToken: charsPerToken,
		interned:      make(map[string]uint64),
		families:      make(map[string]int),
		history:       make(map[string]workload.Prompt),
	}
}

// Distinguish keeps content that no other prompt has apart from that of another
// Prompter, which has made the prompts of the given number of rows.
func (p *Prompter) Distinguish(rows int) { p.unique += 2 * uint64(rows) }

// Prompt is the row's prompt as the server gets it. Its hash ids become segments
// of one block each, the last one cut to the prompt's length; without any, the
// family's prefix is one segment; what is left is content that no other prompt
// has. A History row's prompt follows the session's earlier prompts and answers,
// which is why each row is to be asked for once, in order.
func (p *Prompter) Prompt(row *Row) workload.Prompt {
	prompt, _ := p.turn(row)
	return prompt
}

// turn is the row's prompt and the identity of its answer, which is 0 unless the
// session's next prompt has the answer in it.
func (p *Prompter) turn(row *Row) (segments workload.Prompt, answer uint64) {
	total := row.PromptTokens()
	if row.History {
		segments = slices.Clip(p.history[row.Session])
	}
	left := total
	add := func(id uint64, tokens int) {
		if tokens = min(tokens, left); tokens > 0 {
			segments = append(segments, p.segment(id, tokens))
			left -= tokens
		}
	}
	switch n := row.blocks(); {
	case n > 0:
		described := total // how much of the prompt the ids describe
		if row.InputTokens > 0 {
			described = min(total, row.InputTokens)
		}
		for i := 0; i < n && described > 0; i++ {
			size := min(row.BlockTokens, described)
			add(p.blockID(row, i), size)
			described -= size
		}
	case row.Family != "":
		add(familyIDs|uint64(p.family(row.Family)), row.FamilyTokens)
	}
	add(p.newID(), left)
	if row.History {
		answer = p.newID()
		p.history[row.Session] = append(slices.Clip(segments), p.segment(answer, row.AnswerTokens()))
	}
	return segments, answer
}

// Request is the row as an arrival of a plan. It fails with a Problem
// when a replay cannot do with what the source has.
func (p *Prompter) Request(row *Row) (workload.Request, error) {
	lacks := ""
	switch {
	case row.PromptTokens() == 0:
		lacks = "input length"
	case row.AnswerTokens() == 0:
		lacks = "output length"
	case !row.Timed && !row.Wait:
		lacks = "arrival time"
	}
	if lacks != "" {
		return workload.Request{}, Problem{Line: row.Line, Text: "no " + lacks}
	}
	family := -1
	if row.Family != "" {
		family = p.family(row.Family)
	}
	prompt, answer := p.turn(row)
	return workload.Request{
		Index:   row.Index,
		At:      row.At,
		Tenant:  row.Tenant,
		Family:  family,
		Session: row.Session,
		Prompt:  prompt,
		Answer:  answer,
		Output:  row.AnswerTokens(),
	}, nil
}

func (p *Prompter) segment(id uint64, tokens int) workload.Segment {
	return workload.Segment{ID: id, Tokens: tokens, Bytes: int(math.Round(float64(tokens) * p.charsPerToken))}
}

func (p *Prompter) newID() uint64 {
	p.unique++
	return uniqueIDs | p.unique
}

// family numbers families in the order in which they come.
func (p *Prompter) family(name string) int {
	n, ok := p.families[name]
	if !ok {
		n = len(p.families)
		p.families[name] = n
	}
	return n
}

// blockID is the identity of the row's i-th block.
func (p *Prompter) blockID(row *Row, i int) uint64 {
	var text string
	if row.HashText == nil {
		id := row.HashIDs[i]
		if id>>namespaceAt == 0 {
			return id
		}
		text = fmt.Sprint(id)
	} else {
		text = row.HashText[i]
		if text[0] != '"' {
			d := parseDecimal([]byte(text))
			if id, ok := d.uint64(); ok && id>>namespaceAt == 0 {
				return id
			}
		}
	}
	n, ok := p.interned[text]
	if !ok {
		n = uint64(len(p.interned))
		p.interned[text] = n
	}
	return internedIDs | n
}
