package record

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

	mu        sync.Mutex
	temporary map[string]*os.File // of parts, by path
}

// A dirFile is one file being written.
type dirFile struct {
	name   string // what it will be called
	file   *os.File
	buf    *bufio.Writer
	packed *gzip.Writer // nil for a plain file
}

// CreateDir makes the directory when it is missing and prepares to write in it.
func CreateDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return &Dir{path: path, temporary: make(map[string]*os.File)}, nil
}

// Create begins the file name, buffered, and packed when the name ends in .gz (with
// no name and no time in it, so that the same content gives the same bytes). The file
// is there after Commit.
func (d *Dir) Create(name string) (io.Writer, error) {
	if d.done {
		return nil, errDirDone
	}
	file, err := d.createTemp(name)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	f := &dirFile{name: name, file: file, buf: bufio.NewWriterSize(file, 1<<16)}
	d.files = append(d.files, f)
	if strings.HasSuffix(name, ".gz") {
		f.packed = gzip.NewWriter(f.buf)
		return f.packed, nil
	}
	return f.buf, nil
}

func (d *Dir) createTemp(name string) (*os.File, error) {
	return os.CreateTemp(d.path, "."+name+".*.tmp")
}

// createPart makes a file that is removed in the end. Parts may call it at the same
// time.
func (d *Dir) createPart(name string) (*os.File, error) {
	f, err := d.createTemp(name)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.temporary[f.Name()] = f
	}
	return f, err
}

// removePart removes such a file early.
func (d *Dir) removePart(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.temporary, path)
	return os.Remove(path)
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
	for path, file := range d.temporary {
		_ = file.Close() // closed already when its part is complete
		_ = os.Remove(path)
	}
	d.files, d.parts, d.temporary = nil, nil, nil
}

// finish writes out what is buffered and closes the file.
func (f *dirFile) finish() error {
	if f.packed != nil {
		if err := f.packed.Close(); err != nil {
			return err
		}
	}
	if err := f.buf.Flush(); err != nil {
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
