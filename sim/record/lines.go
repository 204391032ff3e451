package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"fleetsim/gunzip"
)

// A LineError is one problem at one place of an input; it prints as
// "file:line: problem".
type LineError struct {
	File    string
	Line    int // from 1
	Problem string
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem) }

var byteOrderMark = []byte("\xef\xbb\xbf")

// lines reads a text input line by line, unpacked when it is gzip, without byte
// order mark, line ends and blank lines.
type lines struct {
	file  string
	r     *bufio.Reader
	line  int // number of the line last read
	limit int // longest line, in bytes
	buf   []byte
	err   error // why there is no next line
}

func newLines(file string, r io.Reader, limit int) *lines {
	l := &lines{file: file, limit: limit}
	packed := bufio.NewReader(r)
	l.r = packed
	if gunzip.Is(packed) {
		unpacked, err := gunzip.NewReader(packed)
		if err != nil {
			l.line = 1
			l.err = l.broken(err)
			return l
		}
		l.r = bufio.NewReader(unpacked)
	}
	if mark, _ := l.r.Peek(len(byteOrderMark)); bytes.Equal(mark, byteOrderMark) {
		_, _ = l.r.Discard(len(byteOrderMark)) // cannot fail: it has been peeked
	}
	return l
}

// next is the next line that is not blank; it is good until the call after. A
// line that is too long is an error, and the next call goes on behind it. Any other
// error is the last and stays in l.err: io.EOF, or where the input broke.
func (l *lines) next() ([]byte, error) {
	for l.err == nil {
		line, tooLong := l.read()
		if tooLong {
			return nil, l.problem("the line is longer than %d bytes", l.limit)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
	return nil, l.err
}

// each calls f with every line and lists what it and the input complain of.
func (l *lines) each(f func(line []byte) error) error {
	var problems problemList
	for {
		line, err := l.next()
		if err == io.EOF {
			return problems.err(l.file)
		}
		if err == nil {
			err = f(line)
		}
		if err != nil {
			problems.add(err)
		}
		if err != nil && err == l.err {
			return problems.err(l.file)
		}
	}
}

// read reads up to and with the next line feed, or to the end of the input, and
// sets l.err there. When the input breaks, what follows the last line feed is not to
// be trusted and dropped.
func (l *lines) read() (line []byte, tooLong bool) {
	l.line++
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		tooLong = tooLong || len(l.buf)+len(part) > l.limit
		if !tooLong {
			l.buf = append(l.buf, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF:
			l.err = err
		case err == gunzip.ErrTrailing: // what stands before is whole
			l.err = l.broken(err)
		case err != nil:
			l.err = l.broken(err)
			return nil, false
		}
		return l.buf, tooLong
	}
}

func (l *lines) problem(format string, args ...any) *LineError {
	return &LineError{File: l.file, Line: l.line, Problem: fmt.Sprintf(format, args...)}
}

// broken is the error of an input that cannot be read on.
func (l *lines) broken(err error) *LineError {
	switch {
	case err == gunzip.ErrTrailing:
		return l.problem("%v; what stands before was read", err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return l.problem("the gzip data end here, too early: the file was cut off; what stands before was read")
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return l.problem("the gzip data are damaged (%v)", err)
	}
	return l.problem("cannot read on: %v", err)
}
