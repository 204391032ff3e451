package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/router"
)

// Every policy of the router has a figure, and docs/policies.md shows it.
func TestEveryPolicyHasAFigure(t *testing.T) {
	doc, err := os.ReadFile("../../policies.md")
	require.NoError(t, err)
	drawn := map[string]bool{}
	for _, s := range specs {
		drawn[s.routed()] = true
		require.Contains(t, string(doc), "(policies/"+s.name+".svg)")
		require.FileExists(t, "../../policies/"+s.name+".svg")
	}
	for _, name := range router.Names() {
		require.True(t, drawn[name], name)
		require.Contains(t, string(doc), "`"+name+"`")
	}
}

// A figure is the same to the byte each time, and shows all that there is to see.
func TestFiguresAreDeterministic(t *testing.T) {
	for i := range specs {
		if !strings.Contains("prefix-cache session-affinity pd least-latency", specs[i].name) {
			continue
		}
		f, err := simulated(&specs[i])
		require.NoError(t, err)
		points := 0
		for _, xys := range f.points {
			points += len(xys)
		}
		require.GreaterOrEqual(t, points, 150, specs[i].name)
		require.Greater(t, len(f.lines[3]), 100)
		first, err := f.svg()
		require.NoError(t, err)
		second, err := draws(&specs[i])
		require.NoError(t, err)
		require.Equal(t, string(first), string(second))
		require.Contains(t, string(first), "pod-3")
	}
}

// A cell is the mean over the seeds, whatever the order of the runs.
func TestCell(t *testing.T) {
	s := spec{name: "random"}
	one, err := s.cell("cold-uniform", 2, 1)
	require.NoError(t, err)
	again, err := s.cell("cold-uniform", 2, 1)
	require.NoError(t, err)
	require.Equal(t, one, again)
	require.InDelta(t, 0.78, one.hits, 0.03)
	four, err := s.cell("cold-uniform", 2, 4)
	require.NoError(t, err)
	require.NotEqual(t, one, four)
	require.InDelta(t, one.good, four.good, 0.3)
}

func TestBetween(t *testing.T) {
	doc := "a\n" + tableBegin + "\nold\n" + tableEnd + "\nb\n"
	out, err := between(doc, "new\n")
	require.NoError(t, err)
	require.Equal(t, "a\n"+tableBegin+"\nnew\n"+tableEnd+"\nb\n", out)
	again, err := between(out, "new\n")
	require.NoError(t, err)
	require.Equal(t, out, again)
	_, err = between("no table here", "new\n")
	require.ErrorContains(t, err, tableBegin)
}

func TestCommand(t *testing.T) {
	for _, args := range [][]string{nil, {"figures"}, {"tables", "x"}, {"table", "--seeds", "0", "x"}, {"table", "absent.md"}} {
		require.Error(t, command(args))
	}
}
