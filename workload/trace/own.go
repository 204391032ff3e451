package trace

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"

	"fleetsim/simtime"
)

// ownVersion is the version of our own format that is written, and the latest
// that is read.
const ownVersion = 1

// ownFormat is lossless: it holds everything a Row has. The first line says which
// version it is; every other is one row. Times are exact decimal seconds; what a
// row lacks is left out.
var ownFormat = &format{
	name:     "fleetsim",
	title:    "this program's own trace, JSONL",
	unit:     Seconds,
	window:   traceWindow,
	waits:    true,
	required: []string{"fleetsim_trace"},
	record:   ownRecord,
}

func ownRecord(r *Reader, c *cursor, line int) error {
	p := r.stage(line)
	row := &p.row
	header := false
	err := c.object(func(key []byte) error {
		if string(key) == "fleetsim_trace" {
			header = true
			return ownHeader(c)
		}
		return r.ownField(c, p, string(key))
	})
	if err != nil {
		return err
	}
	if header {
		r.unstage()
		return nil
	}
	if row.blocks() > 0 && row.BlockTokens == 0 {
		return c.errorf("hash_ids without block_tokens")
	}
	r.checkBlocks(row)
	return nil
}

func ownHeader(c *cursor) error {
	version, err := c.count()
	if err == nil && (version.Value < 1 || version.Value > ownVersion) {
		return c.errorf("version %d: this program reads up to %d", version.Value, ownVersion)
	}
	return err
}

// ownField reads one field of a row.
func (r *Reader) ownField(c *cursor, p *pending, key string) (err error) {
	row := &p.row
	if dst := row.ownText(key); dst != nil {
		return c.textInto(dst)
	}
	if dst := row.ownCount(key); dst != nil {
		return c.countInto(dst)
	}
	if dst := row.ownSpan(key); dst != nil {
		return c.spanInto(dst, Seconds)
	}
	switch key {
	case "at":
		return r.arrival(c, p)
	case "cached_tokens":
		row.CachedTokens, err = c.count()
	case "wait":
		row.Wait, err = c.flag()
	case "history":
		row.History, err = c.flag()
	case "ttft_floor":
		row.TTFTFloor, err = c.flag()
	case "good":
		row.Good.Present = true
		row.Good.Value, err = c.flag()
	case "hash_ids":
		return c.hashIDs(row)
	case "status":
		var i int
		i, err = c.oneOf(statusNames[:])
		row.Status = Status(i)
	case "tpot_rule":
		var i int
		i, err = c.oneOf(tpotRuleNames[:])
		row.TPOTRule = TPOTRule(i)
	default:
		r.report.note(fmt.Sprintf("with the unknown field %.40q, which is left out", key))
		return c.skip()
	}
	return err
}

// ownText is the text field of the name, or nil; likewise ownCount and ownSpan.
func (row *Row) ownText(key string) *string {
	switch key {
	case "id":
		return &row.ID
	case "phase":
		return &row.Phase
	case "tenant":
		return &row.Tenant
	case "model":
		return &row.Model
	case "kind":
		return &row.Kind
	case "family":
		return &row.Family
	case "session":
		return &row.Session
	case "parent":
		return &row.Parent
	case "error":
		return &row.Error
	case "replica":
		return &row.Replica
	}
	return nil
}

var ownTexts = []string{"id", "phase", "tenant", "model", "kind", "family", "session", "parent", "error", "replica"}

func (row *Row) ownCount(key string) *int {
	switch key {
	case "input_tokens":
		return &row.InputTokens
	case "server_input_tokens":
		return &row.ServerInputTokens
	case "output_tokens":
		return &row.OutputTokens
	case "requested_output":
		return &row.RequestedOutput
	case "family_tokens":
		return &row.FamilyTokens
	case "turn":
		return &row.Turn
	case "block_tokens":
		return &row.BlockTokens
	case "http_status":
		return &row.HTTPStatus
	}
	return nil
}

var ownCounts = []string{"input_tokens", "server_input_tokens", "output_tokens", "requested_output", "family_tokens",
	"turn", "block_tokens", "http_status"}

func (row *Row) ownSpan(key string) *Optional[simtime.Time] {
	switch key {
	case "late":
		return &row.Late
	case "think":
		return &row.Think
	case "ttft":
		return &row.TTFT
	case "tpot":
		return &row.TPOT
	case "e2e":
		return &row.E2E
	}
	return nil
}

var ownSpans = []string{"late", "think", "ttft", "tpot", "e2e"}

// oneOf is the index of the string at the cursor in names.
func (c *cursor) oneOf(names []string) (int, error) {
	s, err := c.str()
	if err != nil {
		return 0, err
	}
	i := slices.Index(names, string(s))
	if i < 0 {
		return 0, c.errorf("%.24q: want one of %v", s, names)
	}
	return i, nil
}

// An ownWriter writes our own format.
type ownWriter struct {
	w   *bufio.Writer
	buf []byte
}

func newOwnWriter(w io.Writer) rowWriter {
	return &ownWriter{w: bufio.NewWriter(w), buf: fmt.Appendf(nil, "{\"fleetsim_trace\":%d}\n", ownVersion)}
}

func (w *ownWriter) write(row *Row, _ *Losses) error {
	b := append(w.buf, '{')
	start := len(b)
	name := func(key string) {
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, key), ':')
	}
	if row.Timed {
		name("at")
		b = appendSeconds(b, row.At)
	}
	for _, key := range ownTexts {
		if s := *row.ownText(key); s != "" {
			name(key)
			b = appendString(b, s)
		}
	}
	for _, key := range ownCounts {
		if n := *row.ownCount(key); n != 0 {
			name(key)
			b = strconv.AppendInt(b, int64(n), 10)
		}
	}
	if row.CachedTokens.Present {
		name("cached_tokens")
		b = strconv.AppendInt(b, int64(row.CachedTokens.Value), 10)
	}
	for _, key := range ownSpans {
		if s := row.ownSpan(key); s.Present {
			name(key)
			b = appendSeconds(b, s.Value)
		}
	}
	for _, flag := range []struct {
		key string
		set bool
	}{{"wait", row.Wait}, {"history", row.History}, {"ttft_floor", row.TTFTFloor}} {
		if flag.set {
			name(flag.key)
			b = append(b, "true"...)
		}
	}
	if row.Good.Present {
		name("good")
		b = strconv.AppendBool(b, row.Good.Value)
	}
	if row.Status != Planned {
		name("status")
		b = appendString(b, row.Status.String())
	}
	if row.TPOTRule != BetweenTokens {
		name("tpot_rule")
		b = appendString(b, row.TPOTRule.String())
	}
	if row.blocks() > 0 {
		name("hash_ids")
		b = appendIDs(b, row)
	}
	b = append(b, '}', '\n')
	_, err := w.w.Write(b)
	w.buf = b[:0]
	return err
}

// close writes what is left, which for a trace without rows is the header.
func (w *ownWriter) close() error {
	w.w.Write(w.buf) // a failure comes back from Flush
	return w.w.Flush()
}

// appendIDs appends the row's block ids as a JSON list.
func appendIDs(dst []byte, row *Row) []byte {
	dst = append(dst, '[')
	for i, id := range row.HashIDs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, id, 10)
	}
	for i, token := range row.HashText {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, token...)
	}
	return append(dst, ']')
}
