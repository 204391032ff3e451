// Package profiles holds the calibrated GPU and model profiles and reads and
// writes profile files.
package profiles

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fleetsim/model"
)

//go:embed *.toml
var builtin embed.FS

const extension = ".toml"

// Names lists the built-in profiles in order.
func Names() []string {
	entries, _ := builtin.ReadDir(".") // reading an embedded root cannot fail
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), extension))
	}
	slices.Sort(names)
	return names
}

// Load returns the built-in profile of that name or, if the name ends in
// ".toml", reads that file. Its errors are those of Parse.
func Load(name string) (*model.Profile, error) {
	f, err := read(name, nil)
	if err != nil {
		return nil, err
	}
	return f.profile()
}

// Parse reads a profile from data. name is its file: messages begin with it,
// and a parent that is a file is looked for beside it. It reports every problem
// that it finds, a line each.
func Parse(name string, data []byte) (*model.Profile, error) {
	f, err := parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	return f.profile()
}

// read reads the profile of that name with its parents; heirs are those that
// asked for it.
func read(name string, heirs []string) (*file, error) {
	if slices.Contains(heirs, name) {
		return nil, fmt.Errorf("%s inherits from itself: %s", name, strings.Join(append(heirs, name), " → "))
	}
	if strings.HasSuffix(name, extension) {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return parse(name, data, append(heirs, name))
	}
	data, err := builtin.ReadFile(name + extension)
	if err != nil {
		return nil, fmt.Errorf("unknown profile %q: built in are %s; a file's name ends in %s",
			name, strings.Join(Names(), ", "), extension)
	}
	return parse(name+extension, data, append(heirs, name))
}

// beside is the name of a parent as the file of its heir says it.
func beside(heir, parent string) string {
	if !strings.HasSuffix(parent, extension) || filepath.IsAbs(parent) {
		return parent
	}
	return filepath.Join(filepath.Dir(heir), parent)
}
