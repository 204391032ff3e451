package calibrate

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim/scenario"
)

// The routing study under a hundred seeds: 2,400 phases of 96 requests, on as many
// cores as there are.
func BenchmarkRoutingStudy(b *testing.B) {
	profile := func(sc *scenario.Scenario) (*model.Profile, error) { return profiles.Load(sc.Profile) }
	runs := 0
	b.ReportAllocs()
	for b.Loop() {
		study, err := scenario.LoadStudy("routing-study")
		require.NoError(b, err)
		_, err = CompareStudy(context.Background(), study, profile, 100, 0, func() { runs++ })
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(runs), "ns/phase")
}
