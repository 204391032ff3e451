package record_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetsim/sim/record"
)

// openMeasured opens a file of the published studies, which lie beside the
// checkout.
func openMeasured(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "measurements", name))
	if os.IsNotExist(err) {
		t.Skipf("no published measurements beside the checkout: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func readMeasuredPhases(t testing.TB, name string) []record.Phase {
	t.Helper()
	phases, err := record.ReadPhases(name, openMeasured(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return phases
}

func readRequests(t testing.TB, lines ...string) []record.Request {
	t.Helper()
	reqs, err := record.ReadRequests("in.jsonl", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return reqs
}

func repeat(n int, line string) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = line
	}
	return lines
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
