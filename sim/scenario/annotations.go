package scenario

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"fleetsim/sim/scenario/strict"
)

// annotationKinds is the annotations that AIBrix v0.7.0 reads, with what their
// values are (docs: pkg/controller/podautoscaler/context).
func annotationKinds() map[string]string {
	return map[string]string{
		"max-scale-up-rate":          "number",
		"max-scale-down-rate":        "number",
		"scale-up-tolerance":         "number",
		"scale-down-tolerance":       "number",
		"panic-threshold":            "number",
		"scale-up-cooldown-window":   "duration",
		"scale-down-cooldown-window": "duration",
		"scale-to-zero":              "boolean",
	}
}

func (c *checker) annotations(annotations map[string]string) {
	kinds := annotationKinds()
	for _, name := range sortedKeys(annotations) {
		p := strict.Path("autoscale.annotations").Key(name)
		kind, ok := kinds[name]
		if !ok {
			c.bad(p, "unknown annotation %q%s", name, strict.Suggest(name, sortedKeys(kinds)))
			continue
		}
		c.annotation(p, kind, annotations[name])
	}
}

func (c *checker) annotation(p strict.Path, kind, value string) {
	switch kind {
	case "number":
		if x, err := strconv.ParseFloat(value, 64); err != nil || !(x >= 0 && x <= 1e6) {
			c.bad(p, "%s must be a number from 0 to 1e6 in quotes, not %q", p, value)
		}
	case "duration":
		if d, err := time.ParseDuration(value); err != nil || d < 0 || d > maxDuration {
			c.bad(p, "%s must be %s, not %q", p, wantDuration, value)
		}
	case "boolean":
		if _, err := strconv.ParseBool(value); err != nil {
			c.bad(p, `%s must be "true" or "false", not %q`, p, value)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
