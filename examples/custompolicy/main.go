// Command custompolicy shows how a policy of one's own is tried in a scenario
// from a module of one's own: fillfirst.go registers it, and from then on its
// name can stand wherever a scenario names a policy.
//
//	go run . hot90 workload.requests=200
package main

import (
	"fmt"
	"io"
	"os"

	"fleetsim/sim"
)

func main() {
	name, sets := "hot90", os.Args[1:]
	if len(sets) > 0 {
		name, sets = sets[0], sets[1:]
	}
	if err := compare(os.Stdout, name, sets...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// compare runs the scenario with the policy beside two of AIBrix's.
func compare(w io.Writer, name string, sets ...string) error {
	sets = append(sets, `policies=["fill-first","least-request","prefix-cache"]`)
	phases, err := sim.RunScenario(name, sets...)
	if err != nil {
		return err
	}
	for _, p := range phases {
		fmt.Fprintf(w, "%-14s good %3d of %d, TTFT p95 %.2f s, hit ratio %.2f, requests", p.Route,
			p.Good.Or(0), p.Planned.Or(0), p.TTFT.P95.Or(0), p.CacheHitRatio.Or(0))
		for _, rep := range p.Replicas {
			fmt.Fprintf(w, " %d", rep.Requests.Or(0))
		}
		fmt.Fprintln(w)
	}
	return nil
}
