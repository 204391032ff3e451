package router

import (
	"fmt"
	"testing"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// benchmarkRoute is a request's cost to the gateway: the decision, and the counts
// that follow. Two requests a pod are in flight, each ends in the order of arrival.
func benchmarkRoute(b *testing.B, policy string, pods int, prompt func(n int) workload.Prompt) {
	g := newTestGateway(b, policy, DefaultSettings(), pods)
	var p workload.Prompt
	req := &Request{Prompt: &p}
	flying := make([]int, 2*pods)
	n := 0
	route := func() {
		p = prompt(n)
		c, err := g.Route(simtime.Time(n)*simtime.Millisecond, req)
		if err != nil {
			b.Fatal(err)
		}
		g.Begin(c.PodID)
		if n >= len(flying) {
			g.End(flying[n%len(flying)])
		}
		flying[n%len(flying)] = c.PodID
		n++
	}
	for range 10_000 + len(flying) {
		route()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		route()
	}
}

// familyPrompts are a long document of one of the families with a question of its
// own, drawn by hot: the family of request n.
func familyPrompts(family func(n int) int) func(n int) workload.Prompt {
	p := symbolicPrompt(0, 0)
	return func(n int) workload.Prompt {
		p[0].ID, p[2].ID = 1000+uint64(family(n)), 1<<32+uint64(n)
		return p
	}
}

var benchmarkFleets = []int{2, 64, 1000}

func BenchmarkRouteLeastRequest(b *testing.B) {
	for _, pods := range benchmarkFleets {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			benchmarkRoute(b, "least-request", pods, familyPrompts(func(n int) int { return n % 8 }))
		})
	}
}

func BenchmarkRoutePrefixCache(b *testing.B) {
	for _, pods := range benchmarkFleets {
		for _, families := range []int{8, 1000} {
			b.Run(fmt.Sprintf("pods=%d/families=%d", pods, families), func(b *testing.B) {
				benchmarkRoute(b, "prefix-cache", pods, familyPrompts(func(n int) int { return n % families }))
			})
		}
		b.Run(fmt.Sprintf("pods=%d/hot90", pods), func(b *testing.B) {
			benchmarkRoute(b, "prefix-cache", pods, familyPrompts(func(n int) int {
				if n%10 != 0 {
					return 0
				}
				return n / 10 % 8
			}))
		})
		// The index is at its capacity: 226 blocks a prompt.
		b.Run(fmt.Sprintf("pods=%d/unique", pods), func(b *testing.B) {
			benchmarkRoute(b, "prefix-cache", pods, familyPrompts(func(n int) int { return n }))
		})
	}
}
