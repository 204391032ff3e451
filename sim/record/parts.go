package record

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync/atomic"
)

// Parts are one file that several goroutines write at the same time, each a part
// of it. The file has the complete parts, one after the other in their order; until
// its turn comes, a part that is not small waits in a temporary file. A goroutine of
// its own packs and writes the file, so that who writes a part does not wait for it.
type Parts struct {
	dir      *Dir
	name     string
	file     io.Writer
	complete chan *Part
	gathered chan error // the outcome, once
	ended    bool       // it has been asked for
	useless  atomic.Bool
}

const (
	partBytes    = 1 << 16 // of a part that are kept in memory
	waitingBytes = 1 << 24 // of complete parts that wait for their turn
)

// A Part is written by one goroutine, from first to last.
type Part struct {
	of     *Parts
	number int
	held   []byte   // not yet in the file
	file   *os.File // nil: all is held
	err    error
}

// CreateParts begins the file name as Create does, to be written in parts.
func (d *Dir) CreateParts(name string) (*Parts, error) {
	w, err := d.Create(name)
	if err != nil {
		return nil, err
	}
	p := &Parts{dir: d, name: name, file: w, complete: make(chan *Part, 64), gathered: make(chan error, 1)}
	go func() { p.gathered <- p.gather() }()
	d.parts = append(d.parts, p)
	return p, nil
}

// Part begins part number i, from 0. There is one of each number.
func (p *Parts) Part(i int) *Part { return &Part{of: p, number: i} }

// Write appends to the part. After an error it writes nothing more.
func (p *Part) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	if len(p.held) > 0 && len(p.held)+len(b) > partBytes {
		if p.err = p.spill(); p.err != nil {
			return 0, p.err
		}
	}
	p.held = append(p.held, b...)
	return len(b), nil
}

// spill moves what is held to the part's file.
func (p *Part) spill() (err error) {
	if p.file == nil {
		if p.file, err = p.of.dir.createPart(p.of.name); err != nil {
			return err
		}
	}
	_, err = p.file.Write(p.held)
	p.held = p.held[:0]
	return err
}

// Complete ends the part. One that is never completed does not get into the file.
func (p *Part) Complete() error {
	if p.err == nil && p.file != nil {
		p.err = p.file.Close() // many may wait, more than can be open
	}
	if p.err == nil {
		p.of.complete <- p
	}
	return p.err
}

// gather writes the parts into the file as they become complete.
func (p *Parts) gather() error {
	waiting := make(map[int]*Part)
	next, held := 0, 0
	var err error
	for part := range p.complete {
		if err != nil {
			continue // nobody must wait for a place in the channel
		}
		waiting[part.number] = part
		held += len(part.held)
		for ; err == nil && waiting[next] != nil; next++ {
			held -= len(waiting[next].held)
			err = p.append(waiting[next])
			delete(waiting, next)
		}
		if err == nil && held > waitingBytes && waiting[part.number] != nil {
			held -= len(part.held)
			err = part.park()
		}
	}
	// Those that wait for one that is never complete.
	for _, i := range slices.Sorted(maps.Keys(waiting)) {
		if err == nil && !p.useless.Load() {
			err = p.append(waiting[i])
		}
	}
	return err
}

// park moves what a complete part holds to its file.
func (p *Part) park() (err error) {
	if p.file != nil {
		if p.file, err = os.OpenFile(p.file.Name(), os.O_WRONLY|os.O_APPEND, 0); err != nil {
			return err
		}
	}
	err = p.spill()
	p.held = nil
	return errors.Join(err, p.file.Close())
}

// append writes a complete part into the file.
func (p *Parts) append(part *Part) error {
	if part.file != nil {
		if err := p.copy(part.file.Name()); err != nil {
			return err
		}
	}
	_, err := p.file.Write(part.held)
	return err
}

// copy writes a temporary file into the file, and removes it.
func (p *Parts) copy(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(p.file, f)
	return errors.Join(err, f.Close(), p.dir.removePart(name))
}

// finish waits until all complete parts are in the file.
func (p *Parts) finish() error {
	p.ended = true
	close(p.complete)
	return <-p.gathered
}

// abandon ends the gathering without caring for the file.
func (p *Parts) abandon() {
	if !p.ended {
		p.useless.Store(true)
		_ = p.finish()
	}
}
