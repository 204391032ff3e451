// Package sweeps holds the sweep files, so that a name works where the files
// are not.
package sweeps

import "embed"

// Files is the directory of TOML files.
//
//go:embed *.toml
var Files embed.FS
