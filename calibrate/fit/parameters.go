package fit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fleetsim/model"
)

// fixedByDefault are coefficients that a fit moves only when asked: a change
// in them is made up for by others.
var fixedByDefault = []string{"long_prefill_tokens", "per_shared_context", "per_prompt_token_overhead", "per_decode"}

// Choice is what a user says about the parameters.
type Choice struct {
	Fit    []string // the only ones to fit; none: those that the profile has a value for
	Fix    []string // not to fit
	Bounds []string // NAME=LOW:HIGH
}

// Parameters are the ones to fit, starting from the profile. Runs in an
// environment of their own get an overhead of their own.
func (c *Choice) Parameters(base *model.Profile, runs []Run) ([]Parameter, error) {
	names := slices.Clone(c.Fit)
	if len(names) == 0 {
		names = byDefault(base, runs)
	}
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			return nil, fmt.Errorf("fit %q: it is given twice", n)
		}
	}
	for _, n := range c.Fix {
		_, parts := (&Parameter{Name: n}).targets()
		if _, err := base.Coefficient(parts[0]); err != nil {
			return nil, fmt.Errorf("fix %q: %w", n, err)
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(c.Fix, n) })
	all := make([]Parameter, len(names))
	for i, n := range names {
		all[i].Name = n
	}
	for _, b := range c.Bounds {
		if err := setBound(all, b); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func byDefault(base *model.Profile, runs []Run) []string {
	var names []string
	for _, q := range base.Coefficients {
		if q.Value > 0 && !slices.Contains(fixedByDefault, q.Name) && !strings.HasSuffix(q.Name, "_overhead") {
			names = append(names, q.Name)
		}
	}
	environments := map[string]bool{}
	for i := range runs {
		e := runs[i].Environment
		if environments[e] {
			continue
		}
		environments[e] = true
		if e == "" {
			names = append(names, overhead)
		} else {
			names = append(names, e+":"+overhead)
		}
	}
	return names
}

// setBound applies NAME=LOW:HIGH.
func setBound(all []Parameter, text string) error {
	name, limits, ok := strings.Cut(text, "=")
	low, high, colon := strings.Cut(limits, ":")
	l, errLow := strconv.ParseFloat(low, 64)
	h, errHigh := strconv.ParseFloat(high, 64)
	if !ok || !colon || errLow != nil || errHigh != nil {
		return fmt.Errorf("bound %q: allowed is NAME=LOW:HIGH, such as launch=0.05:0.2", text)
	}
	i := slices.IndexFunc(all, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("bound %q: %s is not fitted", text, name)
	}
	all[i].Low, all[i].High = l, h
	return nil
}

// Weigh sets weights of runs, PHASE=WEIGHT each.
func Weigh(runs []Run, weights []string) error {
	for _, text := range weights {
		name, number, _ := strings.Cut(text, "=")
		w, err := strconv.ParseFloat(number, 64)
		i := slices.IndexFunc(runs, func(r Run) bool { return r.Name == name })
		if err != nil || !(w > 0 && w <= 1e6) || i < 0 {
			return fmt.Errorf("weight %q: allowed is RUN=WEIGHT with a weight above 0 and one of the runs: %s", text, strings.Join(Names(runs), ", "))
		}
		runs[i].Weight = w
	}
	return nil
}

// Names are the runs' names.
func Names(runs []Run) []string {
	var names []string
	for i := range runs {
		names = append(names, runs[i].Name)
	}
	return names
}
