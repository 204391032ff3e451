package sim

import (
	"fleetsim/random"
	"fleetsim/sim/admission"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// statusRefused is the answer to a request that the proxies do not let pass.
const statusRefused = 429

// place is where a request is at the admission proxies.
type place uint8

const (
	outside place = iota
	waiting
	inside
)

// gate is the admission proxies as the event loop sees them: between client and
// gateway, next to the client, so that a refusal takes only the reject latency.
type gate struct {
	proxies  *admission.Proxies
	expected simtime.Time // of the evAdmission that is in the queue; Never: none
	waiting  map[int]*request
	tally    attemptTally
}

// attemptTally counts what happened at the proxies, attempt by attempt. The
// request records have each arrival once, with its last outcome.
type attemptTally struct {
	Attempts     int `json:"attempts"`
	Retries      int `json:"retries"`
	Queued       int `json:"queued"`
	OverQuota    int `json:"over_quota"`
	OverRate     int `json:"over_rate"`
	QueueFull    int `json:"queue_full"`
	QueueTimeout int `json:"queue_timeout"`
}

// newGate is nil when the scenario has nothing that could refuse a request.
func newGate(s Setup) (*gate, error) {
	cfg := admission.FromScenario(s.Scenario.Admission, s.Scenario.Workload.Tenants)
	limited := cfg.Rate > 0
	for _, quota := range cfg.Quotas {
		limited = limited || quota != admission.NoLimit
	}
	if !limited {
		return nil, nil
	}
	proxies, err := admission.New(cfg, random.Stream(s.Seed, "admission"))
	if err != nil {
		return nil, err
	}
	return &gate{proxies: proxies, expected: simtime.Never, waiting: map[int]*request{}}, nil
}

// offer hands the request to the proxies, or to the gateway where there are none.
func (r *run) offer(q *request) {
	g := r.gate
	if g == nil {
		r.pass(q)
		return
	}
	verdict, resolved, err := g.proxies.Offer(r.now, q.tenant, q.Index)
	mustAdmission(err)
	r.resolve(resolved)
	g.tally.Attempts++
	switch verdict.Outcome {
	case admission.Admitted:
		q.place = inside
		r.pass(q)
	case admission.Queued:
		q.place = waiting
		g.waiting[q.Index] = q
		g.tally.Queued++
	case admission.Rejected:
		r.refuse(q, g.tally.count(verdict.Cause), verdict.Answer)
	}
	r.expectAdmission()
}

// pass sends the request on to the gateway.
func (r *run) pass(q *request) {
	r.push(r.now+r.Profile.RequestDelay(q.Prompt.Len(workload.Tokens))+r.Scenario.Router.RoutingLatency.Time, evRoute, q)
}

// refuse answers 429, which the client has at at.
func (r *run) refuse(q *request, why string, at simtime.Time) {
	q.status, q.err = statusRefused, why
	r.push(at, evStreamEnd, q)
}

// retry sends a refused request again after its back-off, or reports false. The
// client holds its place in flight meanwhile.
func (r *run) retry(q *request) bool {
	if r.client.retrier == nil {
		return false
	}
	delay, again := r.client.retrier.Next(q.attempts, r.client.jitter)
	if again {
		r.gate.tally.Retries++
		r.push(r.now+delay, evRetry, q)
	}
	return again
}

// tryAgain is the next attempt of a request that was refused.
func (r *run) tryAgain(q *request) {
	q.status, q.err = 0, ""
	r.attempt(q)
}

// resolve lets requests that have waited pass, or refuses them.
func (r *run) resolve(resolved []admission.Resolution) {
	for _, res := range resolved {
		q := r.gate.waiting[res.ID]
		delete(r.gate.waiting, res.ID)
		admitted := res.Outcome == admission.Admitted
		if q.place = outside; admitted {
			q.place = inside
		} else {
			r.gate.tally.QueueTimeout++
		}
		switch {
		case q.ended: // its client gave up at this very moment
		case admitted:
			r.pass(q)
		default:
			r.refuse(q, "queue_timeout", res.Answer)
		}
	}
}

// release ends a request's stay at the proxies.
func (r *run) release(q *request) {
	if q.place == waiting {
		// Its own wait may end at this very moment; then it is inside or out.
		withdrawn, resolved := r.gate.proxies.Withdraw(r.now, q.Index)
		if withdrawn {
			q.place = outside
			delete(r.gate.waiting, q.Index)
		}
		r.resolve(resolved)
	}
	if q.place == inside {
		q.place = outside
		resolved, err := r.gate.proxies.Release(r.now, q.Index)
		mustAdmission(err)
		r.resolve(resolved)
	}
	if r.gate != nil {
		r.expectAdmission()
	}
}

// expectAdmission puts the next end of a wait in the queue, unless it is there.
func (r *run) expectAdmission() {
	g := r.gate
	if at := g.proxies.NextDeadline(); at != g.expected {
		g.expected = at
		if at != simtime.Never {
			r.schedule(at, evAdmission, 0)
		}
	}
}

// waitsEnd resolves the waits that end now.
func (r *run) waitsEnd() {
	if r.gate.expected != r.now {
		return // of a wait that ended otherwise
	}
	r.resolve(r.gate.proxies.Expire(r.now))
	r.expectAdmission()
}

// count counts a refusal and returns its category in the records.
func (t *attemptTally) count(c admission.Cause) string {
	switch c {
	case admission.OverRate:
		t.OverRate++
		return "over_rate"
	case admission.QueueFull:
		t.QueueFull++
		return "queue_full"
	}
	t.OverQuota++
	return "over_quota"
}

// mustAdmission panics on errors that only a mistake in this package can cause:
// a request that is offered or released twice.
func mustAdmission(err error) {
	if err != nil {
		panic(err)
	}
}
