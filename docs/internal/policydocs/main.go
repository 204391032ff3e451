// Command policydocs makes the figures and the table of docs/policies.md with
// the simulator.
//
//	policydocs figures DIR          draws one SVG a policy into DIR
//	policydocs table [flags] FILE   simulates every policy and writes the table into FILE
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "policydocs:", err)
		os.Exit(1)
	}
}

const usage = "usage: policydocs figures DIR | policydocs table [--seeds N] FILE"

func command(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%s", usage)
	}
	switch args[0] {
	case "figures":
		return drawAll(args[1])
	case "table":
		f := pflag.NewFlagSet("table", pflag.ContinueOnError)
		seeds := f.Int("seeds", 100, "seeds of each cell")
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		if f.NArg() != 1 || *seeds < 1 {
			return fmt.Errorf("%s", usage)
		}
		return writeTable(f.Arg(0), *seeds)
	}
	return fmt.Errorf("%s", usage)
}
