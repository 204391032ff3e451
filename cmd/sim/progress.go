package main

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress returns a function to call once for each of total pieces of work
// done. It draws a bar on stderr if that is a terminal or force is set, and
// nothing otherwise.
func progress(stderr io.Writer, what string, total int, force bool) (done func()) {
	file, ok := stderr.(*os.File)
	if !force && (!ok || !term.IsTerminal(int(file.Fd())) || total < 2) {
		return func() {}
	}
	bar := progressbar.NewOptions(total,
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionClearOnFinish(),
	)
	return func() { _ = bar.Add(1) } // a bar that cannot be drawn is no failure
}
