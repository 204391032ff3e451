package trace

import (
	"math/rand/v2"

	"fleetsim/simtime"
)

// A Selection is which rows of a trace are taken and how their times change. The
// zero value takes all as they are.
type Selection struct {
	// From and To keep the rows with From ≤ At < To; times then count from From. To
	// 0 is the end.
	From, To simtime.Time
	// Tenant and Phase keep one tenant's and one phase's rows; "" keeps all.
	Tenant, Phase string
	// WithoutFirstOfFamily leaves out the first row of every family.
	WithoutFirstOfFamily bool
	// Thin lowers the rate to a share and keeps the burstiness; Sample keeps a random
	// share with sessions and families whole. 0 keeps all.
	Thin, Sample float64
	// Rate makes arrivals this many times as frequent; 0 leaves them.
	Rate float64
	// UntimedRate is how many rows without arrival time are sent a second; 0 leaves
	// them without.
	UntimedRate float64
	// Tenants deals the rows out to tenants by weight.
	Tenants []TenantShare
	// Sessions says when the turns of sessions are sent, and Think is the think time
	// of those that wait and have none of their own.
	Sessions SessionMode
	Think    simtime.Time
	// Head keeps the first rows of what is left; 0 keeps all.
	Head int
}

// A SessionMode says when the turns of sessions are sent.
type SessionMode uint8

// The modes. Recorded is what the trace says, row by row; Replayed sends every row
// at its time; Waiting makes turns wait for the answer before and the think time.
const (
	Recorded SessionMode = iota
	Replayed
	Waiting
)

// Apply selects in the order of the fields. Chance is drawn from rng.
func (s *Selection) Apply(rows Rows, rng *rand.Rand) (Rows, error) {
	if s.From > 0 || s.To > 0 {
		rows = Window(rows, s.From, s.To, true)
	}
	if s.Tenant != "" {
		rows = OnlyTenant(rows, s.Tenant)
	}
	if s.Phase != "" {
		rows = OnlyPhase(rows, s.Phase)
	}
	if s.WithoutFirstOfFamily {
		rows = WithoutFirstOfFamily(rows)
	}
	rows, err := s.scale(rows, rng)
	if err != nil {
		return nil, err
	}
	switch s.Sessions {
	case Replayed:
		rows = apply(rows, func(row *Row) (bool, bool) {
			row.Wait = false
			return true, false
		})
	case Waiting:
		rows = ClosedLoop(rows, s.Think)
	}
	if s.Head > 0 {
		rows = Head(rows, s.Head)
	}
	return rows, nil
}

// scale changes how many rows there are in a time, and whose they are.
func (s *Selection) scale(rows Rows, rng *rand.Rand) (Rows, error) {
	var err error
	step := func(wanted bool, do func() (Rows, error)) {
		if wanted && err == nil {
			rows, err = do()
		}
	}
	step(s.Thin != 0, func() (Rows, error) { return Thin(rows, s.Thin) })
	step(s.Sample != 0, func() (Rows, error) { return Sample(rows, s.Sample, rng) })
	step(s.Rate != 0, func() (Rows, error) { return ScaleRate(rows, s.Rate) })
	step(s.UntimedRate != 0, func() (Rows, error) { return Spaced(rows, s.UntimedRate) })
	step(len(s.Tenants) > 0, func() (Rows, error) { return SplitTenants(rows, s.Tenants, rng) })
	return rows, err
}
