package router

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// goldenDir holds decisions recorded from AIBrix v0.7.0 itself.
var goldenDir = filepath.Join("..", "..", "shared", "golden", "aibrix")

// eachGolden calls record with every line of a golden file after its run's
// configuration line, and start with each configuration line. It returns the
// number of records.
func eachGolden[T any](t *testing.T, file string, start, record func(T)) (records int) {
	t.Helper()
	f, err := os.Open(filepath.Join(goldenDir, file))
	if os.IsNotExist(err) {
		t.Skip("no golden vectors beside the checkout")
	}
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var line struct {
			Config bool
		}
		var rec T
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		require.NoError(t, json.Unmarshal(lines.Bytes(), &rec))
		if line.Config {
			start(rec)
			continue
		}
		record(rec)
		records++
	}
	require.NoError(t, lines.Err())
	require.NotZero(t, records)
	return records
}

// A goldenPrompt is a list of repeated parts.
type goldenPrompt []struct {
	T string
	N int
}

func (g goldenPrompt) text() Text {
	var b strings.Builder
	for _, part := range g {
		b.WriteString(strings.Repeat(part.T, part.N))
	}
	return Text(b.String())
}

func goldenPod(id int) string { return fmt.Sprintf("p%02d", id) }

func goldenID(t *testing.T, name string) int {
	t.Helper()
	id, err := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(name, "default/"), "p"))
	require.NoError(t, err, name)
	return id
}

func podNames(pods []Pod, indices []int) []string {
	names := []string{}
	for _, i := range indices {
		names = append(names, pods[i].Name)
	}
	slices.Sort(names)
	return names
}

// forced is a source of randomness that makes the next IntN(n) return i.
type forced uint64

func (f *forced) Uint64() uint64 { return uint64(*f) }

// force sets the draw: the generator takes the low bits when n is a power of two
// and scales the high half otherwise.
func (f *forced) force(i, n int) {
	*f = forced((uint64(i)<<32+1<<31)/uint64(n)<<32 | uint64(i))
}

func TestGoldenHashes(t *testing.T) {
	type rec struct {
		I           int
		Seed        string `json:"hash_seed"`
		Block       int
		Blocks      int
		Bytes       int
		Prompt      goldenPrompt
		Hashes      []string
		First, Last []string
	}
	n := eachGolden(t, "hash.jsonl", func(rec) { t.Fatal("no configuration expected") }, func(r rec) {
		seed, err := strconv.ParseUint(r.Seed, 10, 64)
		require.NoError(t, err)
		text := r.Prompt.text()
		require.Equal(t, r.Bytes, text.Len(workload.Bytes))
		var got []string
		for _, h := range text.AppendHashes(nil, seed, r.Block, workload.Bytes) {
			got = append(got, strconv.FormatUint(h, 10))
		}
		require.Len(t, got, r.Blocks, "record %d", r.I)
		if r.First != nil {
			require.Equal(t, r.First, got[:4], "record %d", r.I)
			require.Equal(t, r.Last, got[len(got)-4:], "record %d", r.I)
			return
		}
		require.Equal(t, len(r.Hashes), len(got))
		for i := range got {
			require.Equal(t, r.Hashes[i], got[i], "record %d", r.I)
		}
	})
	t.Logf("%d records conform", n)
}

func TestGoldenLocalIndex(t *testing.T) {
	type rec struct {
		I        int
		Block    int
		Capacity int     `json:"capacity_blocks"`
		TTL      float64 `json:"ttl_s"`
		Seed     string  `json:"hash_seed"`
		Op       string
		Model    string
		Pod      string
		Prompt   goldenPrompt
		Blocks   int
		Ready    []string
		Matched  map[string]int
		StoreLen int     `json:"store_len"`
		At       float64 `json:"t_s"`
	}
	for _, file := range []string{"index.jsonl", "index_lru.jsonl", "index_ttl.jsonl"} {
		t.Run(file, func(t *testing.T) {
			var x *localIndex
			var cfg rec
			var seed uint64
			n := eachGolden(t, file, func(c rec) {
				s := DefaultSettings().Prefix
				s.BlockNumber, s.EvictionDuration = c.Capacity, simtime.FromSeconds(c.TTL)
				x, cfg = newLocalIndex(s, nil), c
				var err error
				seed, err = strconv.ParseUint(c.Seed, 10, 64)
				require.NoError(t, err)
			}, func(r rec) {
				now := simtime.FromSeconds(r.At)
				hashes := r.Prompt.text().AppendHashes(nil, seed, cfg.Block, workload.Bytes)
				require.Len(t, hashes, r.Blocks)
				switch r.Op {
				case "add":
					x.add(now, r.Model, blocks(hashes...), goldenID(t, r.Pod))
				case "match":
					require.Equal(t, r.Matched, matchNames(t, x, now, r.Model, hashes, r.Ready), "record %d", r.I)
				default:
					t.Fatalf("unknown op %q", r.Op)
				}
				require.Equal(t, r.StoreLen, x.stats(now).Entries, "record %d", r.I)
			})
			t.Logf("%d records conform", n)
		})
	}
}

// matchNames is an index's answer by pod name.
func matchNames(t *testing.T, x prefixIndex, now simtime.Time, model string, hashes []uint64, ready []string) map[string]int {
	t.Helper()
	var pods []Pod
	for _, name := range ready {
		pods = append(pods, Pod{ID: goldenID(t, name), Name: name})
	}
	matched := map[string]int{}
	for i, percent := range matchAll(x, now, model, blocks(hashes...), pods) {
		if percent != noMatch {
			matched[pods[i].Name] = percent
		}
	}
	return matched
}

func TestGoldenPrefixCache(t *testing.T) {
	type rec struct {
		I           int
		Cfg         string
		Pods        int
		Block       int
		Abs         int `json:"imbalance_abs"`
		Factor      int `json:"stddev_factor"`
		Model       string
		Prompt      goldenPrompt
		Running     []int
		Ready       []int
		Imbalanced  bool
		Least       []string
		Matched     map[string]int
		Permissible []string
		Chosen      string
		Selection   string
		Bucket      string
	}
	for _, pods := range []int{2, 3, 8, 16} {
		file := fmt.Sprintf("prefix_cache_n%d.jsonl", pods)
		t.Run(file, func(t *testing.T) {
			var p *prefixCache
			var want map[string]int64
			src := new(forced)
			rng := rand.New(src)
			n := eachGolden(t, file, func(c rec) {
				s := DefaultSettings()
				s.Prefix.BlockSize, s.Prefix.Imbalance, s.Prefix.DeviationFactor = c.Block, c.Abs, c.Factor
				p = newPrefixCache(s)
				want = map[string]int64{}
			}, func(r rec) {
				where := fmt.Sprintf("%s record %d", r.Cfg, r.I)
				list := offered(r.Running, r.Ready)
				req := &Request{Prompt: r.Prompt.text(), Model: r.Model}

				var f fleet
				f.reset(list)
				p.hash(req)
				d := p.choose(0, req.Model, &f)
				require.Equal(t, r.Imbalanced, d.Imbalanced, where)
				if r.Imbalanced {
					require.Equal(t, r.Least, podNames(list, membersOf(&f.roster, f.least())), where)
				}
				matched := map[string]int{}
				for i, slot := range f.slots {
					if percent := p.matches.of(slot); percent != noMatch {
						matched[list[i].Name] = percent
					}
				}
				require.Equal(t, r.Matched, matched, where)
				best := membersOf(&f.roster, p.best)
				require.Equal(t, r.Permissible, podNames(list, best), where)

				draw := slices.IndexFunc(best, func(i int) bool { return list[i].Name == r.Chosen })
				require.GreaterOrEqual(t, draw, 0, where)
				src.force(draw, len(best))
				d, err := p.Route(0, req, list, rng)
				require.NoError(t, err)
				require.Equal(t, r.Chosen, list[d.Pod].Name, where)
				require.Equal(t, r.Selection, d.Selection, where)
				require.Equal(t, r.Imbalanced, d.Imbalanced, where)
				require.Equal(t, r.Bucket, buckets[bucketOf(d.MatchPercent)], where)

				want["routing_decisions_total "+r.Model+" "+r.Bucket]++
				want["routing_selection_total "+r.Model+" "+r.Selection]++
				if r.Imbalanced {
					want["load_imbalance_total "+r.Model]++
				}
				require.Equal(t, want, counterValues(p), where)
			})
			t.Logf("%d records conform", n)
		})
	}
}

// membersOf are the indices in the list of the set's pods.
func membersOf(r *roster, set slotSet) (members []int) {
	for i, slot := range r.slots {
		if set.has(slot) {
			members = append(members, i)
		}
	}
	return members
}

// counterValues are a policy's counters by shortened name, model and label.
func counterValues(p CounterSource) map[string]int64 {
	values := map[string]int64{}
	for _, c := range p.AppendCounters(nil) {
		key := strings.TrimPrefix(c.Name, "aibrix_prefix_cache_")
		for _, name := range []string{"model", "match_percent_bucket", "selection"} {
			for _, l := range c.Labels {
				if l.Name == name {
					key += " " + l.Value
				}
			}
		}
		values[key] = c.Value
	}
	return values
}

// offered is the list of the ready pods, all when nil, with their counts.
func offered(running, ready []int) []Pod {
	var pods []Pod
	for i, n := range running {
		if ready == nil || slices.Contains(ready, i) {
			pods = append(pods, Pod{ID: i, Name: goldenPod(i), Running: n})
		}
	}
	return pods
}

func TestGoldenLeastRequest(t *testing.T) {
	type rec struct {
		I           int
		Running     []int
		Ready       []int
		Permissible []string
		Chosen      string
	}
	src := new(forced)
	n := eachGolden(t, "least_request.jsonl", func(rec) {}, func(r rec) {
		list := offered(r.Running, r.Ready)
		p := &leastRequest{}
		least := appendLeastRunning(nil, list)
		require.Equal(t, r.Permissible, podNames(list, least), "record %d", r.I)
		draw := slices.IndexFunc(least, func(i int) bool { return list[i].Name == r.Chosen })
		require.GreaterOrEqual(t, draw, 0)
		src.force(draw, len(least))
		d, err := p.Route(0, &Request{}, list, rand.New(src))
		require.NoError(t, err)
		require.Equal(t, r.Chosen, list[d.Pod].Name)
	})
	t.Logf("%d records conform", n)
}

func TestGoldenInflightCounts(t *testing.T) {
	type rec struct {
		I       int
		Pods    int
		Op, Pod string
		Req     string
		Running []int
	}
	var g *Gateway
	var inflight map[string]bool
	n := eachGolden(t, "inflight_counter.jsonl", func(c rec) {
		g = NewGateway(&leastRequest{}, rand.New(rand.NewPCG(1, 1)))
		for i := range c.Pods {
			g.AddPod(i, goldenPod(i), "", "")
		}
		inflight = map[string]bool{}
	}, func(r rec) {
		id := goldenID(t, r.Pod)
		switch r.Op {
		case "start":
			require.Contains(t, podNames(g.pods, appendLeastRunning(nil, g.pods)), r.Pod, "record %d", r.I)
			g.Begin(id)
			inflight[r.Req] = true
		case "done":
			// The once-flag of a request is its owner's: a second completion of the
			// same request never reaches End.
			if inflight[r.Req] {
				g.End(id)
				delete(inflight, r.Req)
			}
		default:
			t.Fatalf("unknown op %q", r.Op)
		}
		for i, want := range r.Running {
			require.Equal(t, want, g.Running(i), "record %d pod %d", r.I, i)
			require.Equal(t, want, g.pods[i].Running, "record %d pod %d", r.I, i)
		}
	})
	t.Logf("%d records conform", n)
}

func TestGoldenMultiStrategy(t *testing.T) {
	type rec struct {
		I        int
		Cfg      string
		Block    int
		Strategy string
		Order    []string
		Running  []int
		Prompt   goldenPrompt
		Final    map[string]float64
		Chosen   string
	}
	var m *multiStrategy
	n := eachGolden(t, "multi_strategy.jsonl", func(c rec) {
		s := DefaultSettings()
		s.Prefix.BlockSize = c.Block
		p, err := New(c.Strategy, s, Options{})
		require.NoError(t, err)
		m = p.(*multiStrategy)
	}, func(r rec) {
		var list []Pod
		for _, name := range r.Order {
			id := goldenID(t, name)
			list = append(list, Pod{ID: id, Name: name, Running: r.Running[id]})
		}
		d, err := m.Route(0, &Request{Prompt: r.Prompt.text(), Model: "m1"}, list, nil)
		require.NoError(t, err)
		require.Len(t, m.final, len(r.Final))
		for i, got := range m.final {
			require.InDelta(t, r.Final[list[i].Name], got, 1e-12, "%s record %d %s", r.Cfg, r.I, list[i].Name)
		}
		require.Equal(t, r.Chosen, list[d.Pod].Name, "%s record %d", r.Cfg, r.I)
		require.False(t, math.IsNaN(m.final[0]))
	})
	t.Logf("%d records conform", n)
}

func TestGoldenSyncIndex(t *testing.T) {
	type rec struct {
		I       int
		Block   int
		Max     int `json:"max_prefixes_per_context"`
		Op      string
		Model   string
		Pod     string
		Prompt  goldenPrompt
		Blocks  int
		Ready   []string
		Matched map[string]int
		Engine  []uint64 `json:"engine_ids"`
		Single  bool     `json:"single_event"`
	}
	var x *syncIndex
	var tokens int
	n := eachGolden(t, "index_sync.jsonl", func(c rec) {
		s := DefaultSettings()
		s.Sync.MaxPrefixes = c.Max
		x, tokens = newSyncIndex(s), c.Block/tokenBytes
	}, func(r rec) {
		text := r.Prompt.text()
		hashes := text.AppendHashes(nil, 0, tokens, workload.Tokens)
		switch r.Op {
		case "add":
			require.Len(t, hashes, r.Blocks)
			x.add(0, r.Model, blocks(hashes...), goldenID(t, r.Pod))
		case "match":
			require.Len(t, hashes, r.Blocks)
			got := map[string]int{}
			for name, percent := range matchNames(t, x, 0, r.Model, hashes, r.Ready) {
				got[name] = percent
			}
			require.Equal(t, r.Matched, got, "record %d", r.I)
		case "stored":
			e := BlockStored{Pod: goldenID(t, r.Pod), Model: r.Model, Blocks: r.Engine, Prompt: text, BlockTokens: tokens}
			if r.Single {
				x.stored(0, &e)
				break
			}
			for i, name := range r.Engine {
				e.Blocks, e.Start = []uint64{name}, i*tokens
				x.stored(0, &e)
				e.Parent, e.HasParent = name, true
			}
		case "removed":
			x.blocksRemoved(0, &BlockRemoved{Pod: goldenID(t, r.Pod), Model: r.Model, Blocks: r.Engine})
		default:
			t.Fatalf("unknown op %q", r.Op)
		}
	})
	t.Logf("%d records conform", n)
}

func TestGoldenMetricPolicies(t *testing.T) {
	type podMetrics struct {
		AvgPrompt *float64  `json:"avg_prompt"`
		AvgGen    *float64  `json:"avg_gen"`
		Busy      *float64  `json:"busy"`
		CPU       *float64  `json:"cpu_cache_usage"`
		GPU       *float64  `json:"gpu_cache_usage"`
		KV        *float64  `json:"kv_cache_usage"`
		Queue     *float64  `json:"queue_s"`
		Util      *float64  `json:"util"`
		Prefill   []float64 `json:"prefill"`
		Decode    []float64 `json:"decode"`
	}
	type rec struct {
		Cfg         string
		I           int
		Order       []string
		Metrics     map[string]podMetrics
		Scores      map[string]map[string]float64
		Permissible map[string][]string
	}
	value := func(f *float64) Value {
		if f == nil {
			return Value{}
		}
		return Some(*f)
	}
	mean := func(h []float64) Value {
		if h == nil {
			return Value{}
		}
		return Some(h[0] / h[1])
	}
	names := []string{"least-busy-time", "least-gpu-cache", "least-kv-cache", "least-latency", "least-utilization", "throughput"}
	n := eachGolden(t, "metric_routers.jsonl", func(rec) {}, func(r rec) {
		var list []Pod
		for _, name := range r.Order {
			m := r.Metrics[name]
			list = append(list, Pod{ID: goldenID(t, name), Name: name, Metrics: Metrics{
				BusyTimeRatio: value(m.Busy), KVCacheUsage: value(m.KV), CPUCacheUsage: value(m.CPU),
				GPUCacheUsage: value(m.GPU), Utilization: value(m.Util), QueueTime: value(m.Queue),
				PromptTokens: value(m.AvgPrompt), OutputTokens: value(m.AvgGen),
				PrefillTime: mean(m.Prefill), DecodeTime: mean(m.Decode),
			}})
		}
		require.Len(t, r.Permissible, len(names))
		for _, policy := range names {
			where := fmt.Sprintf("%s record %d %s", r.Cfg, r.I, policy)
			p, err := New(policy, DefaultSettings(), Options{})
			require.NoError(t, err)
			m := p.(*metricPolicy)
			m.choose(list)
			require.Equal(t, r.Permissible[policy], podNames(list, m.best), where)
			scores := map[string]float64{}
			for i, s := range m.scores {
				if !math.IsNaN(s) {
					scores[list[i].Name] = s
				}
			}
			require.Len(t, scores, len(r.Scores[policy]), where)
			for name, s := range r.Scores[policy] {
				require.InDelta(t, s, scores[name], 1e-12, where)
			}
		}
	})
	t.Logf("%d records conform", n)
}
