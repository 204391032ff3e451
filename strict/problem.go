package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Place is where a value was written: a line of a file, or a command-line
// setting, which has no line.
type Place struct {
	File      string
	Line, Col int // from 1; 0 when there is none. Col counts bytes.
}

// A Problem is one thing that is wrong with an input, and what would be right.
type Problem struct {
	Place
	Path Path // the key at fault
	Msg  string
}

// String is "file:line: message".
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Msg
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Msg)
}

// Problems is everything that is wrong with an input. It is an error when it
// is not empty.
type Problems []Problem

// MaxProblems is how many problems are worth reporting: enough to see what is
// wrong with a list that is wrong throughout.
const MaxProblems = 100

// Error is the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err is ps in the order of the input, or nil when there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Col, b.Col), cmp.Compare(a.Path, b.Path))
	})
	return ps
}
