package sweep

import (
	"context"
	"math"

	"fleetsim/sim"
	"fleetsim/sim/record"
)

// A Detail is one cell looked at closely: its runs made once more, with their
// requests and the timeline of the first.
type Detail struct {
	Cell            int
	TTFT, TPOT, E2E []float64 // s, of every success of every seed
	Samples         []sim.Sample
}

// Detail runs the cell again, with the seeds of its results.
func (s *Sweep) Detail(ctx context.Context, r Results, cell int) (*Detail, error) {
	d := &Detail{Cell: cell}
	for k, seed := range s.Seeds[:r.Ran(cell)] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		setup := s.Setup(cell, seed)
		setup.Each = d.add
		if k == 0 {
			setup.Sample = func(x sim.Sample) { d.Samples = append(d.Samples, x) }
		}
		if _, err := sim.Run(setup); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *Detail) add(q *record.Request) {
	if q.Result != record.OK {
		return
	}
	for _, x := range []struct {
		into  *[]float64
		value record.Float
	}{{&d.TTFT, q.TTFT}, {&d.TPOT, q.TPOT}, {&d.E2E, q.E2E}} {
		if v, ok := x.value.Get(); ok {
			*x.into = append(*x.into, v)
		}
	}
}

// Telling is the cell that is most worth looking at: the best of the group in
// which the best differs most from its baseline, relative to the spread of the
// difference. Without a difference it is the best of the middle group that has
// one, or the first cell.
func (s *Sweep) Telling(r Results) int {
	choices := s.Choose(r)
	cell, most := -1, 0.0
	for _, c := range choices {
		if c.Best < 0 || s.Objective.Metric < 0 {
			continue
		}
		d := s.Stat(r, c.Best, s.Objective.Metric).Diff
		if size := math.Abs(d.Estimate) / (d.High - d.Low); d.N > 1 && d.High > d.Low && size > most {
			cell, most = c.Best, size
		}
	}
	if cell >= 0 {
		return cell
	}
	for i := range choices {
		if best := choices[(len(choices)/2+i)%len(choices)].Best; best >= 0 {
			return best
		}
	}
	return 0
}
