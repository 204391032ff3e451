package router

import (
	"cmp"
	"slices"
	"strconv"
)

// A Label is one label of a counter.
type Label struct{ Name, Value string }

// A Counter is one of the gateway's Prometheus counters with its value since the
// start of the run. Labels are sorted by name.
type Counter struct {
	Name   string
	Labels []Label
	Value  int64
}

// A CounterSource is a policy with counters of its own.
type CounterSource interface {
	// AppendCounters appends those that are not 0, in any order.
	AppendCounters(dst []Counter) []Counter
}

// AddCounters adds the counters of another gateway to sums; both are sorted as
// Gateway.Counters are, and so is the result.
func AddCounters(sums, more []Counter) []Counter {
	for _, c := range more {
		i, found := slices.BinarySearchFunc(sums, c, compareCounters)
		if found {
			sums[i].Value += c.Value
		} else {
			sums = slices.Insert(sums, i, c)
		}
	}
	return sums
}

// compareCounters orders counters by name, then label by label.
func compareCounters(a, b Counter) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), slices.CompareFunc(a.Labels, b.Labels, func(x, y Label) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Value, y.Value))
	}))
}

// The labels of a prefix-cache decision.
const (
	SelectionMatch    = "prefix_match"           // a pod that the index named
	SelectionSkipped  = "prefix_match_skipped"   // every pod it named was too busy
	SelectionFallback = "least_request_fallback" // it named none
)

var selections = [...]string{SelectionMatch, SelectionSkipped, SelectionFallback}

var buckets = [...]string{"0", "1-25", "26-50", "51-75", "76-100"}

// bucketOf is the place in buckets of a match percentage.
func bucketOf(percent int) int { return (percent + 24) / 25 }

// prefixCounters are the counters of the prefix-cache policy for one model.
type prefixCounters struct {
	model      string
	decisions  [len(buckets)]int64
	selections [len(selections)]int64
	imbalances int64
}

func (c *prefixCounters) count(percent int, selection string, imbalanced bool) {
	c.decisions[bucketOf(percent)]++
	c.selections[slices.Index(selections[:], selection)]++
	if imbalanced {
		c.imbalances++
	}
}

// appendTo appends the counters that are not 0. A cluster's only model has no
// name and so no label, as in the published studies.
func (c *prefixCounters) appendTo(dst []Counter, kvSync bool) []Counter {
	add := func(name, key, value string, n int64) {
		if n == 0 {
			return
		}
		labels := []Label{{"using_kv_sync", strconv.FormatBool(kvSync)}}
		if key != "" {
			labels = append(labels, Label{key, value})
		}
		if c.model != "" {
			labels = append(labels, Label{"model", c.model})
		}
		slices.SortFunc(labels, func(a, b Label) int { return cmp.Compare(a.Name, b.Name) })
		dst = append(dst, Counter{"aibrix_prefix_cache_" + name, labels, n})
	}
	for i, n := range c.decisions {
		add("routing_decisions_total", "match_percent_bucket", buckets[i], n)
	}
	for i, n := range c.selections {
		add("routing_selection_total", "selection", selections[i], n)
	}
	add("load_imbalance_total", "", "", c.imbalances)
	return dst
}
