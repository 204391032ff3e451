package record

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A Phase is the summary of one phase: one load on one cluster under one policy.
type Phase struct {
	Phase    string
	Scenario string
	Route    string // routing policy
	Round    Int    // repetition, from 1
	Seed     Uint

	Planned  Int // arrivals, dropped ones included
	Requests Int // those sent
	Success  Int
	Errors   Int // Rejected + Failed
	Dropped  Int // never sent
	Rejected Int // 429
	Failed   Int // any other that is no success
	Good     Int // successes within every SLO

	Started  Float // s since the run began
	Finished Float
	Elapsed  Float // s, the drain at the end included

	OutputTokensPerSecond Float // successes' output tokens over Elapsed
	TTFT, TPOT, E2E       Percentiles

	Families []Family  // by number; nil: not recorded
	Tenants  []Tenant  // nil: not recorded
	Replicas []Replica // in replica order; nil: not recorded

	CacheHitRatio    Float // hit tokens over queried tokens, all replicas
	InputTokensRange Range

	// RoutingCounterDeltas are the gateway's counters, after minus before. Nil means
	// not captured; empty means that none moved.
	RoutingCounterDeltas []CounterDelta
	ErrorCategories      Counts // requests that are no success, by why; nil: not recorded

	Simulated bool
	Steps     Int // engine iterations
	Events    Int // events of the simulator's queue

	Notes []string // what a reader of the figures must know

	// Other holds further members by name, as raw JSON: those that a file has beyond
	// the schema, and those that Extend adds.
	Other map[string]json.RawMessage
}

// Percentiles are three quantiles of one time over the successes of a phase, in
// seconds, with the number of values behind them.
type Percentiles struct {
	P50, P95, P99 Float
	N             Int // absent when the source does not say
}

// A Range is a smallest and a largest value; both absent over nothing.
type Range struct {
	Min, Max Int
}

// A Family is what a phase says about the requests of one shared-prefix family.
type Family struct {
	Name     string // the family's number
	Requests Int    // sent
	TTFTP95  Float  // s, over successes
}

// A Tenant is what a phase says about one sender; fields as in Phase.
type Tenant struct {
	Name                  string
	Planned, Requests     Int
	Success, Errors       Int
	Dropped               Int
	Rejected, Failed      Int
	Good                  Int
	OutputTokensPerSecond Float
	StatusCounts          Counts // answers by HTTP status
	InputTokensRange      Range
	TTFT, TPOT, E2E       Percentiles
}

// A Replica is what a phase says about one engine.
type Replica struct {
	Name     string
	Requests Int // that ran here

	CacheQueriesTokens Int // prefix-cache look-ups
	CacheHitTokens     Int

	// Peaks of the engine's gauges as the snapshots saw them (every 5 s in the
	// studies); shorter peaks are missed.
	WaitingPeak Int
	RunningPeak Int
	KVUsagePeak Float // 0 to 1

	// True peaks, which only a simulator can know.
	WaitingMax Int
	RunningMax Int
	KVUsageMax Float

	FamilyCounts Counts // in the order in which families first reached the replica
	Preemptions  Int

	// GatewayOutstandingAtSelectionPeak is the largest in-flight count that the
	// gateway held for the replica when choosing it.
	GatewayOutstandingAtSelectionPeak Int

	// Other holds further members by name, as Phase.Other.
	Other map[string]json.RawMessage
}

// A CounterDelta is by how much one gateway counter moved.
type CounterDelta struct {
	Name   string
	Labels map[string]string
	Delta  float64
}

// A Count is a number of requests with a name.
type Count struct {
	Name string
	N    int
}

// Counts are named counts in a fixed order; in JSON an object.
type Counts []Count

// Of is the count called name; 0 when there is none.
func (c Counts) Of(name string) int {
	for _, e := range c {
		if e.Name == name {
			return e.N
		}
	}
	return 0
}

// add counts one more of name, appending it when it is new.
func (c Counts) add(name string) Counts { return c.plus(name, 1) }

// plus counts n more of name, appending it when it is new.
func (c Counts) plus(name string, n int) Counts {
	for i := range c {
		if c[i].Name == name {
			c[i].N += n
			return c
		}
	}
	return append(c, Count{Name: name, N: n})
}

// GoodShare is the goodput share: good over planned arrivals, so that what was
// dropped, rejected or failed counts against it. Absent without planned arrivals.
func (p *Phase) GoodShare() Float { return Ratio(p.Good, p.Planned) }

// SuccessShare is success over planned arrivals. Absent without planned arrivals.
func (p *Phase) SuccessShare() Float { return Ratio(p.Success, p.Planned) }

// Ratio is a over b; absent when either is, or b is 0.
func Ratio(a, b Int) Float {
	n, haveA := a.Get()
	d, haveB := b.Get()
	if !haveA || !haveB || d == 0 {
		return Float{}
	}
	return Some(float64(n) / float64(d))
}

// CacheHitRatio is the hit tokens over the queried tokens of all replicas; absent
// when nothing was queried or a replica's counters are.
func CacheHitRatio(replicas []Replica) Float {
	hits, queries := 0, 0
	for i := range replicas {
		h, haveHits := replicas[i].CacheHitTokens.Get()
		q, haveQueries := replicas[i].CacheQueriesTokens.Get()
		if !haveHits || !haveQueries {
			return Float{}
		}
		hits += h
		queries += q
	}
	return Ratio(Some(hits), Some(queries))
}

// Extend adds the member name, which the schema must not have, with v as
// encoding/json writes it.
func (p *Phase) Extend(name string, v any) error {
	if slices.Contains(phaseNames, name) {
		return fmt.Errorf("record: %q is a member of every phase record, not an extension", name)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("record: member %q: %w", name, err)
	}
	if p.Other == nil {
		p.Other = make(map[string]json.RawMessage)
	}
	p.Other[name] = raw
	return nil
}
