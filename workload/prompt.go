package workload

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
