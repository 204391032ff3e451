package metrics

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"fleetsim/sim"
	"fleetsim/sim/record"
)

// A Run is one phase with the records behind it.
type Run struct {
	Phase    record.Phase
	Requests []record.Request
	Timeline []Sample
}

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
// without a timeline gives runs without one.
func ReadRunDir(path string) ([]Run, error) {
	var phases []record.Phase
	var requests []record.Request
	err := errors.Join(
		open(filepath.Join(path, record.PhasesFile), func(name string, r io.Reader) (err error) {
			phases, err = record.ReadPhases(name, r)
			return err
		}),
		open(filepath.Join(path, record.RequestsFile), func(name string, r io.Reader) (err error) {
			requests, err = record.ReadRequests(name, r)
			return err
		}))
	if err != nil {
		return nil, err
	}
	runs, err := assign(phases, requests)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = open(filepath.Join(path, sim.TimelineFile), func(name string, r io.Reader) error {
		return readTimeline(name, r, runs)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return runs, nil
}

func open(path string, read func(name string, r io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(path, f)
}

// assign gives each phase its requests. Phases of one name, such as a scenario
// under several policies, have theirs one after the other.
func assign(phases []record.Phase, requests []record.Request) ([]Run, error) {
	runs := make([]Run, len(phases))
	byName := make(map[string][]record.Request)
	for _, r := range requests {
		byName[r.Phase] = append(byName[r.Phase], r)
	}
	for i, p := range phases {
		of := byName[p.Phase]
		n := recorded(&p)
		if n > len(of) {
			return nil, fmt.Errorf("phase %s under %s says %d requests; the request records hold %d", p.Phase, p.Route, n, len(of))
		}
		runs[i] = Run{Phase: p, Requests: of[:n:n]}
		byName[p.Phase] = of[n:]
	}
	return runs, nil
}

// recorded is the number of request records that the phase has: one for each
// arrival, dropped ones too.
func recorded(p *record.Phase) int { return p.Requests.Or(0) + p.Dropped.Or(0) }

func readTimeline(name string, r io.Reader, runs []Run) error {
	packed, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	in := json.NewDecoder(packed)
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
		for i := range runs {
			p := &runs[i].Phase
			if p.Phase == s.Phase && p.Route == s.Route && p.Seed.Or(s.Seed) == s.Seed {
				runs[i].Timeline = append(runs[i].Timeline, s)
				break
			}
		}
	}
}
