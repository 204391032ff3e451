package scenario

import (
	"fmt"
	"strconv"
	"strings"

	"fleetsim/sim/scenario/strict"
)

// policyNames is the names that a strategy may be made of.
func policyNames() []string {
	return []string{"random", "least-request", "prefix-cache"}
}

// checkPolicy is what is wrong with a policy, "a" or weighted "a:2,b:1"; "" if
// nothing.
func checkPolicy(policy string) string {
	known := policyNames()
	for _, term := range strings.Split(policy, ",") {
		name, weight, weighted := strings.Cut(strings.TrimSpace(term), ":")
		found := false
		for _, k := range known {
			found = found || k == name
		}
		if !found {
			return fmt.Sprintf("unknown policy %q%s", name, strict.Suggest(name, known))
		}
		if n, err := strconv.Atoi(weight); weighted && (err != nil || n < 0 || n > 1_000_000) {
			return fmt.Sprintf("policy %q has the weight %q; allowed: 0 to 1000000", name, weight)
		}
	}
	return ""
}
