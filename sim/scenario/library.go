package scenario

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"fleetsim/spelling"
)

// A Library is a directory of TOML files that are embedded in the program, so that
// their names work anywhere.
type Library struct {
	Files embed.FS
	Dir   string // what the directory is called in messages
	Kind  string // what the files are
}

// Open finds one of the files, or any other when the name has a slash or a dot. file
// is its name for messages.
func (l *Library) Open(nameOrPath string) (file string, data []byte, err error) {
	if !strings.ContainsAny(nameOrPath, `/\.`) {
		if data, err := l.Files.ReadFile(nameOrPath + ".toml"); err == nil {
			return l.Dir + "/" + nameOrPath + ".toml", data, nil
		}
		if info, err := os.Stat(nameOrPath); err != nil || !info.IsDir() {
			return "", nil, fmt.Errorf("%s: no %s has this name%s", nameOrPath, l.Kind, spelling.Suggest(nameOrPath, l.Names()))
		}
	}
	if data, err = os.ReadFile(nameOrPath); err != nil {
		return "", nil, fmt.Errorf("%s: %w; allowed: a file, or one of %s", nameOrPath, cause(err), strings.Join(l.Names(), ", "))
	}
	return nameOrPath, data, nil
}

// Names are the names of the files, sorted.
func (l *Library) Names() []string {
	files, err := l.Files.ReadDir(".")
	if err != nil {
		panic(err) // the embedded directory is always there
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".toml"))
	}
	slices.Sort(names)
	return names
}

// cause is what went wrong, without the operation and the path.
func cause(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
