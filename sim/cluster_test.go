package sim

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// small is a load of short unique prompts, each a single prefill step: with the
// profile even, an answer of n tokens from an idle engine takes 3 + 10n ms, and
// its i-th token comes 3 + 10i ms after the sending.
func small(t require.TestingT, sets ...string) *scenario.Scenario {
	sc, err := scenario.LoadWith("fixed1-wave", append([]string{
		"workload.requests=1", "workload.in_flight_cap=0", "workload.output_tokens=10", "workload.prompt.body_repeat=1",
	}, sets...))
	require.NoError(t, err)
	return sc
}

// every makes n arrivals, one each gap, from 0 on.
func every(gap string, n int) []string {
	var d scenario.Duration
	if err := d.UnmarshalText([]byte(gap)); err != nil {
		panic(err)
	}
	return []string{
		fmt.Sprintf("workload.requests=%d", n),
		fmt.Sprintf("workload.arrivals.stages=[{duration=\"%dms\", rate_per_second=%v}]",
			int64(d.Time/simtime.Millisecond)*int64(n), 1/d.Seconds()),
	}
}

// byIndex are the records in the order of their arrivals.
func byIndex(requests []record.Request) []record.Request {
	slices.SortFunc(requests, func(a, b record.Request) int { return a.Index.Or(0) - b.Index.Or(0) })
	return requests
}

// outcomes are each request's result and reason, in the order of arrival.
func outcomes(requests []record.Request) []string {
	var out []string
	for _, r := range byIndex(requests) {
		s := r.Result
		if r.ErrorCategory != "" {
			s += " " + r.ErrorCategory
		}
		if status, ok := r.HTTPStatus.Get(); ok && status != 200 {
			s += fmt.Sprintf(" %d", status)
		}
		out = append(out, s)
	}
	return out
}

// member decodes a member of the phase record that the schema does not have.
func member[T any](t require.TestingT, p *record.Phase, name string) T {
	var v T
	require.Contains(t, p.Other, name)
	require.NoError(t, json.Unmarshal(p.Other[name], &v))
	return v
}

func e2e(t require.TestingT, r record.Request) float64 { return value(t, r.E2E) }

func fault(kind, replica, at string, more ...string) string {
	s := fmt.Sprintf("{kind=%q, replica=%q, at=%q", kind, replica, at)
	for _, m := range more {
		s += ", " + m
	}
	return "faults=[" + s + "}]"
}

func closedLoop(lanes int, duration, think string) *scenario.ClosedLoop {
	loop := &scenario.ClosedLoop{Concurrency: lanes}
	for _, d := range []struct {
		to   *scenario.Duration
		text string
	}{{&loop.Duration, duration}, {&loop.ThinkTime, think}} {
		if err := d.to.UnmarshalText([]byte(d.text)); err != nil {
			panic(err)
		}
	}
	return loop
}
