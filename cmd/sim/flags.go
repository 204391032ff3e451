package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// A flagSet is a subcommand's flags with its help text.
type flagSet struct {
	*pflag.FlagSet
	help   string
	stdout io.Writer
	stderr io.Writer
}

// newFlags starts the flags of a subcommand; help is its usage line, what it
// does and an example.
func newFlags(name, help string, stdout, stderr io.Writer) *flagSet {
	f := &flagSet{FlagSet: pflag.NewFlagSet(name, pflag.ContinueOnError), help: help, stdout: stdout, stderr: stderr}
	f.SortFlags = false
	f.SetOutput(io.Discard) // errors are reported once, by parse
	return f
}

// parse reads args. It reports false, with the exit status, when the command
// is over: help was asked for, or a flag is wrong.
func (f *flagSet) parse(args []string) (status int, ok bool) {
	err := f.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(f.stdout, "%s\n\nFlags:\n%s", strings.TrimSpace(f.help), f.FlagUsages())
		return statusOK, false
	case err != nil:
		return f.fail(statusUsage, fmt.Errorf("%w (see sim %s --help)", err, f.Name())), false
	}
	return statusOK, true
}

// fail prints err, one line a problem, and returns the status.
func (f *flagSet) fail(status int, err error) int {
	fmt.Fprintln(f.stderr, err)
	return status
}

// oneOf checks a flag whose values are a list.
func oneOf(flag, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("--%s %q: allowed are %s", flag, value, strings.Join(allowed, ", "))
}
