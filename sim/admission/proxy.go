// Package admission is the proxy in front of the gateway: a quota of requests in
// flight per tenant, a token bucket, a bounded queue with a timeout, and the
// client's retries of what was refused.
//
// Everything is a pure state machine: it is handed the time, says when it next
// has something to do, and draws chance only from the generator it is handed.
// The proxies of one deployment do not share their counts, so N of them grant a
// tenant up to N times its quota and rate.
package admission

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// NoLimit is the quota of a tenant that has none.
const NoLimit = -1

// A Choice says which proxy an offered request meets.
type Choice uint8

const (
	// RoundRobin takes the proxies in turn, over all tenants.
	RoundRobin Choice = iota
	// Random takes each with equal chance.
	Random
)

// Config describes the proxies.
type Config struct {
	// Quotas is, per tenant, how many of its requests one proxy lets be in flight;
	// 0 refuses all, NoLimit none.
	Quotas []int
	// Proxies with their own counters; at least 1.
	Proxies int
	Choice  Choice
	// QueueLength is how many requests of a tenant may wait in one proxy; 0
	// refuses at once.
	QueueLength int
	// QueueTimeout ends a wait; 0: it has no end.
	QueueTimeout simtime.Time
	// Rate refills the token bucket a tenant has in each proxy, in tokens a
	// second, kept to the nearest 1e-6; 0: no buckets. A request takes a token.
	Rate float64
	// Burst is what a bucket holds, full at the start; at least 1, and 0 stands
	// for one second's worth, but at least 1.
	Burst float64
	// RejectLatency is from the offer until the client has its 429, and from the
	// timeout for one that waited.
	RejectLatency simtime.Time
}

// FromScenario is the configuration a scenario asks for. A scenario without
// tenants has one.
func FromScenario(a scenario.Admission, tenants []scenario.Tenant) Config {
	common := a.Quota
	if common == 0 {
		common = NoLimit
	}
	quotas := make([]int, max(len(tenants), 1))
	for i := range quotas {
		quotas[i] = common
		if i < len(tenants) && tenants[i].Quota != nil {
			quotas[i] = *tenants[i].Quota
		}
	}
	return Config{
		Quotas:        quotas,
		Proxies:       max(a.Proxies, 1),
		QueueLength:   a.QueueLength,
		QueueTimeout:  a.QueueTimeout.Time,
		Rate:          a.Rate,
		Burst:         a.Burst,
		RejectLatency: a.RejectLatency.Time,
	}
}

// An Outcome is what became of an offered request.
type Outcome uint8

const (
	// Admitted: it may go to the gateway now, and is in flight until Release.
	Admitted Outcome = iota
	// Queued: it waits; a Resolution follows.
	Queued
	// Rejected: 429 at once.
	Rejected
	// TimedOut: it waited in vain; 429.
	TimedOut
)

// A Cause says what a request was refused for, or queued for.
type Cause uint8

const (
	// NoCause: it was admitted.
	NoCause Cause = iota
	// OverQuota: as many of the tenant's requests are in flight as may be.
	OverQuota
	// OverRate: the token bucket is empty.
	OverRate
	// QueueFull: it would have to wait, and no place to wait is left.
	QueueFull
)

func (c Cause) String() string {
	return [...]string{"", "quota", "rate", "queue-full"}[c]
}

// A Verdict is the answer to an offer.
type Verdict struct {
	Outcome Outcome // Admitted, Queued or Rejected
	Proxy   int     // the proxy it met
	Cause   Cause
	// RetryAfter is, for OverRate, the time until a token is there. Otherwise 0:
	// nobody can know when a stream ends.
	RetryAfter simtime.Time
	// Answer is when the client has the 429 of a Rejected request.
	Answer simtime.Time
}

// A Resolution ends the wait of a queued request.
type Resolution struct {
	ID            int
	Tenant, Proxy int
	Outcome       Outcome      // Admitted or TimedOut
	At            simtime.Time // of admission or timeout
	Answer        simtime.Time // when the client has the 429 of a TimedOut request
}

// Proxies is the state of all proxies. The zero value is not usable. Times handed
// in must not go back. Every method first resolves, each at its own time, the
// waits that end by now.
type Proxies struct {
	cfg      Config
	rng      *rand.Rand
	now      simtime.Time
	next     int           // proxy, round robin
	lanes    []lane        // of proxy p and tenant t: p*len(Quotas)+t
	places   map[int]place // of the requests in flight or waiting, by ID
	queued   int
	resolved []Resolution
}

// A lane is what one proxy keeps of one tenant.
type lane struct {
	quota    int
	inFlight int
	bucket   *bucket // nil: no rate limit
	queue    []waiting
}

type waiting struct {
	id       int
	deadline simtime.Time
}

type place struct {
	lane   int
	queued bool
}

// New returns proxies with nothing in flight and full buckets, or every problem
// of the configuration. Only Random choice draws from rng; otherwise it may be nil.
func New(cfg Config, rng *rand.Rand) (*Proxies, error) {
	if err := check(cfg); err != nil {
		return nil, err
	}
	p := &Proxies{
		cfg:    cfg,
		rng:    rng,
		lanes:  make([]lane, 0, cfg.Proxies*len(cfg.Quotas)),
		places: map[int]place{},
	}
	for range cfg.Proxies {
		for _, quota := range cfg.Quotas {
			p.lanes = append(p.lanes, lane{quota: quota, bucket: newBucket(cfg.Rate, cfg.Burst)})
		}
	}
	return p, nil
}

// longest is the longest time a configuration may name.
const longest = 24 * simtime.Hour

func check(cfg Config) error {
	var problems []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	bad(len(cfg.Quotas) > 0, "quotas: there must be at least one tenant")
	for i, q := range cfg.Quotas {
		bad(q >= NoLimit, "quota %d of tenant %d: must be at least 0, or %d for none", q, i, NoLimit)
	}
	bad(cfg.Proxies >= 1, "proxies %d: must be at least 1", cfg.Proxies)
	bad(cfg.QueueLength >= 0, "queue_length %d: must be at least 0", cfg.QueueLength)
	bad(cfg.QueueTimeout >= 0 && cfg.QueueTimeout <= longest, "queue_timeout %v: must be 0s to %v", cfg.QueueTimeout, longest)
	bad(cfg.RejectLatency >= 0 && cfg.RejectLatency <= longest, "reject_latency %v: must be 0s to %v", cfg.RejectLatency, longest)
	bad(cfg.Rate == 0 || cfg.Rate >= 1/micro && cfg.Rate <= mostRate, "rate_per_second %v: must be 0, or %v to %v", cfg.Rate, 1/micro, mostRate)
	bad(cfg.Burst == 0 || cfg.Burst >= 1 && cfg.Burst <= mostBurst, "burst %v: must be 0, or 1 to %v", cfg.Burst, mostBurst)
	return errors.Join(problems...)
}

// Offer hands in a request of a tenant, by its index in Config.Quotas. The ID
// must not be that of a request in flight or waiting. A request may pass
// only when nothing of its tenant waits before it, a place in flight is free and
// a token is there. Waits that ended by now are returned as well.
func (p *Proxies) Offer(now simtime.Time, tenant, id int) (Verdict, []Resolution, error) {
	if tenant < 0 || tenant >= len(p.cfg.Quotas) {
		return Verdict{}, nil, fmt.Errorf("admission: tenant %d: there are %d", tenant, len(p.cfg.Quotas))
	}
	if _, known := p.places[id]; known {
		return Verdict{}, nil, fmt.Errorf("admission: request %d is already in flight or waiting", id)
	}
	p.resolved = nil
	p.settle(now)

	proxy := p.choose()
	at := proxy*len(p.cfg.Quotas) + tenant
	l := &p.lanes[at]
	v := Verdict{Proxy: proxy, Cause: l.obstacle(now)}
	switch {
	case v.Cause == NoCause:
		p.admit(at, id)
	case len(l.queue) < p.cfg.QueueLength:
		v.Outcome = Queued
		l.queue = append(l.queue, waiting{id, p.deadline(now)})
		p.places[id] = place{at, true}
		p.queued++
	default:
		v.Outcome = Rejected
		v.Answer = now + p.cfg.RejectLatency
		if p.cfg.QueueLength > 0 {
			v.Cause = QueueFull
		}
		if v.Cause == OverRate {
			v.RetryAfter = l.bucket.ready(now) - now
		}
	}
	return v, p.resolved, nil
}

func (p *Proxies) choose() int {
	if p.cfg.Choice == Random {
		return p.rng.IntN(p.cfg.Proxies)
	}
	proxy := p.next
	p.next = (p.next + 1) % p.cfg.Proxies
	return proxy
}

func (p *Proxies) deadline(now simtime.Time) simtime.Time {
	if p.cfg.QueueTimeout == 0 {
		return simtime.Never
	}
	return now + p.cfg.QueueTimeout
}

// full reports whether the quota lets no more requests be in flight.
func (l *lane) full() bool { return l.quota != NoLimit && l.inFlight >= l.quota }

// obstacle is what keeps a new request of the lane from passing now. When others
// wait before it, so does what they wait for.
func (l *lane) obstacle(now simtime.Time) Cause {
	switch {
	case l.full():
		return OverQuota
	case l.bucket != nil && l.bucket.ready(now) > now:
		return OverRate
	}
	return NoCause
}

// admit lets a request pass; the lane must have room for it.
func (p *Proxies) admit(at, id int) {
	l := &p.lanes[at]
	l.inFlight++
	if l.bucket != nil {
		l.bucket.take(p.now)
	}
	p.places[id] = place{lane: at}
}

// Release ends a request in flight, when its stream has ended, whichever way. An
// ID that is not in flight is an error, so nothing is released twice. Returned are
// the waits that ended by now, those that the freed place ended included.
func (p *Proxies) Release(now simtime.Time, id int) ([]Resolution, error) {
	p.resolved = nil
	p.settle(now)
	at, known := p.places[id]
	if !known || at.queued {
		return p.resolved, fmt.Errorf("admission: request %d is not in flight", id)
	}
	delete(p.places, id)
	p.lanes[at.lane].inFlight--
	p.settle(now)
	return p.resolved, nil
}

// Withdraw takes back a waiting request whose client gave up. It reports false
// when the request does not wait any more; the resolutions then tell its end.
func (p *Proxies) Withdraw(now simtime.Time, id int) (bool, []Resolution) {
	p.resolved = nil
	p.settle(now)
	at, known := p.places[id]
	if !known || !at.queued {
		return false, p.resolved
	}
	l := &p.lanes[at.lane]
	for i := range l.queue {
		if l.queue[i].id == id {
			p.leaveQueue(l, i)
			break
		}
	}
	return true, p.resolved
}

// Expire resolves the waits that end by now: in time, at the same time by proxy
// and tenant, and in a lane in order of arrival. A request whose time is up at
// the moment a place becomes free has timed out.
func (p *Proxies) Expire(now simtime.Time) []Resolution {
	p.resolved = nil
	p.settle(now)
	return p.resolved
}

// NextDeadline is when a wait next ends by itself, by a timeout or a token;
// simtime.Never when nothing waits for either.
func (p *Proxies) NextDeadline() simtime.Time {
	at, _ := p.earliest()
	return at
}

func (p *Proxies) earliest() (at simtime.Time, lane int) {
	at, lane = simtime.Never, -1
	if p.queued == 0 {
		return at, lane
	}
	for i := range p.lanes {
		if t := p.lanes[i].due(p.now); t < at {
			at, lane = t, i
		}
	}
	return at, lane
}

// due is when the head of the lane's queue next moves by itself, not before now.
func (l *lane) due(now simtime.Time) simtime.Time {
	if len(l.queue) == 0 {
		return simtime.Never
	}
	at := l.queue[0].deadline
	switch {
	case l.full():
	case l.bucket == nil:
		at = min(at, now)
	default:
		at = min(at, l.bucket.ready(now))
	}
	return at
}

// settle resolves, in order of time, the waits that end by now.
func (p *Proxies) settle(now simtime.Time) {
	for {
		at, i := p.earliest()
		if at > now {
			break
		}
		p.now = at
		p.resolveHead(i)
	}
	p.now = now
}

// resolveHead ends the wait of the first in a lane's queue, whose time has come.
func (p *Proxies) resolveHead(at int) {
	l := &p.lanes[at]
	head := l.queue[0]
	p.leaveQueue(l, 0)
	r := Resolution{
		ID:     head.id,
		Tenant: at % len(p.cfg.Quotas),
		Proxy:  at / len(p.cfg.Quotas),
		At:     p.now,
	}
	if head.deadline <= p.now {
		r.Outcome, r.Answer = TimedOut, p.now+p.cfg.RejectLatency
	} else {
		r.Outcome = Admitted
		p.admit(at, head.id)
	}
	p.resolved = append(p.resolved, r)
}

func (p *Proxies) leaveQueue(l *lane, i int) {
	delete(p.places, l.queue[i].id)
	l.queue = slices.Delete(l.queue, i, i+1)
	p.queued--
}

// InFlight is how many requests of a tenant are in flight, over all proxies.
func (p *Proxies) InFlight(tenant int) int {
	n := 0
	for i := tenant; i < len(p.lanes); i += len(p.cfg.Quotas) {
		n += p.lanes[i].inFlight
	}
	return n
}

// Waiting is how many requests of a tenant wait, over all proxies.
func (p *Proxies) Waiting(tenant int) int {
	n := 0
	for i := tenant; i < len(p.lanes); i += len(p.cfg.Quotas) {
		n += len(p.lanes[i].queue)
	}
	return n
}
