package sse

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func all(r io.Reader) (events []string, err error) {
	in := NewReader(r, 1<<16)
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, string(e.Data))
	}
}

var streams = map[string]struct {
	in   string
	want []string
}{
	"lf":                         {"data: a\n\ndata: b\n\n", []string{"a", "b"}},
	"crlf":                       {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
	"cr":                         {"data: a\r\rdata: b\r\r", []string{"a", "b"}},
	"mixed ends":                 {"data: a\r\n\ndata: b\n\r\n", []string{"a", "b"}},
	"no space":                   {"data:a\n\n", []string{"a"}},
	"two spaces":                 {"data:  a\n\n", []string{" a"}},
	"several data lines":         {"data: a\ndata: b\n\n", []string{"a\nb"}},
	"comments":                   {": ping\n\n: x\ndata: a\n: y\n\n:\n\n", []string{"a"}},
	"other fields":               {"event: message\nid: 7\nretry: 10\ndata: a\n\n", []string{"a"}},
	"event without data":         {"event: ping\n\ndata: a\n\n", []string{"a"}},
	"empty data":                 {"data\n\ndata:\n\n", []string{"", ""}},
	"field with a suffix":        {"data2: a\n\n", nil},
	"field with a leading space": {" data: a\n\n", nil},
	"byte order mark":            {"\xef\xbb\xbfdata: a\n\n", []string{"a"}},
	"mark not at the start":      {"\n\xef\xbb\xbfdata: a\n\n", nil},
	"unended event":              {"data: a\n\ndata: b\n", []string{"a"}},
	"unended line":               {"data: a\n\ndata: b", []string{"a"}},
	"nothing":                    {"", nil},
	"blank lines":                {"\n\n\r\n\n", nil},
}

// Events do not depend on the pieces in which the stream arrives.
func TestEvents(t *testing.T) {
	for name, c := range streams {
		t.Run(name, func(t *testing.T) {
			for pieces, r := range map[string]io.Reader{
				"whole":        strings.NewReader(c.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(c.in)),
				"halves":       iotest.HalfReader(strings.NewReader(c.in)),
				"with EOF":     iotest.DataErrReader(strings.NewReader(c.in)),
			} {
				got, err := all(r)
				require.NoError(t, err)
				require.Equal(t, c.want, got, pieces)
			}
		})
	}
}

func TestTypeAndID(t *testing.T) {
	r := NewReader(strings.NewReader("event: error\nid: 1\ndata: a\n\ndata: b\nid: x\x00y\n\n"), 100)
	e, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, Event{Type: "error", Data: []byte("a"), ID: "1"}, e)
	e, err = r.Next()
	require.NoError(t, err)
	require.Equal(t, Event{Data: []byte("b"), ID: "1"}, e, "the type is the event's own, the id stays; one with NUL is ignored")
}

func TestLimit(t *testing.T) {
	for name, in := range map[string]string{
		"line":  "data: " + strings.Repeat("x", 200) + "\n\n",
		"event": strings.Repeat("data: xxxxxxxxx\n", 20) + "\n",
	} {
		_, err := NewReader(strings.NewReader(in), 100).Next()
		require.ErrorIs(t, err, ErrTooLong, name)
	}
}

func TestReadError(t *testing.T) {
	events, err := all(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	require.Equal(t, []string{"a"}, events)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// Whatever comes in, splitting it elsewhere changes nothing, no event is
// longer than what came in, and reading ends.
func FuzzEvents(f *testing.F) {
	for _, c := range streams {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		whole, err := all(strings.NewReader(in))
		pieces, err2 := all(iotest.OneByteReader(strings.NewReader(in)))
		require.Equal(t, err, err2)
		require.Equal(t, whole, pieces)
		total := 0
		for _, e := range whole {
			total += len(e)
		}
		require.LessOrEqual(t, total, len(in))
	})
}
