package scenario

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

// published reads a study's phase records as they were published.
func published(t *testing.T, file string) []record.Phase {
	path := "../../../shared/measurements/" + file
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("the published records are not beside the checkout: %v", err)
	}
	defer f.Close()
	phases, err := record.ReadPhases(path, f)
	require.NoError(t, err)
	return phases
}

// The study's file holds the published figures to the last digit.
func TestRoutingStudyIsAsPublished(t *testing.T) {
	study, err := LoadStudy("routing-study")
	require.NoError(t, err)
	want := published(t, "routing-study-phases.jsonl")
	require.Len(t, study.Phases, len(want))
	for i, p := range study.Phases {
		want[i].Other = nil
		require.Equal(t, want[i], *p.Measured)
	}
}

func TestProductionStudyIsAsPublished(t *testing.T) {
	study, err := LoadStudy("production-study")
	require.NoError(t, err)
	want := published(t, "production-study-phases.jsonl")
	require.Len(t, study.Phases, len(want))
	for i, p := range study.Phases {
		want[i].Other = nil
		want[i].Scenario, want[i].Route = p.Scenario.Name, p.Policy
		got := *p.Measured
		got.Notes = nil // from the article's text
		require.Equal(t, want[i], got)
	}
}

func BenchmarkLoadRoutingStudy(b *testing.B) {
	for b.Loop() {
		_, _ = LoadStudy("routing-study")
	}
}
