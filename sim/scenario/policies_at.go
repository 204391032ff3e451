package scenario

import "slices"

// PoliciesAt is err, of a scenario whose policies an override has replaced, with
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
