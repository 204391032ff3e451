package router

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
)

func TestDefaultsAreTheShippedManifest(t *testing.T) {
	s, err := ParseSettings(nil)
	require.NoError(t, err)
	require.Equal(t, DefaultSettings(), s)
	require.Equal(t, PrefixSettings{
		BlockSize: 128, BlockNumber: 200_000, EvictionInterval: simtime.Second, EvictionDuration: 20 * simtime.Minute,
		Imbalance: 16, DeviationFactor: 2, Tokenizer: "character",
	}, s.Prefix)
}

func TestParseSettings(t *testing.T) {
	s, err := ParseSettings(map[string]string{
		"AIBRIX_PREFIX_CACHE_BLOCK_SIZE":                              " 16 ",
		"AIBRIX_PREFIX_CACHE_BLOCK_NUMBER":                            "1000",
		"AIBRIX_PREFIX_CACHE_EVICTION_INTERVAL_SECONDS":               "5",
		"AIBRIX_PREFIX_CACHE_EVICTION_DURATION_MINS":                  "7",
		"AIBRIX_PREFIX_CACHE_POD_RUNNING_REQUEST_IMBALANCE_ABS_COUNT": "8",
		"AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR":               "1",
		"AIBRIX_PREFIX_CACHE_HASH_SEED":                               "18446744073709551615",
		"AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED":                   "true",
		"AIBRIX_PREFIX_CACHE_USE_REMOTE_TOKENIZER":                    "true",
		"AIBRIX_PREFIX_CACHE_TOKENIZER_TYPE":                          "remote",
		"AIBRIX_PREFIX_CACHE_REMOTE_TOKENIZER_ENDPOINT":               "http://tokenizer",
		"AIBRIX_ROUTER_VTC_TOKEN_TRACKER_TIME_UNIT":                   "seconds",
		"AIBRIX_ROUTER_VTC_BASIC_MAX_POD_LOAD":                        "12.5",
		"AIBRIX_GPU_OPTIMIZER_TRACING_FLAG":                           "false",
		"ROUTING_ALGORITHM":                                           "prefix-cache",
		"REDIS_HOST":                                                  "aibrix-redis-master",
	})
	require.NoError(t, err)
	require.Equal(t, PrefixSettings{
		BlockSize: 16, BlockNumber: 1000, EvictionInterval: 5 * simtime.Second, EvictionDuration: 7 * simtime.Minute,
		Imbalance: 8, DeviationFactor: 1, HashSeed: 1<<64 - 1, KVEventSync: true, Tokenizer: "remote", RemoteTokenizer: true,
	}, s.Prefix)
	require.Equal(t, simtime.Second, s.VTC.Unit)
	require.Equal(t, 12.5, s.VTC.MaxPodLoad)
	require.Equal(t, "prefix-cache", s.Algorithm)
}

func TestParseSettingsReportsEveryProblem(t *testing.T) {
	_, err := ParseSettings(map[string]string{
		"AIBRIX_PREFIX_CACHE_BLOKC_SIZE":                "128",
		"AIBRIX_PREFIX_CACHE_BLOCK_NUMBER":              "0",
		"AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR": "1.5",
		"AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED":     "perhaps",
		"AIBRIX_PREFIX_CACHE_TOKENIZER_TYPE":            "tiktoken",
		"AIBRIX_ROUTER_VTC_TOKEN_TRACKER_TIME_UNIT":     "hours",
		"AIBRIX_ROUTER_VTC_BASIC_FAIRNESS_WEIGHT":       "NaN",
		"AIBRIX_SYNC_EVICTION_DURATION_MINUTES":         "-3",
		"AIBRIX_PREFIX_CACHE_HASH_SEED":                 "-1",
		"AIBRIX_PROMPT_LENGTH_BUCKETING":                "true",
		"AIBRIX_PREFIX_CACHE_USE_REMOTE_TOKENIZER":      "true",
	})
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 11)
	require.Contains(t, err.Error(), "AIBRIX_PREFIX_CACHE_BLOKC_SIZE: AIBrix v0.7.0 has no such setting; the nearest is AIBRIX_PREFIX_CACHE_BLOCK_SIZE")
	require.Contains(t, err.Error(), `AIBRIX_PREFIX_CACHE_BLOCK_NUMBER = "0": want a whole number from 1 to 1073741824`)
	require.Contains(t, err.Error(), `AIBRIX_ROUTER_VTC_TOKEN_TRACKER_TIME_UNIT = "hours": want minutes, seconds or milliseconds`)
	require.Contains(t, err.Error(), "a remote tokenizer is simulated only with")
}

func TestSyncBlockMustHoldWholeTokens(t *testing.T) {
	_, err := ParseSettings(map[string]string{
		"AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED": "true", "AIBRIX_PREFIX_CACHE_BLOCK_SIZE": "30",
	})
	require.ErrorContains(t, err, "multiple of 4")
	s := DefaultSettings()
	s.Prefix.KVEventSync, s.Prefix.BlockSize = true, 30
	_, err = New("prefix-cache", s, Options{})
	require.ErrorContains(t, err, "multiple of 4")
}

func TestEmptySettingsAreRefused(t *testing.T) {
	_, err := New("prefix-cache", Settings{}, Options{})
	require.Error(t, err)
	require.Len(t, strings.Split(err.Error(), "\n"), 6)
	require.ErrorContains(t, err, "AIBRIX_PREFIX_CACHE_BLOCK_SIZE: want a value above 0")
}

// Every accepted environment gives settings that every policy can be made of and
// that route.
func FuzzParseSettings(f *testing.F) {
	names := knownNames()
	f.Add("AIBRIX_PREFIX_CACHE_BLOCK_SIZE", "128", uint8(0))
	f.Add("AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED", "true", uint8(3))
	f.Add("AIBRIX_PREFIX_CACHE_BLOKC_SIZE", "x", uint8(200))
	f.Add("AIBRIX_ROUTER_VTC_BASIC_MAX_POD_LOAD", "1e9", uint8(9))
	f.Fuzz(func(t *testing.T, name, value string, which uint8) {
		env := map[string]string{name: value, names[int(which)%len(names)]: value}
		s, err := ParseSettings(env)
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				require.NotEmpty(t, line)
			}
			return
		}
		for name := range maps.Keys(env) {
			require.True(t, !strings.HasPrefix(name, "AIBRIX_") || slices.Contains(names, name), name)
		}
		g := newTestGateway(t, "prefix-cache", s, 2)
		mustRoute(t, g, simtime.Hour, &Request{Prompt: longText("a", 300)})
	})
}
