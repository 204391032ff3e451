package router

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
	"fleetsim/workload"
)

type heldBlock struct {
	hash uint64
	pod  int
}

func holdings(a IndexAuditor) []heldBlock {
	var all []heldBlock
	a.EachHolding(0, func(hash uint64, pod int) { all = append(all, heldBlock{hash, pod}) })
	slices.SortFunc(all, func(a, b heldBlock) int { return cmp.Or(cmp.Compare(a.hash, b.hash), a.pod-b.pod) })
	return all
}

// The two indexes list exactly what was remembered, cut by their own schemes.
func TestAuditListsWhatWasRemembered(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"local":  {"AIBRIX_PREFIX_CACHE_BLOCK_SIZE": "4"},
		"synced": {"AIBRIX_PREFIX_CACHE_BLOCK_SIZE": "16", "AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSettings(env)
			require.NoError(t, err)
			for _, policy := range []string{"prefix-cache", "least-request:1,prefix-cache:2"} {
				p, err := New(policy, s, Options{})
				require.NoError(t, err)
				g := NewGateway(p, rand.New(rand.NewPCG(1, 1)))
				prompt := workload.Prompt{{ID: 1, Tokens: 8, Bytes: 8}}
				g.Remember(0, &Request{Prompt: prompt}, 3)
				g.Remember(0, &Request{Prompt: prompt}, 70)

				a := g.Auditor()
				scheme := a.IndexScheme()
				require.Equal(t, 4, scheme.Block)
				hashes := prompt.AppendHashes(nil, scheme.Seed, scheme.Block, scheme.Unit)
				require.Len(t, hashes, 2)
				var want []heldBlock
				for _, h := range hashes {
					want = append(want, heldBlock{h, 3}, heldBlock{h, 70})
				}
				slices.SortFunc(want, func(a, b heldBlock) int { return cmp.Or(cmp.Compare(a.hash, b.hash), a.pod-b.pod) })
				require.Equal(t, want, holdings(a))
				require.True(t, a.Lists("", hashes[1], 70))
				require.False(t, a.Lists("", hashes[1], 4))
				require.False(t, a.Lists("", hashes[1]+1, 70))
				require.False(t, a.Lists("other", hashes[1], 70))
			}
		})
	}
}

// Looking at the local index takes its overdue sweep into account.
func TestAuditSeesTheSweep(t *testing.T) {
	p := newPrefixCache(DefaultSettings())
	p.Remember(0, &Request{Prompt: workload.Prompt{{ID: 1, Bytes: 128}}}, 0)
	count := func(now simtime.Time) (n int) {
		p.EachHolding(now, func(uint64, int) { n++ })
		return n
	}
	require.Equal(t, 1, count(20*simtime.Minute))
	require.Zero(t, count(20*simtime.Minute+simtime.Second))
}

func TestWithoutAnIndexThereIsNothingToAudit(t *testing.T) {
	p, err := New("least-request", DefaultSettings(), Options{})
	require.NoError(t, err)
	require.Nil(t, NewGateway(p, nil).Auditor())
}

// What each policy reads, of AIBrix's and of one's own that does not say.
func TestWhatPoliciesRead(t *testing.T) {
	kv, err := ParseSettings(map[string]string{"AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED": "true"})
	require.NoError(t, err)
	for _, c := range []struct {
		policy          string
		settings        Settings
		metrics, events bool
	}{
		{"random", DefaultSettings(), false, false},
		{"least-request", DefaultSettings(), false, false},
		{"prefix-cache", DefaultSettings(), false, false},
		{"prefix-cache", kv, false, true},
		{"prefix-cache-preble", kv, false, false},
		{"power-of-two", kv, false, false},
		{"session-affinity", kv, false, false},
		{"slo", kv, false, false},
		{"least-kv-cache", kv, true, false},
		{"throughput", kv, true, false},
		{"vtc-basic", kv, true, false},
		{"pd", kv, true, false},
		{"prefix-cache,least-request", kv, false, true},
		{"prefix-cache,least-latency", DefaultSettings(), true, false},
	} {
		p, err := New(c.policy, c.settings, Options{})
		require.NoError(t, err)
		g := NewGateway(p, nil)
		require.Equal(t, c.metrics, g.ReadsMetrics(), c.policy)
		require.Equal(t, c.events, g.HearsKVEvents(), c.policy)
	}
	require.True(t, NewGateway(silentPolicy{}, nil).ReadsMetrics(), "who does not say may read them")
}

type silentPolicy struct{}

func (silentPolicy) Route(simtime.Time, *Request, []Pod, *rand.Rand) (Decision, error) {
	return Decision{}, nil
}
