package main

import (
	"strings"
	"testing"

	"fleetsim/router"
	"fleetsim/sim"
)

func TestFillFirst(t *testing.T) {
	for _, c := range []struct {
		running []int
		want    int
	}{
		{[]int{0, 0, 0}, 0},
		{[]int{3, 5, 0}, 1},
		{[]int{8, 5, 0}, 1},
		{[]int{8, 8, 0}, 2},
		{[]int{10, 9, 11}, 1},
		{[]int{8, 8, 8}, 0},
	} {
		pods := make([]router.Pod, len(c.running))
		for i, n := range c.running {
			pods[i] = router.Pod{ID: i, Running: n}
		}
		d, err := (&fillFirst{seats: 8}).Route(0, nil, pods, nil)
		if err != nil || d.Pod != c.want {
			t.Errorf("in flight %v: pod %d, %v; want pod %d", c.running, d.Pod, err, c.want)
		}
	}
}

// In a scenario that one replica can serve, the policy leaves the other idle.
func TestFillFirstInAScenario(t *testing.T) {
	phases, err := sim.RunScenario("cold-uniform", `policies=["fill-first"]`, "workload.arrivals.rate_per_second=0.3", "workload.requests=20")
	if err != nil {
		t.Fatal(err)
	}
	if n := phases[0].Replicas[1].Requests.Or(-1); n != 0 {
		t.Errorf("the second replica ran %d requests", n)
	}
	if n := phases[0].Success.Or(0); n != 20 {
		t.Errorf("%d of 20 requests succeeded", n)
	}
}

func TestCompare(t *testing.T) {
	var out strings.Builder
	if err := compare(&out, "hot90", "workload.requests=30"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "fill-first") || !strings.Contains(lines[0], "of 30") {
		t.Errorf("unexpected output:\n%s", out.String())
	}
	if err := compare(&out, "hot91"); err == nil {
		t.Error("no error for a scenario that does not exist")
	}
}
