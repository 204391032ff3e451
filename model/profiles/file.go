package profiles

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fleetsim/model"
	"fleetsim/spelling"
	"fleetsim/strict"
)

// file is a profile as written.
type file struct {
	Name        string                    `toml:"name"`
	Description string                    `toml:"description"`
	Inherits    string                    `toml:"inherits"` // a built-in name, or a file beside this one
	Engine      limits                    `toml:"engine"`
	Cost        map[string]model.Quantity `toml:"cost"`
	Overhead    map[string]model.Quantity `toml:"overhead"`
	Range       model.Range               `toml:"range"`
	Noise       model.Noise               `toml:"noise"`
}

type limits struct {
	MaxModelLen        int  `toml:"max_model_len"`
	MaxNumSeqs         int  `toml:"max_num_seqs"`
	MaxBatchedTokens   int  `toml:"max_num_batched_tokens"`
	LongPrefillTokens  int  `toml:"long_prefill_token_threshold"`
	BlockTokens        int  `toml:"block_tokens"`
	Blocks             int  `toml:"blocks"`
	StateGroups        int  `toml:"state_groups"`
	PrefixCaching      bool `toml:"prefix_caching"`
	AsyncScheduling    bool `toml:"async_scheduling"`
	CountStatsAtLookup bool `toml:"count_stats_at_lookup"`
}

// A reader collects a profile and what is wrong with it.
type reader struct {
	names    []string      // as the profile and its parents were asked for
	docs     []*strict.Doc // the profile's own, its parent's, …
	orphaned bool          // a parent could not be read
	problems strict.Problems
}

// profile is the checked profile in data.
func (r *reader) profile(name string, data []byte) (*model.Profile, error) {
	r.orphaned = errors.As(r.ancestry(name, data), &r.problems)
	f := r.decode()
	p := &model.Profile{Name: f.Name, Description: f.Description, Limits: model.Limits(f.Engine), Range: f.Range, Noise: f.Noise}
	r.quantities(p, "cost", f.Cost, "")
	r.quantities(p, "overhead", f.Overhead, overheadSuffix)
	slices.SortFunc(p.Coefficients, func(a, b model.Quantity) int { return model.CompareCoefficients(a.Name, b.Name) })
	r.check(p)
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// ancestry parses the profile in data and those that it inherits from. The error
// is Problems.
func (r *reader) ancestry(name string, data []byte) error {
	for {
		doc, err := strict.Parse(name, data)
		if err != nil {
			return err
		}
		r.docs = append(r.docs, doc)
		var f file
		doc.Decode(&f) // for its parent alone: decode keeps the problems
		if f.Inherits == "" {
			return nil
		}
		if name, data, err = r.parent(beside(name, f.Inherits)); err != nil {
			return strict.Problems{doc.Problem("inherits", "inherits: %v", err)}
		}
	}
}

// parent opens the profile of that name, unless it was asked for already.
func (r *reader) parent(name string) (file string, data []byte, err error) {
	again := slices.Contains(r.names, name)
	r.names = append(r.names, name)
	if again {
		return "", nil, fmt.Errorf("%s inherits from itself: %s", name, strings.Join(r.names, " → "))
	}
	return open(name)
}

// decode is what the documents say together: each goes over its parent,
// coefficient by coefficient.
func (r *reader) decode() file {
	var f file
	for _, doc := range slices.Backward(r.docs) {
		cost, overhead := f.Cost, f.Overhead
		r.problems = append(r.problems, doc.Decode(&f)...)
		f.Cost, f.Overhead = over(cost, f.Cost), over(overhead, f.Overhead)
	}
	return f
}

// over is the parent's quantities with the file's own in their place.
func over(parent, own map[string]model.Quantity) map[string]model.Quantity {
	all := map[string]model.Quantity{}
	maps.Copy(all, parent)
	maps.Copy(all, own)
	return all
}

// quantities puts those of a table into the profile. Their keys with the suffix
// are the names of coefficients.
func (r *reader) quantities(p *model.Profile, table strict.Path, all map[string]model.Quantity, suffix string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		q := all[key]
		q.Name = key + suffix
		if _, err := model.UnitOf(q.Name); err != nil {
			r.bad(table.Key(key), "unknown key %q in %s%s", key, table, spelling.Suggest(key, keysOf(string(table))))
			continue
		}
		r.quantity(p, table.Key(key), q)
	}
}

// keysOf are the keys that a table of quantities can have, as a message lists them.
func keysOf(table string) []string {
	var keys []string
	for _, name := range model.CoefficientNames() {
		if of, key, _ := strings.Cut(tomlKey(name), "."); of == table {
			keys = append(keys, key)
		}
	}
	return keys
}

// quantity puts the one at path into the profile.
func (r *reader) quantity(p *model.Profile, path strict.Path, q model.Quantity) {
	doc := r.holder(path)
	bad := func(key, format string, args ...any) { r.report(doc.Problem(path.Key(key), format, args...)) }
	if err := p.SetCoefficient(q.Name, q.Value); err != nil {
		bad("value", "%v", err)
	}
	if unit, _ := model.UnitOf(q.Name); q.Unit != unit {
		bad("unit", "%s: the unit is %q, not %q", q.Name, unit, q.Unit)
	}
	if n := len(q.Interval); n != 0 && (n != 2 || !(q.Interval[0] <= q.Interval[1])) {
		bad("interval", "%s: interval = %v: allowed are two values, the lower first", q.Name, q.Interval)
	}
	if has(p, q.Name) {
		r.bad(path, "%s is given twice", q.Name) // request_overhead in [cost] is request in [overhead]
	}
	p.Coefficients = append(p.Coefficients, q)
}

func has(p *model.Profile, name string) bool {
	return slices.ContainsFunc(p.Coefficients, func(q model.Quantity) bool { return q.Name == name })
}

// check looks for what is wrong with the profile as a whole.
func (r *reader) check(p *model.Profile) {
	if p.Name == "" {
		r.bad("name", "name is missing")
	}
	for _, name := range model.RequiredCoefficients() {
		if key := tomlKey(name); !has(p, name) {
			r.bad(strict.Path(key), "%s is missing", key)
		}
	}
	for _, fault := range p.Faults() {
		r.bad(strict.Path(fault.Key), "%s", fault.Msg)
	}
}

const overheadSuffix = "_overhead"

// tomlKey is the dotted path of a coefficient.
func tomlKey(name string) string {
	if side, ok := strings.CutSuffix(name, overheadSuffix); ok {
		return "overhead." + side
	}
	return "cost." + name
}

// bad adds a problem with the value at path, in the document that has it. A
// value that is nowhere may be in a parent that could not be read.
func (r *reader) bad(path strict.Path, format string, args ...any) {
	doc := r.holder(path)
	if doc == nil && r.orphaned {
		return
	}
	if doc == nil {
		doc = r.docs[0]
	}
	r.report(doc.Problem(path, format, args...))
}

// holder is the document that has the value at path.
func (r *reader) holder(path strict.Path) *strict.Doc {
	for _, doc := range r.docs {
		if doc.Has(path) {
			return doc
		}
	}
	return nil
}

// report adds a problem, unless there is one with the same value or a part of
// it: then this one is its consequence.
func (r *reader) report(p strict.Problem) {
	known := slices.ContainsFunc(r.problems, func(q strict.Problem) bool { return q.File == p.File && q.Path.Overlaps(p.Path) })
	if !known {
		r.problems = append(r.problems, p)
	}
}
