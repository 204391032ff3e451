package trace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"time"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// WriteOptions changes how a trace is written.
type WriteOptions struct {
	// Epoch is the date of time 0 in formats with dates; the zero value is
	// 2000-01-01 00:00:00 UTC.
	Epoch time.Time
	// CharsPerToken is as for NewPrompter.
	CharsPerToken float64
}

// Losses counts the rows that lost something because the format cannot hold it,
// by what it is.
type Losses struct {
	Format string
	Counts
}

// String is the line that a conversion prints, "" when nothing was lost.
func (l *Losses) String() string {
	if len(l.Counts) == 0 {
		return ""
	}
	s := l.Format + " cannot hold all of it:"
	for i, c := range l.Counts {
		if i > 0 {
			s += ","
		}
		s += fmt.Sprintf(" %s (%s)", c.What, plural(c.N, "row"))
	}
	return s
}

// A rowWriter writes one format.
type rowWriter interface {
	write(row *Row, lost *Losses) error
	close() error
}

// writerFor makes the writer of a format, nil for one that is only read.
func writerFor(format string) func(io.Writer, WriteOptions) rowWriter {
	switch format {
	case ownFormat.name:
		return func(w io.Writer, _ WriteOptions) rowWriter { return newOwnWriter(w) }
	case mooncakeFormat.name:
		return func(w io.Writer, o WriteOptions) rowWriter {
			return &mooncakeWriter{lineWriter: lineWriter{w: bufio.NewWriter(w)}, ids: newBlockNamer(mooncakeBlock, o)}
		}
	case bailianFormat.name:
		return func(w io.Writer, o WriteOptions) rowWriter {
			return &bailianWriter{lineWriter: lineWriter{w: bufio.NewWriter(w)}, ids: newBlockNamer(bailianBlock, o)}
		}
	case azureFormat.name:
		return func(w io.Writer, o WriteOptions) rowWriter {
			return &azureWriter{lineWriter: lineWriter{w: bufio.NewWriter(w), buf: []byte("TIMESTAMP,ContextTokens,GeneratedTokens\n")}, epoch: o.Epoch}
		}
	case burstGPTFormat.name:
		return func(w io.Writer, _ WriteOptions) rowWriter {
			return &burstGPTWriter{lineWriter{w: bufio.NewWriter(w), buf: []byte(burstGPTHeader)}}
		}
	}
	return nil
}

// A Writer writes rows in one format and counts what that cannot hold.
type Writer struct {
	w      rowWriter
	losses Losses
}

// NewWriter returns a Writer of the named format: fleetsim, mooncake, bailian,
// azure or burstgpt.
func NewWriter(format string, w io.Writer, opts WriteOptions) (*Writer, error) {
	if opts.Epoch.IsZero() {
		opts.Epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	start := writerFor(format)
	if start == nil {
		list := ""
		for _, f := range Formats() {
			if f.Writable {
				list += " " + f.Name
			}
		}
		return nil, fmt.Errorf("cannot write trace format %q: want one of%s", format, list)
	}
	return &Writer{w: start(w, opts), losses: Losses{Format: format}}, nil
}

// Write writes a row. It fails with a Problem when the row lacks what the format
// must have.
func (w *Writer) Write(row *Row) error { return w.w.write(row, &w.losses) }

// Close writes what is buffered; it does not close the underlying writer.
func (w *Writer) Close() error { return w.w.close() }

// Losses is what was lost so far.
func (w *Writer) Losses() *Losses { return &w.losses }

// Convert writes all rows in the named format and says what that could not hold
// and how many rows it wrote.
func Convert(dst io.Writer, rows Rows, format string, opts WriteOptions) (written int, lost *Losses, err error) {
	w, err := NewWriter(format, dst, opts)
	if err != nil {
		return 0, nil, err
	}
	for row, err := range rows {
		if err != nil {
			return written, w.Losses(), err
		}
		if err := w.Write(&row); err != nil {
			return written, w.Losses(), err
		}
		written++
	}
	return written, w.Losses(), w.Close()
}

// A lineWriter assembles lines; buf may start with a header.
type lineWriter struct {
	w   *bufio.Writer
	buf []byte
}

func (l *lineWriter) flush(b []byte) error {
	_, err := l.w.Write(b)
	l.buf = b[:0]
	return err
}

// close writes what is left: of a trace without rows, the header.
func (l *lineWriter) close() error {
	l.w.Write(l.buf) // a failure comes back from Flush
	return l.w.Flush()
}

// held are the properties of a row that a format has a place for, beside the time
// and the two lengths.
type held struct {
	id, session, parent, kind, model, blocks, e2e, think bool
}

// missing counts what of the row has no place.
func missing(row *Row, h held, lost *Losses) {
	for _, p := range []struct {
		lost bool
		what string
	}{
		{row.ID != "" && !h.id, "request ids"},
		{row.Phase != "", "phases"},
		{row.Tenant != "", "tenants"},
		{row.Model != "" && !h.model, "models"},
		{row.Kind != "" && !h.kind, "kinds"},
		{row.Session != "" && !h.session, "sessions"},
		{row.Parent != "" && !h.parent, "parent turns"},
		{row.Wait, "waiting for the turn before (closed loop)"},
		{row.Think.Present && !h.think, "think times"},
		{(row.blocks() > 0 || row.Family != "" || row.History) && !h.blocks, "shared prefixes"},
		{row.Status != Planned || row.TTFT.Present || row.E2E.Present && !h.e2e, "results"},
		{row.ServerInputTokens > 0, "the server's prompt lengths"},
		{row.CachedTokens.Present, "cached tokens"},
		{row.RequestedOutput > 0 && row.OutputTokens > 0 && row.RequestedOutput != row.OutputTokens, "requested lengths"},
	} {
		if p.lost {
			lost.add(p.what)
		}
	}
}

// needs fails when a row has no time or lengths, which every format but our own
// must have.
func needs(row *Row) error {
	switch {
	case !row.Timed:
		return Problem{Line: row.Line, Text: "no arrival time, which the format must have"}
	case row.At < 0:
		return Problem{Line: row.Line, Text: fmt.Sprintf("arrival time %v before 0", row.At)}
	case row.InputTokens == 0 && row.ServerInputTokens == 0:
		return Problem{Line: row.Line, Text: "no input length, which the format must have"}
	case row.AnswerTokens() == 0:
		return Problem{Line: row.Line, Text: "no output length, which the format must have"}
	}
	return nil
}

// rounded is the time to the nearest unit; what that loses is counted.
func rounded(t, unit simtime.Time, what string, lost *Losses) simtime.Time {
	if t%unit != 0 {
		lost.add(what)
	}
	return (t + unit/2) / unit
}

// A blockNamer gives prompts hash ids of a given block length. Ids that the row
// has in that length stay; otherwise an id is the hash of all of the prompt up to
// the block's end, so that sharing is kept in whole blocks. It has 63 bits: two of
// a million blocks get the same id with a chance of 5 in 100 million.
type blockNamer struct {
	block    int
	prompter *Prompter
	hashes   []uint64
}

func newBlockNamer(block int, opts WriteOptions) blockNamer {
	return blockNamer{block: block, prompter: NewPrompter(opts.CharsPerToken)}
}

// fillID is the content that fills a last, partial block up before hashing.
const fillID = ^uint64(0)

// appendIDs appends the list of ids, and gives the length of the prompt that they
// describe.
func (n *blockNamer) appendIDs(dst []byte, row *Row, lost *Losses) ([]byte, int) {
	if row.blocks() > 0 && row.BlockTokens == n.block && row.ServerInputTokens == 0 && !row.History {
		return appendIDs(dst, row), row.InputTokens
	}
	prompt := n.prompter.Prompt(row)
	tokens := prompt.Len(workload.Tokens)
	if row.blocks() > 0 && row.BlockTokens != n.block || row.Family != "" && row.FamilyTokens%n.block != 0 {
		lost.add(fmt.Sprintf("sharing below whole blocks of %d tokens", n.block))
	}
	if fill := (n.block - tokens%n.block) % n.block; fill > 0 {
		prompt = append(prompt[:len(prompt):len(prompt)], workload.Segment{ID: fillID, Tokens: fill})
	}
	n.hashes = prompt.AppendHashes(n.hashes[:0], 0, n.block, workload.Tokens)
	for i := range n.hashes {
		n.hashes[i] >>= 1 // within the signed 64 bits of other readers
	}
	return appendIDs(dst, &Row{HashIDs: n.hashes}), tokens
}

type mooncakeWriter struct {
	lineWriter
	ids blockNamer
}

func (w *mooncakeWriter) write(row *Row, lost *Losses) error {
	if err := needs(row); err != nil {
		return err
	}
	missing(row, held{blocks: true}, lost)
	at := rounded(row.At, simtime.Millisecond, "times below 1 ms", lost)
	ids, tokens := w.ids.appendIDs(nil, row, lost)
	b := fmt.Appendf(w.buf, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": `, int64(at), tokens, row.AnswerTokens())
	return w.flush(append(append(b, ids...), '}', '\n'))
}

type bailianWriter struct {
	lineWriter
	ids blockNamer
	// numeric is whether the rows' own ids serve as chat ids, as the first row
	// decides; otherwise the rows are numbered, and chats remembers how.
	started, numeric bool
	next             int
	chats            boundedMap[int]
}

func (w *bailianWriter) write(row *Row, lost *Losses) error {
	if err := needs(row); err != nil {
		return err
	}
	missing(row, held{id: true, session: true, parent: true, kind: true, blocks: true}, lost)
	chat, parent, err := w.names(row, lost)
	if err != nil {
		return err
	}
	ids, tokens := w.ids.appendIDs(nil, row, lost)
	b := fmt.Appendf(w.buf, `{"chat_id": %s, "parent_chat_id": %s, "timestamp": `, chat, parent)
	b = appendSeconds(b, row.At)
	b = fmt.Appendf(b, `, "input_length": %d, "output_length": %d, "type": `, tokens, row.AnswerTokens())
	kind := row.Kind
	if kind == "" {
		kind = "text"
	}
	b = appendString(b, kind)
	b = fmt.Appendf(b, `, "turn": %d, "hash_ids": `, max(row.Turn, 1))
	return w.flush(append(append(b, ids...), '}', '\n'))
}

// names are the row's chat id and its parent's, which the format wants as whole
// numbers.
func (w *bailianWriter) names(row *Row, lost *Losses) (chat, parent string, err error) {
	_, notNumber := strconv.ParseUint(row.ID, 10, 63)
	if !w.started {
		w.started, w.numeric = true, notNumber == nil
	}
	if w.numeric {
		if notNumber != nil {
			return "", "", Problem{Line: row.Line, Text: fmt.Sprintf("id %q is no whole number, as the first row's is", row.ID)}
		}
		if row.Parent == "" {
			return row.ID, "-1", nil
		}
		return row.ID, row.Parent, nil
	}
	if row.ID != "" {
		lost.add("request ids")
		w.chats.put(row.ID, w.next, maxSessions)
	}
	chat, parent = strconv.Itoa(w.next), "-1"
	w.next++
	if row.Parent != "" {
		if n, ok := w.chats.get(row.Parent); ok {
			parent = strconv.Itoa(n)
		} else {
			lost.add("parent turns")
		}
	} else if row.Session != "" && row.Turn > 1 {
		lost.add("sessions")
	}
	return chat, parent, nil
}

type azureWriter struct {
	lineWriter
	epoch time.Time
}

func (w *azureWriter) write(row *Row, lost *Losses) error {
	if err := needs(row); err != nil {
		return err
	}
	missing(row, held{}, lost)
	const unit = 100 * simtime.Nanosecond
	at := rounded(row.At, unit, "times below 100 ns", lost)
	when := w.epoch.Add(time.Duration(at) * 100 * time.Nanosecond).UTC()
	b := when.AppendFormat(w.buf, "2006-01-02 15:04:05.0000000+00:00")
	return w.flush(fmt.Appendf(b, ",%d,%d\n", row.PromptTokens(), row.AnswerTokens()))
}

const burstGPTHeader = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"

type burstGPTWriter struct{ lineWriter }

func (w *burstGPTWriter) write(row *Row, lost *Losses) error {
	if err := needs(row); err != nil {
		return err
	}
	h := held{session: true, kind: true, model: true, e2e: true, think: true} // think times follow from the others
	bare := *row
	if bare.Status == OK && !bare.TTFT.Present { // success and its duration have a place
		bare.Status = Planned
	}
	missing(&bare, h, lost)
	b := appendSeconds(w.buf, row.At)
	b = append(b, ',')
	b = appendCSV(b, row.Session)
	b = append(b, ',')
	if row.E2E.Present {
		b = appendSeconds(b, row.E2E.Value)
	}
	b = append(b, ',')
	b = appendCSV(b, row.Model)
	in, out := row.PromptTokens(), row.AnswerTokens()
	if row.Status != Planned && row.Status != OK {
		out = 0 // how the format marks a failure
	}
	b = fmt.Appendf(b, ",%d,%d,%d,", in, out, in+out)
	b = appendCSV(b, row.Kind)
	return w.flush(append(b, '\n'))
}

// appendCSV appends a field, quoted where RFC 4180 asks for it.
func appendCSV(dst []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		plain = plain && s[i] != '"' && s[i] != ',' && s[i] != '\n' && s[i] != '\r'
	}
	if plain {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}
