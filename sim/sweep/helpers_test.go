package sweep

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallBase is a scenario that runs in a millisecond.
const smallBase = `name = "small"
seed = 7
policies = ["prefix-cache"]
[cluster]
replicas = 2
[workload]
requests = 24
output_tokens = 16
[workload.arrivals]
process = "poisson"
rate_per_second = 3.0
[workload.prompt]
families = 4
hot_fraction = 0.5
body_repeat = 100
[slo]
ttft = "600ms"
`

// smallSweep has 12 cells, in two groups, and stops early.
const smallSweep = `name = "small-sweep"
scenario = "base.toml"
seeds = 12
given = ["hot"]
[[axes]]
name = "hot"
key = "workload.prompt.hot_fraction"
values = [0.0, 0.9]
[[axes]]
name = "replicas"
key = "cluster.replicas"
from = 1
to = 6
step = 1
[objective]
minimise = "replicas"
[[constraints]]
metric = "good_share"
at_least = 0.7
[baseline]
replicas = 2
[stop]
first = 4
step = 4
`

// source is a sweep on a base scenario, without files.
func source(text, base string) *Source {
	return &Source{File: "sweep.toml", Text: text, BaseFile: "base.toml", BaseText: base}
}

func resolve(t testing.TB, text string) *Sweep {
	s, err := source(text, smallBase).Resolve()
	require.NoError(t, err)
	return s
}

// run executes and commits a shard in dir.
func execute(t testing.TB, s *Sweep, dir string, shard Shard) Results {
	require.NoError(t, os.MkdirAll(dir, 0o777))
	o := Options{Shard: shard, Version: "test"}
	r, err := s.Execute(context.Background(), dir, o)
	require.NoError(t, err)
	require.NoError(t, s.Commit(dir, r, o))
	return r
}

// contents are the files of a directory by name.
func contents(t testing.TB, dir string) map[string]string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(data)
	}
	return files
}
