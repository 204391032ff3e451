package live

import (
	"fmt"
	"io"

	"fleetsim/calibrate/live/plan"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// shownBody is how much of the first request's body a dry run shows, in bytes.
const shownBody = 240

// WritePlan writes what a phase would send, without sending it: totals, and the
// first request with its secrets left out.
func (r *Replayer) WritePlan(w io.Writer, name, policy string) error {
	p, err := plan.New(r.Scenario, r.Seed)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "phase %s, routing-strategy %s\n", name, policy)
	if loop := p.Closed(); loop != nil {
		fmt.Fprintf(w, "  closed loop: %d at a time for %v, thinking %v between; one request has up to %d input and %d output tokens\n",
			loop.Concurrency, r.wall(loop.Duration.Time), r.wall(loop.ThinkTime.Time), p.At(0).Prompt.Len(workload.Tokens), r.Scenario.Workload.Output)
	} else {
		t, err := plan.Sum(r.Scenario, r.Seed)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  open loop: %d requests in %v, %d input and %d output tokens\n", t.Requests, r.wall(t.Last), t.InputTokens, t.OutputTokens)
	}
	if p, err = plan.New(r.Scenario, r.Seed); err != nil {
		return err
	}
	return r.writeFirst(w, p, policy)
}

func (r *Replayer) writeFirst(w io.Writer, p *plan.Plan, policy string) error {
	var first workload.Request
	if p.Closed() != nil {
		first = p.At(simtime.Time(0))
	} else {
		var ok bool
		if first, ok = p.Next(); !ok {
			_, err := fmt.Fprintln(w, "  nothing is sent")
			return err
		}
	}
	ask := r.Target.ask(r.Texts.Text(first.Prompt), first.Output, policy, first.Tenant)
	fmt.Fprintf(w, "  first request: POST %s\n", ask.URL)
	for _, name := range sortedKeys(ask.Header) {
		value := "(given, not shown)" // it may be a secret
		if name == "Routing-Strategy" || name == "User" {
			value = ask.Header.Get(name)
		}
		fmt.Fprintf(w, "    %s: %s\n", name, value)
	}
	shown, rest := ask.Body, ""
	if len(shown) > shownBody {
		shown, rest = shown[:shownBody], "..."
	}
	_, err := fmt.Fprintf(w, "    %s%s (%d bytes; the prompt has %d tokens)\n", shown, rest, len(ask.Body), first.Prompt.Len(workload.Tokens))
	return err
}
