package sweep

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// LogFile is the name of the log of finished runs in a result directory.
//
// It is text: a line a run, each with the CRC-32C of the rest of it in front, in
// hexadecimal. The first line is the header. A run that was being written when
// the process was killed is a last line that does not end or does not match its
// sum; reading the log to go on cuts it off. Damage anywhere else is an error.
const LogFile = "runs.log"

// A logHeader says whose runs a log holds.
type logHeader struct {
	Sweep   string `json:"sweep"` // digest
	Version string `json:"version"`
	Shard   Shard  `json:"shard"`
}

// A run is one finished run of a log.
type run struct {
	Cell   int    `json:"cell"`
	Seed   uint64 `json:"seed"`
	Values Values `json:"values"`
}

// MarshalJSON writes the values as numbers that read back exactly; NaN as null.
func (v Values) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, x := range v {
		if i > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(x) {
			out = append(out, "null"...)
			continue
		}
		out = strconv.AppendFloat(out, x, 'g', -1, 64)
	}
	return append(out, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Values) UnmarshalJSON(data []byte) error {
	var numbers []*float64
	if err := json.Unmarshal(data, &numbers); err != nil {
		return err
	}
	*v = make(Values, len(numbers))
	for i, n := range numbers {
		(*v)[i] = math.NaN()
		if n != nil {
			(*v)[i] = *n
		}
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendLine appends v as a line of a log.
func appendLine(dst []byte, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dst = fmt.Appendf(dst, "%08x ", crc32.Checksum(body, castagnoli))
	return append(append(dst, body...), '\n'), nil
}

// What keeps the results in a directory from being used.
var (
	ErrDamaged = errors.New("damaged")
	ErrOther   = errors.New("these are other results") // of another sweep, version or shard
)

// parseLine is the content of a line of a log, without its end.
func parseLine(line []byte, v any) error {
	var sum [4]byte
	if len(line) < 9 || line[8] != ' ' {
		return fmt.Errorf("%w: the line has no checksum", ErrDamaged)
	}
	if _, err := hex.Decode(sum[:], line[:8]); err != nil {
		return fmt.Errorf("%w: the line has no checksum", ErrDamaged)
	}
	body := line[9:]
	if got := crc32.Checksum(body, castagnoli); got != uint32(sum[0])<<24|uint32(sum[1])<<16|uint32(sum[2])<<8|uint32(sum[3]) {
		return fmt.Errorf("%w: the checksum does not match", ErrDamaged)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// maxLine bounds a line of a log.
const maxLine = 1 << 20

// readLog reads a log, called name in messages, hands its header to begin and then
// each run to add: runs of another sweep must not be taken for damage. It returns the header (nil when the log ends before the first line does) and the
// length of what is whole: with torn set, a last line that is not whole is
// passed over, otherwise it is an error like every other damage.
func readLog(name string, in io.Reader, torn bool, begin func(*logHeader) error, add func(run) error) (head *logHeader, whole int64, err error) {
	lines := bufio.NewReaderSize(in, 1<<16)
	for n := 1; ; n++ {
		line, err := readLine(lines)
		if err == io.EOF && len(line) == 0 {
			return head, whole, nil
		}
		if err != nil && err != io.EOF {
			return nil, 0, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		last := err == io.EOF
		if last {
			err = fmt.Errorf("%w: the last line does not end", ErrDamaged)
		} else if n == 1 {
			head = new(logHeader)
			if err = parseLine(line[:len(line)-1], head); err == nil {
				err = begin(head)
			}
		} else {
			var r run
			if err = parseLine(line[:len(line)-1], &r); err == nil {
				err = add(r)
			}
		}
		if err == nil {
			whole += int64(len(line))
			continue
		}
		if torn && errors.Is(err, ErrDamaged) && (last || atEnd(lines)) {
			if n == 1 {
				head = nil
			}
			return head, whole, nil
		}
		return nil, 0, fmt.Errorf("%s:%d: %w", name, n, err)
	}
}

// readLine is the next line with its end, or what there is with io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return line, err
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("%w: the line is longer than %d bytes", ErrDamaged, maxLine)
		}
	}
}

func atEnd(in *bufio.Reader) bool {
	_, err := in.Peek(1)
	return err == io.EOF
}

// A log is the open log of a running sweep.
type log struct {
	file    *os.File
	buf     []byte
	pending int // runs since the last sync
}

// syncEvery is after how many runs the log is forced to the disk. Killing the
// process loses nothing that was written; losing power loses at most these.
const syncEvery = 256

// openLog opens the log in dir for the header's sweep and hands the runs that it
// holds to add. A log of another sweep, version or shard is an error.
func openLog(dir string, head logHeader, add func(run) error) (*log, error) {
	path := filepath.Join(dir, LogFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	l := &log{file: file}
	if err := l.recover(path, head, add); err != nil {
		_ = file.Close() // nothing was written
		return nil, err
	}
	return l, nil
}

func (l *log) recover(path string, head logHeader, add func(run) error) error {
	found, whole, err := readLog(path, l.file, true, func(found *logHeader) error { return found.matches(head) }, add)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(whole); err != nil {
		return err
	}
	if found == nil {
		return l.append(head)
	}
	return nil
}

// matches says what keeps a log with the header found from being continued
// under want.
func (found *logHeader) matches(want logHeader) error {
	switch {
	case found.Sweep != want.Sweep:
		return fmt.Errorf("%w, of another sweep (its scenario, profile, axes, seeds or goals differ); use another directory, or the sweep they were made with", ErrOther)
	case found.Version != want.Version:
		return fmt.Errorf("%w, made by version %s, this is %s; use that version, or another directory", ErrOther, found.Version, want.Version)
	case found.Shard != want.Shard:
		return fmt.Errorf("%w, of shard %s, not of %s", ErrOther, found.Shard, want.Shard)
	}
	return nil
}

// append writes one line with a single call, so that a kill leaves at most one
// line torn.
func (l *log) append(v any) error {
	var err error
	if l.buf, err = appendLine(l.buf[:0], v); err != nil {
		return err
	}
	if _, err = l.file.Write(l.buf); err != nil {
		return err
	}
	if l.pending++; l.pending >= syncEvery {
		l.pending = 0
		return l.file.Sync()
	}
	return nil
}

func (l *log) close() error {
	return errors.Join(l.file.Sync(), l.file.Close())
}

// writeLog writes the runs of the shard in the order of cells and seeds: the log
// as it is when the sweep is over, whatever order its runs ended in.
func (s *Sweep) writeLog(w io.Writer, head logHeader, r Results) error {
	line, err := appendLine(nil, head)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.Write(line)
	for _, cell := range s.own(head.Shard) {
		for k := range r.Ran(cell) {
			if line, err = appendLine(line[:0], run{cell, s.Seeds[k], r[cell][k]}); err != nil {
				return err
			}
			out.Write(line)
			if out.Len() > 1<<16 {
				if _, err := out.WriteTo(w); err != nil {
					return err
				}
			}
		}
	}
	_, err = out.WriteTo(w)
	return err
}

// keep puts a run of a log in its place among the results. A run that is there
// already with the same values is the same run.
func (s *Sweep) keep(r Results, x run) error {
	if x.Cell < 0 || x.Cell >= len(s.Cells) {
		return fmt.Errorf("%w: there is no cell %d", ErrDamaged, x.Cell)
	}
	k := int(x.Seed - s.Seeds[0])
	if x.Seed < s.Seeds[0] || k >= len(s.Seeds) {
		return fmt.Errorf("%w: cell %d has no seed %d", ErrDamaged, x.Cell, x.Seed)
	}
	if len(x.Values) != len(s.Metrics) {
		return fmt.Errorf("%w: %d values for %d metrics", ErrDamaged, len(x.Values), len(s.Metrics))
	}
	if old := r[x.Cell][k]; old != nil && !old.same(x.Values) {
		return fmt.Errorf("%w: cell %d with seed %d is there twice with different values", ErrDamaged, x.Cell, x.Seed)
	}
	r[x.Cell][k] = x.Values
	return nil
}

func (v Values) same(w Values) bool {
	for i := range v {
		if math.Float64bits(v[i]) != math.Float64bits(w[i]) && !(math.IsNaN(v[i]) && math.IsNaN(w[i])) {
			return false
		}
	}
	return len(v) == len(w)
}
