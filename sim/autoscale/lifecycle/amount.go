package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
)

// An Amount is a number of replicas, or a percentage of those desired, as
// maxSurge and maxUnavailable of a Deployment are.
type Amount struct {
	n       int
	percent bool
}

// ParseAmount reads "2" or "25%". A number is at most a million, a percentage at
// most 1000%.
func ParseAmount(s string) (Amount, error) {
	digits, percent := strings.CutSuffix(s, "%")
	most := 1_000_000
	if percent {
		most = 1000
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n > uint64(most) {
		return Amount{}, fmt.Errorf("%q: must be a number such as 2, or a percentage such as 25%%", s)
	}
	return Amount{int(n), percent}, nil
}

func (a Amount) roundUp(desired int) int {
	if !a.percent {
		return a.n
	}
	return (a.n*desired + 99) / 100
}

func (a Amount) roundDown(desired int) int {
	if !a.percent {
		return a.n
	}
	return a.n * desired / 100
}

// rollingLimits are the replicas a rolling update may have beyond, and lack from,
// those desired. Surge rounds up, unavailable down; both 0 would stand still, so
// then one may be unavailable (Kubernetes, ResolveFenceposts).
func rollingLimits(surge, unavailable Amount, desired int) (up, down int) {
	up, down = surge.roundUp(desired), unavailable.roundDown(desired)
	if up == 0 && down == 0 {
		down = 1
	}
	return up, down
}
