package live

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"fleetsim/calibrate/live/plan"
	"fleetsim/calibrate/live/text"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// Options of a replay.
type Options struct {
	Scenario *scenario.Scenario
	Seed     uint64
	Target   Target
	Texts    *text.Generator
	Now      func() time.Time // a monotonic clock
	// Speed is by how much faster than planned everything is sent. Times in the
	// records are multiplied by it, for a server whose clock runs as fast.
	Speed float64

	Budget  *Budget
	Silence time.Duration // read timeout: how long a server may say nothing
	Drain   time.Duration // after the last sending, how long answers may take
	Retries int           // further attempts at what was refused with 429 or 503

	Alias   map[string]string // of the gateway's pod names
	Engines []Engine          // to be observed
	Gateway string            // URL of the gateway's metrics; "" for none
}

// An Engine is one engine that can be asked past the gateway.
type Engine struct {
	Name string // as in the records
	URL  string // its base: /metrics, /reset_prefix_cache and /v1 are below it
}

// A Replayer sends the load of a scenario.
type Replayer struct {
	Options
	transport *Transport
}

// New is a replayer over the transport.
func New(o Options, t *Transport) *Replayer { return &Replayer{Options: o, transport: t} }

// A Send is one attempt at one arrival as the client sent it: what the records
// are made from.
type Send struct {
	Phase   string
	Request workload.Request
	Try     int           // from 1
	Due     time.Duration // since the phase began, on the wall clock
	Attempt *Attempt
}

// phase is a phase being replayed.
type phase struct {
	*Replayer
	name, policy string
	start        time.Time
	mu           sync.Mutex
	inFlight     int
	sends        []Send           // every attempt
	records      []record.Request // one for every arrival
	waiting      sync.WaitGroup
}

// Phase replays one phase under the policy. It returns what was recorded also
// when ctx ends: nothing more is sent then, what is in flight is cancelled, and
// what was never sent is dropped. Its error says that the phase could not be
// begun or observed.
func (r *Replayer) Phase(ctx context.Context, name, policy string) (*Result, error) {
	p, err := plan.New(r.Scenario, r.Seed)
	if err != nil {
		return nil, err
	}
	ph := &phase{Replayer: r, name: name, policy: policy}
	watch := newWatch(r)
	if err := watch.before(ctx); err != nil {
		return nil, err
	}
	opened := r.transport.Opened()
	inFlight, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ph.start = r.Now()
	watch.begin(ctx, ph.start)
	if p.Closed() != nil {
		ph.closedLoop(ctx, inFlight, p)
	} else {
		ph.openLoop(ctx, inFlight, p)
	}
	ph.drain(cancel)
	if err := watch.after(ctx); err != nil {
		return nil, err
	}
	return ph.result(p.Count(), r.transport.Opened()-opened, watch), nil
}

// WithMaxDuration bounds a whole replay: what is in flight when the time is over
// is recorded as such.
func WithMaxDuration(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errMaxDuration)
}

// drain waits for the answers, and cancels those that take too long.
func (ph *phase) drain(cancel context.CancelCauseFunc) {
	timer := time.AfterFunc(ph.Drain, func() { cancel(errDrain) })
	defer timer.Stop()
	ph.waiting.Wait()
}

// openLoop sends each request when it is due and waits for no answer. The
// schedule is absolute, so that being late once delays nothing after it.
func (ph *phase) openLoop(ctx, inFlight context.Context, p *plan.Plan) {
	for r, ok := p.Next(); ok; r, ok = p.Next() {
		ask := ph.ask(r) // made before it is due
		due := ph.wall(r.At)
		sleepUntil(ctx, ph.Now, ph.start.Add(due))
		switch why := ph.whyNot(ctx); why {
		case "":
			ph.waiting.Go(func() { ph.answer(inFlight, r, ask, due) })
		default:
			ph.drop(r, due, why)
		}
	}
}

// whyNot is why an arrival that is due is not sent; "" counts it as in flight.
func (ph *phase) whyNot(ctx context.Context) string {
	ph.mu.Lock()
	defer ph.mu.Unlock()
	limit := ph.Scenario.Workload.InFlightCap
	switch {
	case errors.Is(context.Cause(ctx), errMaxDuration):
		return catMaxDuration
	case ctx.Err() != nil:
		return catCancelled
	case limit > 0 && ph.inFlight >= limit:
		return catInFlightCap
	case !ph.Budget.Take():
		return catMaxRequests
	}
	ph.inFlight++
	return ""
}

// closedLoop runs lanes that each send when their last answer has ended, until
// the loop is over; the last answers belong to the drain.
func (ph *phase) closedLoop(ctx, inFlight context.Context, p *plan.Plan) {
	loop := p.Closed()
	think := ph.wall(loop.ThinkTime.Time)
	l := &lanes{phase: ph, plan: p, end: ph.wall(loop.Duration.Time)}
	done := make(chan struct{}, loop.Concurrency)
	for range loop.Concurrency {
		go func() {
			defer func() { done <- struct{}{} }()
			for r, ask, ok := l.next(ctx, 0); ok; r, ask, ok = l.next(ctx, think) {
				ph.answer(inFlight, r, ask, ph.wall(r.At))
				ph.waiting.Done()
			}
		}()
	}
	l.wait(ctx, done)
}

// lanes are those of a closed loop.
type lanes struct {
	*phase
	plan *plan.Plan
	end  time.Duration // since the phase began; 0: none
	mu   sync.Mutex
	over bool // nobody waits for lanes that go on
}

// next is a lane's next request, which is waited for from then on, after it has
// thought; false ends the lane.
func (l *lanes) next(ctx context.Context, think time.Duration) (workload.Request, *Ask, bool) {
	at := l.Now().Add(think)
	if l.end > 0 && at.Sub(l.start) >= l.end {
		return workload.Request{}, nil, false
	}
	sleepUntil(ctx, l.Now, at)
	l.mu.Lock()
	defer l.mu.Unlock()
	now, limit := l.Now().Sub(l.start), l.Scenario.Workload.Requests
	if l.over || limit > 0 && l.plan.Count() >= limit || l.end > 0 && now >= l.end || l.whyNot(ctx) != "" {
		return workload.Request{}, nil, false
	}
	l.waiting.Add(1)
	r := l.plan.At(simtime.FromSeconds(now.Seconds() * l.Speed))
	return r, l.ask(r), true
}

// wait returns when the lanes are done, or may send no more.
func (l *lanes) wait(ctx context.Context, done <-chan struct{}) {
	var over <-chan time.Time
	if l.end > 0 {
		timer := time.NewTimer(l.end - l.Now().Sub(l.start))
		defer timer.Stop()
		over = timer.C
	}
	for range l.plan.Closed().Concurrency {
		select {
		case <-done:
			continue
		case <-over:
		case <-ctx.Done():
		}
		break
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

func (ph *phase) ask(r workload.Request) *Ask {
	return ph.Target.ask(ph.Texts.Text(r.Prompt), r.Output, ph.policy, r.Tenant)
}

// wall is a span of the plan as the wall clock runs.
func (r *Replayer) wall(t simtime.Time) time.Duration {
	return time.Duration(t.Seconds() / r.Speed * float64(time.Second))
}

// answer sends a request that has been counted, again if that is asked for, and
// records what came.
func (ph *phase) answer(ctx context.Context, r workload.Request, ask *Ask, due time.Duration) {
	var attempts []*Attempt
	for {
		a := ph.transport.Send(ctx, ph.Now, ask, ph.Silence)
		attempts = append(attempts, a)
		if !ph.tryAgain(ctx, a, len(attempts)) {
			break
		}
	}
	ph.mu.Lock()
	defer ph.mu.Unlock()
	ph.inFlight--
	for i, a := range attempts {
		ph.sends = append(ph.sends, Send{Phase: ph.name, Request: r, Try: i + 1, Due: due, Attempt: a})
	}
	ph.records = append(ph.records, ph.record(r, attempts))
}

// defaultRetryAfter is the back-off when the server names none.
const defaultRetryAfter = time.Second

// tryAgain waits for the time to send again, or reports that it will not come.
func (ph *phase) tryAgain(ctx context.Context, a *Attempt, attempts int) bool {
	if attempts > ph.Retries || a.Status != 429 && a.Status != 503 {
		return false
	}
	wait := defaultRetryAfter
	if s, err := strconv.Atoi(a.RetryAfter); err == nil && s >= 0 && s <= 3600 {
		wait = time.Duration(s) * time.Second
	}
	sleepUntil(ctx, ph.Now, ph.Now().Add(wait))
	return ctx.Err() == nil && ph.Budget.Take()
}

// drop records an arrival that is never sent.
func (ph *phase) drop(r workload.Request, due time.Duration, why string) {
	ph.mu.Lock()
	defer ph.mu.Unlock()
	out := ph.describe(r)
	out.Result, out.ErrorCategory = record.Dropped, why
	out.Started = ph.seconds(due)
	ph.records = append(ph.records, out)
}

// sleepUntil waits for the instant or the context's end.
func sleepUntil(ctx context.Context, now func() time.Time, at time.Time) {
	wait := at.Sub(now())
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// seconds is a span of the wall clock in the records' time.
func (r *Replayer) seconds(d time.Duration) record.Float { return record.Some(d.Seconds() * r.Speed) }

func (ph *phase) describe(r workload.Request) record.Request {
	out := record.Request{Phase: ph.name, Tenant: r.Tenant, Index: record.Some(r.Index), RequestedOutput: record.Some(r.Output)}
	if r.Family >= 0 {
		out.Family = record.Some(r.Family)
	}
	return out
}

// record is the record of an arrival that was sent: the last attempt's outcome,
// with times from the first sending, as the client lived through it.
func (ph *phase) record(r workload.Request, attempts []*Attempt) record.Request {
	first, a := attempts[0], attempts[len(attempts)-1]
	since := func(t time.Time) record.Float {
		if t.IsZero() {
			return record.Float{}
		}
		return ph.seconds(t.Sub(first.Sent))
	}
	out := ph.describe(r)
	out.Result, out.ErrorCategory = a.Result, a.Category
	out.Started = ph.seconds(first.Sent.Sub(ph.start))
	out.E2E = since(a.End)
	if !a.Done.IsZero() {
		out.E2E = since(a.Done)
	}
	if a.Status != 0 {
		out.HTTPStatus = record.Some(a.Status)
	}
	out.Replica = ph.alias(a.TargetPod)
	if a.Usage != nil {
		out.InputTokens, out.OutputTokens = record.Some(a.Usage.PromptTokens), record.Some(a.Usage.CompletionTokens)
		out.CachedTokens = a.Usage.Cached()
	}
	if !ph.Target.Whole {
		out.TTFT = since(a.First)
		out.TPOT = record.TPOT(out.TTFT, since(a.Last), out.OutputTokens)
	}
	slo := sim.SLO(ph.Scenario.SLO)
	out.Good = record.Some(slo.Good(&out))
	return out
}

// alias is the pod's name in the records.
func (r *Replayer) alias(pod string) string {
	if name, ok := r.Alias[pod]; ok {
		return name
	}
	return pod
}

// sorted are the records in the order of the plan.
func (ph *phase) sorted() []record.Request {
	slices.SortStableFunc(ph.records, func(a, b record.Request) int { return a.Index.Or(0) - b.Index.Or(0) })
	slices.SortStableFunc(ph.sends, func(a, b Send) int { return a.Request.Index - b.Request.Index })
	return ph.records
}
