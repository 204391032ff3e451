package sweep

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
	"fleetsim/sim"
)

// child is a process that runs the sweep in dir, and is killed when it has done
// runs of it; 0: it is not.
func child(dir string, runs int) {
	s, err := source(smallSweep, smallBase).Resolve()
	if err != nil {
		panic(err)
	}
	o := Options{Shard: Whole, Version: "test", Progress: func(int, int) {
		if runs--; runs != 0 {
			return
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		panic(err) // not reached, but for want of a killer
	}}
	r, err := s.Execute(context.Background(), dir, o)
	if err != nil {
		panic(err)
	}
	if err := s.Commit(dir, r, o); err != nil {
		panic(err)
	}
}

// A sweep that is killed again and again, and gone on with each time, has the same
// bytes as one that ran through.
func TestKilled(t *testing.T) {
	run := func(dir string, runs int) error {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SWEEP_TEST_CHILD="+dir, "SWEEP_TEST_RUNS="+strconv.Itoa(runs))
		return cmd.Run()
	}
	whole := t.TempDir()
	require.NoError(t, run(whole, 0))

	killed := t.TempDir()
	rng := random.Stream(4, "kill")
	for range 10 {
		require.Error(t, run(killed, 1+rng.IntN(4)))
		require.FileExists(t, filepath.Join(killed, LogFile))
		require.False(t, IsComplete(killed))
	}
	require.NoError(t, run(killed, 0))
	want := contents(t, whole)
	got := contents(t, killed)
	for name := range got { // a file being written when the kill came
		if strings.HasSuffix(name, ".tmp") {
			delete(got, name)
		}
	}
	require.Equal(t, want, got)
}

// A log cut off after any byte is gone on with to the same bytes.
func TestCutAnywhere(t *testing.T) {
	s := resolve(t, strings.Replace(smallSweep, "to = 6", "to = 2", 1))
	whole := t.TempDir()
	execute(t, s, whole, Whole)
	want := contents(t, whole)
	log := want[LogFile]
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		cut := rapid.IntRange(0, len(log)).Draw(rt, "cut")
		require.NoError(t, os.WriteFile(filepath.Join(dir, LogFile), []byte(log[:cut]), 0o600))
		execute(t, s, dir, Whole)
		require.Equal(t, want, contents(t, dir))
	})
}

// Going on redoes nothing that the log has.
func TestResumeRedoesNothing(t *testing.T) {
	s := resolve(t, smallSweep)
	dir := t.TempDir()
	r := execute(t, s, dir, Whole)
	runs := 0
	for cell := range s.Cells {
		runs += r.Ran(cell)
	}
	first := -1
	o := Options{Shard: Whole, Version: "test", Progress: func(done, _ int) {
		if first < 0 {
			first = done
		}
	}}
	_, err := s.Execute(context.Background(), dir, o)
	require.NoError(t, err)
	require.Equal(t, runs, first)
}

func TestOtherResults(t *testing.T) {
	s := resolve(t, smallSweep)
	dir := t.TempDir()
	execute(t, s, dir, Whole)
	ctx := context.Background()
	_, err := resolve(t, strings.Replace(smallSweep, "0.9]", "0.8]", 1)).Execute(ctx, dir, Options{Shard: Whole, Version: "test"})
	require.ErrorContains(t, err, "another sweep")
	_, err = s.Execute(ctx, dir, Options{Shard: Whole, Version: "newer"})
	require.ErrorContains(t, err, "made by version test, this is newer")
	_, err = s.Execute(ctx, dir, Options{Shard: Shard{0, 2}, Version: "test"})
	require.ErrorContains(t, err, "shard 0/1, not of 0/2")
	require.ErrorIs(t, err, ErrOther)
	// A sweep that lacks some of the cells is another one too, not a damaged one.
	_, err = resolve(t, strings.Replace(smallSweep, "to = 6", "to = 2", 1)).Execute(ctx, dir, Options{Shard: Whole, Version: "test"})
	require.ErrorIs(t, err, ErrOther)
	require.NotErrorIs(t, err, ErrDamaged)
}

// Results are as readable as other files, whatever temporary files are.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	execute(t, resolve(t, smallSweep), dir, Whole)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 7)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o644), info.Mode(), e.Name())
	}
}

// Every way to damage a log but cutting its end is an error with its line.
func TestDamagedLog(t *testing.T) {
	s := resolve(t, smallSweep)
	dir := t.TempDir()
	execute(t, s, dir, Whole)
	log := contents(t, dir)[LogFile]
	lines := strings.SplitAfter(log, "\n")
	other, err := appendLine(nil, run{0, 7, make(Values, len(s.Metrics))})
	require.NoError(t, err)
	cell, err := appendLine(nil, run{99, 7, make(Values, len(s.Metrics))})
	require.NoError(t, err)
	seed, err := appendLine(nil, run{0, 6, make(Values, len(s.Metrics))})
	require.NoError(t, err)
	short, err := appendLine(nil, run{0, 7, nil})
	require.NoError(t, err)
	for name, c := range map[string]struct{ log, want string }{
		"a flipped bit":   {lines[0] + strings.Replace(lines[1], "0", "1", 1) + strings.Join(lines[2:], ""), ":2: damaged: the checksum does not match"},
		"a lost checksum": {lines[0] + lines[1][9:] + strings.Join(lines[2:], ""), ":2: damaged: the line has no checksum"},
		"the header":      {"x" + log, ":1: damaged"},
		"another value":   {log + string(other) + lines[1], "twice with different values"},
		"another cell":    {log + string(cell) + lines[1], "there is no cell 99"},
		"another seed":    {log + string(seed) + lines[1], "cell 0 has no seed 6"},
		"few values":      {log + string(short) + lines[1], "0 values for"},
		"a long line":     {log + strings.Repeat("x", maxLine+100_000) + "\n", "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, LogFile)
			require.NoError(t, os.WriteFile(path, []byte(c.log), 0o600))
			_, err := s.Execute(context.Background(), dir, Options{Shard: Whole, Version: "test"})
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.log, contents(t, dir)[LogFile], "nothing is thrown away")
		})
	}
	// The same run twice, as two processes at once would leave it, is one run.
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, LogFile), []byte(lines[0]+lines[1]+lines[1]+lines[2]), 0o600))
	execute(t, s, dir, Whole)
	require.Equal(t, log, contents(t, dir)[LogFile])
}

// Eight shards, run in any order and merged, have the same bytes as one run; so
// have more shards than there are groups.
func TestShards(t *testing.T) {
	for name, text := range map[string]string{
		"groups": smallSweep,
		"cells":  strings.Split(strings.Replace(strings.Replace(smallSweep, "[objective]\nminimise = \"replicas\"\n", "", 1), `given = ["hot"]`, "", 1), "[stop]")[0],
	} {
		t.Run(name, func(t *testing.T) {
			s := resolve(t, text)
			whole, parts, merged := t.TempDir(), t.TempDir(), t.TempDir()
			execute(t, s, whole, Whole)
			for _, i := range random.Stream(5, "order").Perm(8) {
				execute(t, s, filepath.Join(parts, Shard{i, 8}.DirName()), Shard{i, 8})
			}
			m, r, manifest, err := Merge([]string{parts})
			require.NoError(t, err)
			require.NoError(t, m.Commit(merged, r, Options{Shard: Whole, Version: manifest.Version}))
			require.Equal(t, contents(t, whole), contents(t, merged))
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	s := resolve(t, smallSweep)
	dir := func(i int) string { return Shard{i, 3}.DirName() }
	for name, c := range map[string]struct {
		change func(root string) []string
		want   []string
	}{
		"missing":            {func(string) []string { return []string{dir(0), dir(2)} }, []string{"shard 1/3 is missing"}},
		"two missing":        {func(string) []string { return []string{dir(2)} }, []string{"shard 0/3 is missing", "shard 1/3 is missing"}},
		"doubled":            {func(string) []string { return []string{dir(0), dir(1), dir(1), dir(2)} }, []string{"shard 1/3 is there twice"}},
		"nothing":            {func(string) []string { return nil }, []string{"no directory"}},
		"an empty directory": {func(root string) []string { return []string{"."} }, []string{"no results of a sweep"}},
		"incomplete": {func(root string) []string {
			must(os.Remove(filepath.Join(root, dir(1), ManifestFile)))
			return []string{dir(0), dir(1), dir(2)}
		}, []string{dir(1), "not complete", "--resume"}},
		"a damaged log": {func(root string) []string {
			damage(filepath.Join(root, dir(1), LogFile))
			return []string{dir(0), dir(1), dir(2)}
		}, []string{"shard 1/3", dir(1), "damaged"}},
		"a damaged manifest": {func(root string) []string {
			must(os.WriteFile(filepath.Join(root, dir(1), ManifestFile), []byte("{"), 0o600))
			return []string{dir(0), dir(1), dir(2)}
		}, []string{dir(1), ManifestFile, "damaged"}},
		"a lost log": {func(root string) []string {
			must(os.Remove(filepath.Join(root, dir(1), LogFile)))
			return []string{dir(0), dir(1), dir(2)}
		}, []string{"shard 1/3", LogFile}},
		"another cut": {func(root string) []string {
			execute(t, s, filepath.Join(root, "other"), Shard{1, 2})
			return []string{dir(0), "other", dir(2)}
		}, []string{"other is shard 1/2"}},
		"another sweep": {func(root string) []string {
			execute(t, resolve(t, strings.Replace(smallSweep, "0.9]", "0.8]", 1)), filepath.Join(root, "other"), Shard{1, 3})
			return []string{dir(0), "other", dir(2)}
		}, []string{"other is of another sweep"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for i := range 3 {
				execute(t, s, filepath.Join(root, dir(i)), Shard{i, 3})
			}
			dirs := c.change(root)
			for i := range dirs {
				dirs[i] = filepath.Join(root, dirs[i])
			}
			if name == "an empty directory" {
				dirs[0] = t.TempDir()
			}
			_, _, _, err := Merge(dirs)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func damage(path string) {
	data, err := os.ReadFile(path)
	must(err)
	data[len(data)/2] ^= 1
	must(os.WriteFile(path, data, 0o600))
}

// A shard whose runs are all whole but not those that the rule asks for is found
// out.
func TestMergeChecksTheRule(t *testing.T) {
	s := resolve(t, smallSweep)
	r, err := s.Run(context.Background(), 0)
	require.NoError(t, err)
	for cell := range s.Cells {
		if n := r.Ran(cell); n < len(s.Seeds) {
			r[cell][n] = r[cell][0]
			require.ErrorContains(t, s.check(r, Whole), "does not ask for")
			r[cell][n] = nil
			break
		}
	}
	require.NoError(t, s.check(r, Whole))
	r[3][0] = nil
	require.ErrorContains(t, s.check(r, Whole), "cell 3 (hot=0 replicas=4) is missing the run with seed 7")
}

func TestOpenAndRunAgain(t *testing.T) {
	s := resolve(t, smallSweep)
	dir := t.TempDir()
	r := execute(t, s, dir, Whole)
	again, loaded, m, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, s.Digest(), again.Digest())
	require.Equal(t, "test", m.Version)
	require.NotEmpty(t, m.Profiles[0].Digest)
	for cell := range s.Cells {
		require.Equal(t, r.Ran(cell), loaded.Ran(cell))
	}
	// Any row can be made again alone.
	setups, err := CellSetups(dir, 8)
	require.NoError(t, err)
	require.Len(t, setups, r.Ran(8))
	phase, err := sim.Run(setups[2])
	require.NoError(t, err)
	require.True(t, again.values(phase).same(r[8][2]))

	_, err = CellSetups(dir, 12)
	require.ErrorContains(t, err, "allowed: 0 to 11")
	damage(filepath.Join(dir, RunsCSVFile))
	_, _, _, err = Open(dir)
	require.ErrorContains(t, err, RunsCSVFile+": damaged")
	_, _, _, err = Open(t.TempDir())
	require.ErrorContains(t, err, "no results of a sweep")
}

// Parquet and CSV hold the same, and what the log holds.
func TestTables(t *testing.T) {
	s := resolve(t, smallSweep)
	dir := t.TempDir()
	r := execute(t, s, dir, Whole)
	for _, base := range []string{"runs", "summary"} {
		data, err := os.ReadFile(filepath.Join(dir, base+".parquet"))
		require.NoError(t, err)
		file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		lines, err := csv.NewReader(strings.NewReader(contents(t, dir)[base+".csv"])).ReadAll()
		require.NoError(t, err)
		var names []string
		for _, f := range file.Schema().Fields() {
			names = append(names, f.Name())
		}
		require.Equal(t, lines[0], names, "the columns have one order")
		require.Equal(t, int64(len(lines)-1), file.NumRows())
		rows := file.RowGroups()[0].Rows()
		buf := make([]parquet.Row, 1)
		for _, line := range lines[1:] {
			n, err := rows.ReadRows(buf)
			require.True(t, n == 1 && (err == nil || errors.Is(err, io.EOF)))
			for i, v := range buf[0] {
				require.Equal(t, line[i], parquetText(v), names[i])
			}
		}
		require.NoError(t, rows.Close())
	}
	lines, err := csv.NewReader(strings.NewReader(contents(t, dir)[RunsCSVFile])).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"cell", "seed", "hot", "replicas", "good_share"}, lines[0][:5])
	at := 1
	for cell := range s.Cells {
		for k := range r.Ran(cell) {
			good, err := strconv.ParseFloat(lines[at][4], 64)
			require.NoError(t, err)
			require.Equal(t, r[cell][k][0], good)
			at++
		}
	}
	require.Len(t, lines, at)
}

func parquetText(v parquet.Value) string {
	switch v.Kind() {
	case parquet.Double:
		return strconv.FormatFloat(v.Double(), 'g', -1, 64)
	case parquet.Int64:
		return fmt.Sprint(v.Int64())
	}
	if v.IsNull() {
		return ""
	}
	return string(v.ByteArray())
}

func TestParseShard(t *testing.T) {
	s, err := ParseShard("7/8")
	require.NoError(t, err)
	require.Equal(t, Shard{7, 8}, s)
	require.Equal(t, "shard-7-of-8", s.DirName())
	for _, text := range []string{"", "1", "8/8", "-1/8", "a/b", "0/0", "0/1000000", "1/2/3"} {
		_, err := ParseShard(text)
		require.ErrorContains(t, err, "allowed is i/n", text)
	}
}

func TestValuesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := Values(rapid.SliceOf(rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN()))).Draw(t, "values"))
		for i := range v {
			if math.IsInf(v[i], 0) {
				v[i] = math.NaN() // a Phase has no infinite figure
			}
		}
		line, err := appendLine(nil, run{3, 4, v})
		require.NoError(t, err)
		var back run
		require.NoError(t, parseLine(line[:len(line)-1], &back))
		require.True(t, v.same(back.Values))
	})
}

// Whatever a log holds, reading it ends with an error that names the line or with
// runs; what it counts as whole reads the same again.
func FuzzReadLog(f *testing.F) {
	head, err := appendLine(nil, logHeader{"digest", "v", Whole})
	require.NoError(f, err)
	line, err := appendLine(nil, run{0, 7, Values{1, math.NaN()}})
	require.NoError(f, err)
	f.Add(append(head, line...))
	f.Add(append(head, line[:len(line)-3]...))
	f.Add([]byte("00000000 \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var runs []run
		add := func(r run) error {
			runs = append(runs, r)
			return nil
		}
		begin := func(*logHeader) error { return nil }
		_, whole, err := readLog("log", bytes.NewReader(data), true, begin, add)
		if err != nil {
			require.ErrorContains(t, err, "log:")
			return
		}
		n := len(runs)
		require.LessOrEqual(t, whole, int64(len(data)))
		_, again, err := readLog("log", bytes.NewReader(data[:whole]), false, begin, add)
		require.NoError(t, err)
		require.Equal(t, whole, again)
		require.Len(t, runs, 2*n)
	})
}
