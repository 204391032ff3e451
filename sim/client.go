package sim

import (
	"errors"
	"math/rand/v2"

	"fleetsim/model"
	"fleetsim/random"
	"fleetsim/sim/admission"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// A request is one planned arrival on its way through the cluster. It is used again
// for a later arrival when it has ended.
type request struct {
	workload.Request
	seq    model.Seq
	prompt workload.Prompt // the prompt and its answer, to be hashed by the engine
	progress
}

// progress is how far a request has come: what begins anew with each arrival.
type progress struct {
	sent     simtime.Time // for the first time
	asked    simtime.Time // when the current attempt was sent
	attempts int
	lane     int // closed-loop lane, or -1
	tenant   int
	serial   int // like Index, but over all phases of a chain
	cancels  bool
	turn     turn

	replica  *replica // that it was routed to
	routing  routing
	leg      leg
	prefill  prefillRecord // when another engine has run it
	inEngine bool
	place    place // at the admission proxies
	status   int   // HTTP status; 0 before an answer
	err      string

	events  int  // in the queue
	watched bool // one of them is evSilence
	ended   bool
	aborted bool // an event of its engine's cache, yet to be told, may be about seq
}

// client is the load: it decides when the next request is sent, what is in it,
// which arrivals are dropped, and what is tried again.
type client struct {
	w        scenario.Workload
	begin    simtime.Time
	arrivals *workload.Arrivals // open loop; nil in a closed loop
	trace    *traceLoad         // arrivals of a trace; nil otherwise
	prompts  *workload.Generator
	order    []int // family of each request; beyond it, in turn
	serial   int   // of the first request
	planned  int
	live     int // planned and not ended
	inFlight int // sent and not ended
	cancel   *rand.Rand
	hide     *rand.Rand
	hidden   []bool             // families whose answers begin with a token that shows nothing
	retrier  *admission.Retrier // nil: what is refused stays refused
	jitter   *rand.Rand
	free     []*request // for reuse
}

// newClient returns the load of a phase that begins at begin. Contents of its
// prompts' families are told apart from those of other origin by base; its
// questions begin with the number serial, so that those of phases that share
// families differ.
func newClient(s Setup, base uint64, begin simtime.Time, serial int) (*client, error) {
	w := s.Scenario.Workload
	c := &client{w: w, begin: begin, serial: serial}
	var err error
	switch {
	case w.Arrivals != nil:
		c.arrivals, err = Arrivals(w, s.Seed)
	case w.Trace != nil:
		c.trace, err = openTrace(s, serial)
	case w.ClosedLoop == nil:
		err = errNoLoad
	}
	if err != nil {
		return nil, err
	}
	p := w.Prompt
	c.prompts = workload.NewGenerator(Shape(p), p.Families, base, random.Stream(s.Seed, "prompts"))
	if c.order = p.FamilyOrder; len(c.order) == 0 && p.Families > 0 && w.Requests > 0 {
		c.order = workload.Order(w.Requests, p.Families, p.HotFraction, random.Stream(s.Seed, "families"))
	}
	c.hide = random.Stream(s.Seed, "hidden")
	if w.Cancel.Fraction > 0 {
		c.cancel = random.Stream(s.Seed, "cancel")
	}
	if w.Retry.MaxAttempts > 1 {
		if c.retrier, err = admission.NewRetrier(w.Retry); err != nil {
			c.close()
			return nil, err
		}
		c.jitter = random.Stream(s.Seed, "retry")
	}
	return c, nil
}

// close lets go of the trace's file.
func (c *client) close() {
	if c.trace != nil {
		c.trace.close()
	}
}

// end is when the load is over by its own plan; the begin when the plan has no
// times, or only those of its arrivals.
func (c *client) end() simtime.Time {
	if loop := c.w.ClosedLoop; loop != nil {
		return c.begin + loop.Duration.Time
	}
	end := c.begin
	if c.trace != nil {
		return end
	}
	for _, st := range c.w.Arrivals.Stages {
		end += st.Duration.Time
	}
	return end
}

// next makes the next request of the plan, due at at.
func (c *client) next(at simtime.Time, lane int) *request {
	i := c.planned
	family, repeat, output, tenant, name := c.family(i), c.w.Prompt.BodyRepeat, c.w.Output, 0, ""
	if n := len(c.w.Tenants); n > 0 {
		tenant = i % n
		t := &c.w.Tenants[tenant]
		name = t.Name
		set(&repeat, t.BodyRepeat)
		set(&output, t.Output)
	}
	r := c.fresh(lane, tenant)
	r.seq.Hidden = c.hiddenTokens(family)
	r.prompt = c.prompts.Prompt(r.prompt, family, r.serial, repeat)
	r.Index, r.At, r.Tenant, r.Family, r.Session = i, at, name, family, ""
	r.Prompt, r.Answer, r.Output = r.prompt, 0, output
	return r
}

// fresh counts one more request of the plan, which is yet to be filled in.
func (c *client) fresh(lane, tenant int) *request {
	var r *request
	if n := len(c.free); n > 0 {
		r, c.free = c.free[n-1], c.free[:n-1]
	} else {
		r = new(request)
	}
	r.lane, r.tenant, r.serial = lane, tenant, c.serial+c.planned
	r.prompt = r.prompt[:0]
	r.seq.Prompt, r.seq.Outputs, r.seq.Cached = 0, 0, 0
	r.seq.Scheduled, r.seq.First, r.seq.Shown = simtime.Never, simtime.Never, simtime.Never
	r.cancels = c.cancel != nil && c.cancel.Float64() < c.w.Cancel.Fraction
	c.planned++
	c.live++
	return r
}

// hiddenTokens is the number of output tokens before visible content in the
// answer to a prompt of the family: the beginning of an answer depends on the
// document, where there is one.
func (c *client) hiddenTokens(family int) int {
	hides := false
	if family >= 0 {
		for family >= len(c.hidden) {
			c.hidden = append(c.hidden, c.hide.Float64() < c.w.HiddenFirst)
		}
		hides = c.hidden[family]
	} else if c.w.HiddenFirst > 0 {
		hides = c.hide.Float64() < c.w.HiddenFirst
	}
	if hides {
		return 1
	}
	return 0
}

func (c *client) family(i int) int {
	switch {
	case c.prompts.Families() == 0:
		return -1
	case len(c.order) > 0:
		return c.order[i%len(c.order)]
	}
	return i % c.prompts.Families()
}

// drops reports whether an arrival finds too many requests in flight.
func (c *client) drops() bool { return c.w.InFlightCap > 0 && c.inFlight >= c.w.InFlightCap }

// recycle keeps a request that has ended for a later arrival, if nothing refers
// to it any more.
func (c *client) recycle(q *request) {
	if q.events == 0 && !q.aborted {
		q.progress = progress{} // which would hold on to the cluster
		c.free = append(c.free, q)
	}
}

// spare are the requests for reuse that the load of another phase can have. Those of
// a trace hold prompts that are not theirs alone.
func (c *client) spare() []*request {
	if c.trace != nil {
		return nil
	}
	return c.free
}

// startLoad puts the first arrivals in the queue.
func (r *run) startLoad() {
	switch {
	case r.client.arrivals != nil:
		r.planArrival()
		return
	case r.client.trace != nil:
		r.planRow()
		return
	}
	for lane := range r.client.w.ClosedLoop.Concurrency {
		r.nextInLane(lane, r.begin)
	}
}

// planArrival puts the next arrival of the open loop in the queue.
func (r *run) planArrival() {
	if at, ok := r.client.arrivals.Next(); ok {
		r.arriveAt(r.begin+at, -1)
	}
}

// nextInLane puts the next arrival of a closed-loop lane, due at at, in the
// queue, unless the load is over by then.
func (r *run) nextInLane(lane int, at simtime.Time) {
	w := &r.client.w
	if w.ClosedLoop.Duration.Time > 0 && at >= r.client.end() || w.Requests > 0 && r.client.planned >= w.Requests {
		return
	}
	r.arriveAt(at, lane)
}

func (r *run) arriveAt(at simtime.Time, lane int) {
	r.push(at, evArrival, r.client.next(at, lane))
}

// due takes the plan on to its next arrival, and reports whether this one is to be
// sent now: a turn of a conversation may have to wait.
func (r *run) due(q *request) bool {
	switch {
	case r.client.trace != nil:
		return r.turnDue(q)
	case q.lane < 0:
		r.planArrival()
	}
	return true
}

// arrive sends the request, or drops it when too many are in flight.
func (r *run) arrive(q *request) {
	if !r.due(q) {
		return
	}
	q.sent = r.now
	if r.client.drops() {
		q.ended = true
		r.client.live--
		r.turnEnds(q)
		r.recorder.dropped(q)
		r.client.recycle(q)
		return
	}
	r.client.inFlight++
	if q.cancels {
		r.push(r.now+r.client.w.Cancel.After.Time, evCancel, q)
	}
	if r.client.retrier != nil {
		r.client.retrier.First()
	}
	r.attempt(q)
}

// attempt sends the request, for the first time or again.
func (r *run) attempt(q *request) {
	q.attempts++
	q.asked = r.now
	r.watch(q)
	r.offer(q)
}

// streamEnd is the client's end of an attempt: of the request, unless it was
// refused and is tried again.
func (r *run) streamEnd(q *request) {
	if q.status == statusRefused && r.retry(q) {
		return
	}
	r.end(q)
}

// end is the end of a request, whichever way: the gateway and the proxies stop
// counting it, it is recorded, and a closed-loop lane sends its next.
func (r *run) end(q *request) {
	q.ended = true
	r.client.inFlight--
	r.client.live--
	r.gateways.ended(r.now, q)
	r.release(q)
	r.recorder.ended(q, r.now)
	r.turnEnds(q)
	switch {
	case q.lane < 0:
	case r.spins(q):
		r.fail(errSpins)
	default:
		r.nextInLane(q.lane, r.now+r.client.w.ClosedLoop.ThinkTime.Time)
	}
	r.client.recycle(q)
}

// errSpins ends a run that would otherwise never end.
var errSpins = errors.New("workload.closed_loop: a request ended at the very instant it was sent, and so would the next without end: " +
	"give workload.closed_loop.think_time, workload.requests, or a profile with an overhead")

// spins reports whether the lane of a request that has ended goes round without
// time passing, for as long as there are requests.
func (r *run) spins(q *request) bool {
	return r.now == q.sent && r.client.w.ClosedLoop.ThinkTime.Time == 0 && r.client.w.Requests == 0
}
