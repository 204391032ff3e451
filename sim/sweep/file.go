package sweep

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"fleetsim/sim/scenario"
	"fleetsim/spelling"
	"fleetsim/strict"
	"fleetsim/sweeps"
)

// Problems is everything wrong with a sweep, each with its place.
type Problems = strict.Problems

// A Source is all that a Sweep is made from. It is kept in the results, so that
// they can be made again without the files.
type Source struct {
	File      string   `json:"file"` // name for messages
	Text      string   `json:"text"`
	BaseFile  string   `json:"base_file"`
	BaseText  string   `json:"base_text"`
	Sets      []string `json:"sets,omitempty"`       // "path.to.key=value" on the base scenario
	AxisTexts []string `json:"axes,omitempty"`       // "name=value,value": the values of an axis to keep
	Seeds     int      `json:"seeds,omitempty"`      // instead of the file's, if not 0
	FirstSeed *uint64  `json:"first_seed,omitempty"` // instead of the file's
}

// file is a sweep as it is written.
type file struct {
	Name        string           `toml:"name"`
	Description string           `toml:"description"`
	Scenario    string           `toml:"scenario"` // an embedded name, or a file beside the sweep
	Set         map[string]any   `toml:"set"`
	Axes        []axisFile       `toml:"axes"`
	Seeds       int              `toml:"seeds"`
	FirstSeed   *uint64          `toml:"first_seed"`
	Confidence  float64          `toml:"confidence"`
	Given       []string         `toml:"given"`
	Objective   *objectiveFile   `toml:"objective"`
	Constraints []constraintFile `toml:"constraints"`
	Baseline    map[string]any   `toml:"baseline"`
	Stop        *stopFile        `toml:"stop"`
}

type axisFile struct {
	Name   string `toml:"name"`
	Key    string `toml:"key"`
	Zip    string `toml:"zip"`
	Values []any  `toml:"values"`
	From   any    `toml:"from"` // any, because whole numbers give whole numbers
	To     any    `toml:"to"`
	Step   any    `toml:"step"`
	Points *int   `toml:"points"`
	Scale  string `toml:"scale"`
}

type objectiveFile struct {
	Minimise string `toml:"minimise"`
	Maximise string `toml:"maximise"`
}

type constraintFile struct {
	Metric  string   `toml:"metric"`
	AtLeast *float64 `toml:"at_least"`
	AtMost  *float64 `toml:"at_most"`
}

type stopFile struct {
	First int `toml:"first"`
	Step  int `toml:"step"`
}

// Find reads the sweep in a file, or the embedded one of that name, with its
// base scenario, as a Source to be changed at will and then resolved.
func Find(nameOrPath string) (*Source, error) {
	name, text, err := library.Open(nameOrPath)
	if err != nil {
		return nil, err
	}
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, err
	}
	var f file
	if problems := doc.Decode(&f); f.Scenario == "" {
		if err := problems.Err(); err != nil {
			return nil, err
		}
		return nil, Problems{doc.Problem("", `the sweep must name the scenario it starts from: scenario = "…"`)}
	}
	base := f.Scenario
	if strings.HasSuffix(base, ".toml") && !filepath.IsAbs(base) {
		base = filepath.Join(filepath.Dir(name), base)
	}
	baseFile, baseText, err := scenario.Open(base)
	if err != nil {
		return nil, Problems{doc.Problem("scenario", "%v", err)}
	}
	return &Source{File: name, Text: string(text), BaseFile: baseFile, BaseText: string(baseText)}, nil
}

// library has the sweeps that are embedded.
var library = scenario.Library{Files: sweeps.Files, Dir: "sweeps", Kind: "sweep"}

// Names are the embedded sweeps, sorted.
func Names() []string { return library.Names() }

// Load is the sweep in a file, or the embedded one of that name. The error is
// Problems when the sweep was found but is wrong.
func Load(nameOrPath string) (*Sweep, error) {
	src, err := Find(nameOrPath)
	if err != nil {
		return nil, err
	}
	return src.Resolve()
}

// Resolve is the sweep that the source describes, checked. Every cell's
// scenario is complete. The error is Problems.
func (src *Source) Resolve() (*Sweep, error) {
	doc, err := strict.Parse(src.File, []byte(src.Text))
	if err != nil {
		return nil, err
	}
	f := file{Name: strings.TrimSuffix(path.Base(filepath.ToSlash(src.File)), ".toml"), Seeds: 20, Confidence: 0.95}
	r := &resolver{src: src, doc: doc, problems: doc.Decode(&f)}
	sweep := r.sweep(&f)
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	return sweep, nil
}

// A resolver turns a sweep file into a Sweep and collects what is wrong.
type resolver struct {
	src      *Source
	doc      *strict.Doc
	problems Problems
}

// bad adds a problem, unless there is one with the same value or a part of it. What
// is wrong throughout is cut short.
func (r *resolver) bad(p strict.Path, format string, args ...any) {
	if len(r.problems) >= strict.MaxProblems {
		return
	}
	if !slices.ContainsFunc(r.problems, func(q strict.Problem) bool { return q.Path != "" && q.Path.Overlaps(p) }) {
		r.problems = append(r.problems, r.doc.Problem(p, format, args...))
	}
}

// usage is a problem with what the command line asks for.
func (r *resolver) usage(option, format string, args ...any) {
	r.problems = append(r.problems, strict.Problem{Place: strict.Place{File: option}, Msg: fmt.Sprintf(format, args...)})
}

func (r *resolver) sweep(f *file) *Sweep {
	s := &Sweep{Source: *r.src, Name: f.Name, Description: f.Description, Confidence: f.Confidence}
	if r.src.Seeds != 0 {
		f.Seeds = r.src.Seeds
	}
	if r.src.FirstSeed != nil {
		f.FirstSeed = r.src.FirstSeed
	}
	r.printable("name", f.Name)
	if f.Seeds < 1 || f.Seeds > 1_000_000 {
		r.bad("seeds", "seeds must be a whole number from 1 to 1000000, not %d", f.Seeds)
	}
	if f.Confidence < 0.5 || f.Confidence >= 1 {
		r.bad("confidence", "confidence must be from 0.5 to below 1, not %g", f.Confidence)
	}
	s.Axes = r.axes(f.Axes)
	if len(r.problems) > 0 {
		return nil
	}
	r.restrict(s)
	if len(r.problems) > 0 {
		return nil
	}
	r.dimensions(s)
	if len(r.problems) > 0 {
		return nil
	}
	r.cells(s, f)
	if len(r.problems) > 0 {
		return nil
	}
	r.given(s, f)
	r.baseline(s, f)
	r.goals(s, f)
	r.stop(s, f)
	if len(r.problems) > 0 {
		return nil
	}
	s.group()
	return s
}

// printable checks a text that is shown as it is.
func (r *resolver) printable(p strict.Path, text string) {
	if err := strict.Printable(string(p), text); err != nil {
		r.bad(p, "%v", err)
	}
}

func (r *resolver) axes(files []axisFile) []Axis {
	if len(files) == 0 {
		r.bad("axes", "the sweep must have an axis: [[axes]] with a key and its values")
	}
	var axes []Axis
	for i, f := range files {
		p := strict.Path("axes").Index(i)
		if f.Key == "" {
			r.bad(p.Key("key"), `the axis must have a key: "policy", or one of the scenario's, such as "cluster.replicas"`)
			continue
		}
		a := Axis{Name: f.Name, Key: f.Key, Zip: f.Zip}
		if a.Name == "" {
			a.Name = strings.Trim(f.Key[strings.LastIndexByte(f.Key, '.')+1:], `"`)
		}
		r.axisNames(p, &a, axes)
		a.Values = r.values(p, &f)
		axes = append(axes, a)
	}
	return axes
}

func (r *resolver) axisNames(p strict.Path, a *Axis, before []Axis) {
	if !plain(a.Name) {
		r.bad(p.Key("name"), "the axis name %q must be of letters, digits, _ and -, so that it can name a column", a.Name)
	}
	if slices.Contains(columns[:], a.Name) || slices.ContainsFunc(general, func(m Metric) bool { return m.Name == a.Name }) || strings.HasPrefix(a.Name, "tenant_") {
		r.bad(p.Key("name"), "the axis name %q is a column of the results already; give the axis another: name = \"…\"", a.Name)
	}
	for _, b := range before {
		if a.Name == b.Name {
			r.bad(p.Key("name"), "the name %q is given to two axes", a.Name)
		}
		if a.Key == b.Key {
			r.bad(p.Key("key"), "the key %q has two axes", a.Key)
		}
	}
}

// plain reports whether name can name a column anywhere.
func plain(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return name != ""
}

func (r *resolver) values(p strict.Path, f *axisFile) []Value {
	ranged := f.From != nil || f.To != nil || f.Step != nil || f.Points != nil || f.Scale != ""
	switch {
	case len(f.Values) > 0 && ranged:
		r.bad(p, "the axis has both a list and a range; allowed: values, or from and to with step or points")
	case len(f.Values) > maxValues:
		r.bad(p.Key("values"), "the axis has %d values; allowed: at most %d", len(f.Values), maxValues)
	case len(f.Values) > 0:
		return r.list(p.Key("values"), f.Values)
	case !ranged:
		r.bad(p, "the axis must have values = […], or from and to with step or points")
	case f.From == nil || f.To == nil:
		r.bad(p, "a range must have both from and to")
	case (f.Step == nil) == (f.Points == nil):
		r.bad(p, "a range must have either a step or a number of points")
	case f.Points != nil && (*f.Points < 2 || *f.Points > maxValues):
		r.bad(p.Key("points"), "points must be from 2 to %d, not %d", maxValues, *f.Points)
	case f.Scale != "" && f.Scale != "linear" && f.Scale != "log":
		r.bad(p.Key("scale"), "scale %q is unknown; allowed: linear, log", f.Scale)
	case f.Scale == "log" && f.Step != nil:
		r.bad(p.Key("step"), "a logarithmic range has points, not a step")
	default:
		return r.span(p, f)
	}
	return nil
}

func (r *resolver) list(p strict.Path, list []any) []Value {
	var values []Value
	seen := map[string]bool{}
	for i, v := range list {
		text := Value{v}.Text()
		if seen[text] {
			r.bad(p.Index(i), "the value %s is listed twice", text)
		}
		seen[text] = true
		r.printable(p.Index(i), text)
		values = append(values, Value{v})
	}
	return values
}

func (r *resolver) span(p strict.Path, f *axisFile) []Value {
	s := span{log: f.Scale == "log", whole: true}
	s.from = r.number(p.Key("from"), f.From, &s.whole)
	s.to = r.number(p.Key("to"), f.To, &s.whole)
	if f.Step != nil {
		if s.step = r.number(p.Key("step"), f.Step, &s.whole); s.step <= 0 {
			r.bad(p.Key("step"), "step must be above 0, not %g", s.step)
			return nil
		}
	} else {
		s.points = *f.Points
	}
	values, err := s.values()
	if err != nil {
		r.bad(p, "%v", err)
	}
	return values
}

// number is a finite number of the file; whole is cleared when it is written
// with a point.
func (r *resolver) number(p strict.Path, v any, whole *bool) float64 {
	x, ok := Value{v}.Number()
	if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
		r.bad(p, "%s must be a finite number", p)
		return math.NaN()
	}
	if _, isWhole := v.(int64); !isWhole {
		*whole = false
	}
	return x
}

// restrict drops the axis values that the command line does not ask for. Axes
// that are zipped lose the same places.
func (r *resolver) restrict(s *Sweep) {
	for _, expr := range r.src.AxisTexts {
		name, list, ok := strings.Cut(expr, "=")
		i := slices.IndexFunc(s.Axes, func(a Axis) bool { return a.Name == name })
		switch {
		case i < 0:
			var names []string
			for _, a := range s.Axes {
				names = append(names, a.Name)
			}
			r.usage("--axis "+expr, "allowed: NAME=VALUE,VALUE… with one of the axes%s", spelling.Suggest(name, names))
			continue
		case !ok:
			r.usage("--axis "+expr, "there must be values: %s=VALUE,VALUE…; allowed: %s", name, someTexts(s.Axes[i].Values))
			continue
		}
		keep, err := s.Axes[i].restrict(strings.Split(list, ","))
		if err != nil {
			r.usage("--axis "+expr, "%v", err)
			continue
		}
		for j := range s.Axes {
			if j == i || s.Axes[i].Zip != "" && s.Axes[j].Zip == s.Axes[i].Zip {
				s.Axes[j].Values = pick(s.Axes[j].Values, keep)
			}
		}
	}
}

// pick are the values at the places, as far as there are any.
func pick(values []Value, places []int) []Value {
	var out []Value
	for _, i := range places {
		if i < len(values) {
			out = append(out, values[i])
		}
	}
	return out
}

// dimensions groups the axes: those that are zipped are one dimension.
func (r *resolver) dimensions(s *Sweep) {
	cells := 1
	for i, a := range s.Axes {
		d := -1
		if a.Zip != "" {
			d = slices.IndexFunc(s.dims, func(d []int) bool { return s.Axes[d[0]].Zip == a.Zip })
		}
		if d < 0 {
			s.dims = append(s.dims, []int{i})
			if cells *= len(a.Values); cells > maxCells {
				r.bad("axes", "the axes make over %d cells; allowed: at most %d", maxCells, maxCells)
				return
			}
			continue
		}
		s.dims[d] = append(s.dims[d], i)
		if first := s.Axes[s.dims[d][0]]; len(first.Values) != len(a.Values) {
			r.bad(strict.Path("axes").Index(i), "the axis %q has %d values and %q, with which it is zipped, %d; allowed: as many", a.Name, len(a.Values), first.Name, len(first.Values))
		}
	}
}

// axis is the dimension of the axis with the name; -1 with a problem if there
// is none.
func (r *resolver) axis(s *Sweep, p strict.Path, name string) (axis, dim int) {
	var names []string
	for d, axes := range s.dims {
		for _, i := range axes {
			if s.Axes[i].Name == name {
				return i, d
			}
			names = append(names, s.Axes[i].Name)
		}
	}
	r.bad(p, "there is no axis %q%s", name, spelling.Suggest(name, names))
	return -1, -1
}

func (r *resolver) given(s *Sweep, f *file) {
	s.given = make([]bool, len(s.dims))
	for i, name := range f.Given {
		if _, d := r.axis(s, strict.Path("given").Index(i), name); d >= 0 {
			s.given[d] = true
		}
	}
}

// baseline finds for every cell the cell it is compared with: the same, but
// with the baseline's values on the axes that the baseline names.
func (r *resolver) baseline(s *Sweep, f *file) {
	fixed := make([]int, len(s.dims))
	for d := range fixed {
		fixed[d] = -1
	}
	for _, name := range sortedKeys(f.Baseline) {
		p := strict.Path("baseline").Key(name)
		axis, d := r.axis(s, p, name)
		if axis < 0 {
			continue
		}
		text := Value{f.Baseline[name]}.Text()
		at := slices.IndexFunc(s.Axes[axis].Values, func(v Value) bool { return v.Text() == text })
		switch {
		case at < 0 && len(r.src.AxisTexts) > 0:
			r.usage("--axis", "the values of axis %q must hold the baseline's, %s", name, text)
		case at < 0:
			r.bad(p, "axis %q has no value %s; allowed: %s", name, text, someTexts(s.Axes[axis].Values))
		case fixed[d] >= 0 && fixed[d] != at:
			r.bad(p, "axis %q is zipped with another whose baseline is at another place", name)
		default:
			fixed[d] = at
		}
	}
	for i := range s.Cells {
		s.Cells[i].Baseline = -1
		if len(f.Baseline) > 0 && len(r.problems) == 0 {
			s.Cells[i].Baseline = s.index(s.place(i), fixed)
		}
	}
}

func (r *resolver) goals(s *Sweep, f *file) {
	if o := f.Objective; o != nil {
		switch {
		case (o.Minimise == "") == (o.Maximise == ""):
			r.bad("objective", "the objective must have one of minimise and maximise")
		case o.Minimise != "":
			s.Objective = r.objective(s, "objective.minimise", o.Minimise, false)
		default:
			s.Objective = r.objective(s, "objective.maximise", o.Maximise, true)
		}
	}
	for i, c := range f.Constraints {
		p := strict.Path("constraints").Index(i)
		m := r.metric(s, p.Key("metric"), c.Metric)
		switch {
		case (c.AtLeast == nil) == (c.AtMost == nil):
			r.bad(p, "a constraint must have one of at_least and at_most")
		case c.AtLeast != nil:
			s.Constraints = append(s.Constraints, Constraint{Metric: m, Least: true, Bound: *c.AtLeast})
		default:
			s.Constraints = append(s.Constraints, Constraint{Metric: m, Bound: *c.AtMost})
		}
	}
}

func (r *resolver) objective(s *Sweep, p strict.Path, name string, maximise bool) *Objective {
	for i := range s.Axes {
		if s.Axes[i].Name != name {
			continue
		}
		if !s.Axes[i].Numeric() {
			r.bad(p, "the axis %q has values that are no numbers", name)
		}
		return &Objective{Name: name, Axis: i, Metric: -1, Maximise: maximise}
	}
	return &Objective{Name: name, Axis: -1, Metric: r.metric(s, p, name), Maximise: maximise}
}

func (r *resolver) metric(s *Sweep, p strict.Path, name string) int {
	i, err := s.MetricIndex(name)
	if err != nil {
		r.bad(p, "%v", err)
	}
	return i
}

func (r *resolver) stop(s *Sweep, f *file) {
	s.looks = []int{f.Seeds}
	if f.Stop == nil {
		return
	}
	if f.Stop.First < 2 || f.Stop.Step < 1 {
		r.bad("stop", "stop must have first = 2 or more seeds and step = 1 or more")
		return
	}
	if s.Objective == nil && len(s.Constraints) == 0 {
		r.bad("stop", "stopping early needs something to decide: an [objective] or [[constraints]]")
		return
	}
	s.looks = looks(f.Stop.First, f.Stop.Step, f.Seeds)
}

// looks are the numbers of seeds after which the results are looked at.
func looks(first, step, seeds int) []int {
	var at []int
	for n := first; n < seeds; n += step {
		at = append(at, n)
	}
	return append(at, seeds)
}
