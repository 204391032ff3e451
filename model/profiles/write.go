package profiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fleetsim/model"
)

// Append appends the profile as a file that Parse reads back to the same
// profile, to the digits of its quantities.
func Append(dst []byte, p *model.Profile) []byte {
	line := func(format string, args ...any) { dst = fmt.Appendf(dst, format+"\n", args...) }
	line("name = %s", quote(p.Name))
	line("description = %s", quote(p.Description))
	l := p.Limits
	line("\n[engine]")
	line("max_model_len = %d", l.MaxModelLen)
	line("max_num_seqs = %d", l.MaxNumSeqs)
	line("max_num_batched_tokens = %d", l.MaxBatchedTokens)
	line("long_prefill_token_threshold = %d", l.LongPrefillTokens)
	line("block_tokens = %d", l.BlockTokens)
	line("blocks = %d", l.Blocks)
	line("state_groups = %d", l.StateGroups)
	line("prefix_caching = %t", l.PrefixCaching)
	line("async_scheduling = %t", l.AsyncScheduling)
	line("count_stats_at_lookup = %t", l.CountStatsAtLookup)
	for _, table := range []string{"cost", "overhead"} {
		line("\n[%s]", table)
		for i := range p.Coefficients {
			q := &p.Coefficients[i]
			if of, key, _ := strings.Cut(tomlKey(q.Name), "."); of == table {
				line("%s = %s", key, inline(q))
			}
		}
	}
	if n := p.Noise; n != (model.Noise{}) {
		line("\n[noise]")
		line("step_sd = %s", number(n.StepSD))
		line("step_correlation = %s", number(n.StepCorrelation))
		line("replica_sd = %s", number(n.ReplicaSD))
		line("source = %s", quote(n.Source))
	}
	line("\n# What the fit has seen; beyond it a result is extrapolation.")
	line("[range]")
	line("decodes = %d", p.Range.Decodes)
	line("context_tokens = %d", p.Range.ContextTokens)
	return dst
}

// WriteFile writes the profile to a file, which is there in whole or not at all.
func WriteFile(path string, p *model.Profile) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".profile-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // when it has not become the file
	_, err = f.Write(Append(nil, p))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// inline is the quantity as an inline table.
func inline(q *model.Quantity) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{ value = %s, unit = %s", number(q.Value), quote(q.Unit))
	if len(q.Interval) == 2 {
		fmt.Fprintf(&b, ", interval = [%s, %s]", number(q.Interval[0]), number(q.Interval[1]))
	}
	fmt.Fprintf(&b, ", source = %s", quote(q.Source))
	if q.Data != "" {
		fmt.Fprintf(&b, ", data = %s", quote(q.Data))
	}
	b.WriteString(" }")
	return b.String()
}

// number is a TOML float; TOML wants a digit on both sides of a point, which
// the shortest form has, or an exponent.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// quote is a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
