package trace

import (
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Block lengths of the traces that identify content by block, in tokens.
const (
	mooncakeBlock = 512
	bailianBlock  = 16
)

var mooncakeFormat = &format{
	name:      "mooncake",
	title:     "Mooncake trace, JSONL",
	unit:      Milliseconds,
	guessUnit: true,
	window:    traceWindow,
	waits:     true,
	required:  []string{"input_length|text_input|messages", "output_length|timestamp|delay|session_id"},
	foreign:   []string{"chat_id"},
	record:    mooncakeRecord,
}

// mooncakeRecord reads a line of the published traces, or of the dialects in
// which other tools extend them: session_id, delay, text_input, messages.
func mooncakeRecord(r *Reader, c *cursor, line int) error {
	p := r.stage(line)
	row := &p.row
	row.BlockTokens = r.blockTokens(mooncakeBlock)
	var text []byte
	err := c.object(func(key []byte) (err error) {
		switch string(key) {
		case "timestamp":
			err = r.arrival(c, p)
		case "input_length":
			err = c.countInto(&row.InputTokens)
		case "output_length":
			err = c.countInto(&row.OutputTokens)
		case "hash_ids":
			err = c.hashIDs(row)
		case "session_id":
			err = c.textInto(&row.Session)
		case "delay":
			row.Wait = true
			err = c.spanInto(&row.Think, r.opts.TimeUnit)
		case "text_input", "messages":
			text, err = c.promptText()
		case "request_id":
			err = c.textInto(&row.ID)
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	row.History = row.Session != "" && row.blocks() == 0
	r.fromText(row, text)
	r.checkBlocks(row)
	return nil
}

var bailianFormat = &format{
	name:     "bailian",
	title:    "Alibaba Bailian (Qwen) usage trace, JSONL",
	unit:     Seconds,
	window:   traceWindow,
	required: []string{"chat_id", "input_length"},
	record:   bailianRecord,
}

func bailianRecord(r *Reader, c *cursor, line int) error {
	p := r.stage(line)
	row := &p.row
	row.BlockTokens = r.blockTokens(bailianBlock)
	err := c.object(func(key []byte) (err error) {
		switch string(key) {
		case "chat_id":
			err = c.textInto(&row.ID)
		case "parent_chat_id":
			err = c.textInto(&row.Parent)
		case "timestamp":
			err = r.arrival(c, p)
		case "input_length":
			err = c.countInto(&row.InputTokens)
		case "output_length":
			err = c.countInto(&row.OutputTokens)
		case "type":
			err = c.textInto(&row.Kind)
		case "turn":
			err = c.countInto(&row.Turn)
		case "hash_ids":
			err = c.hashIDs(row)
		default:
			err = c.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if row.Parent == "-1" {
		row.Parent = ""
	}
	row.Session = r.session(row.ID, row.Parent)
	r.checkBlocks(row)
	return nil
}

// session is the first turn of the conversation that the turn id continues: that
// of its parent, or the parent itself when it is not in the source.
func (r *Reader) session(id, parent string) string {
	root := id
	if parent != "" {
		root = parent
		if known, ok := r.roots.get(parent); ok {
			root = known
		}
	}
	r.roots.put(id, root, maxSessions)
	return root
}

func (r *Reader) blockTokens(own int) int {
	if r.opts.BlockTokens > 0 {
		return r.opts.BlockTokens
	}
	return own
}

// arrival reads the arrival time of p in the format's unit.
func (r *Reader) arrival(c *cursor, p *pending) error {
	at, fraction, err := c.instant(r.opts.TimeUnit)
	if fraction {
		r.fractions++
	}
	p.at = at
	return err
}

// checkBlocks books lists of ids that do not fit the prompt's length.
func (r *Reader) checkBlocks(row *Row) {
	n := row.blocks()
	if n == 0 {
		row.BlockTokens = 0
	}
	if n == 0 || row.InputTokens == 0 {
		return
	}
	switch need := blocksFor(row.InputTokens, row.BlockTokens); {
	case n > need:
		r.report.note(fmt.Sprintf("with more hash ids than the prompt has %d-token blocks: the surplus is left out", row.BlockTokens))
	case n < need:
		r.report.note(fmt.Sprintf("with fewer hash ids than the prompt has %d-token blocks: the rest is shared with no other prompt", row.BlockTokens))
	}
}

// blocksFor is the number of blocks of a prompt, a partial one included.
func blocksFor(tokens, block int) int { return (tokens + block - 1) / block }

// promptText is a prompt as text: a string, or a list of messages put one after
// the other with their roles.
func (c *cursor) promptText() ([]byte, error) {
	switch c.peek() {
	case '"':
		return c.str()
	case '[':
	default:
		return nil, c.skip()
	}
	var text []byte
	err := c.array(func(int) error {
		return c.object(func(key []byte) error {
			if string(key) != "role" && string(key) != "content" || c.peek() != '"' {
				return c.skip()
			}
			s, err := c.str()
			text = append(append(text, s...), '\n')
			return err
		})
	})
	return text, err
}

// fromText takes from a prompt's text what the source does not say otherwise: its
// length, and the identity of its blocks, so that prompts that begin alike share.
func (r *Reader) fromText(row *Row, text []byte) {
	if len(text) == 0 {
		return
	}
	if row.InputTokens == 0 {
		row.InputTokens = max(1, int(math.Round(float64(len(text))/r.opts.CharsPerToken)))
		r.report.note(fmt.Sprintf("whose input length is estimated from the text at %g bytes per token", r.opts.CharsPerToken))
	}
	if row.blocks() > 0 {
		return
	}
	row.BlockTokens = r.opts.TextBlockTokens
	size := max(1, int(math.Round(float64(row.BlockTokens)*r.opts.CharsPerToken)))
	most := blocksFor(row.InputTokens, row.BlockTokens)
	for len(text) > 0 && len(row.HashIDs) < most {
		part := text[:min(size, len(text))]
		text = text[len(part):]
		row.HashIDs = append(row.HashIDs, xxhash.Sum64(part)>>namespaceBits)
	}
}
