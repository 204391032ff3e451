package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// The files of a run directory.
const (
	PhasesFile   = "phases.jsonl"
	RequestsFile = "requests.jsonl.gz"
)

var errDirDone = errors.New("run directory: already committed or aborted")

// A Dir writes the files of a run directory so that none is ever seen half
// written: each is written under a temporary name, and Commit renames them all.
type Dir struct {
	path  string
	files []*dirFile
	parts []*Parts
	done  bool
}

// A dirFile is one file being written. A packed one is one gzip stream or several,
// one after the other.
type dirFile struct {
	name    string // what it will be called
	file    *os.File
	buf     *bufio.Writer
	packed  *gzip.Writer // nil for a plain file
	open    bool         // a stream has begun
	streams int          // that are complete
}

// packing is the level of gzip. Records pack at 290 MB a second here; level 6 takes
// more than twice the time for 1% less.
const packing = 2

// CreateDir makes the directory when it is missing and prepares to write in it.
func CreateDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return &Dir{path: path}, nil
}

// Create begins the file name, buffered, and packed when the name ends in .gz (with
// no name and no time in it, so that the same content gives the same bytes). The file
// is there after Commit.
func (d *Dir) Create(name string) (io.Writer, error) {
	return d.create(name)
}

func (d *Dir) create(name string) (*dirFile, error) {
	if d.done {
		return nil, errDirDone
	}
	f, err := d.newFile(name)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	d.files = append(d.files, f)
	return f, nil
}

// newFile begins a file as of that name, under a temporary one.
func (d *Dir) newFile(name string) (*dirFile, error) {
	file, err := d.createTemp(name)
	if err != nil {
		return nil, err
	}
	f := &dirFile{name: name, file: file, buf: bufio.NewWriterSize(file, 1<<16)}
	if strings.HasSuffix(name, ".gz") {
		f.packed, err = gzip.NewWriterLevel(f.buf, packing)
	}
	return f, err
}

func (d *Dir) createTemp(name string) (*os.File, error) {
	return os.CreateTemp(d.path, "."+name+".*.tmp")
}

// Commit finishes every file and gives it its name. On an error none of the files
// that have not been renamed is left.
func (d *Dir) Commit() error {
	if d.done {
		return errDirDone
	}
	defer d.Abort()
	for _, p := range d.parts {
		if err := p.finish(); err != nil {
			return fmt.Errorf("run directory: %w", err)
		}
	}
	for _, f := range d.files {
		if err := f.finish(); err != nil {
			return fmt.Errorf("run directory: %s: %w", f.name, err)
		}
	}
	for _, f := range d.files {
		if err := os.Rename(f.file.Name(), filepath.Join(d.path, f.name)); err != nil {
			return fmt.Errorf("run directory: %w", err)
		}
	}
	d.files = nil // they have their names
	return nil
}

// Abort removes what has not been committed. After Commit it does nothing, so it
// can be deferred.
func (d *Dir) Abort() {
	d.done = true
	for _, p := range d.parts {
		p.abandon()
	}
	for _, f := range d.files {
		_ = f.file.Close()           // closed already when Commit got that far
		_ = os.Remove(f.file.Name()) // renamed already when Commit got that far
	}
	d.files, d.parts = nil, nil
}

// Write appends text, which a packed file packs.
func (f *dirFile) Write(text []byte) (int, error) {
	if f.packed == nil {
		return f.buf.Write(text)
	}
	f.open = true
	return f.packed.Write(text)
}

// endStream completes the gzip stream that has begun, if one has.
func (f *dirFile) endStream() error {
	if !f.open {
		return nil
	}
	err := f.packed.Close()
	f.packed.Reset(f.buf)
	f.open = false
	f.streams++
	return err
}

// append appends what r has as it is: in a packed file whole gzip streams.
func (f *dirFile) append(r io.Reader) error {
	if err := f.endStream(); err != nil {
		return err
	}
	f.streams++
	_, err := io.Copy(f.buf, r)
	return err
}

// flush hands all that was written to the file.
func (f *dirFile) flush() error {
	if err := f.endStream(); err != nil {
		return err
	}
	return f.buf.Flush()
}

// finish completes the file and closes it.
func (f *dirFile) finish() error {
	if f.packed != nil && f.streams == 0 {
		f.open = true // no text is a stream, too
	}
	if err := f.flush(); err != nil {
		return err
	}
	// A temporary file is the owner's alone; a result is as readable as others.
	if err := f.file.Chmod(0o644); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	return f.file.Close()
}

// WriteDir writes the run directory path: phases as JSON lines, requests as packed
// JSON lines.
func WriteDir(path string, phases []Phase, requests []Request) error {
	d, err := CreateDir(path)
	if err != nil {
		return err
	}
	defer d.Abort()
	w, err := d.Create(RequestsFile)
	if err != nil {
		return err
	}
	rw := NewRequestWriter(w)
	for i := range requests {
		if err := rw.Write(&requests[i]); err != nil {
			return fmt.Errorf("run directory: %s: %w", RequestsFile, err)
		}
	}
	if w, err = d.Create(PhasesFile); err != nil {
		return err
	}
	for i := range phases {
		if err := WritePhase(w, &phases[i]); err != nil {
			return fmt.Errorf("run directory: %s: %w", PhasesFile, err)
		}
	}
	return d.Commit()
}
