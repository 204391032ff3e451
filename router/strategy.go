package router

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A strategy is one entry of a multi-strategy list.
type strategy struct {
	name   string
	weight int
}

const maxWeight = 1_000_000

// parseStrategies reads "a:2,b:1,c": names with integer weights from 0 to
// 1,000,000, 1 when absent. An entry of weight 0 is dropped; pd and names that
// start with slo are exclusive, so the first of them stands alone.
func parseStrategies(list string) ([]strategy, error) {
	var strategies []strategy
	var problems []error
	for entry := range strings.SplitSeq(list, ",") {
		s, err := parseStrategy(strings.TrimSpace(entry))
		switch {
		case err != nil:
			problems = append(problems, err)
		case s.weight > 0:
			strategies = append(strategies, s)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if len(strategies) == 0 {
		return nil, errors.New("every weight is 0; at least one policy needs a weight above 0")
	}
	for _, s := range strategies {
		if s.name == "pd" || strings.HasPrefix(s.name, "slo") {
			return []strategy{s}, nil
		}
	}
	return strategies, nil
}

func parseStrategy(entry string) (strategy, error) {
	name, weight, weighted := strings.Cut(entry, ":")
	name = strings.TrimSpace(name)
	if name == "" {
		return strategy{}, fmt.Errorf("%q has no policy name; want name or name:weight", entry)
	}
	if !weighted {
		return strategy{name, 1}, nil
	}
	w, err := strconv.Atoi(strings.TrimSpace(weight))
	if err != nil || w < 0 || w > maxWeight {
		return strategy{}, fmt.Errorf("%s: weight %q; want a whole number from 0 to %d", name, weight, maxWeight)
	}
	return strategy{name, w}, nil
}
