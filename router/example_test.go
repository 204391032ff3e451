package router_test

import (
	"fmt"
	"math/rand/v2"

	"fleetsim/router"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// shortestHop is a policy of a user: it keeps short prompts on the first pod and
// sends long ones to the least loaded of the others.
type shortestHop struct{ longTokens int }

func (p *shortestHop) Route(_ simtime.Time, req *router.Request, pods []router.Pod, _ *rand.Rand) (router.Decision, error) {
	if req.Prompt.Len(workload.Tokens) < p.longTokens {
		return router.Decision{Pod: 0}, nil
	}
	best := 1
	for i := range pods[1:] {
		if pods[1+i].Running < pods[best].Running {
			best = 1 + i
		}
	}
	return router.Decision{Pod: best}, nil
}

// A policy of one's own is registered under a name and then used like AIBrix's,
// in a scenario as well.
func ExampleRegister() {
	router.Register("shortest-hop", func(router.Settings, router.Options) (router.Policy, error) {
		return &shortestHop{longTokens: 1000}, nil
	})

	policy, err := router.New("shortest-hop", router.DefaultSettings(), router.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	g := router.NewGateway(policy, rand.New(rand.NewPCG(1, 1)))
	for id, name := range []string{"small", "big-0", "big-1"} {
		g.AddPod(id, name, "", "")
	}
	for _, tokens := range []int{10, 5000, 5000, 20} {
		prompt := workload.Prompt{{ID: 1, Tokens: tokens, Bytes: 6 * tokens}}
		choice, err := g.Route(0, &router.Request{Prompt: prompt})
		if err != nil {
			fmt.Println(err)
			return
		}
		g.Begin(choice.PodID)
		fmt.Println(tokens, "tokens go to pod", choice.PodID)
	}
	// Output:
	// 10 tokens go to pod 0
	// 5000 tokens go to pod 1
	// 5000 tokens go to pod 2
	// 20 tokens go to pod 0
}

// A gateway with AIBrix's defaults sends a repeated prompt to the pod that was
// sent it before.
func ExampleGateway() {
	policy, err := router.New("prefix-cache", router.DefaultSettings(), router.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	g := router.NewGateway(policy, rand.New(rand.NewPCG(1, 1)))
	g.AddPod(0, "a", "", "")
	g.AddPod(1, "b", "", "")
	system := workload.Segment{ID: 7, Tokens: 2000, Bytes: 12_000}
	for question := range uint64(2) {
		prompt := workload.Prompt{system, {ID: 100 + question, Tokens: 20, Bytes: 100}}
		c, err := g.Route(0, &router.Request{Prompt: prompt})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(c.Selection, c.MatchPercent)
	}
	// Output:
	// least_request_fallback 0
	// prefix_match 98
}
