package autoscale

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetsim/simtime"
	"fleetsim/spelling"
)

// AnnotationPrefix may be left out of the names.
const AnnotationPrefix = "autoscaling.aibrix.ai/"

// Settings are the annotations of a PodAutoscaler
// (pkg/controller/podautoscaler/context/context.go:106 at v0.7.0).
type Settings struct {
	UpRate         float64      // max-scale-up-rate: at most this times the replicas in one step; at least 1, default 2
	DownRate       float64      // max-scale-down-rate: at least the replicas divided by this; at least 1, default 2
	UpTolerance    float64      // scale-up-tolerance: share of the target above it that changes nothing; default 0.1
	DownTolerance  float64      // scale-down-tolerance: share below it, 0 to 1; default 0.1
	PanicThreshold float64      // panic-threshold: 60 s mean over 180 s mean, above which KPA panics; default 2
	UpWindow       simtime.Time // scale-up-cooldown-window; default 0
	DownWindow     simtime.Time // scale-down-cooldown-window; default 300 s
	ScaleToZero    bool         // scale-to-zero: read, and used by no strategy
}

// DefaultSettings are those of an autoscaler without annotations.
func DefaultSettings() Settings {
	return Settings{
		UpRate:         2,
		DownRate:       2,
		UpTolerance:    0.1,
		DownTolerance:  0.1,
		PanicThreshold: 2,
		DownWindow:     300 * simtime.Second,
	}
}

// annotationNames are the known annotations without their prefix.
var annotationNames = [...]string{
	"max-scale-up-rate",
	"max-scale-down-rate",
	"scale-up-tolerance",
	"scale-down-tolerance",
	"panic-threshold",
	"scale-up-cooldown-window",
	"scale-down-cooldown-window",
	"scale-to-zero",
}

// ParseAnnotations reads annotations whose names have or lack AnnotationPrefix.
// The values are written as AIBrix reads them: a number, a Go duration ("300s"),
// or a boolean.
//
// It is stricter than the original, so that a typing error does not silently
// simulate the defaults: AIBrix ignores unknown names, takes values out of range,
// and at a value it cannot read gives up on the annotations it has not come to
// yet, in random order. Here each of these is an error, and all are reported.
func ParseAnnotations(annotations map[string]string) (Settings, error) {
	set := DefaultSettings()
	keys := make([]string, 0, len(annotations))
	for key := range annotations {
		keys = append(keys, key)
	}
	slices.Sort(keys)

	var problems []error
	seen := map[string]bool{}
	for _, key := range keys {
		name := strings.TrimPrefix(key, AnnotationPrefix)
		err := set.parse(name, annotations[key])
		if err == nil && seen[name] {
			err = errors.New("given twice, with and without the prefix")
		}
		seen[name] = true
		if err != nil {
			problems = append(problems, fmt.Errorf("annotation %q: %w", key, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return DefaultSettings(), err
	}
	return set, nil
}

func (s *Settings) parse(name, value string) (err error) {
	switch name {
	case "max-scale-up-rate":
		err = parseNumber(&s.UpRate, value, 1, math.MaxInt32)
	case "max-scale-down-rate":
		err = parseNumber(&s.DownRate, value, 1, math.MaxInt32)
	case "scale-up-tolerance":
		err = parseNumber(&s.UpTolerance, value, 0, math.MaxInt32)
	case "scale-down-tolerance":
		err = parseNumber(&s.DownTolerance, value, 0, 1)
	case "panic-threshold":
		err = parseNumber(&s.PanicThreshold, value, 0, math.MaxInt32)
	case "scale-up-cooldown-window":
		err = parseWindow(&s.UpWindow, value)
	case "scale-down-cooldown-window":
		err = parseWindow(&s.DownWindow, value)
	case "scale-to-zero":
		s.ScaleToZero, err = strconv.ParseBool(value)
		if err != nil {
			err = fmt.Errorf("%q is not a boolean; allowed are true and false", value)
		}
	default:
		err = errors.New("unknown" + spelling.Suggest(name, annotationNames[:]))
	}
	return err
}

func parseNumber(dst *float64, value string, lo, hi float64) error {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil || !(x >= lo && x <= hi) {
		return fmt.Errorf("%q is not a number from %v to %v", value, lo, hi)
	}
	*dst = x
	return nil
}

// longestWindow keeps windows well inside the range of simtime.Time.
const longestWindow = 365 * 24 * time.Hour

func parseWindow(dst *simtime.Time, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > longestWindow {
		return fmt.Errorf("%q is not a duration from 0s to %v, such as 300s", value, longestWindow)
	}
	*dst = simtime.Time(d.Nanoseconds()) * simtime.Nanosecond
	return nil
}
