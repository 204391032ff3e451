package scenario

import (
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"fleetsim/scenarios"
	"fleetsim/strict"
)

// Problems is everything wrong with a scenario or study, each with its place.
type Problems = strict.Problems

// A Problem is one of Problems.
type Problem = strict.Problem

// Load reads the scenario in a file, or the embedded one of that name. The
// error is Problems when the scenario was found but is wrong.
func Load(nameOrPath string) (*Scenario, error) { return LoadWith(nameOrPath, nil) }

// LoadWith is Load with values overridden before they are checked. Each of
// sets is "path.to.key=value": keys as in the file, an index for an element of
// an array, and a TOML value or plain text.
func LoadWith(nameOrPath string, sets []string) (*Scenario, error) {
	file, data, err := Open(nameOrPath)
	if err != nil {
		return nil, err
	}
	return ParseWith(file, data, sets)
}

// Parse reads a scenario from data, called name in messages. The error is
// Problems.
func Parse(name string, data []byte) (*Scenario, error) { return ParseWith(name, data, nil) }

// ParseWith is Parse with values overridden as by LoadWith.
func ParseWith(name string, data []byte, sets []string) (*Scenario, error) {
	doc, err := strict.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if doc.Has("phases") {
		return nil, Problems{doc.Problem("phases", "this is a study, a list of phases, not a scenario; sim compare runs it")}
	}
	problems := override(doc, sets)
	sc, more := read(doc)
	if err := append(problems, more...).Err(); err != nil {
		return nil, err
	}
	return sc, nil
}

// override applies sets in order; later ones win.
func override(doc *strict.Doc, sets []string) Problems {
	var problems Problems
	for _, set := range sets {
		var bad Problems
		if errors.As(doc.Set(set), &bad) {
			problems = append(problems, bad...)
		}
	}
	return problems
}

// read is the checked scenario in doc.
func read(doc *strict.Doc) (*Scenario, Problems) {
	sc := defaults(scenarioName(doc.File()))
	c := checker{doc: doc, decoding: doc.Decode(sc)}
	if len(c.decoding) < strict.MaxProblems { // else not all are known that a check must leave out
		c.scenario(sc)
	}
	if problems := append(c.decoding, c.problems...); len(problems) > 0 {
		return nil, problems
	}
	complete(sc)
	if t := sc.Workload.Trace; t != nil {
		t.dir = directory(doc, "workload.trace.path")
	}
	return sc, nil
}

// directory is what the file name at p is relative to: the directory of the file
// that it is written in, or the working directory when it was set from outside.
func directory(doc *strict.Doc, p strict.Path) string {
	at := doc.At(p)
	if at.Line == 0 {
		return ""
	}
	return filepath.Dir(at.File)
}

// scenarioName is the name of a scenario that does not give itself one.
func scenarioName(file string) string {
	return strings.TrimSuffix(path.Base(file), ".toml")
}

// library has the scenarios and studies that are embedded.
var library = Library{Files: scenarios.Files, Dir: "scenarios", Kind: "scenario"}

// Open finds a scenario or study: a file, or an embedded one when the name has
// neither a slash nor a dot. file is its name for messages.
func Open(nameOrPath string) (file string, data []byte, err error) { return library.Open(nameOrPath) }

// Names is the embedded scenarios, sorted; studies are not among them.
func Names() []string {
	return slices.DeleteFunc(library.Names(), scenarios.IsStudy)
}

// StudyNames is the embedded studies, sorted.
func StudyNames() []string {
	return slices.DeleteFunc(library.Names(), func(name string) bool { return !scenarios.IsStudy(name) })
}
