package record_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"fleetsim/sim/record"
)

func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on the way")
	phases := []record.Phase{samplePhase(), {Phase: "second"}}
	reqs := []record.Request{sampleRequest(), {Result: record.Dropped, Phase: "second"}}
	var contents [2][]byte
	for round := range contents {
		if err := record.WriteDir(dir, phases, reqs); err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{record.PhasesFile, record.RequestsFile}) {
			t.Fatalf("files: %v", got)
		}
		var err error
		if contents[round], err = os.ReadFile(filepath.Join(dir, record.RequestsFile)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(contents[0], contents[1]) {
		t.Error("the same requests give different bytes")
	}
	if mtime := contents[0][4:8]; !bytes.Equal(mtime, make([]byte, 4)) {
		t.Errorf("the gzip header holds a time: %x", mtime)
	}
	got, err := record.ReadRequests("requests", bytes.NewReader(contents[0]))
	if err != nil || !reflect.DeepEqual(got, reqs) {
		t.Errorf("requests: %+v, %v", got, err)
	}
	f, err := os.Open(filepath.Join(dir, record.PhasesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read, err := record.ReadPhases("phases", f)
	if err != nil || len(read) != 2 || read[0].Phase != phases[0].Phase {
		t.Errorf("phases: %+v, %v", read, err)
	}
}

func TestDirIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	if err := record.WriteDir(dir, nil, []record.Request{sampleRequest()}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, record.RequestsFile))
	if err != nil {
		t.Fatal(err)
	}
	broken := record.Phase{Other: map[string]json.RawMessage{"x": nil}}
	if err := record.WriteDir(dir, []record.Phase{broken}, nil); err == nil {
		t.Fatal("a phase that cannot be written is")
	}
	after, err := os.ReadFile(filepath.Join(dir, record.RequestsFile))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a run that failed replaced the requests of the one before (%v)", err)
	}

	d, err := record.CreateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Create("timeline.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "{}\n"); err != nil {
		t.Fatal(err)
	}
	d.Abort()
	if err := d.Commit(); err == nil {
		t.Error("what was aborted is committed")
	}
	if _, err := d.Create("more"); err == nil {
		t.Error("a file is begun after the end")
	}
	if got := names(t, dir); !slices.Equal(got, []string{record.PhasesFile, record.RequestsFile}) {
		t.Errorf("left behind: %v", got)
	}
}

func TestDirCommitFails(t *testing.T) {
	dir := t.TempDir()
	// A directory that is not empty stands where the file should go.
	if err := os.MkdirAll(filepath.Join(dir, record.PhasesFile, "x"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := record.WriteDir(dir, nil, nil); err == nil {
		t.Fatal("a directory is replaced")
	}
	for _, name := range names(t, dir) {
		if filepath.Ext(name) == ".tmp" {
			t.Errorf("%s is left behind", name)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := record.WriteDir(file, nil, nil); err == nil {
		t.Error("a file is taken for a directory")
	}
}
