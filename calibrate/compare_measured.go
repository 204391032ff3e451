package calibrate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"fleetsim/gunzip"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/simtime"
)

// A Measured is one measured phase as its files have it.
type Measured struct {
	Source string        // the file or directory it was read from
	Record *record.Phase // nil: request records alone
	// Requests are in any order; nil: the phase record alone.
	Requests []record.Request

	phase  string
	gauges gauges
}

// Policy is the policy that the phase ran under; "" when its files do not say.
func (m *Measured) Policy() string {
	if m.Record == nil {
		return ""
	}
	return m.Record.Route
}

// ReadMeasured reads measured phases, in the order of their first record, from
// files of phase and request records (JSON lines or JSON, plain or gzip) and from run
// directories. Phase records and request records of one name belong together, within
// a directory or among all the files. The error lists every problem, most as
// record.LineError.
func ReadMeasured(paths ...string) ([]*Measured, error) {
	var (
		files    source
		sources  []*source
		problems []error
	)
	for _, path := range paths {
		s := &files
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			s = &source{}
		}
		if !slices.Contains(sources, s) {
			sources = append(sources, s)
		}
		if err := s.read(path); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	var all []*Measured
	for _, s := range sources {
		measured, err := s.phases()
		if err != nil {
			problems = append(problems, err)
		}
		all = append(all, measured...)
	}
	return all, errors.Join(problems...)
}

// A source is files whose records belong together.
type source struct {
	names    []string // phases in the order of their first record
	records  map[string][]*Measured
	requests map[string][]record.Request
	from     map[string]string // the file that first named the phase
	samples  []sim.Sample
}

// runFiles are what a run directory may hold.
var runFiles = []string{record.PhasesFile, record.PhasesFile + ".gz", "requests.jsonl", record.RequestsFile}

// read adds what is in a file or a run directory.
func (s *source) read(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w; allowed are files of phase or request records and run directories", path, cause(err))
	}
	if !info.IsDir() {
		return s.readRecords(path)
	}
	found := false
	for _, name := range runFiles {
		file := filepath.Join(path, name)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		found = true
		if err := s.readRecords(file); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s: no run directory: it has none of %v", path, runFiles)
	}
	return s.readTimeline(filepath.Join(path, sim.TimelineFile))
}

func cause(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

func (s *source) readRecords(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, cause(err))
	}
	defer f.Close()
	phases, requests, err := record.Read(path, f)
	if err != nil {
		return err
	}
	if len(phases)+len(requests) == 0 {
		return fmt.Errorf("%s: no records: allowed are phase records and request records", path)
	}
	for i := range phases {
		s.meet(phases[i].Phase, path)
		s.records[phases[i].Phase] = append(s.records[phases[i].Phase], &Measured{
			Source: path, Record: &phases[i], phase: phases[i].Phase,
		})
	}
	for _, r := range requests {
		s.meet(r.Phase, path)
		s.requests[r.Phase] = append(s.requests[r.Phase], r)
	}
	return nil
}

// meet notes a phase's name.
func (s *source) meet(phase, path string) {
	if s.records == nil {
		s.records, s.requests, s.from = map[string][]*Measured{}, map[string][]record.Request{}, map[string]string{}
	}
	if _, known := s.from[phase]; !known {
		s.names, s.from[phase] = append(s.names, phase), path
	}
}

// phases joins records and requests.
func (s *source) phases() ([]*Measured, error) {
	var all []*Measured
	var problems []error
	for _, name := range s.names {
		measured := s.records[name]
		if requests := s.requests[name]; len(requests) > 0 {
			if len(measured) == 0 {
				measured = []*Measured{{Source: s.from[name], phase: name}}
			}
			if err := share(requests, measured); err != nil {
				problems = append(problems, fmt.Errorf("%s: phase %q: %w", s.from[name], name, err))
			}
		}
		all = append(all, measured...)
	}
	for i := range s.samples {
		for _, m := range all {
			if m.owns(&s.samples[i]) {
				m.gauges.add(&s.samples[i])
			}
		}
	}
	return all, errors.Join(problems...)
}

// share gives each phase of one name its requests. Request records have neither
// policy nor seed; a run of several writes the requests of one after the other, a
// record for each planned arrival.
func share(requests []record.Request, among []*Measured) error {
	if len(among) == 1 {
		among[0].Requests = requests
		return nil
	}
	planned := 0
	for _, m := range among {
		n, ok := m.Record.Planned.Get()
		if !ok {
			return fmt.Errorf("%d phase records have this name and %d requests do not say whose they are", len(among), len(requests))
		}
		planned += n
	}
	if planned != len(requests) {
		return fmt.Errorf("%d phase records have this name and %d requests do not say whose they are: by the phase records there should be %d", len(among), len(requests), planned)
	}
	for _, m := range among {
		n := m.Record.Planned.Or(0)
		m.Requests, requests = requests[:n:n], requests[n:]
	}
	return nil
}

func (m *Measured) owns(s *sim.Sample) bool {
	if m.phase != s.Phase {
		return false
	}
	return m.Record == nil || m.Record.Route == s.Route && m.Record.Seed == record.Some(s.Seed)
}

// readTimeline adds the samples of a run directory's timeline, if it has one.
func (s *source) readTimeline(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, cause(err))
	}
	defer f.Close()
	samples, err := readSamples(path, f)
	s.samples = append(s.samples, samples...)
	return err
}

// readSamples reads the gauges of a timeline, gzip JSON lines; lines about
// scaling are passed over.
func readSamples(name string, r io.Reader) ([]sim.Sample, error) {
	unpacked, err := gunzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return nil, &record.LineError{File: name, Line: 1, Problem: fmt.Sprintf("no gzip data: %v", err)}
	}
	var samples []sim.Sample
	lines := bufio.NewScanner(unpacked)
	lines.Buffer(nil, 1<<20)
	number := 0
	for lines.Scan() {
		number++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line struct {
			Phase    string   `json:"phase"`
			Route    string   `json:"route"`
			Seed     uint64   `json:"seed"`
			At       *float64 `json:"relative_seconds"`
			Replica  string   `json:"replica"`
			Running  int      `json:"running"`
			Waiting  int      `json:"waiting"`
			KVUsage  float64  `json:"kv_usage"`
			InFlight int      `json:"in_flight"`
		}
		err := json.Unmarshal(lines.Bytes(), &line)
		if err == nil && line.At == nil {
			err = errors.New("no relative_seconds: not a line of a timeline")
		}
		if err != nil {
			return samples, &record.LineError{File: name, Line: number, Problem: err.Error()}
		}
		if line.Replica == "" {
			continue
		}
		samples = append(samples, sim.Sample{
			Phase: line.Phase, Route: line.Route, Seed: line.Seed, At: simtime.FromSeconds(*line.At), Replica: line.Replica,
			Running: line.Running, Waiting: line.Waiting, KVUsage: line.KVUsage, InFlight: line.InFlight,
		})
	}
	if err := lines.Err(); err != nil {
		return samples, &record.LineError{File: name, Line: number + 1, Problem: fmt.Sprintf("cannot read on: %v", err)}
	}
	return samples, nil
}

// summary is the phase's record: the file's, with every figure that request
// records give taken from these, by slo. Where they contradict it, a note says so.
func (m *Measured) summary(slo record.SLO) *record.Phase {
	if m.Requests == nil {
		return m.Record
	}
	said := m.Record
	if said == nil {
		said = &record.Phase{}
	}
	planned := said.Planned
	if !planned.Valid() {
		planned = plannedOf(m.Requests)
	}
	p := record.Summarize(m.Requests, slo, record.Meta{
		Phase: m.phase, Scenario: said.Scenario, Route: said.Route, Round: said.Round, Seed: said.Seed,
		Planned: planned, Elapsed: said.Elapsed, Simulated: said.Simulated,
	})
	if !planned.Valid() {
		forgetPlanned(&p)
	}
	if said.Replicas != nil {
		p.Replicas = said.Replicas
	}
	p.CacheHitRatio, p.RoutingCounterDeltas = said.CacheHitRatio, said.RoutingCounterDeltas
	p.Started, p.Finished = said.Started, said.Finished
	p.Notes = append(append(p.Notes, said.Notes...), contradictions(said, &p)...)
	return &p
}

// plannedOf is the number of planned arrivals if every one has a record: dropped
// ones are among them, or they are numbered without a gap.
func plannedOf(requests []record.Request) record.Int {
	numbered := make([]bool, len(requests))
	count := 0
	for i := range requests {
		if requests[i].Outcome() == record.DroppedArrival {
			return record.Some(len(requests))
		}
		at, ok := requests[i].Index.Get()
		if ok && at < len(requests) && !numbered[at] {
			numbered[at] = true
			count++
		}
	}
	if count < len(requests) {
		return record.Int{}
	}
	return record.Some(count)
}

// forgetPlanned makes absent what nobody measured: arrivals that were never sent.
func forgetPlanned(p *record.Phase) {
	p.Planned, p.Dropped = record.Int{}, record.Int{}
	for i := range p.Tenants {
		p.Tenants[i].Planned, p.Tenants[i].Dropped = record.Int{}, record.Int{}
	}
}

// contradictions are the counts that the phase record and its requests disagree
// about.
func contradictions(said, found *record.Phase) []string {
	var notes []string
	for _, c := range []struct {
		name        string
		said, found record.Int
	}{
		{"requests", said.Requests, found.Requests},
		{"success", said.Success, found.Success},
		{"good", said.Good, found.Good},
	} {
		if c.said.Valid() && c.said != c.found {
			notes = append(notes, fmt.Sprintf("the phase record says %s %s, its request records give %s", c.name, c.said, c.found))
		}
	}
	return notes
}
