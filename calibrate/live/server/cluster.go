package server

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"fleetsim/calibrate/live/plan"
	"fleetsim/calibrate/live/text"
	"fleetsim/model"
	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/sim"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// A Cluster is the simulated cluster as its front end sees it: gateway and
// engines, the same code as in package sim, fed with calls from outside. It is a
// state machine without I/O: it reads no clock, and the caller says what happens
// and when, in order of time.
type Cluster struct {
	profile    *model.Profile
	limits     model.Limits
	settings   router.Settings
	options    router.Options
	index      []plan.Priming // what an index knows before anything is routed
	hides      hides
	texts      *text.Generator
	pods       []*pod
	gateways   map[string]*router.Gateway // by policy; all count alike
	rng        *rand.Rand
	turn       int // of the load balancing without a policy
	queue      queue
	calls      int64
	deliveries int64
	now        simtime.Time
}

// A pod is one engine with what its metrics say.
type pod struct {
	*model.Replica
	id       int
	name     string
	draining bool
	expected simtime.Time // of the step end that is in the queue; Never: none
	calls    map[*Call]struct{}
	metrics  podMetrics
}

// A Call is one request to the cluster. The caller fills the first group of
// fields, and hears through Listener.
type Call struct {
	ID     string
	Prompt text.Text
	Input  int // tokens of the prompt
	Output int // tokens to generate
	Hashes []uint64
	Policy string // "" balances without a policy
	User   string
	Pod    string // the engine that is asked past the gateway; "" asks the gateway

	Listener Listener

	seq      model.Seq
	request  router.Request
	gateway  *router.Gateway // that chose the pod; nil: none, and nothing is counted
	choice   router.Choice
	pod      *pod
	number   int64
	heard    int // tokens that are on their way to the client
	lastStep simtime.Time
	over     bool
	counted  bool
}

// A Listener hears what becomes of a call. The methods are called in the order
// of time, must not block and must not call the cluster.
type Listener interface {
	// Accepted says which pod runs the call.
	Accepted(pod string, d router.Decision)
	// Tokens says that n more tokens have reached the client at now, and with a
	// finish reason that they are the last.
	Tokens(now simtime.Time, n int, finish string, cached int)
	// Refused says that there is no answer.
	Refused(err *Error)
}

// Finish reasons.
const (
	finishLength = "length"
	finishAbort  = "abort"
)

// NewCluster returns the scenario's cluster in its starting state. The prompts
// in caches and indexes are those of the texts with the given salt.
func NewCluster(sc *scenario.Scenario, profile *model.Profile, seed uint64, salt string) (*Cluster, error) {
	limits, err := sim.Limits(profile, sc)
	if err != nil {
		return nil, err
	}
	settings, err := sc.Router.Settings()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		profile: profile, limits: limits, settings: settings, options: sc.Router.Options(),
		texts:    text.New(sim.Shape(sc.Workload.Prompt), salt),
		hides:    newHides(sc, seed, salt),
		gateways: make(map[string]*router.Gateway),
		rng:      random.Stream(seed, "routing"),
	}
	for id, name := range sc.Cluster.Names {
		p := &pod{Replica: model.NewReplica(limits, profile.Cost), id: id, name: name,
			expected: simtime.Never, calls: make(map[*Call]struct{}), metrics: newPodMetrics()}
		p.Stepwise() // each token is news
		c.pods = append(c.pods, p)
	}
	c.prime(plan.Start(sc, seed))
	return c, nil
}

func (c *Cluster) prime(start []plan.Priming) {
	for _, p := range start {
		prompt := c.texts.Text(p.Prompt)
		tokens, hashes := prompt.Len(workload.Tokens), c.Hashes(prompt)
		for _, pod := range c.pods {
			if slices.Contains(p.Cached, pod.name) {
				pod.Prime(tokens, hashes)
			}
		}
		if len(p.Indexed) > 0 {
			c.index = append(c.index, p)
		}
	}
}

// Hashes are the hashes of the KV blocks of a text; nil without a prefix cache.
func (c *Cluster) Hashes(t text.Text) []uint64 {
	if !c.limits.PrefixCaching {
		return nil
	}
	return t.AppendHashes(nil, 0, c.limits.BlockTokens, workload.Tokens)
}

// Hides reports whether the answer to the prompt begins with a token that has no
// visible content.
func (c *Cluster) Hides(prompt text.Text) bool { return c.hides.of(prompt) }

// Limits are the engines' settings.
func (c *Cluster) Limits() model.Limits { return c.limits }

// gatewayOf is the gateway's state for the policy, made when it is first asked
// for. One gateway process counts in-flight requests for all of its policies.
func (c *Cluster) gatewayOf(policy string) (*router.Gateway, error) {
	if g, ok := c.gateways[policy]; ok {
		return g, nil
	}
	p, err := router.New(policy, c.settings, c.options)
	if err != nil {
		return nil, err
	}
	g := router.NewGateway(p, c.rng)
	for _, pod := range c.pods {
		for range c.inFlight(pod) {
			g.Begin(pod.id)
		}
		if !pod.draining {
			g.AddPod(pod.id, pod.name, "", "")
		}
	}
	for _, prime := range c.index {
		for _, pod := range c.pods {
			if slices.Contains(prime.Indexed, pod.name) {
				g.Remember(0, &router.Request{Prompt: c.texts.Text(prime.Prompt)}, pod.id)
			}
		}
	}
	c.gateways[policy] = g
	return g, nil
}

// CheckPolicy reports what is wrong with a policy's name.
func (c *Cluster) CheckPolicy(policy string) error {
	if policy == "" {
		return nil
	}
	_, err := c.gatewayOf(policy)
	return err
}

// inFlight is the gateway's count of the pod.
func (c *Cluster) inFlight(p *pod) int {
	n := 0
	for call := range p.calls {
		if call.counted {
			n++
		}
	}
	return n
}

// Submit takes a call that the client has sent at now.
func (c *Cluster) Submit(now simtime.Time, call *Call) {
	c.Advance(now)
	c.calls++
	call.number = c.calls
	c.queue.push(event{at: c.now + c.profile.RequestDelay(call.Input), kind: evRoute, id: call.number, call: call})
}

// Next is when something will next happen; Never when nothing will.
func (c *Cluster) Next() simtime.Time {
	if len(c.queue) == 0 {
		return simtime.Never
	}
	return c.queue[0].at
}

// Advance lets everything happen that happens up to now. A now before the
// latest is the latest.
func (c *Cluster) Advance(now simtime.Time) {
	for len(c.queue) > 0 && c.queue[0].at <= now {
		e := c.queue.pop()
		c.now = e.at
		switch e.kind {
		case evDeliver:
			c.deliver(e.delivered)
		case evRoute:
			c.route(e.call)
		case evStepEnd:
			c.stepEnd(e.pod)
		}
	}
	c.now = max(c.now, now)
}

// route finds the call's pod and hands it over.
func (c *Cluster) route(call *Call) {
	if call.over {
		return // the client is gone
	}
	p, err := c.choose(call)
	if err != nil {
		c.refuse(call, err)
		return
	}
	call.pod = p
	p.calls[call] = struct{}{}
	if call.gateway != nil {
		c.begin(call)
	}
	if !p.Fits(call.Input, call.Output) {
		c.refuse(call, tooLong(c.limits.MaxModelLen, call.Input, call.Output))
		return
	}
	call.Listener.Accepted(p.name, call.choice.Decision)
	call.seq = model.Seq{ID: int(call.number), Owner: call, Prompt: call.Input, Output: call.Output, Hashes: call.Hashes}
	p.Add(c.now, &call.seq)
	c.expect(p)
}

func (c *Cluster) choose(call *Call) (*pod, *Error) {
	switch {
	case call.Pod != "":
		return c.pod(call.Pod), nil
	case call.Policy == "":
		return c.balance()
	}
	g, err := c.gatewayOf(call.Policy)
	if err != nil {
		return nil, badPolicy(err)
	}
	c.refreshMetrics(g)
	call.request = router.Request{Prompt: call.Prompt, User: call.User, Arrived: c.now}
	choice, err := g.Route(c.now, &call.request)
	switch {
	case errors.Is(err, router.ErrNoPod):
		return nil, noPod()
	case err != nil:
		return nil, routingFailed(err)
	}
	call.gateway, call.choice = g, choice
	return c.pods[choice.PodID], nil
}

// balance takes the routable pods in turn, as a route without a policy does.
func (c *Cluster) balance() (*pod, *Error) {
	for range c.pods {
		p := c.pods[c.turn%len(c.pods)]
		if c.turn++; !p.draining {
			return p, nil
		}
	}
	return nil, noPod()
}

// refreshMetrics gives the gateway the engines' present metrics, the freshest
// that a scrape could bring.
func (c *Cluster) refreshMetrics(g *router.Gateway) {
	for _, p := range c.pods {
		g.SetMetrics(p.id, p.metrics.forRouter(p.Gauges(), c.limits))
	}
}

// begin counts the call as in flight, end stops that: in all gateways, which
// are the states of one process.
func (c *Cluster) begin(call *Call) {
	call.counted = true
	for _, g := range c.gateways {
		g.Begin(call.pod.id)
	}
}

// leave takes the call off its pod's books.
func (c *Cluster) leave(call *Call) {
	call.over = true
	if call.pod != nil {
		delete(call.pod.calls, call)
	}
	if !call.counted {
		return
	}
	call.counted = false
	for _, g := range c.gateways {
		g.End(call.pod.id)
	}
	call.gateway.Finished(c.now, &call.request, call.choice, call.seq.Outputs)
}

// refuse sends the error on its way.
func (c *Cluster) refuse(call *Call, err *Error) {
	c.queue.push(event{at: c.now + c.profile.ResponseOverhead, kind: evDeliver, id: call.number, delivered: []delivery{{call: call, err: err}}})
}

func (c *Cluster) expect(p *pod) {
	if at := p.Next(); at != p.expected {
		p.expected = at
		if at != simtime.Never {
			c.queue.push(event{at: at, kind: evStepEnd, id: int64(p.id), pod: p})
		}
	}
}

// stepEnd takes a step's tokens and sends them on their way.
func (c *Cluster) stepEnd(p *pod) {
	if p.expected != c.now {
		return // a step that an abort has moved
	}
	p.expected = simtime.Never // the next may be due at this very instant
	var news []delivery
	tell := func(s *model.Seq, finish string) {
		call := s.Owner.(*Call)
		if n := s.Outputs - call.heard; n > 0 {
			p.metrics.step(call, s, n)
			news = append(news, delivery{call: call, tokens: n, finish: finish})
			call.heard, call.lastStep = s.Outputs, c.now
		}
	}
	p.Advance(c.now, func(s *model.Seq) {
		tell(s, finishLength)
		p.metrics.finish(s, finishLength)
	})
	p.Unfinished(func(s *model.Seq) { tell(s, "") })
	if len(news) > 0 {
		c.deliveries++
		c.queue.push(event{at: c.now + c.profile.ResponseOverhead, kind: evDeliver, id: int64(p.id), order: c.deliveries, delivered: news})
	}
	c.expect(p)
}

// deliver brings news to the clients that are still there.
func (c *Cluster) deliver(news []delivery) {
	for _, d := range news {
		switch {
		case d.call.over:
		case d.err != nil:
			c.leave(d.call)
			d.call.Listener.Refused(d.err)
		default:
			if d.finish != "" {
				c.leave(d.call)
			}
			d.call.Listener.Tokens(c.now, d.tokens, d.finish, d.call.seq.Cached)
		}
	}
}

// Abort ends a call whose client is gone.
func (c *Cluster) Abort(now simtime.Time, call *Call) {
	c.Advance(now)
	if !call.over {
		c.abort(call)
	}
}

func (c *Cluster) abort(call *Call) {
	if call.pod == nil {
		c.leave(call)
		return
	}
	if call.pod.Abort(c.now, &call.seq) {
		call.pod.metrics.finish(&call.seq, finishAbort)
		c.expect(call.pod)
	}
	c.leave(call)
}

// AbortAll ends every call of a pod, or of all if it is "", with the finish
// reason abort, as an engine does that is shut down without a grace period.
func (c *Cluster) AbortAll(now simtime.Time, pod string) {
	c.Advance(now)
	for _, p := range c.pods {
		if pod != "" && p.name != pod {
			continue
		}
		calls := slices.SortedFunc(maps.Keys(p.calls), func(a, b *Call) int { return int(a.number - b.number) })
		for _, call := range calls {
			c.abort(call)
			call.Listener.Tokens(c.now, 0, finishAbort, call.seq.Cached)
		}
	}
}

// Drain takes a pod off the gateway's list, or puts it back; what runs on it
// runs on.
func (c *Cluster) Drain(now simtime.Time, pod string, drain bool) {
	c.Advance(now)
	p := c.pod(pod)
	p.draining = drain
	for _, g := range c.gateways {
		if drain {
			g.RemovePod(p.id)
		} else {
			g.AddPod(p.id, p.name, "", "")
		}
	}
}

// ResetPrefixCache empties the engine's prefix cache and reports true, or
// changes nothing while it holds a block.
func (c *Cluster) ResetPrefixCache(now simtime.Time, pod string) bool {
	c.Advance(now)
	return c.pod(pod).ResetPrefixCache(c.now)
}

// Pods are the names of the pods, in order.
func (c *Cluster) Pods() []string {
	var names []string
	for _, p := range c.pods {
		names = append(names, p.name)
	}
	return names
}

// HasPod reports whether there is a pod of that name.
func (c *Cluster) HasPod(name string) bool { return slices.Contains(c.Pods(), name) }

// pod is the named pod, which exists.
func (c *Cluster) pod(name string) *pod {
	i := slices.IndexFunc(c.pods, func(p *pod) bool { return p.name == name })
	if i < 0 {
		panic(fmt.Sprintf("server: no pod %q", name))
	}
	return c.pods[i]
}
