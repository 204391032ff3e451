// Package gunzip unpacks files of one or more gzip streams, one after another, as
// compress/gzip does, but tells a file that was cut off from one that goes on with
// something else behind its last stream.
package gunzip

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
)

// ErrTrailing is data behind the last stream that are no stream. All streams
// before have then been read whole, and their check sums are right.
var ErrTrailing = errors.New("the gzip data end, and something that is no gzip follows")

var magic = []byte{0x1f, 0x8b}

// Is reports whether the input begins as gzip data do. It reads nothing away.
func Is(r *bufio.Reader) bool {
	begin, _ := r.Peek(len(magic)) // fewer at the end of the input
	return bytes.Equal(begin, magic)
}

// A Reader gives the data of all streams of an input.
type Reader struct {
	packed *bufio.Reader
	stream *gzip.Reader
	err    error
}

// NewReader begins with the first stream of packed. Errors are those of
// gzip.NewReader.
func NewReader(packed *bufio.Reader) (*Reader, error) {
	stream, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	stream.Multistream(false)
	return &Reader{packed: packed, stream: stream}, nil
}

// Read is io.Reader's. Its error is ErrTrailing, or as a gzip.Reader's:
// io.ErrUnexpectedEOF where the input is cut off.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil {
		n, err := r.stream.Read(p)
		if err == io.EOF {
			err = r.next()
		}
		r.err = err
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// next goes on with the next stream; io.EOF if there is none.
func (r *Reader) next() error {
	begin, err := r.packed.Peek(len(magic))
	if len(begin) == 0 {
		return err
	}
	if !bytes.HasPrefix(magic, begin) {
		return ErrTrailing
	}
	if err = r.stream.Reset(r.packed); err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	r.stream.Multistream(false)
	return err
}
