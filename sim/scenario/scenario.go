// Package scenario reads scenario and study files: TOML in, a checked
// Scenario out, with every problem reported at its line.
package scenario

import "path/filepath"

// A Scenario is one experiment: a cluster, its load and the policies to try on
// it. Zero values are filled in by Load, so a Scenario from Load is complete.
type Scenario struct {
	Name        string   `toml:"name"`
	Description string   `toml:"description"`
	Seed        uint64   `toml:"seed"`
	Profile     string   `toml:"profile"` // name of a built-in profile, or a file
	Policies    []string `toml:"policies"`

	Cluster   Cluster         `toml:"cluster"`
	Engine    EngineOverrides `toml:"engine"`
	Workload  Workload        `toml:"workload"`
	SLO       SLO             `toml:"slo"`
	Router    Router          `toml:"router"`
	Start     Start           `toml:"start"`
	Admission Admission       `toml:"admission"`
	Autoscale Autoscale       `toml:"autoscale"`
	Lifecycle Lifecycle       `toml:"lifecycle"`
	Drain     Drain           `toml:"drain"`
	Rollout   Rollout         `toml:"rollout"`
	Faults    []Fault         `toml:"faults"`
	Observe   Observe         `toml:"observe"`
	Model     ModelOverrides  `toml:"model"`
}

// Cluster is the set of replicas.
type Cluster struct {
	Replicas int      `toml:"replicas"` // ready at the start, at least 1
	Names    []string `toml:"names"`    // optional; default "pod-0", "pod-1", …
	GPUs     int      `toml:"gpus"`     // GPUs in the cluster, one a replica; 0: no limit
	PD       *PD      `toml:"pd"`       // nil: every replica does both prefill and decode
}

// PD gives the replicas roles for prefill/decode disaggregation. Policies other
// than pd take no notice of roles.
type PD struct {
	Prefill          int      `toml:"prefill"`            // of the replicas, the first so many prefill; the others decode
	RoleSets         int      `toml:"role_sets"`          // prefill and decode pods are dealt out to so many role sets in turn; default 1
	TransferLatency  Duration `toml:"transfer_latency"`   // from the end of a prefill until its KV begins to flow
	TransferPerToken Duration `toml:"transfer_per_token"` // of the KV of one prompt token
}

// EngineOverrides changes engine limits of the profile; absent means the
// profile's value.
type EngineOverrides struct {
	MaxNumSeqs          *int  `toml:"max_num_seqs"`
	MaxNumBatchedTokens *int  `toml:"max_num_batched_tokens"`
	MaxModelLen         *int  `toml:"max_model_len"`
	BlockTokens         *int  `toml:"block_tokens"`
	Blocks              *int  `toml:"blocks"` // incl. the null block
	PrefixCaching       *bool `toml:"prefix_caching"`
	AsyncScheduling     *bool `toml:"async_scheduling"`
	CountStatsAtLookup  *bool `toml:"count_stats_at_lookup"` // 0.26: every lookup; later: once, at admission
}

// ModelOverrides changes the cost model's switches.
type ModelOverrides struct {
	Noise *bool `toml:"noise"`
}

// Workload is the load. Exactly one of Arrivals and ClosedLoop is present,
// or Trace.
type Workload struct {
	Requests    int         `toml:"requests"`           // planned arrivals; 0: as many as the stages hold
	Output      int         `toml:"output_tokens"`      // at least 1
	InFlightCap int         `toml:"in_flight_cap"`      // arrivals beyond it are dropped; 0: none
	HiddenFirst float64     `toml:"hidden_first_share"` // share of the families (without families: of the requests) whose first output token has no visible content
	Arrivals    *Arrivals   `toml:"arrivals"`
	ClosedLoop  *ClosedLoop `toml:"closed_loop"`
	Prompt      Prompt      `toml:"prompt"`
	Tenants     []Tenant    `toml:"tenants"`      // alternating, in this order; none: one tenant
	ReadTimeout Duration    `toml:"read_timeout"` // silence after which the client gives up; 0: never
	Retry       Retry       `toml:"retry"`
	Cancel      Cancel      `toml:"cancel"`
	Trace       *Trace      `toml:"trace"`
}

// Arrivals is an open-loop arrival process.
type Arrivals struct {
	Process    string  `toml:"process"`         // constant, poisson or gamma
	Rate       float64 `toml:"rate_per_second"` // when there are no stages
	Burstiness float64 `toml:"burstiness"`      // gamma shape; 1 is Poisson, below 1 burstier
	Stages     []Stage `toml:"stages"`
}

// A Stage is a span of constant rate.
type Stage struct {
	Duration Duration `toml:"duration"`
	Rate     float64  `toml:"rate_per_second"`
}

// ClosedLoop is C lanes, each sending its next request when the previous ends.
type ClosedLoop struct {
	Concurrency int      `toml:"concurrency"`
	Duration    Duration `toml:"duration"` // no request starts after it
	ThinkTime   Duration `toml:"think_time"`
}

// Prompt is the shape of the inputs: a salt per family, a shared document
// head, a body repeated, and the question last. Families 0 means unique
// prompts.
type Prompt struct {
	Families         int     `toml:"families"`
	HotFraction      float64 `toml:"hot_fraction"` // share of requests of family 0; 0: uniform
	FamilyOrder      []int   `toml:"family_order"` // explicit family per arrival; else shuffled from the seed
	SaltChars        int     `toml:"salt_chars"`
	SaltTokens       int     `toml:"salt_tokens"`
	SaltTokensSpread int     `toml:"salt_tokens_spread"` // a family's salt has salt_tokens ± this, uniformly
	HeadChars        int     `toml:"head_chars"`
	HeadTokens       int     `toml:"head_tokens"`
	BodyRepeat       int     `toml:"body_repeat"`
	BodyChars        int     `toml:"body_chars"`      // per repetition
	BodyTokens       int     `toml:"body_tokens"`     // per repetition
	QuestionChars    int     `toml:"question_chars"`  // without the number's digits
	QuestionTokens   int     `toml:"question_tokens"` // without the number's digits; a digit is one token
}

// A Tenant overrides the workload for its share of the requests.
type Tenant struct {
	Name       string `toml:"name"`
	BodyRepeat *int   `toml:"body_repeat"`
	Output     *int   `toml:"output_tokens"`
	Quota      *int   `toml:"quota"` // in-flight quota at the admission proxy; absent: none
}

// Trace takes the arrivals from a file instead.
type Trace struct {
	Path   string `toml:"path"`
	Format string `toml:"format"` // "": by content

	TimeUnit      string  `toml:"time_unit"`       // of the arrival times: s, ms, us or ns; "": the format's own
	BlockTokens   int     `toml:"block_tokens"`    // of a hash id; 0: the format's own
	CharsPerToken float64 `toml:"chars_per_token"` // what a gateway's character tokenizer sees
	DefaultOutput int     `toml:"default_output"`  // of rows without output length; 0: they are skipped
	FamilyTokens  int     `toml:"family_tokens"`   // shared by a family where the source does not say
	SkipFirst     int     `toml:"skip_first"`      // rows of warm-up
	MaxErrors     int     `toml:"max_errors"`      // bad rows that are skipped; -1: any number
	Strict        bool    `toml:"strict"`

	From        Duration `toml:"from"` // the window's begin, on the trace's clock; times then count from it
	To          Duration `toml:"to"`   // its end; 0: the trace's
	Tenant      string   `toml:"tenant"`
	Phase       string   `toml:"phase"`
	Thin        float64  `toml:"thin"`                    // share of the arrivals, burstiness kept
	Sample      float64  `toml:"sample"`                  // share of sessions, families and single rows, at random
	Rate        float64  `toml:"rate"`                    // arrivals this many times as frequent
	UntimedRate float64  `toml:"untimed_rate_per_second"` // of rows without time; 0: they are an error
	Sessions    string   `toml:"sessions"`                // recorded, replayed or closed_loop
	ThinkTime   Duration `toml:"think_time"`              // closed_loop: of turns that have none of their own

	dir string // that Path is relative to
}

// File is the trace's path as the working directory sees it.
func (t *Trace) File() string {
	if filepath.IsAbs(t.Path) {
		return t.Path
	}
	return filepath.Join(t.dir, t.Path)
}

// Retry is what the client does with a 429.
type Retry struct {
	MaxAttempts int      `toml:"max_attempts"` // in all; 0 or 1: no retry
	BackOff     Duration `toml:"back_off"`     // before the second attempt; doubles
	MaxBackOff  Duration `toml:"max_back_off"`
	Jitter      float64  `toml:"jitter"` // 0..1, share of the back-off drawn uniformly
	Budget      float64  `toml:"budget"` // retries at most this share of first attempts; 0: no limit
}

// Cancel makes clients give up.
type Cancel struct {
	Fraction float64  `toml:"fraction"` // share of the requests
	After    Duration `toml:"after"`    // from sending
}

// SLO bounds, inclusive; 0 means no bound.
type SLO struct {
	TTFT Duration `toml:"ttft"`
	TPOT Duration `toml:"tpot"`
	E2E  Duration `toml:"e2e"`
}

// Router is the gateway.
type Router struct {
	Env                map[string]string `toml:"env"`                   // AIBRIX_… settings
	Gateways           int               `toml:"gateways"`              // replicas with their own counts and index; default 1
	StateSync          bool              `toml:"state_sync"`            // gateways share counts as AIBRIX_STATESYNC does
	ChoiceToCountDelay Duration          `toml:"choice_to_count_delay"` // from choosing a pod to counting the request
	RoutingLatency     Duration          `toml:"routing_latency"`
	KVEventDelay       Duration          `toml:"kv_event_delay"`
	MetricsInterval    Duration          `toml:"metrics_interval"` // engine metrics scrape; default 50ms
	MetricsDelay       Duration          `toml:"metrics_delay"`
	EndpointDelay      Duration          `toml:"endpoint_delay"` // until a changed endpoint list reaches the gateway
	UpstreamFixed      []string          `toml:"upstream_fixed"` // v0.7.0 surprises to switch off
	// PrometheusInterval is between scrapes of a Prometheus that the gateway
	// queries for averages a request; 0: there is none, and no averages.
	PrometheusInterval Duration     `toml:"prometheus_interval"`
	ExtraMetrics       []string     `toml:"extra_metrics"` // exported by the engines beside those of vLLM 0.26
	GPUProfiles        []GPUProfile `toml:"gpu_profiles"`  // of the slo policies
}

// A GPUProfile is what AIBrix's GPU optimizer has measured of the pods whose
// names begin with Pods; rows are by output, columns by input length.
type GPUProfile struct {
	Pods         string      `toml:"pods"`
	OutputTokens []float64   `toml:"output_tokens"`
	InputTokens  []float64   `toml:"input_tokens"`
	Rate         [][]float64 `toml:"rate_per_second"`
	E2E          [][]float64 `toml:"e2e_seconds"`
	TTFT         [][]float64 `toml:"ttft_seconds"`
	SLO          ProfileSLO  `toml:"slo"`
}

// ProfileSLO is a profile's target; 0 is none.
type ProfileSLO struct {
	TPOT Duration `toml:"tpot"` // for each output token
	TTFT Duration `toml:"ttft"`
	TPAT Duration `toml:"tpat"` // for each token of input and output
	E2E  Duration `toml:"e2e"`
}

// Start is the state before the first arrival.
type Start struct {
	// EngineCache: "cold", "all" (every family on every replica) or "owners"
	// (each family on its owners).
	EngineCache string `toml:"engine_cache"`
	// RouterIndex: "cold" or "owners".
	RouterIndex string `toml:"router_index"`
	// Owners[f] lists the replicas that own family f; shorter lists leave the
	// rest without one. Absent with "owners": family f on replica f mod N.
	Owners [][]string `toml:"owners"`
	// Spare is, per replica, further primed prefixes that no request uses.
	Spare map[string]int `toml:"spare"`
}

// Admission is the proxy in front of the gateway; absent kinds are off.
type Admission struct {
	Quota         int      `toml:"quota"`        // in-flight per tenant without its own; 0: none
	Proxies       int      `toml:"proxies"`      // replicas with their own counters; default 1
	QueueLength   int      `toml:"queue_length"` // waiting requests per tenant; 0: reject at once
	QueueTimeout  Duration `toml:"queue_timeout"`
	Rate          float64  `toml:"rate_per_second"` // token bucket per tenant; 0: none
	Burst         float64  `toml:"burst"`
	RejectLatency Duration `toml:"reject_latency"` // until the client has its 429; default 1ms
}

// Autoscale is the PodAutoscaler; Strategy "" means none.
type Autoscale struct {
	Strategy       string            `toml:"strategy"` // kpa, apa or hpa
	Min            int               `toml:"min_replicas"`
	Max            int               `toml:"max_replicas"`
	Metric         string            `toml:"metric"` // e.g. num_requests_waiting, num_requests_running, in_flight
	Target         float64           `toml:"target"`
	Interval       Duration          `toml:"interval"`     // reconcile period; default 10s
	MetricDelay    Duration          `toml:"metric_delay"` // age of the value when it is fetched
	ScrapeInterval Duration          `toml:"scrape_interval"`
	Annotations    map[string]string `toml:"annotations"` // autoscaling.aibrix.ai/… without the prefix
	PreScale       []PreScale        `toml:"pre_scale"`
}

// PreScale sets the minimum number of replicas from a time on.
type PreScale struct {
	At       Duration `toml:"at"`
	Replicas int      `toml:"replicas"`
}

// Lifecycle is what a new replica goes through before it is ready.
type Lifecycle struct {
	Schedule  Span `toml:"schedule"`
	ImagePull Span `toml:"image_pull"`
	ModelLoad Span `toml:"model_load"`
	Compile   Span `toml:"compile"`
	Readiness Span `toml:"readiness"` // until the probe has seen it
}

// Rollout is a rolling update of all replicas.
type Rollout struct {
	At Duration `toml:"at"` // 0: none
	// MaxSurge and MaxUnavailable bound it: a number of replicas, or a percentage
	// of those desired; default 25%.
	MaxSurge       string `toml:"max_surge"`
	MaxUnavailable string `toml:"max_unavailable"`
}

// A Span is a duration with its distribution.
type Span struct {
	Mean         Duration `toml:"mean"`
	Distribution string   `toml:"distribution"` // constant, uniform, normal, lognormal or exponential
	SD           Duration `toml:"sd"`
}

// Drain is what happens to a replica that is deleted.
type Drain struct {
	PreStop         Duration `toml:"pre_stop"`
	ShutdownTimeout Duration `toml:"shutdown_timeout"` // engine's; 0 aborts at SIGTERM
	GracePeriod     Duration `toml:"grace_period"`     // from deletion to SIGKILL; default 30s
}

// A Fault is something that happens to a replica at a time.
type Fault struct {
	At       Duration `toml:"at"`
	Kind     string   `toml:"kind"` // delete, crash, node_loss, slow or cache_reset
	Replica  string   `toml:"replica"`
	Factor   float64  `toml:"factor"`   // slow: step times are multiplied by it
	Duration Duration `toml:"duration"` // slow, crash: until it recovers; 0: for good
	Replace  *bool    `toml:"replace"`  // whether a new replica is created for it; default as a Deployment does: true
}

// Observe is what a run records.
type Observe struct {
	SnapshotInterval Duration `toml:"snapshot_interval"` // engine gauges; default 5s
	SnapshotOffset   Duration `toml:"snapshot_offset"`
	// Ledgers compares the gateways' prefix indexes with the engines' caches at
	// each snapshot; absent: when KV events feed the index.
	Ledgers *bool `toml:"ledgers"`
}
