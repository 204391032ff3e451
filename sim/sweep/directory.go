package sweep

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fleetsim/sim"
	"fleetsim/sim/record"
)

// The files of a complete result directory, beside LogFile. A shard has its log
// and its manifest alone.
const (
	ManifestFile   = "manifest.json"
	RunsFile       = "runs.parquet" // a row a run
	RunsCSVFile    = "runs.csv"
	CellsFile      = "cells.csv" // a row a cell: seeds, verdict, digest
	SummaryFile    = "summary.parquet"
	SummaryCSVFile = "summary.csv" // a row a cell and metric: mean, interval, difference
)

// ResultNames are the names of all files that a result directory may hold.
func ResultNames() []string {
	return []string{LogFile, ManifestFile, RunsFile, RunsCSVFile, CellsFile, SummaryFile, SummaryCSVFile}
}

// ResultFiles are the files that dir holds when it has results, or the directories
// of shards, as Open and Merge read them.
func ResultFiles(dir string) []string {
	var files []string
	for _, dir := range append([]string{dir}, begunBelow(dir)...) {
		for _, name := range ResultNames() {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files
}

// A Manifest says what a result directory holds and all that is needed to make
// it again. It is written last: a directory with one is complete.
type Manifest struct {
	Sweep       string            `json:"sweep"` // name
	SweepDigest string            `json:"sweep_digest"`
	Version     string            `json:"version"`
	Shard       Shard             `json:"shard"`
	Scenario    string            `json:"scenario"` // name of the base
	Profiles    []ManifestProfile `json:"profiles"`
	Cells       int               `json:"cells"`
	Runs        int               `json:"runs"`
	Seeds       []uint64          `json:"seeds"` // the most that a cell has
	Looks       []int             `json:"looks"` // numbers of seeds after which cells may stop
	Confidence  float64           `json:"confidence"`
	Methods     map[string]string `json:"methods"`
	Files       map[string]string `json:"files"` // SHA-256, in hexadecimal
	Source      Source            `json:"source"`
}

// A ManifestProfile is a profile that cells of the sweep use.
type ManifestProfile struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// methods says how the figures of the tables come about.
func methods() map[string]string {
	return map[string]string{
		"seeds":      "every cell runs the same seeds (common random numbers)",
		"mean":       "mean over the seeds; mean_low and mean_high: Student's t interval",
		"p5, p95":    "quantiles of the seeds by linear interpolation: 90% of the seeds lie between",
		"difference": "cell minus baseline, seed by seed, with the paired t interval",
		"constraint": "one-sided bound of the t interval of the mean; of a share, the wider of it and the Clopper-Pearson interval of the pooled counts",
		"stopping":   "the error probability of every interval is split evenly between the looks",
	}
}

// IsComplete reports whether dir holds a complete result, of a sweep or a shard.
func IsComplete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ManifestFile))
	return err == nil
}

// Begun reports whether dir holds runs of a sweep, complete or not.
func Begun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, LogFile))
	return err == nil
}

// Commit completes the directory after Execute: the log in the order of its
// cells, the tables, and the manifest. It can be repeated, and gives the same
// bytes however often Execute was begun.
func (s *Sweep) Commit(dir string, r Results, o Options) error {
	if err := s.check(r, o.Shard); err != nil {
		return err
	}
	d, err := record.CreateDir(dir)
	if err != nil {
		return err
	}
	defer d.Abort()
	m := s.manifest(r, o)
	for _, f := range s.files(r, o) {
		w, err := d.Create(f.name)
		if err != nil {
			return err
		}
		sum := sha256.New()
		if err := f.write(io.MultiWriter(w, sum)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		m.Files[f.name] = hex.EncodeToString(sum.Sum(nil))
	}
	w, err := d.Create(ManifestFile)
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		return err
	}
	return d.Commit()
}

// An outFile is one file of a result directory.
type outFile struct {
	name  string
	write func(io.Writer) error
}

func (s *Sweep) files(r Results, o Options) []outFile {
	files := []outFile{{LogFile, func(w io.Writer) error { return s.writeLog(w, s.header(o), r) }}}
	if o.Shard != Whole {
		return files
	}
	runs, cells, summary := s.runsTable(r), s.cellsTable(r), s.summaryTable(r)
	return append(files,
		outFile{RunsFile, func(w io.Writer) error { return runs.writeParquet(w, "runs", o.Version) }},
		outFile{RunsCSVFile, runs.writeCSV},
		outFile{CellsFile, cells.writeCSV},
		outFile{SummaryFile, func(w io.Writer) error { return summary.writeParquet(w, "summary", o.Version) }},
		outFile{SummaryCSVFile, summary.writeCSV},
	)
}

func (s *Sweep) manifest(r Results, o Options) *Manifest {
	m := &Manifest{
		Sweep: s.Name, SweepDigest: s.Digest(), Version: o.Version, Shard: o.Shard,
		Scenario: s.Cells[0].Scenario.Name, Cells: len(s.Cells), Seeds: s.Seeds, Looks: s.looks,
		Confidence: s.Confidence, Methods: methods(), Files: map[string]string{}, Source: s.Source,
	}
	m.Source.File, m.Source.BaseFile = filepath.Base(s.Source.File), filepath.Base(s.Source.BaseFile)
	for _, cell := range s.own(o.Shard) {
		m.Runs += r.Ran(cell)
	}
	for _, c := range s.Cells {
		p := ManifestProfile{c.Profile.Name, ProfileDigest(c.Profile)}
		if !slices.Contains(m.Profiles, p) {
			m.Profiles = append(m.Profiles, p)
		}
	}
	return m
}

// readManifest reads the manifest of dir.
func readManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if Begun(dir) {
			return nil, fmt.Errorf("%s: the results are not complete; sim sweep --resume goes on with them", dir)
		}
		return nil, fmt.Errorf("%s: no results of a sweep are here (there is no %s)", dir, ManifestFile)
	}
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	if _, err := ParseShard(m.Shard.String()); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	return m, nil
}

// verify reports the files of dir that are not what the manifest says.
func (m *Manifest) verify(dir string) error {
	var problems []error
	for _, name := range sortedKeys(m.Files) {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != m.Files[name] {
			problems = append(problems, fmt.Errorf("%s: %w: it is not the file that the manifest tells of", path, ErrDamaged))
		}
	}
	return errors.Join(problems...)
}

// Open reads a complete result directory: the sweep that made it and its
// results. The sweep is made again from the manifest; one that comes out
// different (because a profile has changed, say) is an error.
func Open(dir string) (*Sweep, Results, *Manifest, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := m.resolve(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	r := s.newResults()
	if err := s.load(dir, m, r); err != nil {
		return nil, nil, nil, err
	}
	return s, r, m, s.check(r, m.Shard)
}

func (m *Manifest) resolve(dir string) (*Sweep, error) {
	s, err := m.Source.Resolve()
	if err != nil {
		return nil, fmt.Errorf("%s: the sweep cannot be made again: %w", dir, err)
	}
	if s.Digest() == m.SweepDigest {
		return s, nil
	}
	for _, c := range s.Cells {
		was := slices.IndexFunc(m.Profiles, func(p ManifestProfile) bool { return p.Name == c.Profile.Name })
		if was >= 0 && m.Profiles[was].Digest != ProfileDigest(c.Profile) {
			return nil, fmt.Errorf("%s: the profile %q has changed since these results were made by version %s", dir, c.Profile.Name, m.Version)
		}
	}
	return nil, fmt.Errorf("%s: this version makes another sweep of the same file; the results are of version %s", dir, m.Version)
}

// load adds the runs in dir's log to r.
func (s *Sweep) load(dir string, m *Manifest, r Results) error {
	if err := m.verify(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, LogFile)
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	want := logHeader{Sweep: m.SweepDigest, Version: m.Version, Shard: m.Shard}
	begin := func(found *logHeader) error { return found.matches(want) }
	head, _, err := readLog(path, file, false, begin, func(x run) error { return s.keep(r, x) })
	if err != nil {
		return err
	}
	if head == nil {
		return fmt.Errorf("%s: %w: it is empty", path, ErrDamaged)
	}
	return nil
}

// CellSetups are the runs of one cell of the results in dir, one a seed that it
// ran, to be run again alone.
func CellSetups(dir string, cell int) ([]sim.Setup, error) {
	s, r, _, err := Open(dir)
	if err != nil {
		return nil, err
	}
	if cell < 0 || cell >= len(s.Cells) || r.Ran(cell) == 0 {
		return nil, fmt.Errorf("%s: no cell %d; allowed: 0 to %d (those of the shard)", dir, cell, len(s.Cells)-1)
	}
	var setups []sim.Setup
	for _, seed := range s.Seeds[:r.Ran(cell)] {
		setup := s.Setup(cell, seed)
		setup.Phase = fmt.Sprintf("%s-cell-%d", s.Name, cell)
		setups = append(setups, setup)
	}
	return setups, nil
}

// Merge joins the results of all shards of a sweep. Each of dirs is the directory
// of a shard, or one whose subdirectories are. It fails, naming the shard, when
// one is missing, is there twice, is damaged or is of another sweep or version.
func Merge(dirs []string) (*Sweep, Results, *Manifest, error) {
	shards, err := findShards(dirs)
	if err != nil {
		return nil, nil, nil, err
	}
	first := shards[0]
	if err := complete(shards); err != nil {
		return nil, nil, nil, err
	}
	s, err := first.manifest.resolve(first.dir)
	if err != nil {
		return nil, nil, nil, err
	}
	r := s.newResults()
	var problems []error
	for _, sh := range shards {
		part := s.newResults()
		if err := s.load(sh.dir, sh.manifest, part); err != nil {
			problems = append(problems, fmt.Errorf("shard %s: %w", sh.manifest.Shard, err))
			continue
		}
		if err := s.join(r, part, sh.manifest.Shard); err != nil {
			problems = append(problems, fmt.Errorf("shard %s: %s: %w", sh.manifest.Shard, sh.dir, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, nil, err
	}
	return s, r, first.manifest, s.check(r, Whole)
}

// join moves a shard's runs to r; those of cells that are not its own are an
// error.
func (s *Sweep) join(r, part Results, shard Shard) error {
	own := make([]bool, len(s.Cells))
	for _, cell := range s.own(shard) {
		own[cell] = true
	}
	for cell := range part {
		if !own[cell] && part.Ran(cell) > 0 {
			return fmt.Errorf("%w: it has runs of cell %d, which is not its own", ErrDamaged, cell)
		}
		if own[cell] {
			r[cell] = part[cell]
		}
	}
	return nil
}

// A shardDir is a directory with a shard's results.
type shardDir struct {
	dir      string
	manifest *Manifest
}

// findShards reads the manifests in dirs and directly below them.
func findShards(dirs []string) ([]shardDir, error) {
	var shards []shardDir
	var problems []error
	for _, dir := range dirs {
		found := []string{dir}
		if !Begun(dir) && !IsComplete(dir) {
			if below := begunBelow(dir); len(below) > 0 {
				found = below
			}
		}
		for _, dir := range found {
			m, err := readManifest(dir)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			shards = append(shards, shardDir{dir, m})
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(shards) == 0 {
		return nil, errors.New("no directory of a shard is given")
	}
	return shards, nil
}

func begunBelow(dir string) []string {
	var found []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // readManifest will say what is wrong with dir
	}
	for _, e := range entries {
		below := filepath.Join(dir, e.Name())
		if e.IsDir() && strings.HasPrefix(e.Name(), "shard-") && (Begun(below) || IsComplete(below)) {
			found = append(found, below)
		}
	}
	return found
}

// complete checks that the shards are all parts of one sweep, each once.
func complete(shards []shardDir) error {
	first := shards[0]
	var problems []error
	at := map[int]string{}
	for _, sh := range shards {
		m := sh.manifest
		switch {
		case m.SweepDigest != first.manifest.SweepDigest:
			problems = append(problems, fmt.Errorf("%s is of another sweep than %s", sh.dir, first.dir))
		case m.Version != first.manifest.Version:
			problems = append(problems, fmt.Errorf("%s was made by version %s, %s by %s", sh.dir, m.Version, first.dir, first.manifest.Version))
		case m.Shard.Of != first.manifest.Shard.Of:
			problems = append(problems, fmt.Errorf("%s is shard %s, %s is %s: one sweep, cut differently", sh.dir, m.Shard, first.dir, first.manifest.Shard))
		case at[m.Shard.Index] != "":
			problems = append(problems, fmt.Errorf("shard %s is there twice: %s and %s", m.Shard, at[m.Shard.Index], sh.dir))
		default:
			at[m.Shard.Index] = sh.dir
		}
	}
	if len(problems) == 0 {
		for i := range first.manifest.Shard.Of {
			if at[i] == "" {
				problems = append(problems, fmt.Errorf("shard %s is missing", Shard{i, first.manifest.Shard.Of}))
			}
		}
	}
	return errors.Join(problems...)
}
