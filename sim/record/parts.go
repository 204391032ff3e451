package record

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
)

// Parts are one file that several goroutines write at the same time, each a part
// of it. The file has the complete parts, one after the other in their order. A part
// that is not small is packed by a goroutine of its own into a temporary file, a gzip
// stream for itself; small ones are packed together by the goroutine that writes the
// file. So who writes a part hardly waits for another, and the file has the same bytes
// whatever the order in which parts are written and completed.
type Parts struct {
	dir      *Dir
	file     *dirFile
	complete chan *Part
	gathered chan error // the outcome, once
	ended    bool       // it has been asked for

	unwanted chan struct{} // closed: the file will not be
	packing  sync.WaitGroup
	mu       sync.Mutex
	files    map[string]struct{} // temporary ones, by path
}

const (
	partBytes    = 1 << 18 // of a part that are kept in memory
	waitingBytes = 1 << 24 // of complete parts that wait for their turn
)

// A Part is written by one goroutine, from first to last.
type Part struct {
	of     *Parts
	number int
	held   []byte // not yet handed on
	packer *packer
	file   string // temporary, with the part or, if it was small, its text; "": all is held
	packed bool   // by a packer
	err    error
}

// A packer writes a part's file.
type packer struct {
	to     *dirFile
	chunks chan []byte
	spare  chan []byte   // chunks that have been written
	done   chan struct{} // closed at the end
	err    error         // how it ended
}

// CreateParts begins the file name as Create does, to be written in parts.
func (d *Dir) CreateParts(name string) (*Parts, error) {
	f, err := d.create(name)
	if err != nil {
		return nil, err
	}
	p := &Parts{
		dir:      d,
		file:     f,
		complete: make(chan *Part, 64),
		gathered: make(chan error, 1),
		unwanted: make(chan struct{}),
		files:    make(map[string]struct{}),
	}
	go func() { p.gathered <- p.gather() }()
	d.parts = append(d.parts, p)
	return p, nil
}

// Part begins part number i, from 0. There is one of each number.
func (p *Parts) Part(i int) *Part { return &Part{of: p, number: i} }

// Write appends to the part. After an error it writes nothing more.
func (p *Part) Write(b []byte) (int, error) {
	if p.err == nil && len(p.held) > 0 && len(p.held)+len(b) > partBytes {
		p.err = p.handOn()
	}
	if p.err != nil {
		return 0, p.err
	}
	p.held = append(p.held, b...)
	return len(b), nil
}

// handOn gives what is held to the part's packer.
func (p *Part) handOn() (err error) {
	if p.packer == nil {
		if p.packer, err = p.of.startPacker(); err != nil {
			return err
		}
	}
	select {
	case p.packer.chunks <- p.held:
	case <-p.packer.done:
		return p.packer.err
	}
	select {
	case p.held = <-p.packer.spare:
	default:
		p.held = make([]byte, 0, partBytes)
	}
	return nil
}

// Complete ends the part. One that is never completed does not get into the file.
func (p *Part) Complete() error {
	if p.err == nil && p.packer != nil {
		p.err = p.endPacker()
	}
	if p.err == nil {
		p.of.complete <- p
	}
	return p.err
}

func (p *Part) endPacker() error {
	if err := p.handOn(); err != nil {
		return err
	}
	close(p.packer.chunks)
	<-p.packer.done
	err := p.packer.err
	p.file, p.packed, p.held, p.packer = p.packer.to.file.Name(), true, nil, nil
	return err
}

// startPacker begins a file for a part.
func (p *Parts) startPacker() (*packer, error) {
	f, err := p.dir.newFile(p.file.name)
	if err != nil {
		return nil, err
	}
	p.remember(f.file)
	const ahead = 2
	k := &packer{to: f, chunks: make(chan []byte, ahead), spare: make(chan []byte, ahead), done: make(chan struct{})}
	p.packing.Go(func() { k.pack(p.unwanted) })
	return k, nil
}

// pack writes the chunks, until there are no more or nobody wants them. It closes
// the file: many parts may wait, more than files can be open.
func (k *packer) pack(unwanted <-chan struct{}) {
	defer close(k.done)
	k.err = errors.Join(k.write(unwanted), k.to.file.Close())
}

func (k *packer) write(unwanted <-chan struct{}) error {
	for {
		select {
		case <-unwanted:
			return errDirDone
		case chunk, more := <-k.chunks:
			if !more {
				return k.to.flush()
			}
			if _, err := k.to.Write(chunk); err != nil {
				return err
			}
			select {
			case k.spare <- chunk[:0]:
			default:
			}
		}
	}
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
		if err == nil && held > waitingBytes && waiting[part.number] != nil && part.file == "" {
			held -= len(part.held)
			err = p.park(part)
		}
	}
	// Those that wait for one that is never complete.
	for _, i := range slices.Sorted(maps.Keys(waiting)) {
		if err == nil && !p.isUnwanted() {
			err = p.append(waiting[i])
		}
	}
	return err
}

// park moves what a small part holds to a file until its turn comes. It stays text,
// to be packed with its neighbours.
func (p *Parts) park(part *Part) error {
	f, err := p.dir.createTemp(p.file.name)
	if err != nil {
		return err
	}
	p.remember(f)
	_, err = f.Write(part.held)
	part.file, part.held = f.Name(), nil
	return errors.Join(err, f.Close())
}

// append writes a complete part into the file.
func (p *Parts) append(part *Part) error {
	if part.file == "" {
		_, err := p.file.Write(part.held)
		return err
	}
	f, err := os.Open(part.file)
	if err != nil {
		return err
	}
	if part.packed {
		err = p.file.append(f)
	} else {
		_, err = io.Copy(p.file, f)
	}
	return errors.Join(err, f.Close(), p.remove(part.file))
}

// remember notes a temporary file, to be removed in the end.
func (p *Parts) remember(f *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files[f.Name()] = struct{}{}
}

// remove removes a temporary file.
func (p *Parts) remove(path string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.files, path)
	return os.Remove(path)
}

// finish waits until all complete parts are in the file.
func (p *Parts) finish() error {
	p.ended = true
	close(p.complete)
	return <-p.gathered
}

func (p *Parts) isUnwanted() bool {
	select {
	case <-p.unwanted:
		return true
	default:
		return false
	}
}

// abandon ends all that still goes on, and removes the temporary files.
func (p *Parts) abandon() {
	close(p.unwanted)
	if !p.ended {
		_ = p.finish()
	}
	p.packing.Wait()
	for path := range p.files {
		_ = os.Remove(path)
	}
}
