// Package examples_test keeps the examples, which are modules of their own,
// working.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The examples' own tests pass, built against this version of fleetsim with the
// dependencies that it has.
func TestExamples(t *testing.T) {
	examples, err := filepath.Glob("*/go.mod")
	if err != nil || len(examples) == 0 {
		t.Fatal("no examples found: ", err)
	}
	for _, file := range examples {
		dir := filepath.Dir(file)
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			out, err := test(t, dir)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// test runs the example's tests with a copy of its go.mod, which the go command
// may bring up to date with fleetsim's own.
func test(t *testing.T, dir string) ([]byte, error) {
	copied := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(copied, name), data, 0o644); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("go", "test", "-mod=mod", "-modfile="+filepath.Join(copied, "go.mod"), "./...")
	cmd.Dir = dir
	return cmd.CombinedOutput()
}
