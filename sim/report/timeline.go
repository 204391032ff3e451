package report

import (
	"fmt"
	"math"
	"slices"

	"fleetsim/sim"
	"fleetsim/sim/sweep"
)

// maxReplicaLines is up to how many replicas have a line each in a timeline;
// of more, the least, the mean and the most loaded are drawn.
const maxReplicaLines = 4

// timelines are the gauges of the cell's first seed over time.
func (b *builder) timelines() []Figure {
	if b.Cell == nil || len(b.Cell.Samples) == 0 {
		return nil
	}
	seed := b.s.Seeds[0]
	f := Figure{
		ID: "timeline", Title: fmt.Sprintf("Timeline of cell %d", b.Cell.Cell),
		Caption: fmt.Sprintf("Gauges of seed %d as a scraper sees them. %s.", seed, b.s.Label(b.Cell.Cell)),
	}
	replicas := replicasOf(b.Cell)
	if len(replicas) <= maxReplicaLines {
		f.Legend = replicas
	} else {
		f.Legend = []string{"most of any replica", "mean", "least of any replica"}
	}
	for _, g := range []struct {
		label string
		of    func(*sim.Sample) float64
	}{
		{"running", func(s *sim.Sample) float64 { return float64(s.Running) }},
		{"waiting", func(s *sim.Sample) float64 { return float64(s.Waiting) }},
		{"in flight at the gateway", func(s *sim.Sample) float64 { return float64(s.InFlight) }},
		{"KV usage", func(s *sim.Sample) float64 { return s.KVUsage }},
	} {
		c := &Chart{X: Axis{Label: "time, s"}, Y: Axis{Label: g.label, Low: 0, High: 1}}
		c.Series = gauges(b.Cell, replicas, g.of)
		for i := range c.Series {
			c.Series[i].Name = f.Legend[c.Series[i].Color]
		}
		f.Panels = append(f.Panels, c)
	}
	figures := []Figure{f}
	if scaling := scalingFigure(b.Cell); scaling != nil {
		figures = append(figures, *scaling)
	}
	return figures
}

// replicasOf are the names of the replicas in the order in which they appear.
func replicasOf(d *sweep.Detail) []string {
	var names []string
	for i := range d.Samples {
		if s := &d.Samples[i]; s.Scaling == nil && !slices.Contains(names, s.Replica) {
			names = append(names, s.Replica)
		}
	}
	return names
}

// gauges are a line a replica, or the most, mean and least of many.
func gauges(d *sweep.Detail, replicas []string, of func(*sim.Sample) float64) []Series {
	if len(replicas) <= maxReplicaLines {
		lines := make([]Series, len(replicas))
		for i := range lines {
			lines[i] = Series{Color: i, Mark: Step}
		}
		for i := range d.Samples {
			s := &d.Samples[i]
			if s.Scaling != nil {
				continue
			}
			line := &lines[slices.Index(replicas, s.Replica)]
			line.X, line.Y = append(line.X, s.At.Seconds()), append(line.Y, of(s))
		}
		return lines
	}
	most, mean, least := Series{Color: 0, Mark: Step}, Series{Color: 1, Mark: Step}, Series{Color: 2, Mark: Step}
	for start := 0; start < len(d.Samples); {
		at := d.Samples[start].At
		high, low, sum, n := math.Inf(-1), math.Inf(1), 0.0, 0
		end := start
		for ; end < len(d.Samples) && d.Samples[end].At == at; end++ {
			if s := &d.Samples[end]; s.Scaling == nil {
				v := of(s)
				high, low, sum, n = max(high, v), min(low, v), sum+v, n+1
			}
		}
		start = end
		if n > 0 {
			x := at.Seconds()
			most.X, most.Y = append(most.X, x), append(most.Y, high)
			mean.X, mean.Y = append(mean.X, x), append(mean.Y, sum/float64(n))
			least.X, least.Y = append(least.X, x), append(least.Y, low)
		}
	}
	return []Series{most, mean, least}
}

// scalingFigure is the numbers of replicas over time; nil when they are fixed.
func scalingFigure(d *sweep.Detail) *Figure {
	desired, ready := Series{Name: "desired", Mark: Step}, Series{Name: "ready", Color: 1, Mark: Step}
	for i := range d.Samples {
		if p := d.Samples[i].Scaling; p != nil {
			desired.X, desired.Y = append(desired.X, p.At), append(desired.Y, float64(p.Desired))
			ready.X, ready.Y = append(ready.X, p.At), append(ready.Y, float64(p.Ready))
		}
	}
	if len(desired.X) == 0 {
		return nil
	}
	end := d.Samples[len(d.Samples)-1].At.Seconds()
	for _, s := range []*Series{&desired, &ready} {
		s.X, s.Y = append(s.X, max(end, s.X[len(s.X)-1])), append(s.Y, s.Y[len(s.Y)-1])
	}
	return &Figure{
		ID: "scaling", Title: "Replicas over time", Legend: []string{"desired", "ready"},
		Caption: "What the autoscaler asked for and what could serve.",
		Panels:  []Panel{&Chart{X: Axis{Label: "time, s"}, Y: Axis{Label: "replicas", Low: 0, High: 1}, Series: []Series{desired, ready}}},
	}
}
