package sim

import (
	"sort"

	"fleetsim/simtime"
)

// Gateways with state sync publish their in-flight counts. Each reads the
// others' from a snapshot that is taken every 100 ms, and its policy sees its
// own count plus theirs from a metric refresh on, until it next counts a request
// up or down itself: then it sees its own count alone, up to the next refresh.
//
// Refreshes and snapshots are not events: what they would have seen is looked up
// when a policy asks. Whoever happens at the time of a refresh happens before it.

// snapshotInterval is AIBrix's, between two reads of the shared counts.
const snapshotInterval = 100 * simtime.Millisecond

// noRefresh is the number of no refresh.
const noRefresh = -1

// lastBefore is the number of the last refresh before t, of those at the
// multiples of interval from 0 on, or noRefresh.
func lastBefore(t, interval simtime.Time) int64 {
	if t <= 0 {
		return noRefresh
	}
	return int64((t - 1) / interval)
}

// share gives p's policy the counts that it sees at now.
func (g *gateways) share(now simtime.Time, p *gateway) {
	k := lastBefore(now, g.refresh)
	if k == p.shared {
		return // since then only its own counts can have changed
	}
	p.shared = k
	refresh := simtime.Time(k) * g.refresh
	snapshot := refresh - refresh%snapshotInterval
	for id := range g.pods {
		if p.views[id].inFlight.changed() > refresh {
			continue // its own count has taken the place of the sum
		}
		others := 0
		for _, o := range g.processes {
			if o != p {
				others += o.views[id].inFlight.at(snapshot)
			}
		}
		p.Share(id, others)
	}
}

// A history is a number that changes over time, of which the recent past is
// kept. It begins at 0.
type history struct{ changes []change }

type change struct {
	at simtime.Time
	to int
}

// add changes the number to n. What it was more than keep ago may be forgotten.
func (h *history) add(now simtime.Time, n int, keep simtime.Time) {
	old := 0
	for old+1 < len(h.changes) && h.changes[old+1].at <= now-keep {
		old++
	}
	if old > len(h.changes)/2 {
		h.changes = append(h.changes[:0], h.changes[old:]...)
	}
	h.changes = append(h.changes, change{now, n})
}

// at is the number after everything that happened up to t.
func (h *history) at(t simtime.Time) int {
	later := sort.Search(len(h.changes), func(i int) bool { return h.changes[i].at > t })
	if later == 0 {
		return 0
	}
	return h.changes[later-1].to
}

// last is the number now.
func (h *history) last() int {
	if n := len(h.changes); n > 0 {
		return h.changes[n-1].to
	}
	return 0
}

// changed is when the number last changed; before the beginning if never.
func (h *history) changed() simtime.Time {
	if n := len(h.changes); n > 0 {
		return h.changes[n-1].at
	}
	return -1
}
