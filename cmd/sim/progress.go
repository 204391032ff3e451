package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress returns a function to call once for each of total pieces of work
// done. It draws a bar on stderr if that is a terminal or force is set, and
// nothing otherwise.
func progress(stderr io.Writer, what string, total int, force bool) (done func()) {
	if !drawn(stderr, force) || !force && total < 2 {
		return func() {}
	}
	bar := newBar(stderr, what, total)
	return func() { _ = bar.Add(1) } // a bar that cannot be drawn is no failure
}

// changingProgress is progress for work whose amount changes on the way and part
// of which may be done at the start: it is told how much is done, of how much.
func changingProgress(stderr io.Writer, what string, force bool) func(done, total int) {
	if !drawn(stderr, force) {
		return func(int, int) {}
	}
	var bar *progressbar.ProgressBar
	return func(done, total int) {
		if bar == nil {
			bar = newBar(stderr, what, total)
		}
		bar.ChangeMax(total)
		_ = bar.Set(done)
	}
}

// drawn reports whether to draw a bar on stderr.
func drawn(stderr io.Writer, force bool) bool {
	file, ok := stderr.(*os.File)
	return force || ok && term.IsTerminal(int(file.Fd()))
}

// newBar is a bar with the rate and the time left.
func newBar(stderr io.Writer, what string, total int) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}
