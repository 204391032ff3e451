package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"fleetsim/model"
)

// file is a profile as written, with what it inherits.
type file struct {
	Name        string                    `toml:"name"`
	Description string                    `toml:"description"`
	Inherits    string                    `toml:"inherits"`
	Engine      limits                    `toml:"engine"`
	Cost        map[string]model.Quantity `toml:"cost"`
	Overhead    map[string]model.Quantity `toml:"overhead"`
	Range       model.Range               `toml:"range"`
	Noise       model.Noise               `toml:"noise"`

	path     string
	lines    map[string]int // of each key, by its dotted path
	problems []error
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

// parse reads a file and its parents. What the file says goes over what it
// inherits, coefficient by coefficient; problems of both are in the result.
func parse(name string, data []byte, heirs []string) (*file, error) {
	var head struct {
		Inherits string `toml:"inherits"`
	}
	if err := decode(name, data, &head); err != nil {
		return nil, err
	}
	f := &file{}
	if head.Inherits != "" {
		parent, err := read(beside(name, head.Inherits), heirs)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: inherits: %w", name, keyLines(data)["inherits"], err)
		}
		f = parent
	}
	f.path, f.lines = name, keyLines(data)
	// A table of the decoder's own would merge a quantity with the parent's.
	own := *f
	own.Cost, own.Overhead = nil, nil
	meta, err := toml.Decode(string(data), &own)
	if err != nil {
		return nil, located(name, err)
	}
	own.Cost, own.Overhead = over(f.Cost, own.Cost), over(f.Overhead, own.Overhead)
	for _, key := range meta.Undecoded() {
		own.problems = append(own.problems, own.bad(key.String(), "unknown key %s", key))
	}
	return &own, nil
}

// decode reads what v asks for and nothing else.
func decode(name string, data []byte, v any) error {
	_, err := toml.Decode(string(data), v)
	return located(name, err)
}

// located puts the place before an error of the decoder.
func located(name string, err error) error {
	var syntax toml.ParseError
	if errors.As(err, &syntax) {
		return fmt.Errorf("%s:%d: %s", name, syntax.Position.Line, syntax.Message)
	}
	if err == nil {
		return nil
	}
	// The decoder has the line of a wrong type in the text alone.
	if m := wrongType.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s:%s: %s: %s", name, m[1], m[2], m[3])
	}
	return fmt.Errorf("%s: %w", name, err)
}

var wrongType = regexp.MustCompile(`^toml: line (\d+) \(last key "(.*)"\): (.*)$`)

// over is the parent's quantities with the file's own in their place.
func over(parent, own map[string]model.Quantity) map[string]model.Quantity {
	all := maps.Clone(parent)
	if all == nil {
		all = map[string]model.Quantity{}
	}
	maps.Copy(all, own)
	return all
}

// bad is a problem with the key of that dotted path, or with the file if it
// does not hold the key.
func (f *file) bad(key, format string, args ...any) error {
	place := f.path
	if line, ok := f.lines[key]; ok {
		place = fmt.Sprintf("%s:%d", f.path, line)
	}
	return fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...))
}

// profile checks the file and makes a profile of it.
func (f *file) profile() (*model.Profile, error) {
	p := &model.Profile{Name: f.Name, Description: f.Description, Limits: model.Limits(f.Engine), Range: f.Range, Noise: f.Noise}
	problems := f.problems
	bad := func(key, format string, args ...any) {
		problems = append(problems, f.bad(key, format, args...))
	}
	if f.Name == "" {
		bad("name", "name is missing")
	}
	if err := p.Limits.Validate(); err != nil {
		bad("engine", "engine: %v", err)
	}
	p.Coefficients = f.quantities()
	for _, q := range p.Coefficients {
		if err := check(p, q); err != nil {
			bad(tomlKey(q.Name), "%v", err)
		}
	}
	if err := p.Validate(); err != nil {
		bad("cost", "%v", err)
	}
	for _, name := range model.RequiredCoefficients() {
		if !slices.ContainsFunc(p.Coefficients, func(q model.Quantity) bool { return q.Name == name }) {
			bad(tomlKey(name), "%s is missing", tomlKey(name))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return p, nil
}

// check puts a quantity into the profile.
func check(p *model.Profile, q model.Quantity) error {
	if err := p.SetCoefficient(q.Name, q.Value); err != nil {
		return err
	}
	if unit, _ := model.UnitOf(q.Name); q.Unit != unit {
		return fmt.Errorf("%s: the unit is %q, not %q", q.Name, unit, q.Unit)
	}
	if n := len(q.Interval); n != 0 && (n != 2 || !(q.Interval[0] <= q.Interval[1])) {
		return fmt.Errorf("%s: interval = %v: allowed are two values, the lower first", q.Name, q.Interval)
	}
	return nil
}

// quantities are the coefficients of the file in their order. The overheads
// have a table of their own, where their names are shorter.
func (f *file) quantities() []model.Quantity {
	var all []model.Quantity
	for name, q := range f.Cost {
		q.Name = name
		all = append(all, q)
	}
	for name, q := range f.Overhead {
		q.Name = name + overheadSuffix
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b model.Quantity) int {
		if c := model.CompareCoefficients(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name) // unknown ones
	})
	return all
}

const overheadSuffix = "_overhead"

// tomlKey is the dotted path of a coefficient.
func tomlKey(name string) string {
	if side, ok := strings.CutSuffix(name, overheadSuffix); ok {
		return "overhead." + side
	}
	return "cost." + name
}

// keyLines finds the line of each key and table of a TOML file that is known
// to parse, by its dotted path. Keys inside inline tables are not listed.
func keyLines(data []byte) map[string]int {
	lines := map[string]int{}
	table := ""
	for i, raw := range bytes.Split(data, []byte("\n")) {
		line := strings.TrimSpace(string(raw))
		if name, ok := strings.CutPrefix(line, "["); ok {
			name, _, _ = strings.Cut(name, "]")
			table = strings.TrimSpace(name) + "."
			lines[strings.TrimSuffix(table, ".")] = i + 1
			continue
		}
		if key, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			lines[table+strings.TrimSpace(key)] = i + 1
		}
	}
	return lines
}
