package calibrate

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim/scenario"
)

func BenchmarkZZStudy(b *testing.B) {
	for b.Loop() {
		study, err := scenario.LoadStudyWith("routing-study", nil)
		require.NoError(b, err)
		_, err = CompareStudy(context.Background(), PlanStudy(study).Study, func(sc *scenario.Scenario) (*model.Profile, error) { return profiles.Load(sc.Profile) }, 100, 0, nil)
		require.NoError(b, err)
	}
}
