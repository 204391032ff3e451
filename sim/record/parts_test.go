package record_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fleetsim/sim/record"
)

// text is the content of part i of the test: some are empty, some stay in memory and
// some do not.
func text(i int) string {
	return strings.Repeat(fmt.Sprintf("part %d\n", i), i%4*(1+i%3*15_000))
}

func unpack(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// createParts begins a run directory with one file that is written in parts.
func createParts(t *testing.T, dir, name string) (*record.Dir, *record.Parts) {
	t.Helper()
	d, err := record.CreateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.CreateParts(name)
	if err != nil {
		t.Fatal(err)
	}
	return d, p
}

// Whatever order parts are written and completed in, the file has the complete ones
// in theirs, and the same bytes.
func TestParts(t *testing.T) {
	const parts = 40
	skipped := func(i int) bool { return i == 0 || i == 17 || i == 38 }
	want := ""
	for i := range parts {
		if !skipped(i) {
			want += text(i)
		}
	}
	var packed []byte
	for name, order := range map[string]func(i int) int{
		"forward":  func(i int) int { return i },
		"backward": func(i int) int { return parts - 1 - i },
		"mixed":    func(i int) int { return i * 7 % parts },
	} {
		dir := t.TempDir()
		d, p := createParts(t, dir, "whole.gz")
		var all sync.WaitGroup
		for k := range 2 {
			all.Go(func() {
				for i := k; i < parts; i += 2 {
					number := order(i)
					part := p.Part(number)
					for line := range strings.Lines(text(number)) {
						if _, err := io.WriteString(part, line); err != nil {
							t.Error(err)
						}
					}
					if skipped(number) {
						continue
					}
					if err := part.Complete(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if got := names(t, dir); slices.Contains(got, "whole.gz") {
			t.Errorf("%s: %v before it is whole", name, got)
		}
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"whole.gz"}) {
			t.Errorf("%s: files %v", name, got)
		}
		if unpack(t, filepath.Join(dir, "whole.gz")) != want {
			t.Errorf("%s: another content", name)
		}
		got, err := os.ReadFile(filepath.Join(dir, "whole.gz"))
		if err != nil {
			t.Fatal(err)
		}
		if packed == nil {
			packed = got
		}
		if !bytes.Equal(got, packed) {
			t.Errorf("%s: other bytes than in another order", name)
		}
	}
}

// Parts that wait for one before them take no more memory than a bound, and their
// contents come through a file.
func TestPartsWaitInFiles(t *testing.T) {
	const parts, size = 300, 60_000 // 18 MB beside the 16 that may wait in memory
	dir := t.TempDir()
	d, p := createParts(t, dir, "whole")
	content := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), size) }
	var want strings.Builder
	for i := range parts {
		want.WriteString(content(i))
	}
	for i := parts - 1; i >= 0; i-- {
		part := p.Part(i)
		if _, err := io.WriteString(part, content(i)); err != nil {
			t.Fatal(err)
		}
		if err := part.Complete(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "whole"))
	if err != nil || string(got) != want.String() {
		t.Errorf("another content (%v)", err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("files: %v", got)
	}
}

// An aborted directory has nothing left of its parts, complete or not.
func TestPartsAborted(t *testing.T) {
	dir := t.TempDir()
	d, p := createParts(t, dir, "whole.gz")
	for i := range 4 {
		part := p.Part(i)
		if _, err := part.Write(make([]byte, 300_000)); err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write([]byte("more")); err != nil {
			t.Fatal(err)
		}
		if i > 1 {
			if err := part.Complete(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(names(t, dir)) < 4 {
		t.Errorf("nothing went through a file: %v", names(t, dir))
	}
	d.Abort()
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// A part that cannot be written says so at once, and in the end.
func TestPartsFail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	d, p := createParts(t, dir, "whole")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	part := p.Part(0)
	if _, err := part.Write(make([]byte, 200_000)); err != nil {
		t.Fatal("the first bytes are held:", err)
	}
	if _, err := part.Write(make([]byte, 200_000)); !os.IsNotExist(err) {
		t.Error("a part without its file:", err)
	}
	if err := part.Complete(); !os.IsNotExist(err) {
		t.Error("a part without its file is complete:", err)
	}
	d.Abort()
}
