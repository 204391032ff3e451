package trace

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// InfoOptions says how to look at a trace. The zero value is a vLLM engine's
// view.
type InfoOptions struct {
	// EngineBlock is the engine's cache block in tokens, in which hits are counted; 0
	// is 16.
	EngineBlock int
	// MaxBlocks is how many blocks are held; above it the figures on reuse are
	// estimates from a sample. 0 is 2^18, about 20 MB.
	MaxBlocks int
	// CharsPerToken is as for NewPrompter.
	CharsPerToken float64
}

// Info gathers statistics of a trace in bounded memory, apart from the labels of
// families and sessions. Add every row in order, then take the Summary.
type Info struct {
	opts     InfoOptions
	prompter *Prompter
	reuse    *reuseTracker
	hashes   []uint64

	s             Summary
	first, last   simtime.Time
	timed         int
	gaps          welford
	together      int // gaps of 0
	rate          rateBuckets
	input, output lengths
	sessions      map[string]bool
	families      map[string]bool
	tenants       map[string]int

	promptTokens   float64
	lookups        float64 // blocks looked up
	misses         float64 // of them seen for the first time, estimated
	cachedTokens   float64
	cachedOf       float64
	warmFirsts     int
	betweenUses    logHistogram
	ticksUntilUsed logHistogram
}

// NewInfo returns an Info without rows.
func NewInfo(opts InfoOptions) *Info {
	if opts.EngineBlock <= 0 {
		opts.EngineBlock = 16
	}
	if opts.MaxBlocks <= 0 {
		opts.MaxBlocks = 1 << 18
	}
	return &Info{
		opts:     opts,
		prompter: NewPrompter(opts.CharsPerToken),
		reuse:    newReuseTracker(opts.MaxBlocks),
		input:    make(lengths),
		output:   make(lengths),
		sessions: make(map[string]bool),
		families: make(map[string]bool),
		tenants:  make(map[string]int),
	}
}

// Add books a row.
func (in *Info) Add(row *Row) {
	in.s.Rows++
	if row.Timed {
		in.addTime(row.At)
	}
	in.addLabels(row)
	if n := row.AnswerTokens(); n > 0 {
		in.output[n]++
	}
	if n := row.PromptTokens(); n > 0 {
		in.input[n]++
		prompt, answer := in.prompter.turn(row)
		in.addPrompt(row, prompt, answer)
	}
}

func (in *Info) addTime(at simtime.Time) {
	if in.timed == 0 {
		in.first = at
	} else {
		in.gaps.add((at - in.last).Seconds())
		if at == in.last {
			in.together++
		}
	}
	in.last = at
	in.timed++
	in.rate.add(at - in.first)
}

func (in *Info) addLabels(row *Row) {
	if row.Wait {
		in.s.ClosedLoopRows++
	}
	if row.Session != "" {
		in.s.SessionRows++
		in.sessions[row.Session] = true
	}
	if row.Family != "" {
		if !in.families[row.Family] && row.CachedTokens.Value > 0 {
			in.warmFirsts++
		}
		in.families[row.Family] = true
	}
	if row.Tenant != "" {
		in.tenants[row.Tenant]++
	}
	if row.CachedTokens.Present {
		in.cachedTokens += float64(row.CachedTokens.Value)
		in.cachedOf += float64(row.PromptTokens())
	}
}

// addPrompt plays the prompt against a cache that never forgets. The engine looks
// up full blocks, and never the last token, whose logits it needs. An answer that
// a later prompt repeats is in the cache too, but for its last token, which is
// never computed.
func (in *Info) addPrompt(row *Row, prompt workload.Prompt, answer uint64) {
	block := in.opts.EngineBlock
	total := prompt.Len(workload.Tokens)
	if computed := row.AnswerTokens() - 1; answer != 0 && computed > 0 {
		prompt = append(slices.Clip(prompt), workload.Segment{ID: answer, Tokens: computed})
	}
	in.hashes = prompt.AppendHashes(in.hashes[:0], 0, block, workload.Tokens)
	in.promptTokens += float64(total)
	lookedUp := (total - 1) / block
	in.lookups += float64(lookedUp)
	for i, h := range in.hashes {
		u := in.reuse.use(h, row.At)
		switch {
		case !u.followed || i >= lookedUp:
		case u.again:
			in.betweenUses.add(u.between*float64(block), u.weight)
			in.ticksUntilUsed.add(float64(u.after), u.weight)
		default:
			in.misses += u.weight
		}
	}
}

// hits is how many of the looked-up blocks were found. It comes from the misses,
// of which a block has but one: the estimate from a sample would be far off if it
// counted the hits of the few blocks that all prompts share, or missed them.
func (in *Info) hits() float64 { return max(in.lookups-in.misses, 0) }

// A Summary is a trace's statistics. What cannot be said of it is absent (null in
// JSON).
type Summary struct {
	Rows int `json:"rows"`
	// Span is from the first to the last arrival.
	Span float64  `json:"span_seconds"`
	Rate *float64 `json:"rate_per_second"`
	// GapCV is the coefficient of variation of the gaps between arrivals: 1 for a
	// Poisson process, more when they come in bursts.
	GapCV *float64 `json:"gap_cv"`
	// Simultaneous is the share of arrivals at the time of the one before.
	Simultaneous *float64 `json:"simultaneous_share"`
	// BucketSeconds is the length of each of the spans that RateOverTime counts.
	BucketSeconds float64 `json:"bucket_seconds"`
	RateOverTime  []int   `json:"requests_per_bucket"`

	Input  *LengthSummary `json:"input_tokens"`
	Output *LengthSummary `json:"output_tokens"`

	Sessions       int            `json:"sessions"`
	SessionRows    int            `json:"session_rows"`
	ClosedLoopRows int            `json:"closed_loop_rows"`
	Families       int            `json:"families"`
	Tenants        map[string]int `json:"tenants,omitempty"`

	// HitRatioBound is the share of prompt tokens that a prefix cache without limits
	// finds, counted in EngineBlock tokens: no policy can do better.
	HitRatioBound *float64 `json:"hit_ratio_upper_bound"`
	EngineBlock   int      `json:"engine_block_tokens"`
	// Sampled says that the figures on reuse are estimates from the blocks' share
	// SampleShare.
	Sampled     bool    `json:"sampled"`
	SampleShare float64 `json:"sample_share"`
	// ReuseDistance is how many other tokens were used between two uses of a block:
	// an LRU cache of that size holds it.
	ReuseDistance *Quantiles `json:"reuse_distance_tokens"`
	// ReuseTime is the time between two uses of a block.
	ReuseTime *Quantiles `json:"reuse_seconds"`
	// MeasuredHitRatio is the source's own, where it says how much was cached.
	MeasuredHitRatio *float64 `json:"measured_hit_ratio"`

	Warnings []string `json:"warnings,omitempty"`
}

// Quantiles are p50, p90 and p99.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// A LengthSummary is the distribution of a length in tokens, with quantiles
// interpolated at (n-1)q.
type LengthSummary struct {
	Min  int     `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  int     `json:"max"`
	Mean float64 `json:"mean"`
}

// Summary is what the rows so far show.
func (in *Info) Summary() Summary {
	s := in.s
	s.Span = (in.last - in.first).Seconds()
	s.Rate = ratio(float64(in.timed-1), s.Span)
	s.GapCV = in.gaps.cv()
	s.Simultaneous = ratio(float64(in.together), float64(in.gaps.n))
	s.BucketSeconds, s.RateOverTime = in.rate.width.Seconds(), slices.Clone(in.rate.counts)
	s.Input, s.Output = in.input.summary(), in.output.summary()
	s.Sessions, s.Families = len(in.sessions), len(in.families)
	s.Tenants = in.tenants
	s.EngineBlock = in.opts.EngineBlock
	s.HitRatioBound = ratio(in.hits()*float64(in.opts.EngineBlock), in.promptTokens)
	s.SampleShare = 1 / in.reuse.weight()
	s.Sampled = s.SampleShare < 1
	s.ReuseDistance = in.betweenUses.quantiles(in.hits(), 1)
	s.ReuseTime = in.ticksUntilUsed.quantiles(in.hits(), float64(simtime.Second))
	s.MeasuredHitRatio = ratio(in.cachedTokens, in.cachedOf)
	s.Warnings = in.warnings()
	return s
}

// idleShare is how much of the rows the first quarter of a trace's span may at
// least be expected to hold; below it, its head is called idle.
const idleShare = 0.05

func (in *Info) warnings() (list []string) {
	if share, ok := in.rate.headShare(in.last - in.first); ok && share < idleShare {
		list = append(list, fmt.Sprintf("the first quarter of the span has %.2g%% of the rows: a slice from the top tests nothing, choose a later window", 100*share))
	}
	if in.warmFirsts > 0 {
		list = append(list, fmt.Sprintf("%d of %d families hit the cache at their first request: the server was warm; start the simulation warm, or leave those out",
			in.warmFirsts, len(in.families)))
	}
	if in.lookups > 0 && in.hits() == 0 {
		list = append(list, fmt.Sprintf("no prompt shares %d tokens with one before it: there is nothing to cache", in.opts.EngineBlock))
	}
	return list
}

// ratio is a/b, absent when b is not positive.
func ratio(a, b float64) *float64 {
	if !(b > 0) {
		return nil
	}
	v := a / b
	return &v
}

// quantiles are h's, each divided by unit, once it is brought to the total that is
// known: what a sample lacks or has too much is nearly all uses of a few blocks
// that every prompt shares, whose distance is next to nothing (the correction of
// SHARDS-adj).
func (h logHistogram) quantiles(total, unit float64) *Quantiles {
	if total <= 0 || h.total == 0 {
		return nil
	}
	missing := max(total-h.total, -h.zeros)
	h.zeros += missing
	h.total += missing
	return &Quantiles{h.quantile(0.5) / unit, h.quantile(0.9) / unit, h.quantile(0.99) / unit}
}

// welford keeps mean and variance of a stream (Welford 1962).
type welford struct {
	n        int
	mean, m2 float64
}

func (w *welford) add(x float64) {
	w.n++
	d := x - w.mean
	w.mean += d / float64(w.n)
	w.m2 += d * (x - w.mean)
}

// cv is the coefficient of variation (population), absent without two values or
// with a mean of 0.
func (w *welford) cv() *float64 {
	if w.n < 2 {
		return nil
	}
	return ratio(math.Sqrt(w.m2/float64(w.n)), w.mean)
}

// lengths counts how often each length occurs.
type lengths map[int]int

func (l lengths) summary() *LengthSummary {
	if len(l) == 0 {
		return nil
	}
	values := make([]int, 0, len(l))
	n, sum := 0, 0.0
	for v := range l {
		values = append(values, v)
	}
	slices.Sort(values)
	for _, v := range values {
		n += l[v]
		sum += float64(v) * float64(l[v])
	}
	at := func(rank int) float64 { // the value of the sorted list
		for _, v := range values {
			if rank -= l[v]; rank < 0 {
				return float64(v)
			}
		}
		return float64(values[len(values)-1])
	}
	q := func(q float64) float64 {
		pos := float64(n-1) * q
		low := math.Floor(pos)
		a, b := at(int(low)), at(min(int(low)+1, n-1))
		return a + (b-a)*(pos-low)
	}
	return &LengthSummary{values[0], q(0.5), q(0.9), q(0.95), q(0.99), values[len(values)-1], sum / float64(n)}
}

// rateBuckets counts arrivals over time in at most maxBuckets buckets, whose width
// doubles as the trace gets longer.
type rateBuckets struct {
	width  simtime.Time
	counts []int
}

const maxBuckets = 64

func (b *rateBuckets) add(at simtime.Time) {
	if b.width == 0 {
		b.width = simtime.Second
	}
	for at/b.width >= maxBuckets {
		b.width *= 2
		for i, n := range b.counts {
			if i%2 == 0 {
				b.counts[i/2] = n
			} else {
				b.counts[i/2] += n
			}
		}
		b.counts = b.counts[:(len(b.counts)+1)/2]
	}
	for int(at/b.width) >= len(b.counts) {
		b.counts = append(b.counts, 0)
	}
	b.counts[at/b.width]++
}

// headShare is the share of rows in the first quarter of the span; ok is false
// when there are too few rows or buckets to say.
func (b *rateBuckets) headShare(span simtime.Time) (share float64, ok bool) {
	quarter := int(span / 4 / max(b.width, 1))
	head, total := 0, 0
	for i, n := range b.counts {
		if i < quarter {
			head += n
		}
		total += n
	}
	if quarter == 0 || total < 40 {
		return 0, false
	}
	return float64(head) / float64(total), true
}

// String is the summary as text, one fact a line.
func (s Summary) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	number := func(name, format string, v *float64) {
		if v == nil {
			line(name, "-")
			return
		}
		line(name, format, *v)
	}
	line("requests", "%d", s.Rows)
	line("span", "%g s", s.Span)
	number("rate", "%.4g/s", s.Rate)
	number("gap CV", "%.3g (1: Poisson, more: bursts)", s.GapCV)
	number("simultaneous", "%.3g of the arrivals", s.Simultaneous)
	if len(s.RateOverTime) > 0 {
		line("requests over time", "%v, each %g s", s.RateOverTime, s.BucketSeconds)
	}
	length := func(name string, l *LengthSummary) {
		if l == nil {
			line(name, "-")
			return
		}
		line(name, "min %d, p50 %.6g, p90 %.6g, p95 %.6g, p99 %.6g, max %d, mean %.6g", l.Min, l.P50, l.P90, l.P95, l.P99, l.Max, l.Mean)
	}
	length("input tokens", s.Input)
	length("output tokens", s.Output)
	line("sessions", "%d with %d requests, %d of them closed-loop", s.Sessions, s.SessionRows, s.ClosedLoopRows)
	line("families", "%d", s.Families)
	names := make([]string, 0, len(s.Tenants))
	for name := range s.Tenants {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line("tenant "+name, "%d", s.Tenants[name])
	}
	number("hit ratio, at most", "%.4g of the prompt tokens (a cache without limits)", s.HitRatioBound)
	quantiles := func(name, unit string, q *Quantiles) {
		if q != nil {
			line(name, "p50 %.3g, p90 %.3g, p99 %.3g %s", q.P50, q.P90, q.P99, unit)
		}
	}
	quantiles("reuse distance", "tokens", s.ReuseDistance)
	quantiles("reuse time", "s", s.ReuseTime)
	if s.Sampled {
		line("estimated from", "%.3g of the blocks", s.SampleShare)
	}
	if s.MeasuredHitRatio != nil {
		number("measured hit ratio", "%.4g", s.MeasuredHitRatio)
	}
	for _, w := range s.Warnings {
		line("warning", "%s", w)
	}
	return b.String()
}
