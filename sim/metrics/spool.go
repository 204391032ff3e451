package metrics

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// An event adds an amount to a counter, or observes it, or is a gauge's value.
type event struct {
	at     float64 // s since the phase began
	amount float64
}

const (
	eventBytes  = 16
	spoolEvents = 1 << 20 // that a spool keeps in memory
)

// A spool keeps the events of many tracks in a bounded memory: whenever it holds
// limit of them, it moves all to a temporary file, each track's sorted and in one
// piece.
type spool struct {
	dir   string // of the file; "" is the system's directory for such
	limit int
	held  []*track // those with events in memory
	n     int      // events in memory
	file  *os.File // nil: all events have fitted so far
	size  int64    // of the file
	err   error    // why events are missing
}

// A track is the events of one series.
type track struct {
	held   []event // the latest, as they came
	pieces []piece // of the file, those before
}

// A piece is a stretch of a spool's file that is in order of time.
type piece struct {
	offset int64
	events int
}

func (t *track) empty() bool { return len(t.held)+len(t.pieces) == 0 }

// add appends an event to a track of the spool.
func (s *spool) add(t *track, e event) {
	if len(t.held) == 0 {
		s.held = append(s.held, t)
		if n := len(t.pieces); n > 0 {
			t.held = make([]event, 0, t.pieces[n-1].events) // about as many will come again
		}
	}
	t.held = append(t.held, e)
	if s.n++; s.n >= s.limit {
		s.spill()
	}
}

// spill moves what is in memory to the file.
func (s *spool) spill() {
	if s.err == nil {
		s.err = s.write()
	}
	for _, t := range s.held {
		t.held = nil
	}
	s.held, s.n = s.held[:0], 0
}

func (s *spool) write() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, ".events.*.tmp"); err != nil {
			return err
		}
	}
	w := bufio.NewWriterSize(s.file, 1<<16)
	var b [eventBytes]byte
	for _, t := range s.held {
		t.sort()
		for _, e := range t.held {
			binary.LittleEndian.PutUint64(b[:8], math.Float64bits(e.at))
			binary.LittleEndian.PutUint64(b[8:], math.Float64bits(e.amount))
			_, _ = w.Write(b[:]) // Flush says what went wrong
		}
		t.pieces = append(t.pieces, piece{s.size, len(t.held)})
		s.size += int64(len(t.held)) * eventBytes
	}
	return w.Flush()
}

// sort puts the events in memory in order of time. Most come in it.
func (t *track) sort() {
	byTime := func(a, b event) int { return cmp.Compare(a.at, b.at) }
	if !slices.IsSortedFunc(t.held, byTime) {
		slices.SortStableFunc(t.held, byTime)
	}
}

// events are the track's in order of time, those of one time as they came.
func (s *spool) events(t *track) *cursor {
	t.sort()
	c := &cursor{}
	for i, p := range t.pieces {
		in := io.NewSectionReader(s.file, p.offset, int64(p.events)*eventBytes)
		c.push(&run{number: i, file: bufio.NewReader(in)})
	}
	c.push(&run{number: len(t.pieces), held: t.held})
	heap.Init(&c.runs)
	return c
}

// close removes the file.
func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return errors.Join(s.file.Close(), os.Remove(s.file.Name()))
}

// A cursor goes through the events of a track: it merges its runs.
type cursor struct {
	runs runs
	err  error // why it ended early
}

// push adds a run, unless it is over.
func (c *cursor) push(r *run) {
	if c.advance(r) {
		c.runs = append(c.runs, r)
	}
}

// until reports whether there is another event at t or before, and takes it.
func (c *cursor) until(t float64) (event, bool) {
	if len(c.runs) == 0 || c.runs[0].head.at > t {
		return event{}, false
	}
	r := c.runs[0]
	e := r.head
	if c.advance(r) {
		heap.Fix(&c.runs, 0)
	} else {
		heap.Pop(&c.runs)
	}
	return e, true
}

func (c *cursor) advance(r *run) bool {
	ok, err := r.advance()
	if err != nil {
		c.err = fmt.Errorf("temporary file: %w", err)
	}
	return ok
}

// A run is events in order of time, in memory or in a file.
type run struct {
	head   event
	number int // among the runs of a track
	held   []event
	file   *bufio.Reader // nil: in memory
}

// advance takes the next event as head; it reports whether there was one.
func (r *run) advance() (bool, error) {
	if r.file == nil {
		if len(r.held) == 0 {
			return false, nil
		}
		r.head, r.held = r.held[0], r.held[1:]
		return true, nil
	}
	b, err := r.file.Peek(eventBytes)
	if err == io.EOF && len(b) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.head = event{
		at:     math.Float64frombits(binary.LittleEndian.Uint64(b[:8])),
		amount: math.Float64frombits(binary.LittleEndian.Uint64(b[8:])),
	}
	_, _ = r.file.Discard(eventBytes) // cannot fail: it has been peeked
	return true, nil
}

// runs is a heap, the earliest head first; of equal ones that which came first.
type runs []*run

func (h runs) Len() int      { return len(h) }
func (h runs) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runs) Push(x any)   { *h = append(*h, x.(*run)) }
func (h *runs) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
func (h runs) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].head.at, h[j].head.at), cmp.Compare(h[i].number, h[j].number)) < 0
}
