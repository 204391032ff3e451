package trace

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"

	"fleetsim/simtime"
)

// Rows is a stream of rows in the order of time. An error ends it. All
// transformations here read one stream and give another, row by row.
type Rows = iter.Seq2[Row, error]

// apply gives what f makes of each row: another row, or nothing if keep is false.
// stop ends the stream before the row.
func apply(rows Rows, f func(*Row) (keep, stop bool)) Rows {
	return func(yield func(Row, error) bool) {
		for row, err := range rows {
			if err != nil {
				yield(row, err)
				return
			}
			keep, stop := f(&row)
			if stop || keep && !yield(row, nil) {
				return
			}
		}
	}
}

// Filter keeps the rows for which keep is true.
func Filter(rows Rows, keep func(*Row) bool) Rows {
	return apply(rows, func(row *Row) (bool, bool) { return keep(row), false })
}

// OnlyTenant keeps one tenant's rows.
func OnlyTenant(rows Rows, name string) Rows {
	return Filter(rows, func(row *Row) bool { return row.Tenant == name })
}

// OnlyPhase keeps the rows of one phase or run of a source that holds several.
func OnlyPhase(rows Rows, name string) Rows {
	return Filter(rows, func(row *Row) bool { return row.Phase == name })
}

// Head keeps the first n rows.
func Head(rows Rows, n int) Rows {
	return func(yield func(Row, error) bool) {
		if n <= 0 {
			return
		}
		left := n
		for row, err := range rows {
			if left--; !yield(row, err) || err != nil || left == 0 {
				return
			}
		}
	}
}

// Window keeps the rows with from ≤ At < to; a to of 0 or less is the end. With
// rebase, times count from from afterwards.
func Window(rows Rows, from, to simtime.Time, rebase bool) Rows {
	return apply(rows, func(row *Row) (bool, bool) {
		if to > 0 && row.At >= to {
			return false, true
		}
		keep := row.At >= from
		if rebase {
			row.At -= from
		}
		return keep, false
	})
}

// ScaleRate makes arrivals factor times as frequent by dividing their times;
// think times, which are people's, stay. The order of rows and the coefficient of
// variation of their gaps stay too. factor must be positive.
func ScaleRate(rows Rows, factor float64) (Rows, error) {
	if !(factor > 0) || math.IsInf(factor, 0) {
		return nil, fmt.Errorf("rate factor %v: want a positive number", factor)
	}
	return apply(rows, func(row *Row) (bool, bool) {
		if factor != 1 {
			row.At = simtime.FromSeconds(row.At.Seconds() / factor)
		}
		return true, false
	}), nil
}

// Spaced sends rows that have no arrival time at an even rate per second, from
// where the rows before them left off.
func Spaced(rows Rows, rate float64) (Rows, error) {
	if !(rate > 0) || math.IsInf(rate, 0) {
		return nil, fmt.Errorf("rate %v per second: want a positive number", rate)
	}
	gap := min(simtime.FromSeconds(1/rate), simtime.Horizon)
	next := simtime.Time(0)
	return apply(rows, func(row *Row) (bool, bool) {
		if !row.Timed {
			row.At, row.Timed = max(row.At, next), true
		}
		next = min(row.At, simtime.Horizon) + gap
		return true, false
	}), nil
}

// ClosedLoop makes the turns of every session but the first wait for the one
// before, then for the row's think time, or think where the source does not give
// it. A row's time then no longer matters, except a session's first: the gap
// between two turns' times has the answer's time in it, and waiting for both
// would count it twice. It remembers every session it has seen.
func ClosedLoop(rows Rows, think simtime.Time) Rows {
	seen := make(map[string]bool)
	return apply(rows, func(row *Row) (bool, bool) {
		if row.Session == "" || !seen[row.Session] {
			seen[row.Session] = row.Session != ""
			return true, false
		}
		row.Wait, row.Timed = true, false
		if !row.Think.Present {
			row.Think = Some(think)
		}
		return true, false
	})
}

// WithoutFirstOfFamily leaves out the first row of every family: in a measured
// run on a warm server it hit a cache that a simulation starts without.
func WithoutFirstOfFamily(rows Rows) Rows {
	seen := make(map[string]bool)
	return Filter(rows, func(row *Row) bool {
		first := row.Family != "" && !seen[row.Family]
		seen[row.Family] = true
		return !first
	})
}

// group is what a row shares its fate with: its session, else its family, else
// none but itself.
func group(row *Row, seed uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	switch {
	case row.Session != "":
		d.WriteString("session " + row.Session)
	case row.Family != "":
		d.WriteString("family " + row.Family)
	default:
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(row.Index))
		d.Write(b[:])
	}
	return d.Sum64()
}

// unit turns a hash into a number from 0 to below 1.
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// Sample keeps a random share of the sessions with all their turns, of the
// families with all their requests, and of the single rows. What is kept shares
// its prefixes as before, but arrivals become more like a Poisson process the
// smaller the share is; Thin keeps their burstiness.
func Sample(rows Rows, share float64, rng *rand.Rand) (Rows, error) {
	if !(share > 0 && share <= 1) {
		return nil, fmt.Errorf("share %v: want above 0, up to 1", share)
	}
	seed := rng.Uint64()
	return Filter(rows, func(row *Row) bool { return unit(group(row, seed)) < share }), nil
}

// A TenantShare is a tenant's share of the load, as a weight.
type TenantShare struct {
	Name   string
	Weight float64
}

// SplitTenants gives every row a tenant at random by weight, the same one to all
// turns of a session and all requests of a family.
func SplitTenants(rows Rows, shares []TenantShare, rng *rand.Rand) (Rows, error) {
	total := 0.0
	for _, s := range shares {
		if !(s.Weight > 0) || math.IsInf(s.Weight, 0) || s.Name == "" {
			return nil, fmt.Errorf("tenant %q of weight %v: want a name and a positive weight", s.Name, s.Weight)
		}
		total += s.Weight
	}
	if len(shares) == 0 {
		return nil, fmt.Errorf("no tenants to split into")
	}
	seed := rng.Uint64()
	return apply(rows, func(row *Row) (bool, bool) {
		at := unit(group(row, seed)) * total
		i := 0
		for ; i < len(shares)-1 && at >= shares[i].Weight; i++ {
			at -= shares[i].Weight
		}
		row.Tenant = shares[i].Name
		return true, false
	}), nil
}

// Thin keeps or drops this many consecutive rows together: enough for a group to
// show the variation of the gaps, few enough to follow the day. The first groups
// are smaller, each twice the one before, so that short traces are thinned too.
const (
	thinGroup      = 256
	thinFirstGroup = 8
)

// Thin lowers the rate to the given share and keeps the burstiness. Dropping rows
// one by one would not: it makes any arrivals more like a Poisson process. Thin
// keeps or drops groups of up to 256 consecutive rows, evenly over the trace, and
// stretches the times of a kept group over the time of the dropped ones before
// it. So gaps keep their proportions, hence their coefficient of variation and
// their bursts, the rate follows the trace's over longer times, and prefixes that
// close neighbours share stay shared; sessions are cut where they leave a kept
// group. A share of 1 changes nothing.
func Thin(rows Rows, share float64) (Rows, error) {
	if !(share > 0 && share <= 1) {
		return nil, fmt.Errorf("share %v: want above 0, up to 1", share)
	}
	if share == 1 {
		return rows, nil
	}
	return func(yield func(Row, error) bool) {
		t := thinner{share: share, size: thinFirstGroup}
		first := true
		for row, err := range rows {
			if err != nil {
				yield(row, err)
				return
			}
			if first {
				t.from, first = row.At, false
			}
			if len(t.group) == t.size && !t.flush(row.At, yield) {
				return
			}
			t.group = append(t.group, row)
		}
		if n := len(t.group); n > 0 {
			t.flush(t.group[n-1].At, yield)
		}
	}, nil
}

// A thinner holds one group of rows.
type thinner struct {
	share float64
	size  int          // of the group
	owed  float64      // rows to keep so far, less those kept
	from  simtime.Time // end of the group kept last
	group []Row
}

// flush ends the group at the time end: it is kept when the share asks for it,
// and then takes all the time since the one kept before.
func (t *thinner) flush(end simtime.Time, yield func(Row, error) bool) bool {
	n := float64(len(t.group))
	t.owed += t.share * n
	if t.owed >= n/2 {
		t.owed -= n
		start := t.group[0].At
		for _, row := range t.group {
			row.At = t.from + scale(row.At-start, end-t.from, end-start)
			if !yield(row, nil) {
				return false
			}
		}
		t.from = end
	}
	t.group = t.group[:0]
	t.size = min(2*t.size, thinGroup)
	return true
}

// scale is t·num/den, rounded down, for 0 ≤ t ≤ den; 0 when den is 0.
func scale(t, num, den simtime.Time) simtime.Time {
	if den <= 0 || num <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(t), uint64(num))
	q, _ := bits.Div64(hi, lo, uint64(den))
	return simtime.Time(q)
}
