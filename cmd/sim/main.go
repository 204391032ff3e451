// Command sim simulates a routed vLLM cluster: run a scenario, sweep over
// many, calibrate on measured runs, and compare with them.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
)

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1 // the run failed
	statusUsage  = 2 // the input or the flags are wrong
)

// A command is one subcommand: its file in this folder holds its flags.
type command struct {
	name, summary string
	run           func(args []string, stdout, stderr io.Writer) int
}

func commands() []command {
	return []command{
		{"run", "simulate scenarios, policies side by side", runCommand},
		{"sweep", "one scenario at many settings: which is best, and how sure that is", sweepCommand},
		{"plan", "the fewest replicas, or the highest rate, that meet the SLO", planCommand},
		{"trace", "read, convert and look at traces of other tools", traceCommand},
		{"compare", "measured beside simulated, with bands over seeds", compareCommand},
		{"calibrate", "fit a profile to measured runs", calibrateCommand},
		{"replay", "send a scenario's arrivals to a live gateway and record them", replayCommand},
		{"serve", "the simulated cluster in real time, as an OpenAI-compatible gateway", serveCommand},
		{"export", "write a run directory's time series for Prometheus", exportCommand},
		{"version", "print the version", versionCommand},
	}
}

func main() { os.Exit(dispatch(os.Args[1:], os.Stdout, os.Stderr)) }

// dispatch runs the command of args. One that could not write all that it has to
// say has failed; a reader who has had enough is no failure.
func dispatch(args []string, stdout, stderr io.Writer) int {
	out := &checkedWriter{w: stdout}
	status := subcommand(args, out, stderr)
	if status == statusOK && out.err != nil && !errors.Is(out.err, syscall.EPIPE) {
		fmt.Fprintln(stderr, "sim: standard output:", out.err)
		return statusFailed
	}
	return status
}

// A checkedWriter keeps the first error of writing, for those who print without
// looking.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

func subcommand(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return statusUsage
	}
	switch args[0] {
	case "help", "-h", "--help":
		usage(stdout)
		return statusOK
	case "--version":
		return versionCommand(nil, stdout, stderr)
	}
	var names []string
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(args[1:], stdout, stderr)
		}
		names = append(names, c.name)
	}
	fmt.Fprintf(stderr, "sim: unknown command %q: allowed are %s\n", args[0], strings.Join(names, ", "))
	return statusUsage
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "sim simulates a routed vLLM cluster.\n\nUsage: sim COMMAND [flags]; each command has --help.")
	fmt.Fprintln(w)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprintln(w, "\nExample: sim run hot90")
}

func versionCommand(_ []string, stdout, _ io.Writer) int {
	fmt.Fprintln(stdout, "sim", buildVersion())
	return statusOK
}

// buildVersion is what this build calls itself: a release, or the commit that it
// was built from.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(devel)"
}
