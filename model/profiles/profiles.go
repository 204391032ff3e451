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
// ".toml", reads that file. The error is strict.Problems when the profile was
// found but is wrong.
func Load(name string) (*model.Profile, error) {
	file, data, err := open(name)
	if err != nil {
		return nil, err
	}
	r := reader{names: []string{name}}
	return r.profile(file, data)
}

// Parse reads a profile from data. name is its file: it is called that in
// messages, and a parent that is a file is looked for beside it. The error is
// strict.Problems, all that is wrong with the profile and those that it inherits
// from.
func Parse(name string, data []byte) (*model.Profile, error) {
	var r reader
	return r.profile(name, data)
}

// open finds the profile of that name. file is what messages call it.
func open(name string) (file string, data []byte, err error) {
	if strings.HasSuffix(name, extension) {
		data, err = os.ReadFile(name)
		return name, data, err
	}
	data, err = builtin.ReadFile(name + extension)
	if err != nil {
		return "", nil, fmt.Errorf("unknown profile %q: built in are %s; a file's name ends in %s",
			name, strings.Join(Names(), ", "), extension)
	}
	return name + extension, data, nil
}

// beside is the name of a parent as the file of its heir says it.
func beside(heir, parent string) string {
	if !strings.HasSuffix(parent, extension) || filepath.IsAbs(parent) {
		return parent
	}
	return filepath.Join(filepath.Dir(heir), parent)
}
