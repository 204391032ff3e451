package sweep

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/scenario"
	"fleetsim/strict"
)

// cells makes a checked scenario for every combination of values.
func (r *resolver) cells(s *Sweep, f *file) {
	sets, places := r.sets(f)
	s.Cells = make([]Cell, s.count())
	failed := make([]error, len(s.Cells))
	r.inParallel(len(s.Cells), func(i int) { failed[i] = r.cell(s, i, sets) })
	r.collect(s, failed, places)
	if len(r.problems) > 0 {
		return
	}
	r.profiles(s)
	first := s.Cells[0].Scenario.Seed
	if f.FirstSeed != nil {
		first = *f.FirstSeed
	}
	for i := range f.Seeds {
		s.Seeds = append(s.Seeds, first+uint64(i))
	}
	scenarios := make([]*scenario.Scenario, len(s.Cells))
	for i := range s.Cells {
		scenarios[i] = s.Cells[i].Scenario
	}
	s.Metrics = metricsOf(scenarios)
}

// inParallel calls f for 0 … n-1, on every CPU.
func (r *resolver) inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), n)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}

// sets are the sweep's own overrides of the base scenario and those of the
// command line, with the places of the former.
func (r *resolver) sets(f *file) (sets []string, places map[string]strict.Place) {
	places = map[string]strict.Place{}
	var add func(at, from strict.Path, v any)
	add = func(at, from strict.Path, v any) {
		if table, ok := v.(map[string]any); ok && len(table) > 0 {
			for _, k := range sortedKeys(table) {
				add(at.Key(k), from.Key(k), table[k])
			}
			return
		}
		sets = append(sets, string(at)+"="+literal(v))
		places["--set "+string(at)] = r.doc.At(from)
	}
	for _, k := range sortedKeys(f.Set) {
		add(strict.Path("").Key(k), strict.Path("set").Key(k), f.Set[k])
	}
	for _, set := range r.src.Sets {
		key, _, _ := strings.Cut(set, "=")
		delete(places, "--set "+strings.TrimSpace(key))
	}
	for i, a := range f.Axes {
		places["--set "+a.Key] = r.doc.At(strict.Path("axes").Index(i).Key("key"))
		if a.Key == PolicyKey {
			places["--set policies"] = r.doc.At(strict.Path("axes").Index(i))
		}
	}
	return append(sets, r.src.Sets...), places
}

// cell makes cell i from the base scenario.
func (r *resolver) cell(s *Sweep, i int, sets []string) error {
	c := &s.Cells[i]
	c.Index, c.At = i, s.at(i)
	sets = slices.Clip(sets)
	for a := range s.Axes {
		v := s.Value(i, a)
		if s.Axes[a].Key == PolicyKey {
			sets = scenario.WithPolicies(sets, v.Text())
			continue
		}
		sets = append(sets, s.Axes[a].Key+"="+literal(v.any))
	}
	var err error
	if c.Scenario, err = scenario.ParseWith(r.src.BaseFile, []byte(r.src.BaseText), sets); err != nil {
		return err
	}
	if n := len(c.Scenario.Policies); n != 1 {
		return Problems{r.doc.Problem("axes", `the base scenario has %d policies; allowed: an axis with key = "policy", or one policy in [set]: policies = ["…"]`, n)}
	}
	c.Policy = c.Scenario.Policies[0]
	return nil
}

// maxCellProblems is how many of the cells' problems are worth reading.
const maxCellProblems = 20

// collect reports the cells' problems, each once, at the place in the sweep
// that the value came from; the first cell that has it is named when the place
// does not tell.
func (r *resolver) collect(s *Sweep, failed []error, places map[string]strict.Place) {
	seen := map[string]bool{}
	for i, err := range failed {
		if err == nil {
			continue
		}
		var problems Problems
		if !errors.As(err, &problems) {
			problems = Problems{r.doc.Problem("axes", "%v", err)}
		}
		for _, p := range problems {
			if seen[p.String()] || len(r.problems) >= maxCellProblems {
				continue
			}
			seen[p.String()] = true
			if place, ok := places[p.File]; ok {
				p.Place = place
			} else if p.File == r.src.BaseFile {
				p.Msg += " (in the cell " + s.Label(i) + ")"
			}
			r.problems = append(r.problems, p)
		}
	}
}

// profiles loads the profile of each cell, each once, and checks the engine's
// limits with it.
func (r *resolver) profiles(s *Sweep) {
	loaded := map[string]*model.Profile{}
	for i := range s.Cells {
		c := &s.Cells[i]
		name := c.Scenario.Profile
		if _, ok := loaded[name]; !ok {
			p, err := profiles.Load(name)
			if err != nil {
				r.bad("scenario", "%v", err)
			}
			loaded[name] = p
		}
		if c.Profile = loaded[name]; c.Profile == nil {
			continue
		}
		if _, err := sim.Limits(c.Profile, c.Scenario); err != nil {
			r.bad("axes", "%v (in the cell %s)", fmt.Errorf("%w", err), s.Label(i))
		}
	}
}
