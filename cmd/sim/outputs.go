package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/sim/sweep"
)

// An output is a file that a command is going to write, and the flag that asks for it.
type output struct{ flag, path string }

// apart reports the outputs that would replace an input, or one another. One file
// may have several names: links count.
func apart(inputs []string, outputs ...output) error {
	var problems []error
	for i, o := range outputs {
		if at := slices.IndexFunc(inputs, func(in string) bool { return sameFile(in, o.path) }); at >= 0 {
			problems = append(problems, fmt.Errorf("%s %s would replace %s, which is read: allowed is another file", o.flag, o.path, inputs[at]))
		}
		if at := slices.IndexFunc(outputs[:i], func(p output) bool { return willBeSame(p.path, o.path) }); at >= 0 {
			problems = append(problems, fmt.Errorf("%s %s would replace %s of %s: allowed is another file", o.flag, o.path, outputs[at].path, outputs[at].flag))
		}
	}
	return errors.Join(problems...)
}

// sameFile reports whether two names are of one regular file. Others, such as
// /dev/null, are not replaced by what is written to them.
func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && infoA.Mode().IsRegular() && os.SameFile(infoA, infoB)
}

// willBeSame reports whether two names are of one file or will be when it is made.
func willBeSame(a, b string) bool {
	_, errA := os.Stat(a)
	_, errB := os.Stat(b)
	return sameFile(a, b) || errA != nil && errB != nil && place(a) == place(b)
}

// place is where a file that is not there will be, as far as links lead there.
func place(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil {
		name = filepath.Join(dir, filepath.Base(name))
	}
	return name
}

// inDir are outputs of a directory that a flag names.
func inDir(flag, dir string, names ...string) []output {
	var outputs []output
	for _, name := range names {
		outputs = append(outputs, output{flag, filepath.Join(dir, name)})
	}
	return outputs
}

// figuresIn are the figures in a directory, which others may replace.
func figuresIn(flag, dir string) []output {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // there is none yet, or none can be written
	}
	var outputs []output
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".svg" || ext == ".png" {
			outputs = append(outputs, inDir(flag, dir, e.Name())...)
		}
	}
	return outputs
}

// runFiles are the files of a run directory that others are made of.
func runFiles(dir string) []string {
	var files []string
	for _, name := range []string{record.PhasesFile, record.PhasesFile + ".gz", "requests.jsonl", record.RequestsFile, sim.TimelineFile} {
		files = append(files, filepath.Join(dir, name))
	}
	return files
}

// inputFiles are those of the names that files have: not those of what is built in.
func inputFiles(names ...string) []string {
	builtIn := slices.Concat(scenario.Names(), scenario.StudyNames(), sweep.Names(), profiles.Names(), []string{""})
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(builtIn, name) })
}

// filesOf are the files that the scenario refers to.
func filesOf(sc *scenario.Scenario) []string {
	var files []string
	if strings.HasSuffix(sc.Profile, ".toml") {
		files = append(files, sc.Profile)
	}
	if t := sc.Workload.Trace; t != nil {
		files = append(files, t.File())
	}
	return files
}

// checkFile reports a name that cannot be a file's because a directory has it.
func checkFile(name string) error {
	info, err := os.Stat(name)
	if err == nil && info.IsDir() || len(name) > 0 && os.IsPathSeparator(name[len(name)-1]) {
		return fmt.Errorf("%s is a directory: name a file", name)
	}
	return nil
}

// checkDir reports a name that cannot be a directory's because a file has it.
func checkDir(name string) error {
	if info, err := os.Stat(name); err == nil && !info.IsDir() {
		return fmt.Errorf("%s is a file, not a directory: name a directory", name)
	}
	return nil
}
