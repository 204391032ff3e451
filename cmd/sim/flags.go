package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
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
	if err := f.emptied(); err != nil {
		return f.fail(statusUsage, err), false
	}
	return statusOK, true
}

// belongs reports a flag that is given though none of those is that it belongs to:
// it would do nothing.
func (f *flagSet) belongs(flag string, to ...string) error {
	if !f.Changed(flag) || slices.ContainsFunc(to, f.Changed) {
		return nil
	}
	return fmt.Errorf("--%s is given without --%s, to which it belongs", flag, strings.Join(to, " or --"))
}

// alone reports what is given beside a flag that stands alone.
func (f *flagSet) alone(flag string) error {
	others := slices.Clone(f.Args())
	f.Visit(func(g *pflag.Flag) {
		if g.Name != flag {
			others = append(others, "--"+g.Name)
		}
	})
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("--%s stands alone: not allowed with it: %s", flag, strings.Join(others, ", "))
}

// emptied reports flags whose value is empty though that means that they are left
// out: a variable of the shell, say, that is not set.
func (f *flagSet) emptied() error {
	var problems []error
	f.Visit(func(g *pflag.Flag) {
		if g.Value.Type() == "string" && g.DefValue == "" && g.Value.String() == "" {
			problems = append(problems, fmt.Errorf("--%s is given without a value", g.Name))
		}
	})
	return errors.Join(problems...)
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
