// Package profiles holds the calibrated GPU and model profiles and reads
// profile files.
package profiles

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"

	"github.com/BurntSushi/toml"

	"fleetsim/model"
)

//go:embed *.toml
var builtin embed.FS

// file is a profile as written.
type file struct {
	Name        string                    `toml:"name"`
	Description string                    `toml:"description"`
	Engine      limits                    `toml:"engine"`
	Cost        map[string]model.Quantity `toml:"cost"`
	Overhead    map[string]model.Quantity `toml:"overhead"`
	Range       model.Range               `toml:"range"`
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

// Names lists the built-in profiles in order.
func Names() []string {
	entries, _ := builtin.ReadDir(".") // reading an embedded root cannot fail
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".toml"))
	}
	sort.Strings(names)
	return names
}

// Load returns the built-in profile of that name or, if the name ends in
// ".toml", reads that file.
func Load(name string) (*model.Profile, error) {
	if strings.HasSuffix(name, ".toml") {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return Parse(name, data)
	}
	data, err := builtin.ReadFile(path.Base(name) + ".toml")
	if err != nil {
		return nil, fmt.Errorf("unknown profile %q: built in are %s; a file's name ends in .toml",
			name, strings.Join(Names(), ", "))
	}
	return Parse(name+".toml", data)
}

// Parse reads a profile from data; name is used in messages. It reports every
// problem it finds.
func Parse(name string, data []byte) (*model.Profile, error) {
	var f file
	meta, err := toml.Decode(string(data), &f)
	if err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("%s:%d: %s", name, syntax.Position.Line, syntax.Message)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(name+": "+format, args...))
	}
	for _, key := range meta.Undecoded() {
		bad("unknown key %s", key)
	}
	p := &model.Profile{Name: f.Name, Description: f.Description, Limits: model.Limits(f.Engine), Range: f.Range}
	if err := p.Limits.Validate(); err != nil {
		bad("engine: %v", err)
	}
	for _, c := range model.CoefficientNames {
		q, ok := f.quantity(c)
		if !ok {
			bad("%s is missing", c)
			continue
		}
		q.Name = c
		if err := p.SetCoefficient(c, q.Value); err != nil {
			bad("%v", err)
		}
		p.Coefficients = append(p.Coefficients, q)
	}
	if f.Name == "" {
		bad("name is missing")
	}
	return p, errors.Join(problems...)
}

// quantity finds a coefficient in the tables of the file: the overheads have
// one of their own.
func (f *file) quantity(name string) (model.Quantity, bool) {
	table := f.Cost
	if side, ok := strings.CutSuffix(name, "_overhead"); ok {
		name, table = side, f.Overhead
	}
	q, ok := table[name]
	return q, ok
}
