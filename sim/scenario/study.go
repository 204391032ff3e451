package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"fleetsim/sim/record"
	"fleetsim/spelling"
	"fleetsim/strict"
)

// A Study is a list of phases, run one after the other, with what was measured
// in each.
type Study struct {
	Name        string
	Description string
	Phases      []Phase
}

// A Phase is one run of a study: a scenario with overrides under one policy.
type Phase struct {
	Name   string
	Policy string
	// Continue keeps the caches and the router's index as the previous phase
	// left them; the scenario's start state then does not count.
	Continue bool
	// Scenario is complete; its only policy is Policy.
	Scenario *Scenario
	// Measured is the published record; nil when there is none. What was not
	// published is absent.
	Measured *record.Phase
}

// studyFile is a study as it is written.
type studyFile struct {
	Name         string           `toml:"name"`
	Description  string           `toml:"description"`
	FamilyOrders map[string][]int `toml:"family_orders"`
	Phases       []phaseFile      `toml:"phases"`
}

type phaseFile struct {
	Phase       string         `toml:"phase"`
	Scenario    string         `toml:"scenario"` // an embedded name, or a file beside the study
	Policy      string         `toml:"policy"`
	FamilyOrder string         `toml:"family_order"` // a key of family_orders
	Continue    bool           `toml:"continue"`
	Set         map[string]any `toml:"set"`
	Measured    map[string]any `toml:"measured"`
}

// LoadStudy reads the study in a file, or the embedded one of that name. The
// error is Problems when the study was found but is wrong.
func LoadStudy(nameOrPath string) (*Study, error) { return LoadStudyWith(nameOrPath, nil) }

// LoadStudyWith is LoadStudy with values overridden in the scenario of every
// phase, as LoadWith does, after the phase's own overrides.
func LoadStudyWith(nameOrPath string, sets []string) (*Study, error) {
	file, data, err := Open(nameOrPath)
	if err != nil {
		return nil, err
	}
	return ParseStudy(file, data, sets)
}

// ParseStudy reads a study from data, called name in messages; sets are as in
// LoadStudyWith. Scenarios that the study names by file are looked for in the
// directory of name.
func ParseStudy(name string, data []byte, sets []string) (*Study, error) {
	doc, err := strict.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if !doc.Has("phases") {
		return nil, Problems{doc.Problem("", "this is no study, it has no [[phases]]; sim run runs a scenario")}
	}
	r := studyReader{doc: doc, sets: sets, bases: map[string]*strict.Doc{}}
	return r.study()
}

// A studyReader collects the phases of a study and what is wrong with them.
type studyReader struct {
	doc      *strict.Doc
	sets     []string
	bases    map[string]*strict.Doc // by the name in the study
	problems Problems
}

func (r *studyReader) bad(p strict.Path, format string, args ...any) {
	r.problems = append(r.problems, r.doc.Problem(p, format, args...))
}

// printable checks a name, what, that is shown as it is.
func (r *studyReader) printable(p strict.Path, what, name string) {
	if err := strict.Printable(what, name); err != nil {
		r.bad(p, "%v", err)
	}
}

// add takes problems of a phase, but not those that an earlier phase had too:
// the phases share their base scenarios and the command line.
func (r *studyReader) add(err error) {
	var problems Problems
	if !errors.As(err, &problems) {
		return
	}
	for _, p := range problems {
		if !slices.Contains(r.problems, p) {
			r.problems = append(r.problems, p)
		}
	}
}

func (r *studyReader) study() (*Study, error) {
	file := studyFile{Name: scenarioName(r.doc.File())}
	r.problems = r.doc.Decode(&file)
	r.printable("name", "name", file.Name)
	study := &Study{Name: file.Name, Description: file.Description}
	for i, f := range file.Phases {
		p := strict.Path("phases").Index(i)
		r.names(p, i, file.Phases)
		study.Phases = append(study.Phases, Phase{
			Name:     f.Phase,
			Policy:   f.Policy,
			Continue: f.Continue,
			Scenario: r.scenario(p, &f, file.FamilyOrders),
			Measured: r.measured(p, &f),
		})
	}
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	return study, nil
}

func (r *studyReader) names(p strict.Path, i int, phases []phaseFile) {
	name := phases[i].Phase
	if name == "" {
		r.bad(p.Key("phase"), "the phase must have a name: phase = \"…\"")
	}
	r.printable(p.Key("phase"), "a phase's name", name)
	if slices.ContainsFunc(phases[:i], func(f phaseFile) bool { return f.Phase == name }) {
		r.bad(p.Key("phase"), "the name %q is given to two phases", name)
	}
	if i == 0 && phases[i].Continue {
		r.bad(p.Key("continue"), "the first phase has no phase before it to continue")
	}
}

// scenario is the phase's base with its overrides; nil if there is a problem.
func (r *studyReader) scenario(p strict.Path, f *phaseFile, orders map[string][]int) *Scenario {
	base, err := r.base(p, f.Scenario)
	if err != nil {
		r.add(err)
		return nil
	}
	doc := base.Clone()
	r.add(doc.Merge("", r.doc, p.Key("set")))
	if f.FamilyOrder != "" {
		r.familyOrder(doc, p, f.FamilyOrder, orders)
	}
	if f.Policy == "" {
		r.bad(p.Key("policy"), "the phase must say which policy it ran: policy = \"…\"")
	} else {
		r.add(doc.Put("policies", []any{f.Policy}, r.doc.At(p.Key("policy"))))
	}
	r.add(override(doc, r.sets))
	sc, problems := read(doc)
	r.add(problems.Err())
	return sc
}

func (r *studyReader) familyOrder(doc *strict.Doc, p strict.Path, name string, orders map[string][]int) {
	if _, ok := orders[name]; !ok {
		r.bad(p.Key("family_order"), "[family_orders] has no %q%s", name, spelling.Suggest(name, sortedKeys(orders)))
		return
	}
	r.add(doc.Graft("workload.prompt.family_order", r.doc, strict.Path("family_orders").Key(name)))
}

// base is the parsed scenario that a phase starts from.
func (r *studyReader) base(p strict.Path, name string) (*strict.Doc, error) {
	if name == "" {
		return nil, Problems{r.doc.Problem(p, "the phase must name the scenario it starts from: scenario = \"…\"")}
	}
	if base, ok := r.bases[name]; ok {
		return base, nil
	}
	source := name
	if strings.HasSuffix(name, ".toml") && !filepath.IsAbs(name) {
		source = filepath.Join(filepath.Dir(r.doc.File()), name)
	}
	file, data, err := Open(source)
	if err != nil {
		return nil, Problems{r.doc.Problem(p.Key("scenario"), "%v", err)}
	}
	base, err := strict.Parse(file, data)
	if err != nil {
		return nil, err
	}
	r.bases[name] = base
	return base, nil
}

// measured is the phase's published record, read as the records of a run are,
// so that both have one schema. Its names are the phase's.
func (r *studyReader) measured(p strict.Path, f *phaseFile) *record.Phase {
	if f.Measured == nil || f.Phase == "" {
		return nil
	}
	at := r.doc.At(p)
	p = p.Key("measured")
	r.add(r.doc.Put(p.Key("phase"), f.Phase, at))
	r.add(r.doc.Put(p.Key("scenario"), f.Scenario, at))
	r.add(r.doc.Put(p.Key("route"), f.Policy, at))
	data, err := r.doc.JSON(p)
	if err != nil {
		r.add(err)
		return nil
	}
	phases, err := record.ReadPhases(f.Phase, bytes.NewReader(data))
	if err != nil || len(phases) != 1 {
		r.bad(p, "not a phase record: %s", strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
		return nil
	}
	measured := &phases[0]
	for _, name := range sortedKeys(measured.Other) {
		r.bad(p.Key(name), "a phase record has no %q", name)
	}
	for _, replica := range measured.Replicas {
		for _, name := range sortedKeys(replica.Other) {
			r.bad(p.Key("replicas").Key(replica.Name).Key(name), "the replicas of a phase record have no %q", name)
		}
	}
	return measured
}
