package router

import (
	"math/rand/v2"

	"fleetsim/simtime"
)

func init() {
	Register("power-of-two", func(Settings, Options) (Policy, error) {
		return &powerOfTwo{counts: make(map[po2Key]po2Count)}, nil
	})
}

// powerOfTwo draws two different pods and takes the one with the lower count in
// Redis, the first drawn when they are equal. The count goes up inside Route and
// down when the request's stream ends.
//
// A counter belongs to the hour in which its requests arrived and expires 5
// minutes after the last increment, so that after a pause requests in flight are
// forgotten; their ends then take the fresh counter below 0, as Redis does.
//
// The original's gateways share one Redis. Here each gateway has its own counts.
type powerOfTwo struct {
	counts map[po2Key]po2Count
}

type po2Key struct {
	model string
	pod   int
	hour  simtime.Time
}

type po2Count struct {
	n       int
	expires simtime.Time
}

const po2Expiry = 5 * simtime.Minute

func po2KeyOf(req *Request, pod int) po2Key {
	return po2Key{req.Model, pod, req.Arrived / simtime.Hour}
}

func (p *powerOfTwo) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	first := rng.IntN(len(pods))
	second := rng.IntN(len(pods) - 1)
	if second >= first {
		second++
	}
	chosen := first
	if p.count(now, po2KeyOf(req, pods[second].ID)).n < p.count(now, po2KeyOf(req, pods[first].ID)).n {
		chosen = second
	}
	key := po2KeyOf(req, pods[chosen].ID)
	p.counts[key] = po2Count{p.count(now, key).n + 1, now + po2Expiry}
	return Decision{Pod: chosen}, nil
}

// Finished lowers the count. A counter that it creates, because the old one has
// expired, never expires until it is next raised.
func (p *powerOfTwo) Finished(now simtime.Time, req *Request, c Choice, _ int) {
	key := po2KeyOf(req, c.PodID)
	count := p.count(now, key)
	count.n--
	p.counts[key] = count
}

func (p *powerOfTwo) count(now simtime.Time, key po2Key) po2Count {
	if c, ok := p.counts[key]; ok && now < c.expires {
		return c
	}
	return po2Count{expires: simtime.Never}
}

// ReadsMetrics is false: power-of-two goes by its own counts.
func (*powerOfTwo) ReadsMetrics() bool { return false }
