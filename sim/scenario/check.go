package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim/autoscale"
	"fleetsim/simtime"
	"fleetsim/spelling"
	"fleetsim/strict"
	"fleetsim/workload/trace"
)

// The largest numbers that a scenario may ask for. They keep sums and products
// inside an int64 and a slip of the finger from filling the memory.
const (
	maxReplicas = 10_000
	maxRequests = 100_000_000
	maxFamilies = 100_000
	maxLanes    = 100_000     // of a closed loop
	maxTokens   = 100_000_000 // of a prompt, an output or a limit of the engine
	maxRate     = 1e6         // a second
	minScale    = 1e-6        // of a trace's rate, and a second of untimed rows
	minFactor   = 1e-6        // of a slow replica's steps, which are reckoned in millionths
)

// The shortest periods of what repeats for as long as a run lasts. Shorter ones
// fill the run with events that change nothing.
const (
	minPeriod    = simtime.Millisecond // of observation, and of a client's patience
	minScrape    = 10 * simtime.Millisecond
	minReconcile = 100 * simtime.Millisecond
)

// The names that settings may have.
var (
	processes     = [...]string{"constant", "poisson", "gamma"}
	engineCaches  = [...]string{"cold", "all", "owners"}
	routerIndexes = [...]string{"cold", "owners"}
	strategies    = [...]string{"kpa", "apa", "hpa"}
	metrics       = [...]string{"in_flight", "kv_cache_usage_perc", "num_requests_running", "num_requests_waiting"}
	distributions = [...]string{"constant", "uniform", "normal", "lognormal", "exponential"}
	timeUnits     = [...]string{"s", "ms", "us", "ns"}
	sessionModes  = [...]string{"recorded", "replayed", "closed_loop"}
	faultKinds    = [...]string{"delete", "crash", "node_loss", "slow", "cache_reset"}
	extraMetrics  = [...]string{"cpu_cache_usage_perc", "engine_utilization", "gpu_busy_time_ratio", "gpu_cache_usage_perc"}
)

// A checker collects what is wrong with the values of a scenario beyond their
// types.
type checker struct {
	doc      *strict.Doc
	decoding Problems // found while decoding
	problems Problems // found since
}

// bad adds a problem, unless decoding had one with the same value or a part of
// it: then this one is its consequence. What is wrong throughout is cut short.
func (c *checker) bad(p strict.Path, format string, args ...any) {
	if len(c.problems) < strict.MaxProblems && !touches(c.decoding, p) {
		c.problems = append(c.problems, c.doc.Problem(p, format, args...))
	}
}

// sound reports whether nothing is wrong with the values at the paths, as far as
// they are checked: what is reckoned from a wrong one says nothing.
func (c *checker) sound(paths ...strict.Path) bool {
	return !slices.ContainsFunc(paths, func(p strict.Path) bool { return touches(c.decoding, p) || touches(c.problems, p) })
}

// touches reports whether one of the problems is with the value at p, a part of
// it or what holds it.
func touches(problems Problems, p strict.Path) bool {
	return slices.ContainsFunc(problems, func(q Problem) bool { return q.Path.Overlaps(p) })
}

// errors adds each of the errors that err joins, or none if it is nil.
func (c *checker) errors(p strict.Path, err error) {
	for _, err := range split(err) {
		c.error(p, err)
	}
}

func (c *checker) error(p strict.Path, err error) {
	c.bad(p, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// split is the errors that err joins; none if it is nil.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func (c *checker) count(p strict.Path, n, lo, hi int) {
	if n < lo || n > hi {
		c.bad(p, "%s must be a whole number from %d to %d, not %d", p, lo, hi, n)
	}
}

func (c *checker) optionalCount(p strict.Path, n *int, lo, hi int) {
	if n != nil {
		c.count(p, *n, lo, hi)
	}
}

func (c *checker) number(p strict.Path, x, lo, hi float64) {
	if x < lo || x > hi {
		c.bad(p, "%s must be from %g to %g, not %g", p, lo, hi, x)
	}
}

func (c *checker) positive(p strict.Path, x, hi float64) {
	if x <= 0 || x > hi {
		c.bad(p, "%s must be above 0 and at most %g, not %g", p, hi, x)
	}
}

func (c *checker) positiveSpan(p strict.Path, d Duration) {
	if d.Time <= 0 {
		c.bad(p, "%s must be longer than 0s", p)
	}
}

// atLeast checks a span that must not be shorter than least.
func (c *checker) atLeast(p strict.Path, d Duration, least simtime.Time) {
	if d.Time < least {
		c.bad(p, "%s must be at least %s, not %s", p, written(span(least)), written(d))
	}
}

// zeroOrAtLeast checks a span whose 0s means that there is none.
func (c *checker) zeroOrAtLeast(p strict.Path, d Duration, least simtime.Time) {
	if d.Time != 0 && d.Time < least {
		c.bad(p, "%s must be 0s, or at least %s, not %s", p, written(span(least)), written(d))
	}
}

func (c *checker) oneOf(p strict.Path, name string, known []string) {
	if !slices.Contains(known, name) {
		c.bad(p, "%s %q is unknown%s", p, name, spelling.Suggest(name, known))
	}
}

// name checks a name, what, that is shown as it is.
func (c *checker) name(p strict.Path, what, name string) {
	if name == "" {
		c.bad(p, "%s must not be empty", what)
	}
	if err := strict.Printable(what, name); err != nil {
		c.bad(p, "%v", err)
	}
}

func (c *checker) scenario(sc *Scenario) {
	c.name("name", "name", sc.Name)
	if known := profiles.Names(); !strings.HasSuffix(sc.Profile, ".toml") && !slices.Contains(known, sc.Profile) {
		c.bad("profile", "unknown profile %q%s; a file's name ends in .toml", sc.Profile, spelling.Suggest(sc.Profile, known))
	}
	c.policies(sc)
	c.cluster(&sc.Cluster)
	c.disaggregation(sc)
	c.engine(&sc.Engine)
	c.workload(&sc.Workload)
	c.router(&sc.Router)
	c.start(sc)
	c.admission(&sc.Admission)
	c.autoscale(sc)
	c.lifecycle(&sc.Lifecycle)
	c.rollout(&sc.Rollout)
	c.faults(sc)
	c.blocks(sc)
	c.idle(sc)
	c.atLeast("observe.snapshot_interval", sc.Observe.SnapshotInterval, minPeriod)
}

func (c *checker) cluster(cl *Cluster) {
	c.count("cluster.replicas", cl.Replicas, 1, maxReplicas)
	c.count("cluster.gpus", cl.GPUs, 0, maxReplicas)
	if cl.GPUs > 0 && cl.GPUs < cl.Replicas && c.sound("cluster.replicas") {
		c.bad("cluster.gpus", "cluster.gpus is %d, too few for %d replicas; allowed: at least one each, or 0 for no limit", cl.GPUs, cl.Replicas)
	}
	seen := map[string]bool{}
	for i, name := range cl.Names {
		p := strict.Path("cluster.names").Index(i)
		c.name(p, "a replica's name", name)
		if seen[name] {
			c.bad(p, "the name %q is given to two replicas", name)
		}
		seen[name] = true
		if n, ok := podNumber(name); ok && n >= len(cl.Names) && n < maxReplicas {
			c.bad(p, "the name %q belongs to replica %d, which has no name of its own", name, n)
		}
	}
}

// podNumber is the number of the replica that would be called name by default.
func podNumber(name string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(name, "pod-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && podName(n) == name
}

func (c *checker) engine(e *EngineOverrides) {
	c.optionalCount("engine.max_num_seqs", e.MaxNumSeqs, 1, maxTokens)
	c.optionalCount("engine.max_num_batched_tokens", e.MaxNumBatchedTokens, 1, maxTokens)
	c.optionalCount("engine.max_model_len", e.MaxModelLen, 1, maxTokens)
	c.optionalCount("engine.block_tokens", e.BlockTokens, 1, maxTokens)
	c.optionalCount("engine.blocks", e.Blocks, 2, model.MaxBlocks)
}

// blocks checks the engine's blocks with the replicas that have so many.
func (c *checker) blocks(sc *Scenario) {
	if each := sc.Engine.Blocks; each != nil && c.sound("engine.blocks", "cluster.replicas", "autoscale") {
		c.errors("engine.blocks", sc.CheckBlocks(*each))
	}
}

// maxBlocksInAll bounds the KV blocks of all replicas together, which a run has
// in memory at once, and more while a rollout replaces them;
// model.MaxBlocks bounds those of one.
const maxBlocksInAll = 1 << 26

// CheckBlocks reports whether so many KV blocks a replica are too many for all
// replicas that the scenario can want at once.
func (sc *Scenario) CheckBlocks(each int) error {
	if n := sc.mostReplicas(); each > maxBlocksInAll/n {
		return fmt.Errorf("engine.blocks is %d, which for up to %d replicas makes %d; allowed: at most %d in all, so %d each",
			each, n, each*n, maxBlocksInAll, maxBlocksInAll/n)
	}
	return nil
}

// mostReplicas is how many replicas the scenario can want at once, at least 1.
func (sc *Scenario) mostReplicas() int {
	if sc.Autoscale.Strategy == "" {
		return max(1, sc.Cluster.Replicas)
	}
	return max(1, sc.Cluster.Replicas, sc.Autoscale.Max)
}

func (c *checker) workload(w *Workload) {
	c.count("workload.requests", w.Requests, 0, maxRequests)
	c.count("workload.output_tokens", w.Output, 1, maxTokens)
	c.count("workload.in_flight_cap", w.InFlightCap, 0, maxRequests)
	c.number("workload.hidden_first_share", w.HiddenFirst, 0, 1)
	c.zeroOrAtLeast("workload.read_timeout", w.ReadTimeout, minPeriod)
	c.load(w)
	c.prompt(w)
	c.tenants(w.Tenants)
	c.retry(&w.Retry)
	c.number("workload.cancel.fraction", w.Cancel.Fraction, 0, 1)
	if w.Cancel.Fraction > 0 {
		c.positiveSpan("workload.cancel.after", w.Cancel.After)
	}
}

// load checks that there is exactly one source of requests, and that one.
func (c *checker) load(w *Workload) {
	kinds := 0
	if w.Arrivals != nil {
		kinds++
		c.arrivals(w)
	}
	if w.ClosedLoop != nil {
		kinds++
		c.closedLoop(w)
	}
	if w.Trace != nil {
		kinds++
		c.trace(w)
	}
	switch {
	case kinds == 0:
		c.bad("workload", "the workload has no load; allowed: exactly one of [workload.arrivals], [workload.closed_loop] and [workload.trace]")
	case kinds > 1:
		c.bad("workload", "the workload has %d loads; allowed: exactly one of [workload.arrivals], [workload.closed_loop] and [workload.trace]", kinds)
	}
}

func (c *checker) arrivals(w *Workload) {
	const p = strict.Path("workload.arrivals")
	a := w.Arrivals
	if a.Process != "" {
		c.oneOf(p.Key("process"), a.Process, processes[:])
	}
	switch burstiness := p.Key("burstiness"); {
	case !c.doc.Has(burstiness) || a.Burstiness == 1:
	case a.Process == "gamma":
		c.positive(burstiness, a.Burstiness, 1e6)
	case c.sound(p.Key("process")):
		c.bad(burstiness, `%s is for process = "gamma" only`, burstiness)
	}
	if len(a.Stages) > 0 {
		c.stages(w)
		return
	}
	c.positive(p.Key("rate_per_second"), a.Rate, maxRate)
	if a.Rate > 0 && float64(w.Requests)/a.Rate > yearOfTicks.Seconds() {
		c.bad(p.Key("rate_per_second"), "%s.rate_per_second is %g, at which %d requests would take %.3g s; allowed: at most a year, %.0f s",
			p, a.Rate, w.Requests, float64(w.Requests)/a.Rate, yearOfTicks.Seconds())
	}
	if w.Requests == 0 {
		c.bad("workload.requests", "workload.requests must be at least 1 where the rate has no stages to end it")
	}
}

func (c *checker) stages(w *Workload) {
	const p = strict.Path("workload.arrivals")
	if w.Arrivals.Rate != 0 {
		c.bad(p.Key("rate_per_second"), "%s has both rate_per_second and stages; allowed: one of them", p)
	}
	var total simtime.Time
	arrivals := 0.0
	for i, s := range w.Arrivals.Stages {
		stage := p.Key("stages").Index(i)
		c.positiveSpan(stage.Key("duration"), s.Duration)
		c.number(stage.Key("rate_per_second"), s.Rate, 0, maxRate)
		total = min(total+s.Duration.Time, yearOfTicks+1)
		arrivals += s.Duration.Seconds() * s.Rate
	}
	if total > yearOfTicks {
		c.bad(p.Key("stages"), "the stages must end within a year")
	}
	if arrivals > maxRequests {
		c.bad(p.Key("stages"), "the stages hold %.0f arrivals; allowed: at most %d", arrivals, maxRequests)
	}
}

const yearOfTicks = simtime.Time(maxDuration/time.Nanosecond) * simtime.Nanosecond

func (c *checker) closedLoop(w *Workload) {
	const p = strict.Path("workload.closed_loop")
	c.count(p.Key("concurrency"), w.ClosedLoop.Concurrency, 1, maxLanes)
	if w.ClosedLoop.Duration.Time == 0 && w.Requests == 0 {
		c.bad(p, "%s never ends; give it a duration, or workload.requests", p)
	}
}

func (c *checker) trace(w *Workload) {
	const p = strict.Path("workload.trace")
	t := w.Trace
	if t.Path == "" {
		c.bad(p.Key("path"), "%s.path must name a file", p)
	}
	c.traceFormat(t)
	c.count(p.Key("block_tokens"), t.BlockTokens, 0, maxTokens)
	c.count(p.Key("default_output"), t.DefaultOutput, 0, maxTokens)
	c.count(p.Key("family_tokens"), t.FamilyTokens, 0, maxTokens)
	c.count(p.Key("skip_first"), t.SkipFirst, 0, maxRequests)
	c.count(p.Key("max_errors"), t.MaxErrors, -1, maxRequests)
	c.positiveIfGiven(p.Key("chars_per_token"), t.CharsPerToken, 1000)
	c.positiveIfGiven(p.Key("thin"), t.Thin, 1)
	c.positiveIfGiven(p.Key("sample"), t.Sample, 1)
	c.scaleIfGiven(p.Key("rate"), t.Rate)
	c.scaleIfGiven(p.Key("untimed_rate_per_second"), t.UntimedRate)
	if t.To.Time > 0 && t.To.Time <= t.From.Time && c.sound(p.Key("from")) {
		c.bad(p.Key("to"), "%s.to must be later than from, %v; leave it out for the trace's end", p, t.From)
	}
	if t.ThinkTime.Time > 0 && t.Sessions != "closed_loop" && c.sound(p.Key("sessions")) {
		c.bad(p.Key("think_time"), `%s.think_time is for sessions = "closed_loop" only`, p)
	}
	if w.Prompt.Families > 0 {
		c.bad("workload.prompt.families", "workload.prompt.families is for generated prompts; those of a trace are in it")
	}
	for i, tenant := range w.Tenants {
		if tenant.BodyRepeat != nil || tenant.Output != nil {
			c.bad(strict.Path("workload.tenants").Index(i), "workload.tenants.%d has lengths; those of a trace are in it, only the quota counts", i)
		}
	}
}

// traceFormat checks the names that say how a trace is read.
func (c *checker) traceFormat(t *Trace) {
	const p = strict.Path("workload.trace")
	if t.Format != "" {
		var formats []string
		for _, f := range trace.Formats() {
			formats = append(formats, f.Name)
		}
		c.oneOf(p.Key("format"), t.Format, formats)
	}
	if t.TimeUnit != "" {
		c.oneOf(p.Key("time_unit"), t.TimeUnit, timeUnits[:])
	}
	if t.Sessions != "" {
		c.oneOf(p.Key("sessions"), t.Sessions, sessionModes[:])
	}
}

// positiveIfGiven checks a value whose 0 means that it is left out.
func (c *checker) positiveIfGiven(p strict.Path, x, hi float64) {
	if x != 0 || c.doc.Has(p) {
		c.positive(p, x, hi)
	}
}

// scaleIfGiven is positiveIfGiven for what stretches a trace's time: its least
// value keeps the trace from lasting for ever.
func (c *checker) scaleIfGiven(p strict.Path, x float64) {
	if x != 0 || c.doc.Has(p) {
		c.number(p, x, minScale, maxRate)
	}
}

func (c *checker) prompt(w *Workload) {
	const p = strict.Path("workload.prompt")
	pr := &w.Prompt
	c.count(p.Key("families"), pr.Families, 0, maxFamilies)
	c.number(p.Key("hot_fraction"), pr.HotFraction, 0, 1)
	least := 2
	if pr.HotFraction == 1 {
		least = 1
	}
	if pr.HotFraction > 0 && pr.Families < least && c.sound(p.Key("families"), p.Key("hot_fraction")) {
		c.bad(p.Key("hot_fraction"), "%s.hot_fraction needs at least %d families, not %d", p, least, pr.Families)
	}
	c.familyOrder(w)
	for _, part := range []struct {
		key string
		n   int
	}{
		{"salt_chars", pr.SaltChars}, {"salt_tokens", pr.SaltTokens},
		{"head_chars", pr.HeadChars}, {"head_tokens", pr.HeadTokens},
		{"body_repeat", pr.BodyRepeat}, {"body_chars", pr.BodyChars}, {"body_tokens", pr.BodyTokens},
		{"question_chars", pr.QuestionChars}, {"question_tokens", pr.QuestionTokens},
	} {
		c.count(p.Key(part.key), part.n, 0, maxTokens)
	}
	if c.sound(p.Key("salt_tokens")) {
		c.count(p.Key("salt_tokens_spread"), pr.SaltTokensSpread, 0, pr.SaltTokens)
	}
	c.bodyLength(p.Key("body_repeat"), pr, pr.BodyRepeat)
	for i, t := range w.Tenants {
		if t.BodyRepeat != nil {
			c.bodyLength(strict.Path("workload.tenants").Index(i).Key("body_repeat"), pr, *t.BodyRepeat)
		}
	}
}

func (c *checker) bodyLength(p strict.Path, pr *Prompt, repeat int) {
	c.count(p, repeat, 0, maxTokens)
	if longest := max(pr.BodyTokens, pr.BodyChars); longest > 0 && longest <= maxTokens && repeat > maxTokens/longest {
		c.bad(p, "%s makes a prompt of over %d tokens or characters", p, maxTokens)
	}
}

func (c *checker) familyOrder(w *Workload) {
	const p = strict.Path("workload.prompt.family_order")
	order := w.Prompt.FamilyOrder
	if len(order) == 0 {
		return
	}
	if len(order) != w.Requests && c.sound("workload.requests") {
		c.bad(p, "%s lists %d families for workload.requests = %d; allowed: one for each request", p, len(order), w.Requests)
	}
	if !c.sound("workload.prompt.families") {
		return
	}
	for i, f := range order {
		if f < 0 || f >= w.Prompt.Families {
			c.bad(p.Index(i), "%s names family %d; allowed: 0 to families - 1 = %d", p.Index(i), f, w.Prompt.Families-1)
		}
	}
}

func (c *checker) tenants(tenants []Tenant) {
	seen := map[string]bool{}
	for i, t := range tenants {
		p := strict.Path("workload.tenants").Index(i)
		c.name(p.Key("name"), "a tenant's name", t.Name)
		if seen[t.Name] {
			c.bad(p.Key("name"), "the name %q is given to two tenants", t.Name)
		}
		seen[t.Name] = true
		c.optionalCount(p.Key("output_tokens"), t.Output, 1, maxTokens)
		if t.Quota != nil && (*t.Quota < 1 || *t.Quota > maxRequests) {
			c.bad(p.Key("quota"), "%s.quota must be from 1 to %d, not %d; leave it out for no quota", p, maxRequests, *t.Quota)
		}
	}
}

func (c *checker) retry(r *Retry) {
	const p = strict.Path("workload.retry")
	c.count(p.Key("max_attempts"), r.MaxAttempts, 0, 1000)
	c.number(p.Key("jitter"), r.Jitter, 0, 1)
	c.number(p.Key("budget"), r.Budget, 0, 1000)
	if r.MaxBackOff.Time > 0 && r.MaxBackOff.Time < r.BackOff.Time && c.sound(p.Key("back_off")) {
		c.bad(p.Key("max_back_off"), "%s.max_back_off must not be shorter than back_off, %v", p, r.BackOff)
	}
}

func (c *checker) start(sc *Scenario) {
	s, families := &sc.Start, sc.Workload.Prompt.Families
	c.oneOf("start.engine_cache", s.EngineCache, engineCaches[:])
	c.oneOf("start.router_index", s.RouterIndex, routerIndexes[:])
	if c.sound("workload.prompt.families") {
		c.startFamilies(s, families)
	}
	ready := c.readyNames(&sc.Cluster)
	for f, owners := range s.Owners {
		for i, owner := range owners {
			p := strict.Path("start.owners").Index(f).Index(i)
			c.replica(p, owner, ready)
			if slices.Contains(owners[:i], owner) {
				c.bad(p, "%s names %q twice", p, owner)
			}
		}
	}
	for _, name := range sortedKeys(s.Spare) {
		p := strict.Path("start.spare").Key(name)
		c.replica(p, name, ready)
		c.count(p, s.Spare[name], 0, maxFamilies)
	}
}

// startFamilies checks what the start says of families.
func (c *checker) startFamilies(s *Start, families int) {
	if families == 0 && (s.EngineCache == "all" || s.EngineCache == "owners") {
		c.bad("start.engine_cache", `start.engine_cache must be "cold" where workload.prompt.families is 0`)
	}
	if families == 0 && s.RouterIndex == "owners" {
		c.bad("start.router_index", `start.router_index must be "cold" where workload.prompt.families is 0`)
	}
	if len(s.Owners) > families {
		c.bad("start.owners", "start.owners lists %d families; allowed: at most workload.prompt.families = %d", len(s.Owners), families)
	}
}

// readyNames is the names of the replicas that are ready at the start; none
// where that is not known.
func (c *checker) readyNames(cl *Cluster) []string {
	if !c.sound("cluster.replicas", "cluster.names") {
		return nil
	}
	return replicaNames(*cl)[:cl.Replicas]
}

// replica checks that name is one of known, if any is.
func (c *checker) replica(p strict.Path, name string, known []string) {
	if len(known) > 0 && !slices.Contains(known, name) {
		c.bad(p, "%s: no replica is called %q%s", p, name, spelling.Suggest(name, known))
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (c *checker) admission(a *Admission) {
	c.count("admission.quota", a.Quota, 0, maxRequests)
	c.count("admission.proxies", a.Proxies, 1, maxReplicas)
	c.count("admission.queue_length", a.QueueLength, 0, maxRequests)
	c.number("admission.rate_per_second", a.Rate, 0, maxRate)
	c.number("admission.burst", a.Burst, 0, maxRequests)
	if a.Rate > 0 && a.Burst < 1 && c.sound("admission.burst") {
		c.bad("admission.burst", "admission.burst must be at least 1 with a rate, or no request ever passes; it is %g", a.Burst)
	}
}

func (c *checker) autoscale(sc *Scenario) {
	const p = strict.Path("autoscale")
	a := &sc.Autoscale
	if a.Strategy == "" {
		return
	}
	c.oneOf(p.Key("strategy"), a.Strategy, strategies[:])
	c.count(p.Key("min_replicas"), a.Min, 0, maxReplicas)
	least := 1
	if c.sound(p.Key("min_replicas")) {
		least = max(1, a.Min)
	}
	c.count(p.Key("max_replicas"), a.Max, least, maxReplicas)
	c.oneOf(p.Key("metric"), a.Metric, metrics[:])
	c.positive(p.Key("target"), a.Target, 1e12)
	if a.Strategy == "hpa" && a.Target > 0 && a.Target < 1 {
		c.bad(p.Key("target"), "%s.target must be at least 1 for hpa, which cuts it to a whole number; it is %g", p, a.Target)
	}
	c.atLeast(p.Key("interval"), a.Interval, minReconcile)
	c.zeroOrAtLeast(p.Key("scrape_interval"), a.ScrapeInterval, minScrape)
	for i, s := range a.PreScale {
		q := p.Key("pre_scale").Index(i)
		if c.sound(p.Key("max_replicas")) {
			c.count(q.Key("replicas"), s.Replicas, 0, a.Max)
		}
		if i > 0 && s.At.Time <= a.PreScale[i-1].At.Time {
			c.bad(q.Key("at"), "%s.at must be later than the one before, %v", q, a.PreScale[i-1].At)
		}
	}
	for _, name := range sortedKeys(a.Annotations) {
		_, err := autoscale.ParseAnnotations(map[string]string{name: a.Annotations[name]})
		c.errors(p.Key("annotations").Key(name), err)
	}
}

func (c *checker) lifecycle(l *Lifecycle) {
	for _, s := range []struct {
		key  string
		span Span
	}{
		{"schedule", l.Schedule}, {"image_pull", l.ImagePull}, {"model_load", l.ModelLoad},
		{"compile", l.Compile}, {"readiness", l.Readiness},
	} {
		c.span(strict.Path("lifecycle").Key(s.key), s.span)
	}
}

func (c *checker) rollout(r *Rollout) {
	const surge, unavailable = strict.Path("rollout.max_surge"), strict.Path("rollout.max_unavailable")
	more, fewer := c.amount(surge, r.MaxSurge), c.amount(unavailable, r.MaxUnavailable)
	if more == 0 && fewer == 0 && c.sound(surge, unavailable) {
		c.bad(unavailable, "%s must be above 0 where max_surge is 0, or no replica could be replaced", unavailable)
	}
}

// amount checks a number of replicas or a percentage.
func (c *checker) amount(p strict.Path, s string) uint64 {
	digits, percent := strings.CutSuffix(s, "%")
	most := uint64(maxReplicas)
	if percent {
		most = 1000
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > most {
		c.bad(p, `%s must be a number of replicas, such as "2", or a percentage, such as "25%%", not %q`, p, s)
	}
	return n
}

// maxStage is the longest that a stage of the lifecycle may last.
const maxStage = 24 * simtime.Hour

func (c *checker) span(p strict.Path, s Span) {
	if s.Distribution != "" {
		c.oneOf(p.Key("distribution"), s.Distribution, distributions[:])
	}
	if max(s.Mean.Time, s.SD.Time) > maxStage {
		c.bad(p, "%s: mean and sd must be at most 24h", p)
	}
	switch s.Distribution {
	case "", "constant", "exponential":
		if s.SD.Time > 0 && c.sound(p.Key("distribution")) {
			c.bad(p.Key("sd"), `%s.sd is for distribution = "uniform", "normal" or "lognormal"`, p)
		}
	case "lognormal":
		if s.SD.Time > 0 {
			c.positiveSpan(p.Key("mean"), s.Mean)
		}
	case "uniform":
		if c.sound(p.Key("mean")) && s.Mean.Seconds() < math.Sqrt(3)*s.SD.Seconds() {
			c.bad(p.Key("sd"), "%s.sd is too large: a uniform span begins sqrt(3) sd below its mean, %v, and not below 0s", p, s.Mean)
		}
	}
}

func (c *checker) faults(sc *Scenario) {
	known := c.faultTargets(sc)
	for i := range sc.Faults {
		f, p := &sc.Faults[i], strict.Path("faults").Index(i)
		c.oneOf(p.Key("kind"), f.Kind, faultKinds[:])
		c.replica(p.Key("replica"), f.Replica, known)
		if c.sound(p.Key("kind")) {
			c.faultSettings(p, f)
		}
	}
}

// faultSettings checks that what a fault says fits its kind.
func (c *checker) faultSettings(p strict.Path, f *Fault) {
	switch {
	case f.Kind == "slow":
		c.number(p.Key("factor"), f.Factor, minFactor, 1e6)
	case f.Factor != 0:
		c.bad(p.Key("factor"), `%s.factor is for kind = "slow" only`, p)
	}
	if f.Duration.Time > 0 && f.Kind != "slow" && f.Kind != "crash" {
		c.bad(p.Key("duration"), `%s.duration is for kind = "slow" or "crash" only`, p)
	}
	if f.Replace != nil && (f.Kind == "slow" || f.Kind == "cache_reset") {
		c.bad(p.Key("replace"), `%s.replace is for kind = "delete", "crash" or "node_loss" only`, p)
	}
}

// faultTargets is the names of all replicas that can come to be; none where
// that is not known.
func (c *checker) faultTargets(sc *Scenario) []string {
	ready := c.readyNames(&sc.Cluster)
	if ready == nil || !c.sound("autoscale.strategy", "autoscale.max_replicas") {
		return nil
	}
	return replicaNames(Cluster{Names: ready, Replicas: sc.mostReplicas()})
}
