package router

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"fleetsim/spelling"
)

// Options are inputs of a policy that are no settings of the gateway.
type Options struct {
	// Profiles are the GPU profiles that the slo policies read; without one they
	// fall back to least-request.
	Profiles []GPUProfile
}

// A Factory makes a policy with its state empty.
type Factory func(Settings, Options) (Policy, error)

// factories is the one registry of the program: policies enter it while the
// program starts, as database/sql's drivers do.
var (
	factoriesMu sync.RWMutex
	factories   = make(map[string]Factory)
)

// Register makes a policy available under name, the value of the
// routing-strategy header. It panics when the name is taken, is empty, or holds
// a character that the multi-strategy syntax needs, or when f is nil: those are
// mistakes in the program, to be found as it starts.
func Register(name string, f Factory) {
	switch {
	case f == nil:
		panic("router: Register of " + name + " with a nil factory")
	case name == "" || strings.ContainsAny(name, ",: \t\n"):
		panic(fmt.Sprintf("router: Register of %q: want a name without commas, colons and spaces", name))
	}
	factoriesMu.Lock()
	defer factoriesMu.Unlock()
	if _, taken := factories[name]; taken {
		panic("router: Register called twice for policy " + name)
	}
	factories[name] = f
}

// Names are the registered policies, sorted.
func Names() []string {
	factoriesMu.RLock()
	defer factoriesMu.RUnlock()
	return slices.Sorted(maps.Keys(factories))
}

// New makes the named policy. A name may also be a weighted list, "a:2,b:1,c",
// of policies that can score pods.
func New(name string, s Settings, o Options) (Policy, error) {
	if err := errors.Join(s.Validate(), checkFixes(s.UpstreamFixed), checkProfiles(o.Profiles)); err != nil {
		return nil, err
	}
	strategies, err := parseStrategies(name)
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", name, err)
	}
	if len(strategies) == 1 {
		return newSingle(strategies[0].name, s, o)
	}
	return newMultiStrategy(strategies, s, o)
}

func newSingle(name string, s Settings, o Options) (Policy, error) {
	factoriesMu.RLock()
	f := factories[name]
	factoriesMu.RUnlock()
	if f == nil {
		return nil, fmt.Errorf("unknown policy %q%s", name, spelling.Suggest(name, Names()))
	}
	p, err := f(s, o)
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", name, err)
	}
	return p, nil
}
