package router

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"fleetsim/simtime"
	"fleetsim/spelling"
)

// Settings are a gateway's settings. The names of the environment variables
// stand beside the fields; DefaultSettings and ParseSettings fill them.
type Settings struct {
	Algorithm string // ROUTING_ALGORITHM: the policy of a request that names none
	StateSync bool   // AIBRIX_STATESYNC_ENABLED

	Prefix  PrefixSettings
	Sync    SyncSettings
	Preble  PrebleSettings
	VTC     VTCSettings
	PD      PDSettings
	Refresh simtime.Time // AIBRIX_POD_METRIC_REFRESH_INTERVAL_MS

	// UpstreamFixed names the surprises of v0.7.0 that are switched off; see
	// UpstreamFixes for the names.
	UpstreamFixed map[string]bool
}

// PrefixSettings are those of prefix-cache, AIBRIX_PREFIX_CACHE_….
type PrefixSettings struct {
	// BlockSize (…BLOCK_SIZE) is in bytes of text, or of token ids at 4 bytes each
	// in the KV-event-sync branch.
	BlockSize   int
	BlockNumber int // …BLOCK_NUMBER: blocks that the local index holds
	// EvictionInterval (…EVICTION_INTERVAL_SECONDS) passes between two sweeps.
	EvictionInterval simtime.Time
	// EvictionDuration (…EVICTION_DURATION_MINS) is how old a block may be.
	EvictionDuration simtime.Time
	// Imbalance (…POD_RUNNING_REQUEST_IMBALANCE_ABS_COUNT): a spread of in-flight
	// counts above it narrows the choice to the least loaded.
	Imbalance int
	// DeviationFactor (…STANDARD_DEVIATION_FACTOR): a matching pod is used while
	// its count is at most mean + factor * sample standard deviation.
	DeviationFactor int
	// HashSeed (…HASH_SEED) is random for each process in the original; here it is
	// 0 unless set, as it changes no decision.
	HashSeed uint64
	// KVEventSync (…KV_EVENT_SYNC_ENABLED) selects the index fed by engine events.
	KVEventSync bool
	// Tokenizer (…TOKENIZER_TYPE) and RemoteTokenizer (…USE_REMOTE_TOKENIZER) may
	// ask for the engine's tokens only where KVEventSync takes them anyway.
	Tokenizer       string
	RemoteTokenizer bool
}

// SyncSettings are those of the index fed by engine events, AIBRIX_SYNC_….
type SyncSettings struct {
	MaxContexts      int          // …MAX_CONTEXTS: models
	MaxPrefixes      int          // …MAX_PREFIXES_PER_CONTEXT: blocks; the router's adds stop there
	EvictionInterval simtime.Time // …EVICTION_INTERVAL_SECONDS
	EvictionDuration simtime.Time // …EVICTION_DURATION_MINUTES: idle time of a whole model
}

// PrebleSettings are those of prefix-cache-preble, AIBRIX_ROUTER_PREBLE_….
type PrebleSettings struct {
	TargetGPU      string       // …TARGET_GPU: V100 or A6000; any other counts as V100
	DecodingLength int          // …DECODING_LENGTH, tokens
	Window         simtime.Time // …SLIDING_WINDOW_PERIOD, minutes
	EvictionLoop   simtime.Time // …EVICTION_LOOP_INTERVAL, milliseconds
}

// VTCSettings are those of vtc-basic, AIBRIX_ROUTER_VTC_….
type VTCSettings struct {
	MaxPodLoad        float64      // …BASIC_MAX_POD_LOAD: engine requests that count as full
	InputTokenWeight  float64      // …BASIC_INPUT_TOKEN_WEIGHT
	OutputTokenWeight float64      // …BASIC_OUTPUT_TOKEN_WEIGHT
	FairnessWeight    float64      // …BASIC_FAIRNESS_WEIGHT
	UtilizationWeight float64      // …BASIC_UTILIZATION_WEIGHT
	Window            int          // …TOKEN_TRACKER_WINDOW_SIZE, in Unit
	Unit              simtime.Time // …TOKEN_TRACKER_TIME_UNIT: minutes, seconds or milliseconds
	MinTokens         float64      // …TOKEN_TRACKER_MIN_TOKENS
	MaxTokens         float64      // …TOKEN_TRACKER_MAX_TOKENS
}

// PDSettings are those of prefill/decode disaggregation.
type PDSettings struct {
	PrefillSpread    int     // AIBRIX_PREFILL_LOAD_IMBALANCE_MIN_SPREAD, requests
	DecodeSpread     int     // AIBRIX_DECODE_LOAD_IMBALANCE_MIN_SPREAD, requests
	ThroughputSpread float64 // AIBRIX_DECODE_THROUGHPUT_IMBALANCE_MIN_SPREAD, tokens a second
	DrainRatio       float64 // AIBRIX_DECODE_SCORE_RATIO_THRESHOLD
	PrefillScore     string  // AIBRIX_PREFILL_SCORE_POLICY: prefix_cache or least_request
	DecodeScore      string  // AIBRIX_DECODE_SCORE_POLICY: load_balancing or least_request
	RunningWeight    float64 // AIBRIX_DECODE_LB_WEIGHT_RUNNING
	ThroughputWeight float64 // AIBRIX_DECODE_LB_WEIGHT_THROUGHPUT
	// PrefillTimeout (AIBRIX_PREFILL_REQUEST_TIMEOUT, seconds) is how long the
	// gateway waits for a prefill; keeping it is the caller's part.
	PrefillTimeout simtime.Time
}

// The defaults in AIBrix's code where its shipped manifest says otherwise. A
// gateway that was not installed by the manifest runs with these: set them in
// the environment block to simulate one.
const (
	CodeBlockSize       = 4  // local index
	CodeSyncBlockSize   = 16 // KV-event-sync index
	CodeImbalance       = 8
	CodeDeviationFactor = 1
)

// DefaultSettings are those of a gateway installed by AIBrix v0.7.0's shipped
// manifest (config/gateway with the release overlay), not the defaults of its
// code: blocks of 128 bytes, an imbalance threshold of 16, a deviation factor of
// 2, 200,000 blocks, a sweep each second, 20 minutes to live.
func DefaultSettings() Settings {
	return Settings{
		Prefix: PrefixSettings{
			BlockSize:        128,
			BlockNumber:      200_000,
			EvictionInterval: simtime.Second,
			EvictionDuration: 20 * simtime.Minute,
			Imbalance:        16,
			DeviationFactor:  2,
			Tokenizer:        tokenizerCharacter,
		},
		Sync: SyncSettings{
			MaxContexts:      1000,
			MaxPrefixes:      10_000,
			EvictionInterval: simtime.Minute,
			EvictionDuration: 20 * simtime.Minute,
		},
		Preble: PrebleSettings{
			TargetGPU:      "V100",
			DecodingLength: 45,
			Window:         3 * simtime.Minute,
			EvictionLoop:   simtime.Second,
		},
		VTC: VTCSettings{
			MaxPodLoad:        100,
			InputTokenWeight:  1,
			OutputTokenWeight: 2,
			FairnessWeight:    1,
			UtilizationWeight: 1,
			Window:            5,
			Unit:              simtime.Minute,
			MinTokens:         1000,
			MaxTokens:         8000,
		},
		PD: PDSettings{
			PrefillSpread:    16,
			DecodeSpread:     16,
			ThroughputSpread: 2048,
			DrainRatio:       1.5,
			PrefillScore:     "prefix_cache",
			DecodeScore:      "load_balancing",
			RunningWeight:    1,
			ThroughputWeight: 1,
			PrefillTimeout:   30 * simtime.Second,
		},
		Refresh: 50 * simtime.Millisecond,
	}
}

// ParseSettings reads the environment of a gateway on top of DefaultSettings and
// returns every problem it finds, joined. Names that do not start with AIBRIX_
// belong to somebody else and are passed over; an AIBRIX_ name that v0.7.0 does
// not have is an error.
//
// AIBrix itself takes its default for an integer that it cannot read or that is
// not positive, and logs a line. Here that is an error: whoever writes such a
// value expects an effect, and a simulation that quietly answers for another
// value misleads.
func ParseSettings(env map[string]string) (Settings, error) {
	s := DefaultSettings()
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(env)) {
		set, known := variables[name]
		switch {
		case slices.Contains(withoutEffect, name):
		case known:
			if err := set(&s, strings.TrimSpace(env[name])); err != nil {
				problems = append(problems, fmt.Errorf("%s = %q: %w", name, env[name], err))
			}
		case strings.HasPrefix(name, "AIBRIX_"):
			problems = append(problems, fmt.Errorf("%s: AIBrix v0.7.0 has no such setting; the nearest is %s",
				name, spelling.Nearest(name, knownNames())))
		}
	}
	return s, errors.Join(append(problems, s.Validate())...)
}

// Validate reports settings that no policy can work with and such that do not go
// together. What ParseSettings returns without an error is valid.
func (s *Settings) Validate() error {
	p := &s.Prefix
	var problems []error
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"AIBRIX_PREFIX_CACHE_BLOCK_SIZE", int64(p.BlockSize)},
		{"AIBRIX_PREFIX_CACHE_BLOCK_NUMBER", int64(p.BlockNumber)},
		{"AIBRIX_PREFIX_CACHE_EVICTION_INTERVAL_SECONDS", int64(p.EvictionInterval)},
		{"AIBRIX_SYNC_EVICTION_INTERVAL_SECONDS", int64(s.Sync.EvictionInterval)},
		{"AIBRIX_ROUTER_PREBLE_EVICTION_LOOP_INTERVAL", int64(s.Preble.EvictionLoop)},
		{"AIBRIX_ROUTER_VTC_TOKEN_TRACKER_TIME_UNIT", int64(s.VTC.Unit)},
	} {
		if f.value < 1 {
			problems = append(problems, fmt.Errorf("%s: want a value above 0", f.name))
		}
	}
	if !p.KVEventSync && (p.RemoteTokenizer || p.Tokenizer == tokenizerRemote) {
		problems = append(problems, errors.New("a remote tokenizer is simulated only with AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED = true"))
	}
	if p.KVEventSync && p.BlockSize%tokenBytes != 0 {
		problems = append(problems, fmt.Errorf("AIBRIX_PREFIX_CACHE_BLOCK_SIZE = %d: with KV event sync want a multiple of %d, the bytes of a token id", p.BlockSize, tokenBytes))
	}
	return errors.Join(problems...)
}

// The tokenizers whose prefix hashes can be simulated. tiktoken would need the
// prompt's text.
const (
	tokenizerCharacter = "character"
	tokenizerRemote    = "remote"
)

// A setter reads one variable into the settings.
type setter func(s *Settings, value string) error

// variables are the environment variables that matter to a simulation.
var variables = map[string]setter{
	"ROUTING_ALGORITHM":        text(func(s *Settings) *string { return &s.Algorithm }),
	"AIBRIX_STATESYNC_ENABLED": boolean(func(s *Settings) *bool { return &s.StateSync }),
	"AIBRIX_POD_METRIC_REFRESH_INTERVAL_MS": span(simtime.Millisecond,
		func(s *Settings) *simtime.Time { return &s.Refresh }),

	"AIBRIX_PREFIX_CACHE_TOKENIZER_TYPE": oneOf([]string{tokenizerCharacter, tokenizerRemote},
		func(s *Settings) *string { return &s.Prefix.Tokenizer }),
	"AIBRIX_PREFIX_CACHE_BLOCK_SIZE":   count(func(s *Settings) *int { return &s.Prefix.BlockSize }),
	"AIBRIX_PREFIX_CACHE_BLOCK_NUMBER": count(func(s *Settings) *int { return &s.Prefix.BlockNumber }),
	"AIBRIX_PREFIX_CACHE_EVICTION_INTERVAL_SECONDS": span(simtime.Second,
		func(s *Settings) *simtime.Time { return &s.Prefix.EvictionInterval }),
	"AIBRIX_PREFIX_CACHE_EVICTION_DURATION_MINS": span(simtime.Minute,
		func(s *Settings) *simtime.Time { return &s.Prefix.EvictionDuration }),
	"AIBRIX_PREFIX_CACHE_POD_RUNNING_REQUEST_IMBALANCE_ABS_COUNT": count(
		func(s *Settings) *int { return &s.Prefix.Imbalance }),
	"AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR": count(
		func(s *Settings) *int { return &s.Prefix.DeviationFactor }),
	"AIBRIX_PREFIX_CACHE_HASH_SEED":             hashSeed,
	"AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED": boolean(func(s *Settings) *bool { return &s.Prefix.KVEventSync }),
	"AIBRIX_PREFIX_CACHE_USE_REMOTE_TOKENIZER":  boolean(func(s *Settings) *bool { return &s.Prefix.RemoteTokenizer }),

	"AIBRIX_SYNC_MAX_CONTEXTS":             count(func(s *Settings) *int { return &s.Sync.MaxContexts }),
	"AIBRIX_SYNC_MAX_PREFIXES_PER_CONTEXT": count(func(s *Settings) *int { return &s.Sync.MaxPrefixes }),
	"AIBRIX_SYNC_EVICTION_INTERVAL_SECONDS": span(simtime.Second,
		func(s *Settings) *simtime.Time { return &s.Sync.EvictionInterval }),
	"AIBRIX_SYNC_EVICTION_DURATION_MINUTES": span(simtime.Minute,
		func(s *Settings) *simtime.Time { return &s.Sync.EvictionDuration }),

	"AIBRIX_ROUTER_PREBLE_TARGET_GPU":      text(func(s *Settings) *string { return &s.Preble.TargetGPU }),
	"AIBRIX_ROUTER_PREBLE_DECODING_LENGTH": count(func(s *Settings) *int { return &s.Preble.DecodingLength }),
	"AIBRIX_ROUTER_PREBLE_SLIDING_WINDOW_PERIOD": span(simtime.Minute,
		func(s *Settings) *simtime.Time { return &s.Preble.Window }),
	"AIBRIX_ROUTER_PREBLE_EVICTION_LOOP_INTERVAL": span(simtime.Millisecond,
		func(s *Settings) *simtime.Time { return &s.Preble.EvictionLoop }),

	"AIBRIX_ROUTER_VTC_BASIC_MAX_POD_LOAD":        weight(func(s *Settings) *float64 { return &s.VTC.MaxPodLoad }),
	"AIBRIX_ROUTER_VTC_BASIC_INPUT_TOKEN_WEIGHT":  weight(func(s *Settings) *float64 { return &s.VTC.InputTokenWeight }),
	"AIBRIX_ROUTER_VTC_BASIC_OUTPUT_TOKEN_WEIGHT": weight(func(s *Settings) *float64 { return &s.VTC.OutputTokenWeight }),
	"AIBRIX_ROUTER_VTC_BASIC_FAIRNESS_WEIGHT":     weight(func(s *Settings) *float64 { return &s.VTC.FairnessWeight }),
	"AIBRIX_ROUTER_VTC_BASIC_UTILIZATION_WEIGHT":  weight(func(s *Settings) *float64 { return &s.VTC.UtilizationWeight }),
	"AIBRIX_ROUTER_VTC_TOKEN_TRACKER_WINDOW_SIZE": count(func(s *Settings) *int { return &s.VTC.Window }),
	"AIBRIX_ROUTER_VTC_TOKEN_TRACKER_TIME_UNIT":   timeUnit,
	"AIBRIX_ROUTER_VTC_TOKEN_TRACKER_MIN_TOKENS":  weight(func(s *Settings) *float64 { return &s.VTC.MinTokens }),
	"AIBRIX_ROUTER_VTC_TOKEN_TRACKER_MAX_TOKENS":  weight(func(s *Settings) *float64 { return &s.VTC.MaxTokens }),

	"AIBRIX_PREFILL_LOAD_IMBALANCE_MIN_SPREAD": count(func(s *Settings) *int { return &s.PD.PrefillSpread }),
	"AIBRIX_DECODE_LOAD_IMBALANCE_MIN_SPREAD":  count(func(s *Settings) *int { return &s.PD.DecodeSpread }),
	"AIBRIX_DECODE_THROUGHPUT_IMBALANCE_MIN_SPREAD": weight(
		func(s *Settings) *float64 { return &s.PD.ThroughputSpread }),
	"AIBRIX_DECODE_SCORE_RATIO_THRESHOLD": weight(func(s *Settings) *float64 { return &s.PD.DrainRatio }),
	"AIBRIX_DECODE_LB_WEIGHT_RUNNING":     weight(func(s *Settings) *float64 { return &s.PD.RunningWeight }),
	"AIBRIX_DECODE_LB_WEIGHT_THROUGHPUT":  weight(func(s *Settings) *float64 { return &s.PD.ThroughputWeight }),
	"AIBRIX_PREFILL_REQUEST_TIMEOUT": span(simtime.Second,
		func(s *Settings) *simtime.Time { return &s.PD.PrefillTimeout }),
	"AIBRIX_PREFILL_SCORE_POLICY": oneOf([]string{"prefix_cache", "least_request"},
		func(s *Settings) *string { return &s.PD.PrefillScore }),
	"AIBRIX_DECODE_SCORE_POLICY": oneOf([]string{"load_balancing", "least_request"},
		func(s *Settings) *string { return &s.PD.DecodeScore }),
	"AIBRIX_PROMPT_LENGTH_BUCKETING": unsupported("false", "length classes and combined pods are not simulated"),
}

// withoutEffect are the variables that a gateway has and that change nothing in
// a simulation: addresses, logging, other components' parts.
var withoutEffect = []string{
	"AIBRIX_GPU_OPTIMIZER_TRACING_FLAG",
	"AIBRIX_KV_CONNECTOR_TYPE",
	"AIBRIX_MAX_TOKENIZERS_PER_POOL",
	"AIBRIX_MODEL_GPU_PROFILE_CACHING_FLAG",
	"AIBRIX_PREFIX_CACHE_KV_EVENT_PUBLISH_ADDR",
	"AIBRIX_PREFIX_CACHE_KV_EVENT_SUBSCRIBE_ADDRS",
	"AIBRIX_PREFIX_CACHE_LOCAL_ROUTER_METRICS_ENABLED",
	"AIBRIX_PREFIX_CACHE_REMOTE_TOKENIZER_ENDPOINT",
	"AIBRIX_STATESYNC_SYNC_PERIOD",
	"AIBRIX_TOKENIZER_HEALTH_CHECK_PERIOD",
	"AIBRIX_TOKENIZER_REQUEST_TIMEOUT",
	"AIBRIX_TOKENIZER_TTL",
	"AIBRIX_TRT_MACHINE_ID",
	"AIBRIX_TTFT_THRESHOLD_S",
	"AIBRIX_VLLM_TOKENIZER_ENDPOINT_TEMPLATE",
}

func knownNames() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(variables)), withoutEffect...)))
}

// maxCount keeps sums of settings and counts inside an int32 entry number.
const maxCount = 1 << 30

func count(field func(*Settings) *int) setter {
	return func(s *Settings, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxCount {
			return fmt.Errorf("want a whole number from 1 to %d", maxCount)
		}
		*field(s) = n
		return nil
	}
}

// span reads a whole number of units.
func span(unit simtime.Time, field func(*Settings) *simtime.Time) setter {
	most := int64(1000 * 24 * simtime.Hour / unit)
	return func(s *Settings, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("want a whole number from 1 to %d (%v each)", most, unit)
		}
		*field(s) = simtime.Time(n) * unit
		return nil
	}
}

func weight(field func(*Settings) *float64) setter {
	return func(s *Settings, value string) error {
		w, err := strconv.ParseFloat(value, 64)
		if err != nil || !(w > 0 && w <= maxCount) {
			return fmt.Errorf("want a number above 0, at most %d", maxCount)
		}
		*field(s) = w
		return nil
	}
}

func boolean(field func(*Settings) *bool) setter {
	return func(s *Settings, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("want true or false")
		}
		*field(s) = b
		return nil
	}
}

func text(field func(*Settings) *string) setter {
	return func(s *Settings, value string) error {
		if value == "" {
			return errors.New("want a value")
		}
		*field(s) = value
		return nil
	}
}

func oneOf(allowed []string, field func(*Settings) *string) setter {
	return func(s *Settings, value string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("want one of %s", strings.Join(allowed, ", "))
		}
		*field(s) = value
		return nil
	}
}

// unsupported accepts only the value whose effect is simulated.
func unsupported(allowed, why string) setter {
	return func(_ *Settings, value string) error {
		if value != allowed {
			return fmt.Errorf("only %q is simulated: %s", allowed, why)
		}
		return nil
	}
}

func hashSeed(s *Settings, value string) error {
	seed, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return errors.New("want a whole number from 0 to 18446744073709551615")
	}
	s.Prefix.HashSeed = seed
	return nil
}

func timeUnit(s *Settings, value string) error {
	units := map[string]simtime.Time{
		"minutes": simtime.Minute, "seconds": simtime.Second, "milliseconds": simtime.Millisecond,
	}
	unit, ok := units[value]
	if !ok {
		return errors.New("want minutes, seconds or milliseconds")
	}
	s.VTC.Unit = unit
	return nil
}
