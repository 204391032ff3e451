// Package scenarios holds the scenario and study files, so that a name works
// where the files are not.
package scenarios

import (
	"embed"
	"strings"
)

// Files is the directory of TOML files.
//
//go:embed *.toml
var Files embed.FS

// IsStudy reports whether the file called name, without its ending, lists the
// phases of a study.
func IsStudy(name string) bool { return strings.HasSuffix(name, "-study") }
