package scenario

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"fleetsim/simtime"
)

// A Duration is a span written with its unit ("1.5s", "150ms", "20m").
type Duration struct{ simtime.Time }

// maxDuration keeps sums of a few durations inside simtime's range.
const maxDuration = 365 * 24 * time.Hour

const wantDuration = `a duration with its unit, such as "1.5s" (units: ns, us, ms, s, m, h)`

// durationForm is what time.ParseDuration takes, whatever the size.
var durationForm = regexp.MustCompile(`^[-+]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$`)

// Want says what a Duration is written as.
func (Duration) Want() string { return wantDuration }

// UnmarshalText reads a span as time.ParseDuration does, to the nanosecond. It
// refuses negative ones, those over a year, and a number without a unit.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return fmt.Errorf("must be %s, not %q", wantDuration, s)
	}
	span, err := time.ParseDuration(s)
	switch {
	case err != nil && !durationForm.MatchString(s):
		return fmt.Errorf("must be %s, not %q", wantDuration, s)
	case span < 0 || s[0] == '-' && err != nil:
		return fmt.Errorf(`must be 0s or more, not %q`, s)
	case span > maxDuration || err != nil: // err: beyond what ParseDuration can hold
		return fmt.Errorf("must be at most 8760h (a year), not %q", s)
	}
	d.Time = simtime.Time(span) * simtime.Nanosecond
	return nil
}

// MarshalText writes the span so that UnmarshalText reads it back, to the
// nanosecond.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(written(d)), nil
}

// written is d as a scenario has it, which for a span below a second is easier
// to read than a fraction of it.
func written(d Duration) string { return time.Duration(d.Time / simtime.Nanosecond).String() }
