package router

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"fleetsim/spelling"
)

// An UpstreamFix is a switch that turns off one surprise of AIBrix v0.7.0, so
// that a run shows what its repair would bring.
type UpstreamFix struct{ Name, Description string }

// The switches of this package.
const (
	FixSyncChain    = "sync_event_chain"
	FixLRUHeads     = "lru_keeps_heads"
	FixDeadPods     = "dead_pods_leave"
	FixBlockRemoved = "block_removed_one_pod"
	FixCacheCleared = "cache_cleared_heard"
)

// UpstreamFixes are the switches that this package knows, by name.
func UpstreamFixes() []UpstreamFix {
	return []UpstreamFix{
		{FixBlockRemoved, "an engine's BlockRemoved takes the block from that pod, not from every pod"},
		{FixCacheCleared, "an engine's AllBlocksCleared empties the pod's part of the index instead of being ignored"},
		{FixDeadPods, "a removed pod leaves the local index"},
		{FixLRUHeads, "capacity evicts the tail of a prompt's chain before its head"},
		{FixSyncChain, "the blocks of one BlockStored event are chained to each other, not all to the event's parent"},
	}
}

func checkFixes(fixed map[string]bool) error {
	var names []string
	for _, f := range UpstreamFixes() {
		names = append(names, f.Name)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(fixed)) {
		if !slices.Contains(names, name) {
			problems = append(problems, fmt.Errorf("upstream_fixed: no switch %q; the nearest is %q", name, spelling.Nearest(name, names)))
		}
	}
	return errors.Join(problems...)
}
