package trace

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"fleetsim/gunzip"
)

// sniffBytes is how much of an input is looked at to find its format.
const sniffBytes = 64 << 10

// An input is a source after decompression, without byte order mark.
type input struct {
	*bufio.Reader
	gzipped bool
}

// openInput looks through gzip and a byte order mark.
func openInput(r io.Reader) (*input, error) {
	raw := bufio.NewReaderSize(r, sniffBytes)
	in := &input{Reader: raw}
	if gunzip.Is(raw) {
		z, err := gunzip.NewReader(raw)
		if err != nil {
			return nil, fmt.Errorf("gzip header: %w", err)
		}
		in = &input{Reader: bufio.NewReaderSize(z, sniffBytes), gzipped: true}
	}
	if bom, _ := in.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		in.Discard(3)
	}
	return in, nil
}

// truncation says how the input ended early, "" if err is no such end.
func (in *input) truncation(err error) string {
	var corrupt flate.CorruptInputError
	switch {
	case !in.gzipped:
		return ""
	case err == gunzip.ErrTrailing:
		return err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the gzip stream is cut off"
	case errors.Is(err, gzip.ErrChecksum):
		return "the gzip stream fails its checksum"
	case errors.Is(err, gzip.ErrHeader), errors.As(err, &corrupt):
		return "the gzip stream is damaged"
	}
	return ""
}

// errLineTooLong is a line that was skipped for its length.
var errLineTooLong = errors.New("line too long")

// lines reads an input line by line.
type lines struct {
	in    *input
	limit int
	n     int // of the line last read, from 1
	buf   []byte
}

// next is the next line without its end, valid until the next call. whole is
// false when the input ended before the line did. A line above the limit is
// passed over and reported with errLineTooLong.
func (l *lines) next() (line []byte, whole bool, err error) {
	l.buf = l.buf[:0]
	tooLong := false
	for {
		part, err := l.in.ReadSlice('\n')
		if len(l.buf)+len(part) > l.limit {
			tooLong = true
			l.buf = l.buf[:0]
		}
		if err == nil && len(l.buf) == 0 && !tooLong {
			l.n++
			return trimEnd(part), true, nil
		}
		if !tooLong {
			l.buf = append(l.buf, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err != nil && len(l.buf) == 0 && !tooLong:
			return nil, false, err
		}
		l.n++
		if tooLong {
			return nil, err == nil, errLineTooLong
		}
		return trimEnd(l.buf), err == nil, nil
	}
}

// trimEnd cuts the line end, LF or CRLF.
func trimEnd(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

// maxQuotedLines bounds how many lines one CSV record may run over, so that a
// stray quote does not swallow the rest of the file.
const maxQuotedLines = 1000

// A csvSplitter cuts CSV records (RFC 4180) into fields.
type csvSplitter struct {
	record []byte
	fields [][]byte
}

// next is the next record's fields, which are valid until the next call, and the
// line on which it began. A blank line has no fields.
func (s *csvSplitter) next(l *lines) (fields [][]byte, line int, whole bool, err error) {
	text, whole, err := l.next()
	line = l.n
	if err != nil {
		return nil, line, whole, err
	}
	if bytes.IndexByte(text, '"') < 0 {
		return s.plain(text), line, whole, nil
	}
	s.record = append(s.record[:0], text...)
	for n := 0; bytes.Count(s.record, []byte{'"'})%2 == 1; n++ {
		if n == maxQuotedLines || len(s.record) > l.limit {
			return nil, line, whole, &fieldError{text: "a quote that opens here does not close", off: -1}
		}
		more, ok, err := l.next()
		if err != nil {
			return nil, line, false, &fieldError{text: "a quote that opens here does not close", off: -1}
		}
		whole = ok
		s.record = append(append(s.record, '\n'), more...)
	}
	return s.quoted(), line, whole, nil
}

// plain splits a record without quotes in place.
func (s *csvSplitter) plain(text []byte) [][]byte {
	s.fields = s.fields[:0]
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	for {
		i := bytes.IndexByte(text, ',')
		if i < 0 {
			s.fields = append(s.fields, bytes.TrimSpace(text))
			return s.fields
		}
		s.fields = append(s.fields, bytes.TrimSpace(text[:i]))
		text = text[i+1:]
	}
}

// quoted splits s.record, rewriting it without its quotes.
func (s *csvSplitter) quoted() [][]byte {
	s.fields = s.fields[:0]
	out := s.record[:0]
	start, inside := 0, false
	for i := 0; i < len(s.record); i++ {
		switch b := s.record[i]; {
		case b == '"' && inside && i+1 < len(s.record) && s.record[i+1] == '"':
			out = append(out, '"')
			i++
		case b == '"':
			inside = !inside
		case b == ',' && !inside:
			s.fields = append(s.fields, bytes.TrimSpace(out[start:]))
			start = len(out)
		default:
			out = append(out, b)
		}
	}
	s.fields = append(s.fields, bytes.TrimSpace(out[start:]))
	return s.fields
}
