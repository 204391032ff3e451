package trace

import (
	"bufio"
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"iter"

	"fleetsim/gunzip"
	"fleetsim/simtime"
)

// Options changes how a source is read. The zero value reads any known format
// with its own conventions.
type Options struct {
	// Format is the name of the format, or "" to find it out.
	Format string
	// TimeUnit overrides the unit of the format's arrival times (not of its
	// latencies).
	TimeUnit TimeUnit
	// BlockTokens overrides how many tokens a hash id stands for (Mooncake 512,
	// Bailian 16).
	BlockTokens int
	// CharsPerToken turns text without a token count into tokens; 0 is 4.
	CharsPerToken float64
	// TextBlockTokens is the block length by which prompts that come as text are
	// compared, so that those that begin alike share a prefix; 0 is 16.
	TextBlockTokens int
	// DefaultOutput stands in where a row has no output length; 0 skips the row.
	DefaultOutput int
	// FamilyTokens is the length of the prefix that a family shares where the
	// source names families without it.
	FamilyTokens int
	// KeepAll gives failed rows and rows without lengths too, which are otherwise
	// skipped and counted: a calibration wants them, a replay cannot use them.
	KeepAll bool
	// SkipFirst leaves out the first rows of the source, in its own order, as
	// warm-up.
	SkipFirst int
	// SortWindow is how many rows are held back to put them in the order of time;
	// 0 is 1024 for arrival traces and 65536 for result logs, which are in the order
	// of completion. Documents are sorted as a whole.
	SortWindow int
	// MaxErrors is how many bad rows are skipped before reading fails; negative is
	// any number.
	MaxErrors int
	// Strict fails at the first bad row, at a source that is cut off, and at the end
	// if there is any warning.
	Strict bool
	// MaxLineBytes bounds a line; 0 is 16 MiB.
	MaxLineBytes int
	// MaxDocumentBytes bounds a source that is one JSON document, which is held in
	// memory; 0 is 512 MiB.
	MaxDocumentBytes int
}

func (o Options) withDefaults(f *format) Options {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.SortWindow, f.window)
	set(&o.MaxLineBytes, 16<<20)
	set(&o.MaxDocumentBytes, 512<<20)
	set(&o.TextBlockTokens, 16)
	if !(o.CharsPerToken > 0) {
		o.CharsPerToken = DefaultCharsPerToken
	}
	if o.TimeUnit == DefaultUnit {
		o.TimeUnit = f.unit
	}
	if o.Strict {
		o.MaxErrors = 0
	}
	return o
}

// A Reader gives the rows of one source in the order of time; rows of the same
// time stay in the source's order.
type Reader struct {
	opts      Options
	f         *format
	unitGiven bool
	in        *input
	step      func() error // reads on; io.EOF at the end
	report    Report

	staged []*pending // rows of the record at hand
	window pendingHeap
	free   []*pending
	found  int // rows seen in the source
	ended  bool
	err    error

	origin    Optional[instant]
	last      instant             // time of the row last given
	lastFound instant             // time of the row last read, for rows without one
	sessions  boundedMap[instant] // end of each session's last turn
	roots     boundedMap[string]  // first turn of each turn's conversation
	fractions int
}

// pending is a row on its way through the reader.
type pending struct {
	row  Row
	at   Optional[instant]
	seq  int
	skip string // why it is left out, "" if it is not
}

// Open finds out the format of r, or takes opts.Format, and returns its rows.
// name stands in messages.
func Open(name string, r io.Reader, opts Options) (*Reader, error) {
	in, err := openInput(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	prefix, err := in.Peek(sniffBytes)
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull && in.truncation(err) == "" {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f, err := chooseFormat(opts.Format, prefix)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rd := &Reader{
		unitGiven: opts.TimeUnit != DefaultUnit,
		opts:      opts.withDefaults(f),
		f:         f,
		in:        in,
		report:    Report{Name: name, Format: f.name},
	}
	switch {
	case f.fields != nil:
		rd.step, err = rd.csvSteps()
	case f.document || firstByte(prefix) == '[':
		rd.step = rd.documentStep
	default:
		rd.step = rd.lineSteps()
	}
	if err != nil {
		return nil, err
	}
	return rd, nil
}

// Format is the name of the source's format.
func (r *Reader) Format() string { return r.f.name }

// MayWait reports whether the source's format can hold rows that Wait.
func (r *Reader) MayWait() bool { return r.f.waits }

// Report is what has been read and skipped so far; it is complete when Next has
// returned an error or io.EOF.
func (r *Reader) Report() *Report { return &r.report }

// Rows iterates over the rows; the last element carries the error if reading
// failed.
func (r *Reader) Rows() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for {
			row, err := r.Next()
			if err == io.EOF {
				return
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// Next is the next row, or io.EOF after the last. Any other error is a *ReadError
// or one of the underlying reader, and final.
func (r *Reader) Next() (Row, error) {
	for r.err == nil {
		for !r.ended && len(r.window) <= r.opts.SortWindow && r.err == nil {
			r.err = r.readOn()
		}
		if r.err != nil {
			break
		}
		if len(r.window) == 0 {
			r.err = r.finish()
			break
		}
		p := heap.Pop(&r.window).(*pending)
		row, err := r.place(p)
		r.free = append(r.free, p)
		if err != nil {
			r.err = r.problem(row.Line, err)
			continue
		}
		r.report.Rows++
		return row, nil
	}
	return Row{}, r.err
}

// readOn takes one step and turns its failure into a problem or the end.
func (r *Reader) readOn() error {
	err := r.step()
	if err == nil {
		return nil
	}
	if cut := r.in.truncation(err); cut != "" {
		return r.cutOff(cut)
	}
	r.ended = true
	if err == io.EOF {
		return nil
	}
	if e := (*ReadError)(nil); errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%s: %w", r.report.Name, err)
}

// cutOff ends the source early, with what it has given.
func (r *Reader) cutOff(how string) error {
	r.ended = true
	r.report.Truncated = how
	if r.opts.Strict {
		return &ReadError{Problems: []Problem{{File: r.report.Name, Line: r.report.Lines, Text: how}}}
	}
	return nil
}

// finish closes the report.
func (r *Reader) finish() error {
	r.warnAtEnd()
	if r.opts.Strict && len(r.report.Warnings) > 0 {
		e := &ReadError{}
		for _, w := range r.report.Warnings {
			e.Problems = append(e.Problems, Problem{File: r.report.Name, Text: w})
		}
		return e
	}
	return io.EOF
}

// problem books a bad row; it fails when there are too many, and then lists those
// that follow closely too, so that they can be mended in one go.
func (r *Reader) problem(line int, err error) error {
	r.book(line, err)
	if r.opts.MaxErrors < 0 || r.report.Bad <= r.opts.MaxErrors {
		return nil
	}
	const lookAhead = 1000
	allowed := r.opts.MaxErrors
	r.opts.MaxErrors = -1
	for n := 0; n < lookAhead && !r.ended && len(r.report.Problems) < maxProblems; n++ {
		if r.readOn() != nil {
			break
		}
	}
	r.opts.MaxErrors = allowed
	return r.failure()
}

func (r *Reader) failure() error {
	return &ReadError{Problems: r.report.Problems, More: r.report.Bad - len(r.report.Problems)}
}

// book describes a problem, or only counts it when there are many.
func (r *Reader) book(line int, err error) {
	r.report.Bad++
	if len(r.report.Problems) == maxProblems {
		return
	}
	p := Problem{File: r.report.Name, Line: line, Text: err.Error()}
	if e := (*fieldError)(nil); errors.As(err, &e) {
		p.Column, p.Text = e.path, e.text
	}
	r.report.Problems = append(r.report.Problems, p)
}

// lineSteps reads one JSON value a line.
func (r *Reader) lineSteps() func() error {
	l := &lines{in: r.in, limit: r.opts.MaxLineBytes}
	c := &cursor{}
	return func() error {
		line, whole, err := l.next()
		r.report.Lines = l.n
		if err == errLineTooLong {
			return r.problem(l.n, fmt.Errorf("line longer than %d bytes", l.limit))
		}
		if err != nil {
			return err
		}
		if !whole {
			if cut := r.endsEarly(); cut != "" {
				return r.cutOff(fmt.Sprintf("%s in line %d", cut, l.n))
			}
		}
		*c = cursor{b: line, keys: c.keys[:0]}
		if c.peek() == 0 {
			return nil
		}
		if err := r.record(c, l.n); err != nil {
			if again := (&cursor{b: line}); !whole && again.skip() != nil && again.peek() == 0 {
				return r.cutOff(fmt.Sprintf("line %d, the last, is cut off", l.n))
			}
			return r.problem(l.n, err)
		}
		return nil
	}
}

// endsEarly says how the input ends early when its last line has no end, "" if
// the line is whole all the same.
func (r *Reader) endsEarly() string {
	_, err := r.in.Peek(1)
	if err == gunzip.ErrTrailing {
		return ""
	}
	return r.in.truncation(err)
}

// record decodes a value that stands alone.
func (r *Reader) record(c *cursor, line int) error {
	err := r.f.record(r, c, line)
	if err == nil {
		err = c.end()
	}
	r.commit(err == nil)
	return err
}

// documentStep reads the whole source: one JSON value, several one after the
// other, or a list of them.
func (r *Reader) documentStep() error {
	data, err := io.ReadAll(io.LimitReader(r.in, int64(r.opts.MaxDocumentBytes)+1))
	if err == gunzip.ErrTrailing {
		err = r.cutOff(err.Error()) // what stands before may be whole
	}
	if cut := r.in.truncation(err); cut != "" {
		return fmt.Errorf("%s: a JSON document cannot be read in part", cut)
	}
	if err != nil {
		return err
	}
	if len(data) > r.opts.MaxDocumentBytes {
		return fmt.Errorf("document longer than %d bytes, which must fit in memory; raise the limit", r.opts.MaxDocumentBytes)
	}
	r.opts.SortWindow = len(data) // more than there can be rows: sorted as a whole
	r.report.Lines = 1 + bytes.Count(data, []byte{'\n'})
	c := &cursor{b: data}
	for c.peek() != 0 && err == nil {
		if c.peek() == '[' {
			err = c.array(func(int) error { return r.value(c) })
		} else {
			err = r.value(c)
		}
	}
	if err != nil {
		r.book(c.lineOf(err), err)
	}
	if r.opts.MaxErrors >= 0 && r.report.Bad > r.opts.MaxErrors {
		return r.failure()
	}
	return io.EOF
}

// value decodes one value of a document.
func (r *Reader) value(c *cursor) error {
	c.space()
	start := c.i
	decode := func() error { return r.f.record(r, c, c.lineAt(start)) }
	if !r.f.document {
		return r.element(c, decode)
	}
	err := decode()
	r.commit(err == nil)
	if e := (*fieldError)(nil); errors.As(err, &e) && e.off < 0 {
		e.off = start
	}
	return err
}

// element decodes one request of a document. If it is sound JSON but makes no
// sense it is booked and passed over.
func (r *Reader) element(c *cursor, decode func() error) error {
	start := c.i
	err := decode()
	r.commit(err == nil)
	if err == nil {
		return nil
	}
	c.i = start
	if syntax := c.skip(); syntax != nil {
		return syntax
	}
	r.book(c.lineOf(err), err)
	return nil
}

// lineOf is the line of the document in which err came up.
func (c *cursor) lineOf(err error) int {
	if e := (*fieldError)(nil); errors.As(err, &e) && e.off >= 0 {
		return c.lineAt(e.off)
	}
	return c.lineAt(c.i)
}

// stage adds a row of the record at hand. The caller fills it in before it
// returns.
func (r *Reader) stage(line int) *pending {
	var p *pending
	if n := len(r.free); n > 0 {
		p, r.free = r.free[n-1], r.free[:n-1]
		*p = pending{}
	} else {
		p = new(pending)
	}
	p.row.Line = line
	r.staged = append(r.staged, p)
	return p
}

// unstage takes the row staged last back: the record holds none.
func (r *Reader) unstage() {
	last := len(r.staged) - 1
	r.free = append(r.free, r.staged[last])
	r.staged = r.staged[:last]
}

// commit passes the staged rows on, or drops them.
func (r *Reader) commit(ok bool) {
	for _, p := range r.staged {
		if !ok || !r.admit(p) {
			r.free = append(r.free, p)
		}
	}
	r.staged = r.staged[:0]
}

// admit puts a row in the window unless it is to be skipped.
func (r *Reader) admit(p *pending) bool {
	p.seq = r.found
	r.found++
	r.report.Found++
	if p.at.Present {
		r.lastFound = p.at.Value
	}
	r.settle(&p.row)
	if p.seq < r.opts.SkipFirst {
		p.skip = "warm-up"
	}
	reason := p.skip
	if reason == "" {
		reason = unusable(&p.row)
	}
	if reason != "" && !r.opts.KeepAll || p.skip == "warm-up" {
		r.report.Skipped.add(reason)
		return false
	}
	if !p.at.Present {
		p.at.Value = r.lastFound
	}
	heap.Push(&r.window, p)
	return true
}

// unusable says why a row cannot be replayed.
func unusable(row *Row) string {
	switch {
	case row.Status == Unknown:
		return "with an answer but no token count"
	case row.Status != OK && row.Status != Planned:
		return row.Status.String()
	case row.PromptTokens() == 0:
		return "without input length"
	case row.AnswerTokens() == 0:
		return "without output length"
	}
	return ""
}

// settle applies the options to a row and books what is odd about it.
func (r *Reader) settle(row *Row) {
	if row.AnswerTokens() == 0 && (row.Status == Planned || row.Status == OK) {
		row.RequestedOutput = r.opts.DefaultOutput
	}
	if row.Family != "" && row.FamilyTokens == 0 {
		row.FamilyTokens = min(r.opts.FamilyTokens, row.PromptTokens())
		if row.FamilyTokens == 0 {
			r.report.note("with a family but no length of its prefix: their prompts share nothing")
		}
	}
	r.report.observe(row)
}

// place gives the row its offset, and the think time that follows from the turn
// before.
func (r *Reader) place(p *pending) (Row, error) {
	row := &p.row
	at := p.at.Value
	if !r.origin.Present && p.at.Present {
		r.origin = Some(instant{})
		if r.f.absolute {
			r.origin = Some(at)
			r.report.origin = at
		}
	}
	if at.before(r.last) {
		gap, _ := r.last.since(at)
		return *row, fmt.Errorf("is %v earlier than a row already given: sort the file, or raise the sort window above %d rows",
			gap, r.opts.SortWindow)
	}
	row.Timed = p.at.Present
	if r.origin.Present {
		offset, ok := at.since(r.origin.Value)
		if !ok {
			return *row, fmt.Errorf("is more than %d s after the start of the trace", maxSpanSeconds)
		}
		row.At = offset
	}
	r.last = at
	r.think(row, at)
	row.Index = r.report.Rows
	if row.Timed {
		r.report.time(row.At)
	} else if !row.Wait {
		r.report.untimed++
	}
	return *row, nil
}

// maxSessions bounds how many sessions' last turns are remembered.
const maxSessions = 1 << 20

// think derives the think time of a measured turn: from the end of the session's
// turn before to this one's start.
func (r *Reader) think(row *Row, due instant) {
	if row.Session == "" || !row.Timed {
		return
	}
	start := due.add(row.Late.Value)
	if end, ok := r.sessions.get(row.Session); ok && !row.Think.Present {
		if gap, ok := start.since(end); ok && gap >= 0 {
			row.Think = Some(gap)
		}
	}
	if row.E2E.Present {
		r.sessions.put(row.Session, start.add(row.E2E.Value), maxSessions)
	}
}

// warnAtEnd adds the warnings that only the whole source allows.
func (r *Reader) warnAtEnd() {
	rep := &r.report
	if r.f.guessUnit && !r.unitGiven && rep.Timed >= 3 {
		span := rep.Last - rep.First
		tooFast := span > 0 && float64(rep.Timed-1)/span.Seconds() > 1000
		if r.fractions > 0 || tooFast {
			rep.warn(fmt.Sprintf("%d of %d times are fractions of a %s and all lie within %v: if they are in seconds, set the time unit to s",
				r.fractions, rep.Timed, r.f.unit, span))
		}
	}
	rep.finish()
}

// pendingHeap orders rows by time, then by their place in the source.
type pendingHeap []*pending

func (h pendingHeap) Len() int { return len(h) }
func (h pendingHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.at.Value != b.at.Value {
		return a.at.Value.before(b.at.Value)
	}
	return a.seq < b.seq
}
func (h pendingHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *pendingHeap) Push(x any) { *h = append(*h, x.(*pending)) }

// Pop is for container/heap.
func (h *pendingHeap) Pop() any {
	old := *h
	p := old[len(old)-1]
	*h = old[:len(old)-1]
	return p
}

// A boundedMap forgets its oldest keys when it is full.
type boundedMap[V any] struct {
	values map[string]V
	keys   []string // ring of the keys in order of arrival
	next   int
}

func (m *boundedMap[V]) get(key string) (V, bool) {
	v, ok := m.values[key]
	return v, ok
}

// put sets a key, which makes no difference to its age, and keeps at most limit.
func (m *boundedMap[V]) put(key string, v V, limit int) {
	if m.values == nil {
		m.values = make(map[string]V)
	}
	if _, ok := m.values[key]; !ok {
		if len(m.keys) < limit {
			m.keys = append(m.keys, key)
		} else {
			delete(m.values, m.keys[m.next])
			m.keys[m.next] = key
			m.next = (m.next + 1) % limit
		}
	}
	m.values[key] = v
}

// timeSpan is an Optional difference b - a of two optional instants; absent when
// either is, or when b is before a.
func timeSpan(a, b Optional[instant]) Optional[simtime.Time] {
	if !a.Present || !b.Present {
		return Optional[simtime.Time]{}
	}
	t, ok := b.Value.since(a.Value)
	if !ok || t < 0 {
		return Optional[simtime.Time]{}
	}
	return Some(t)
}
