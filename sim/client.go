package sim

import (
	"fleetsim/model"
	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// A request is one arrival on its way through the cluster.
type request struct {
	workload.Request
	seq      model.Seq
	sent     simtime.Time
	lane     int // closed-loop lane, or -1
	replica  *replica
	decision router.Decision
	status   int // HTTP status; 0 before an answer
	err      string
	prompt   workload.Prompt // the prompt and its answer, to be hashed by the engine
}

// client is the load: it decides when the next request is sent, what is in it,
// and which arrivals are dropped.
type client struct {
	w        scenario.Workload
	arrivals *workload.Arrivals // open loop; nil in a closed loop
	prompts  *workload.Generator
	order    []int // family of each request; beyond it, in turn
	planned  int
	inFlight int
	free     []*request // for reuse
}

// Contents of a phase's prompts are told apart from those of others by base.
func newClient(s Setup, base uint64) (*client, error) {
	w := s.Scenario.Workload
	c := &client{w: w}
	if w.Arrivals != nil {
		var err error
		if c.arrivals, err = newArrivals(w, s.Seed); err != nil {
			return nil, err
		}
	} else if w.ClosedLoop == nil {
		return nil, errNoLoad
	}
	p := w.Prompt
	c.prompts = workload.NewGenerator(shape(p), p.Families, base, random.Stream(s.Seed, "prompts"))
	if c.order = p.FamilyOrder; len(c.order) == 0 && p.Families > 0 && w.Requests > 0 {
		c.order = workload.Order(w.Requests, p.Families, p.HotFraction, random.Stream(s.Seed, "families"))
	}
	return c, nil
}

// next makes the next request of the plan, due at at.
func (c *client) next(at simtime.Time, lane int) *request {
	var r *request
	if n := len(c.free); n > 0 {
		r, c.free = c.free[n-1], c.free[:n-1]
	} else {
		r = new(request)
	}
	i := c.planned
	c.planned++
	family, repeat, output, tenant := c.family(i), c.w.Prompt.BodyRepeat, c.w.Output, ""
	if n := len(c.w.Tenants); n > 0 {
		t := &c.w.Tenants[i%n]
		tenant = t.Name
		set(&repeat, t.BodyRepeat)
		set(&output, t.Output)
	}
	*r = request{seq: r.seq, lane: lane, prompt: r.prompt[:0], decision: router.Decision{Pod: -1}}
	r.prompt = c.prompts.Prompt(r.prompt, family, i, repeat)
	r.Request = workload.Request{Index: i, At: at, Tenant: tenant, Family: family, Prompt: r.prompt, Output: output}
	return r
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

// recycle keeps r for a later arrival.
func (c *client) recycle(r *request) { c.free = append(c.free, r) }
