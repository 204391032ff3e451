package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/simtime"
)

// scrapeTimeout bounds one reading of a metrics page, maxPage its size.
const (
	scrapeTimeout = 10 * time.Second
	maxPage       = 64 << 20
)

// engineState is what an engine's metrics page says.
type engineState struct {
	running, waiting, usage    float64
	queries, hits, preemptions record.Float // absent: the page has no such metric
}

// scrape reads a metrics page.
func (r *Replayer) scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.transport.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: HTTP status %d", url, resp.StatusCode)
	}
	return parsePage(url, io.LimitReader(resp.Body, maxPage))
}

func parsePage(url string, in io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return families, nil
}

// engine reads an engine's page. Its metrics are summed over what else they are
// told apart by, such as data-parallel ranks; of the usage the highest counts.
func (r *Replayer) engine(ctx context.Context, e *Engine) (engineState, error) {
	page, err := r.scrape(ctx, strings.TrimSuffix(e.URL, "/")+"/metrics")
	if err != nil {
		return engineState{}, fmt.Errorf("engine %s: %w", e.Name, err)
	}
	running, ok := sumOf(page["vllm:num_requests_running"])
	if !ok {
		return engineState{}, fmt.Errorf("engine %s: its page has no vllm:num_requests_running", e.Name)
	}
	s := engineState{running: running}
	s.waiting, _ = sumOf(page["vllm:num_requests_waiting"])
	for _, m := range page["vllm:kv_cache_usage_perc"].GetMetric() {
		s.usage = max(s.usage, value(m))
	}
	for _, c := range []struct {
		name string
		to   *record.Float
	}{
		{"vllm:prefix_cache_queries_total", &s.queries},
		{"vllm:prefix_cache_hits_total", &s.hits},
		{"vllm:num_preemptions_total", &s.preemptions},
	} {
		if v, ok := sumOf(page[c.name]); ok {
			*c.to = record.Some(v)
		}
	}
	return s, nil
}

func sumOf(f *dto.MetricFamily) (sum float64, ok bool) {
	for _, m := range f.GetMetric() {
		sum += value(m)
	}
	return sum, len(f.GetMetric()) > 0
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	case m.Gauge != nil:
		return m.GetGauge().GetValue()
	}
	return m.GetUntyped().GetValue()
}

// A gatewayCounter is a counter of the gateway's page.
type gatewayCounter struct {
	name   string
	labels map[string]string
	value  float64
}

func (c *gatewayCounter) key() string {
	key := c.name
	for _, name := range sortedKeys(c.labels) {
		key += "\x00" + name + "\x00" + c.labels[name]
	}
	return key
}

// gatewayCounters are the prefix-cache counters of the gateway, without the
// label of the one model.
func (r *Replayer) gatewayCounters(ctx context.Context) ([]gatewayCounter, error) {
	page, err := r.scrape(ctx, r.Gateway)
	if err != nil {
		return nil, fmt.Errorf("gateway metrics: %w", err)
	}
	var out []gatewayCounter
	for _, name := range sortedKeys(page) {
		if !strings.HasPrefix(name, "aibrix_prefix_cache_") || page[name].GetType() != dto.MetricType_COUNTER {
			continue
		}
		for _, m := range page[name].GetMetric() {
			c := gatewayCounter{name: name, labels: make(map[string]string), value: value(m)}
			for _, l := range m.GetLabel() {
				if l.GetName() != "model" && l.GetName() != "model_name" {
					c.labels[l.GetName()] = l.GetValue()
				}
			}
			out = append(out, c)
		}
	}
	return out, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// A watch observes engines and gateway over a phase.
type watch struct {
	*Replayer
	counters      []gatewayCounter
	earlier       []engineState // before the phase, by engine
	later         []engineState // after it
	deltas        []record.CounterDelta
	notes         []string
	stop          context.CancelFunc
	done          chan struct{}
	mu            sync.Mutex
	peaks         []engineState
	samples       []sim.Sample
	missedSamples int
}

func newWatch(r *Replayer) *watch {
	return &watch{Replayer: r, peaks: make([]engineState, len(r.Engines))}
}

// before reads all counters.
func (w *watch) before(ctx context.Context) (err error) {
	if w.Gateway != "" {
		if w.counters, err = w.gatewayCounters(ctx); err != nil {
			return err
		}
	}
	w.earlier, err = w.engines(ctx)
	return err
}

func (w *watch) engines(ctx context.Context) ([]engineState, error) {
	var states []engineState
	var problems []error
	for i := range w.Engines {
		s, err := w.engine(ctx, &w.Engines[i])
		states, problems = append(states, s), append(problems, err)
	}
	return states, errors.Join(problems...)
}

// begin takes snapshots of the engines' gauges from start on, as the scenario
// observes them.
func (w *watch) begin(ctx context.Context, start time.Time) {
	ctx, w.stop = context.WithCancel(ctx)
	w.done = make(chan struct{})
	observe := w.Scenario.Observe
	go func() {
		defer close(w.done)
		for at := observe.SnapshotOffset.Time; len(w.Engines) > 0; at += observe.SnapshotInterval.Time {
			sleepUntil(ctx, w.Now, start.Add(w.wall(at)))
			if ctx.Err() != nil {
				return
			}
			w.snapshot(ctx, start)
		}
	}()
}

func (w *watch) snapshot(ctx context.Context, start time.Time) {
	for i := range w.Engines {
		s, err := w.engine(ctx, &w.Engines[i])
		w.mu.Lock()
		if err != nil {
			w.missedSamples++
		} else {
			peak := &w.peaks[i]
			peak.running, peak.waiting, peak.usage = max(peak.running, s.running), max(peak.waiting, s.waiting), max(peak.usage, s.usage)
			w.samples = append(w.samples, sim.Sample{At: simtime.FromSeconds(w.Now().Sub(start).Seconds() * w.Speed), Replica: w.Engines[i].Name,
				Running: int(s.running), Waiting: int(s.waiting), KVUsage: s.usage})
		}
		w.mu.Unlock()
	}
}

// after reads the counters again. It does so also when ctx has ended: what was
// measured until then is kept.
func (w *watch) after(ctx context.Context) (err error) {
	w.stop()
	<-w.done
	ctx = context.WithoutCancel(ctx)
	if w.missedSamples > 0 {
		w.notes = append(w.notes, fmt.Sprintf("%d snapshots of engines failed: peaks may be too low", w.missedSamples))
	}
	if w.Gateway != "" {
		later, err := w.gatewayCounters(ctx)
		if err != nil {
			return err
		}
		w.moved(later)
	}
	w.later, err = w.engines(ctx)
	return err
}

// moved finds by how much the gateway's counters moved. One that is new began
// at 0; one that fell belongs to a gateway that was started again.
func (w *watch) moved(later []gatewayCounter) {
	before := make(map[string]float64)
	for _, c := range w.counters {
		before[c.key()] += c.value
	}
	w.deltas = []record.CounterDelta{}
	for _, c := range later {
		delta := c.value - before[c.key()]
		if delta < 0 {
			w.deltas = nil
			w.notes = append(w.notes, "the gateway's counters fell: it was started again, and they are left out")
			return
		}
		if delta > 0 {
			w.deltas = append(w.deltas, record.CounterDelta{Name: c.name, Labels: c.labels, Delta: delta})
		}
	}
	slices.SortStableFunc(w.deltas, func(a, b record.CounterDelta) int { return cmp.Compare(a.Name, b.Name) })
}

// describe adds what was observed to the phase's record.
func (w *watch) describe(p *record.Phase) {
	p.RoutingCounterDeltas = w.deltas
	p.Notes = append(p.Notes, w.notes...)
	for i, e := range w.Engines {
		j := slices.IndexFunc(p.Replicas, func(r record.Replica) bool { return r.Name == e.Name })
		rep := &p.Replicas[j] // Summarize has one for every name it is given
		rep.WaitingPeak, rep.RunningPeak = record.Some(int(w.peaks[i].waiting)), record.Some(int(w.peaks[i].running))
		rep.KVUsagePeak = record.Some(w.peaks[i].usage)
		for _, c := range []struct {
			to            *record.Int
			before, after record.Float
		}{
			{&rep.CacheQueriesTokens, w.earlier[i].queries, w.later[i].queries},
			{&rep.CacheHitTokens, w.earlier[i].hits, w.later[i].hits},
			{&rep.Preemptions, w.earlier[i].preemptions, w.later[i].preemptions},
		} {
			before, had := c.before.Get()
			after, has := c.after.Get()
			switch {
			case !had || !has:
			case after < before:
				p.Notes = append(p.Notes, fmt.Sprintf("the counters of %s fell: it was started again, and they are left out", e.Name))
			default:
				*c.to = record.Some(int(after - before))
			}
		}
	}
	if len(w.Engines) > 0 {
		p.CacheHitRatio = record.CacheHitRatio(p.Replicas)
	}
}
