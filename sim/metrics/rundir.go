package metrics

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"fleetsim/gunzip"
	"fleetsim/sim"
	"fleetsim/sim/record"
)

// A Sample is one line of a run directory's timeline. The counters count from
// the phase's start; nil where the timeline has none.
type Sample struct {
	Phase    string   `json:"phase"`
	Route    string   `json:"route"`
	Seed     uint64   `json:"seed"`
	At       float64  `json:"relative_seconds"`
	Replica  string   `json:"replica"` // "": the line is about something else
	Running  float64  `json:"running"`
	Waiting  float64  `json:"waiting"`
	KVUsage  float64  `json:"kv_usage"`
	InFlight *float64 `json:"in_flight"`

	CacheQueries *float64 `json:"cache_queries_tokens"`
	CacheHits    *float64 `json:"cache_hit_tokens"`
}

// ReadRunDir reads a run directory, in the order of its phases. A directory
// without a timeline gives an export without gauges. Reading ends when ctx does.
func ReadRunDir(ctx context.Context, path string, o Options) (*Export, error) {
	phases, err := readPhases(path)
	requests := func(f func(*record.Request)) error {
		return open(ctx, filepath.Join(path, record.RequestsFile), func(name string, r io.Reader) error {
			return record.EachRequest(name, r, f)
		})
	}
	if err != nil {
		return nil, errors.Join(err, requests(func(*record.Request) {}))
	}
	x, err := NewExport(phases, o)
	if err != nil {
		return nil, err
	}
	err = open(ctx, filepath.Join(path, sim.TimelineFile), x.readTimeline)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		of := newAssignment(phases)
		err = requests(func(r *record.Request) {
			if i, ok := of.take(r.Phase); ok {
				x.Request(i, r)
			}
		})
		if missing := of.missing(phases); err == nil && missing != nil {
			err = fmt.Errorf("%s: %w", path, missing)
		}
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

func readPhases(path string) (phases []record.Phase, err error) {
	err = open(context.Background(), filepath.Join(path, record.PhasesFile), func(name string, r io.Reader) error {
		phases, err = record.ReadPhases(name, r)
		return err
	})
	return phases, err
}

func open(ctx context.Context, path string, read func(name string, r io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(path, &untilDone{ctx, f})
}

// untilDone reads until a context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// An assignment gives each phase its requests. Phases of one name, such as a scenario
// under several policies, have theirs one after the other.
type assignment struct {
	left   []int            // requests that a phase has not been given yet
	byName map[string][]int // phases by name, those first that still want requests
}

func newAssignment(phases []record.Phase) *assignment {
	a := &assignment{byName: make(map[string][]int)}
	for i := range phases {
		a.left = append(a.left, recorded(&phases[i]))
		a.byName[phases[i].Phase] = append(a.byName[phases[i].Phase], i)
	}
	return a
}

// take is the phase that the next request of the name belongs to; requests beyond
// those of all phases belong to none.
func (a *assignment) take(name string) (phase int, ok bool) {
	of := a.byName[name]
	for len(of) > 0 && a.left[of[0]] <= 0 {
		of = of[1:]
		a.byName[name] = of
	}
	if len(of) == 0 {
		return 0, false
	}
	a.left[of[0]]--
	return of[0], true
}

// missing reports a phase without all of its requests.
func (a *assignment) missing(phases []record.Phase) error {
	for i := range phases {
		if p := &phases[i]; a.left[i] > 0 {
			n := recorded(p)
			return fmt.Errorf("phase %s under %s says %d requests; the request records hold %d", p.Phase, p.Route, n, n-a.left[i])
		}
	}
	return nil
}

// recorded is the number of request records that the phase has: one for each
// arrival, dropped ones too.
func recorded(p *record.Phase) int { return p.Requests.Or(0) + p.Dropped.Or(0) }

func (x *Export) readTimeline(name string, r io.Reader) error {
	packed, err := gunzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	in := json.NewDecoder(packed)
	places := make(map[origin]int) // of those seen; -1: of no phase
	for line := 1; ; line++ {
		var s Sample
		switch err := in.Decode(&s); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s:%d: %w", name, line, err)
		}
		if s.Replica == "" {
			continue
		}
		from := origin{s.Phase, s.Route, s.Seed}
		i, seen := places[from]
		if !seen {
			i = slices.IndexFunc(x.phases, from.of)
			places[from] = i
		}
		if i >= 0 {
			x.Sample(i, &s)
		}
	}
}

// An origin is what a line of the timeline says of its phase.
type origin struct {
	phase, route string
	seed         uint64
}

func (o origin) of(p *phase) bool {
	return p.record.Phase == o.phase && p.record.Route == o.route && p.record.Seed.Or(o.seed) == o.seed
}
