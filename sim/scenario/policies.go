package scenario

import (
	"slices"
	"strings"

	"fleetsim/strict"
)

// WithPolicies are the overrides and, after them, one by which the scenario runs
// these policies.
func WithPolicies(sets []string, policies ...string) []string {
	quoted := make([]string, len(policies))
	for i, p := range policies {
		quoted[i] = strict.Quote(p)
	}
	return append(slices.Clip(sets), "policies=["+strings.Join(quoted, ",")+"]")
}

// PoliciesAt is err, of a scenario WithPolicies, with
// place, where they come from, in the stead of --set policies.
func PoliciesAt(place string, err error) error {
	problems, ok := err.(Problems)
	if !ok {
		return err
	}
	problems = slices.Clone(problems)
	for i := range problems {
		if problems[i].File == "--set policies" {
			problems[i].File = place
		}
	}
	return problems
}
