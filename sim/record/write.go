package record

import "io"

// A RequestWriter writes request records as JSON lines, one Write a record; hand
// it something buffered. After an error it writes nothing more.
type RequestWriter struct {
	w   io.Writer
	buf []byte
	n   int
	err error
}

// NewRequestWriter writes to w.
func NewRequestWriter(w io.Writer) *RequestWriter { return &RequestWriter{w: w} }

// Write writes one record. It allocates nothing once its buffer has grown.
func (w *RequestWriter) Write(r *Request) error {
	if w.err != nil {
		return w.err
	}
	w.buf = append(r.AppendJSON(w.buf[:0]), '\n')
	if _, w.err = w.w.Write(w.buf); w.err == nil {
		w.n++
	}
	return w.err
}

// Count is the number of records written.
func (w *RequestWriter) Count() int { return w.n }
