package trace

import (
	"errors"
	"fmt"
	"strings"

	"fleetsim/simtime"
)

// A Problem is one bad place of a source.
type Problem struct {
	File   string
	Line   int    // from 1; 0 when it is about the whole source
	Column string // field or column, "" for the whole line
	Text   string
}

// Error is file:line: column: problem; "line 3" stands for a file without name.
func (p Problem) Error() string {
	var b strings.Builder
	switch {
	case p.Line == 0:
		b.WriteString(p.File)
	case p.File == "":
		fmt.Fprintf(&b, "line %d", p.Line)
	default:
		fmt.Fprintf(&b, "%s:%d", p.File, p.Line)
	}
	if p.Column != "" {
		b.WriteString(": " + p.Column)
	}
	b.WriteString(": " + p.Text)
	return b.String()
}

// Located is err with the file's name, if it is a Problem that lacks it.
func Located(file string, err error) error {
	var p Problem
	if errors.As(err, &p) && p.File == "" {
		p.File = file
		return p
	}
	return err
}

// maxProblems is how many problems are described; the others are counted.
const maxProblems = 20

// A ReadError is all that is wrong with a source, as far as it was read.
type ReadError struct {
	Problems []Problem
	More     int // found but not listed
}

// Error lists the problems, one a line.
func (e *ReadError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.More)
	}
	return b.String()
}

// A Count is how often something happened.
type Count struct {
	What string
	N    int
}

// Counts are in the order in which they first happened.
type Counts []Count

func (c *Counts) add(what string) {
	for i := range *c {
		if (*c)[i].What == what {
			(*c)[i].N++
			return
		}
	}
	*c = append(*c, Count{what, 1})
}

// Total is the sum.
func (c Counts) Total() (n int) {
	for _, k := range c {
		n += k.N
	}
	return n
}

// Of is the count of what.
func (c Counts) Of(what string) int {
	for _, k := range c {
		if k.What == what {
			return k.N
		}
	}
	return 0
}

// String is "9 failed, 3 without output length".
func (c Counts) String() string {
	parts := make([]string, len(c))
	for i, k := range c {
		parts[i] = fmt.Sprintf("%d %s", k.N, k.What)
	}
	return strings.Join(parts, ", ")
}

// A Report says what became of a source.
type Report struct {
	Name   string // of the source
	Format string
	Lines  int // read
	Found  int // requests in the source
	Rows   int // given
	// Skipped counts the requests left out, by reason.
	Skipped Counts
	// Bad counts the rows that could not be read; Problems describes the first of
	// them.
	Bad      int
	Problems []Problem
	// Truncated says why the source was not read to its end, "" if it was.
	Truncated string
	// Warnings are complete when all rows have been read.
	Warnings []string
	// Timed rows lie between First and Last.
	Timed       int
	First, Last simtime.Time

	origin            instant // what was subtracted on a clock without a zero of its own
	notes             Counts
	withTTFT, withE2E int
	serverDiffers     int
	serverExtra       int64
	ttftIsFloor       int
	untimed           int // and not waiting for another
}

// note counts an oddity that becomes one warning at the end.
func (r *Report) note(what string) { r.notes.add(what) }

func (r *Report) warn(text string) { r.Warnings = append(r.Warnings, text) }

// observe books what the final warnings need to know of a row.
func (r *Report) observe(row *Row) {
	if row.Status != OK {
		return
	}
	if row.TTFT.Present {
		r.withTTFT++
	}
	if row.E2E.Present {
		r.withE2E++
	}
	if row.TTFTFloor {
		r.ttftIsFloor++
	}
	if d := row.ServerInputTokens - row.InputTokens; row.ServerInputTokens > 0 && row.InputTokens > 0 && d != 0 {
		r.serverDiffers++
		r.serverExtra += int64(d)
	}
}

// time books a row's place in time.
func (r *Report) time(at simtime.Time) {
	if r.Timed == 0 {
		r.First = at
	}
	r.Last = at
	r.Timed++
}

// finish turns what was counted into warnings.
func (r *Report) finish() {
	if r.Rows == 0 {
		r.warn("no row to give")
	}
	if r.untimed > 0 {
		r.warn(plural(r.untimed, "row") + " without arrival time")
	}
	if r.withE2E > 0 && r.withTTFT == 0 {
		r.warn("no TTFT: the source did not stream, or did not write it down")
	}
	if r.ttftIsFloor > 0 {
		r.warn(plural(r.ttftIsFloor, "row") + " whose TTFT is that of a chunk that may have no content: a lower bound, and TPOT has prefill time in it")
	}
	if r.serverDiffers > 0 {
		r.warn(fmt.Sprintf("%s whose prompt the server counted %+.1f tokens longer than the trace, on average: its count is used",
			plural(r.serverDiffers, "row"), float64(r.serverExtra)/float64(r.serverDiffers)))
	}
	for _, n := range r.notes {
		r.warn(plural(n.N, "row") + " " + n.What)
	}
}

// Rate is rows per second over the span from the first to the last; 0 when there
// is no span.
func (r *Report) Rate() float64 {
	if r.Last <= r.First {
		return 0
	}
	return float64(r.Timed-1) / (r.Last - r.First).Seconds()
}

// String is the summary that a conversion prints: rows, span and rate, then what
// was skipped and what is odd, one a line.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s", r.Name, r.Format, plural(r.Rows, "row"))
	if r.Last > r.First {
		fmt.Fprintf(&b, " over %v (%.4g/s)", r.Last-r.First, r.Rate())
	}
	if r.origin != (instant{}) {
		fmt.Fprintf(&b, ", from %v on the source's clock", r.origin)
	}
	if n := r.Skipped.Total(); n > 0 {
		fmt.Fprintf(&b, "\n%s skipped: %s", plural(n, "row"), r.Skipped)
	}
	if r.Bad > 0 {
		fmt.Fprintf(&b, "\n%s could not be read", plural(r.Bad, "row"))
		for _, p := range r.Problems {
			b.WriteString("\n  " + p.Error())
		}
		if more := r.Bad - len(r.Problems); more > 0 {
			fmt.Fprintf(&b, "\n  and %d more", more)
		}
	}
	if r.Truncated != "" {
		fmt.Fprintf(&b, "\nnot read to the end: %s; what came before it is kept", r.Truncated)
	}
	for _, w := range r.Warnings {
		b.WriteString("\nwarning: " + w)
	}
	return b.String()
}

// plural is "1 row" or "2 rows".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
