package autoscale

import (
	"fmt"
	"slices"

	"fleetsim/simtime"
)

// A Pipeline is the way of a metric from the pods to the autoscaler: scraped at
// the multiples of an interval, and visible a delay later. A reconcile at t sees
// the latest scrape at or before t minus the delay, never a newer one.
type Pipeline struct {
	interval, delay simtime.Time
	next            simtime.Time
	scrapes         []scrape // by rising time
}

type scrape struct {
	at      simtime.Time
	samples []Sample // by rising Pod
}

// NewPipeline returns an empty pipeline; interval and delay are at least 0. An
// interval of 0 has no times of its own: the caller scrapes when it likes, say
// at each reconcile, as AIBrix fetches from the pods.
func NewPipeline(interval, delay simtime.Time) (*Pipeline, error) {
	if interval < 0 || delay < 0 {
		return nil, fmt.Errorf("scrape_interval %v, metric_delay %v: must be at least 0s", interval, delay)
	}
	p := &Pipeline{interval: interval, delay: delay}
	if interval == 0 {
		p.next = simtime.Never
	}
	return p, nil
}

// NextScrape is when Scrape is to be called next; simtime.Never without an interval.
func (p *Pipeline) NextScrape() simtime.Time { return p.next }

// Scrape keeps a copy of what the pods would answer at now, which must not be
// before the previous call's.
func (p *Pipeline) Scrape(now simtime.Time, pods []Sample) {
	samples := slices.Clone(pods)
	slices.SortFunc(samples, func(a, b Sample) int { return a.Pod - b.Pod })
	p.scrapes = append(p.scrapes, scrape{now, samples})
	if p.interval > 0 {
		p.next = (now/p.interval + 1) * p.interval
	}
}

// View returns the samples a reconcile at now works with: pods, which are listed
// anew at each reconcile, with the values of the visible scrape. A pod that
// scrape does not know, or that did not answer it, is Silent. Older scrapes are
// dropped, so now must not go back.
func (p *Pipeline) View(now simtime.Time, pods []Sample) []Sample {
	visible := p.visible(now)
	view := slices.Clone(pods)
	for i := range view {
		if view[i].State == NoAddress {
			continue
		}
		at, known := slices.BinarySearchFunc(visible, view[i].Pod, func(s Sample, pod int) int { return s.Pod - pod })
		if known && visible[at].State == Reported {
			view[i].State, view[i].Value = Reported, visible[at].Value
		} else {
			view[i].State, view[i].Value = Silent, 0
		}
	}
	return view
}

func (p *Pipeline) visible(now simtime.Time) []Sample {
	n := 0
	for n < len(p.scrapes) && p.scrapes[n].at <= now-p.delay {
		n++
	}
	if n == 0 {
		return nil
	}
	p.scrapes = slices.Delete(p.scrapes, 0, n-1)
	return p.scrapes[0].samples
}
