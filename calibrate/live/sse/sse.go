// Package sse reads server-sent events (WHATWG HTML, section 9.2.6): events are
// blocks of lines ended by a blank line, whatever pieces they arrive in.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// An Event is one dispatched event.
type Event struct {
	Type string // the last event field; "" for the default, "message"
	Data []byte // the data fields, joined by newlines; valid until the next Next
	ID   string // the last id field of the stream so far
}

// ErrTooLong is returned for an event whose data, or a line that, exceeds the limit.
var ErrTooLong = errors.New("sse: event is longer than the limit")

// A Reader reads events.
type Reader struct {
	in    *bufio.Reader
	limit int
	begun bool   // past the place where a byte order mark may stand
	cr    bool   // the last line ended in CR: an LF right behind belongs to it
	line  []byte // scratch
	data  []byte
	id    string
}

// NewReader reads events from r, refusing lines and events of more than limit
// bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{in: bufio.NewReader(r), limit: limit}
}

// Next returns the next event that holds data; comments, unknown fields and
// events without data are passed over. At the end of the stream the error is
// io.EOF, and an event that no blank line has ended is discarded, as the
// standard says. Other errors are the reader's and ErrTooLong.
func (r *Reader) Next() (Event, error) {
	r.data = r.data[:0]
	event, hasData := Event{}, false
	for {
		line, err := r.readLine()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if hasData {
				event.Data, event.ID = r.data[:len(r.data)-1], r.id
				return event, nil
			}
			event = Event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'}) // a comment has an empty field name
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			if len(r.data)+len(value) >= r.limit {
				return Event{}, ErrTooLong
			}
			r.data = append(append(r.data, value...), '\n')
			hasData = true
		case "event":
			event.Type = string(value)
		case "id":
			if !bytes.Contains(value, []byte{0}) {
				r.id = string(value)
			}
		}
	}
}

// readLine is the next line without its end, which is CR, LF or both. A line
// that the stream's end cuts off is no line.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return nil, err
		}
		if after := r.cr; after {
			if r.cr = false; c == '\n' {
				continue
			}
		}
		switch c {
		case '\r':
			r.cr = true
			return r.whole(), nil
		case '\n':
			return r.whole(), nil
		}
		if len(r.line) >= r.limit {
			return nil, ErrTooLong
		}
		r.line = append(r.line, c)
	}
}

// whole is the line that has been read, without the byte order mark that may
// begin a stream.
func (r *Reader) whole() []byte {
	line := r.line
	if !r.begun {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	r.begun = true
	return line
}
