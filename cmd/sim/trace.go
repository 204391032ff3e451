package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"fleetsim/random"
	"fleetsim/sim/scenario"
	"fleetsim/workload/trace"
)

const traceHelp = `
Usage: sim trace COMMAND IN [OUT] [flags]

Reads traces and load generator results of other tools, gzipped or not, and
writes them as another trace. The format is found by the content. IN and OUT may
be "-"; OUT is standard output when it is left out, and packed if its name ends
in .gz. What was read, skipped and lost is said on standard error.

  convert   to this program's own trace format, which loses nothing, or another
  info      rate, burstiness, lengths, prefix sharing, reuse
  head      the first rows
  sample    a share of the arrivals, as bursty as before, or of the sessions
  scale     the same arrivals faster or slower

Example: sim trace convert BurstGPT_1.csv burst.jsonl --from 24h --to 48h
Each command has --help.`

// A traceTool is a command of sim trace: the flags that it has beyond those of all,
// and what it does.
type traceTool struct {
	name, what, example string
	flags               func(*traceFlags)
	run                 func(*traceFlags) int
}

func traceTools() []traceTool {
	return []traceTool{
		{"convert", "Writes a trace in the program's own format, or another.", "sim trace convert azure.csv trace.jsonl", convertFlags, (*traceFlags).write},
		{"info", "Prints a trace's statistics.", "sim trace info mooncake.jsonl --engine-block 16", infoFlags, (*traceFlags).info},
		{"head", "Writes the first rows, in the trace's format if that can be written.", "sim trace head mooncake.jsonl -n 100", headFlags, (*traceFlags).write},
		{"sample", "Writes a share of the arrivals: consecutive ones together, so that bursts stay, or\nsessions and families whole.", "sim trace sample mooncake.jsonl small.jsonl --fraction 0.1", sampleFlags, (*traceFlags).write},
		{"scale", "Writes the same arrivals faster or slower; think times stay.", "sim trace scale mooncake.jsonl fast.jsonl --rate 2", scaleFlags, (*traceFlags).write},
	}
}

// traceFlags is what a command of sim trace was asked for.
type traceFlags struct {
	*flagSet
	reading   trace.Options
	selection trace.Selection

	fromFormat, timeUnit string
	from, to, think      scenario.Duration
	toFormat             string // "": see targetFormat
	closedLoop, replayed bool
	split                []string
	bySession            bool
	fraction             float64
	seed                 uint64
	format               string // of info
	engineBlock          int
}

func traceCommand(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(stderr, strings.TrimSpace(traceHelp))
		return statusUsage
	}
	var names []string
	for _, tool := range traceTools() {
		if tool.name == args[0] {
			return tool.command(args[1:], stdout, stderr)
		}
		names = append(names, tool.name)
	}
	switch args[0] {
	case "help", "-h", "--help":
		fmt.Fprintln(stdout, strings.TrimSpace(traceHelp))
		return statusOK
	}
	fmt.Fprintf(stderr, "sim trace: unknown command %q: allowed are %s\n", args[0], strings.Join(names, ", "))
	return statusUsage
}

func (tool *traceTool) command(args []string, stdout, stderr io.Writer) int {
	help := fmt.Sprintf("Usage: sim trace %s IN [OUT] [flags]\n\n%s\n\nExample: %s\n\nFormats: %s (those with * can be written).",
		tool.name, tool.what, tool.example, strings.Join(traceFormats(), ", "))
	f := &traceFlags{flagSet: newFlags("trace "+tool.name, help, stdout, stderr)}
	f.StringVar(&f.fromFormat, "from-format", "", "format of IN, instead of finding it by the content")
	f.StringVar(&f.timeUnit, "time-unit", "", "unit of the arrival times, instead of the format's: s, ms, us or ns")
	f.IntVar(&f.reading.BlockTokens, "block-tokens", 0, "tokens of a hash id, instead of the format's")
	f.Float64Var(&f.reading.CharsPerToken, "chars-per-token", trace.DefaultCharsPerToken, "characters of a token, for prompts that come as text")
	f.IntVar(&f.reading.DefaultOutput, "default-output", 0, "output tokens of rows that do not say theirs (0: they are skipped)")
	f.IntVar(&f.reading.FamilyTokens, "family-tokens", 0, "tokens that a family shares, where the source does not say")
	f.IntVar(&f.reading.SkipFirst, "skip-first", 0, "leave out this many rows as warm-up")
	f.IntVar(&f.reading.MaxErrors, "max-errors", 0, "bad rows that are skipped and counted (-1: any number)")
	f.BoolVar(&f.reading.Strict, "strict", false, "take warnings and a cut-off file for errors")
	f.TextVar(&f.from, "from", scenario.Duration{}, "begin of the window, a `duration` such as 90s; times then count from it")
	f.TextVar(&f.to, "to", scenario.Duration{}, "end of the window, a `duration` (0s: the trace's)")
	f.StringVar(&f.selection.Tenant, "tenant", "", "only this tenant's rows")
	f.StringVar(&f.selection.Phase, "phase", "", "only this phase's rows")
	tool.flags(f)
	if status, ok := f.parse(args); !ok {
		return status
	}
	if err := f.check(); err != nil {
		return f.fail(statusUsage, err)
	}
	return tool.run(f)
}

func traceFormats() []string {
	var names []string
	for _, f := range trace.Formats() {
		if f.Writable {
			f.Name += "*"
		}
		names = append(names, f.Name)
	}
	return names
}

func convertFlags(f *traceFlags) {
	writeFlags(f, "fleetsim")
	f.BoolVar(&f.reading.KeepAll, "keep-all", false, "keep failed rows and rows without lengths, with their status")
	f.Float64Var(&f.selection.UntimedRate, "untimed-rate", 0, "send rows without arrival time at this rate a second")
	f.BoolVar(&f.closedLoop, "closed-loop", false, "make the turns of a session wait for the answer before and the think time")
	f.TextVar(&f.think, "think", scenario.Duration{}, "think time, a `duration`, of turns that have none of their own, with --closed-loop")
	f.BoolVar(&f.replayed, "replayed", false, "send every turn at its time, whatever became of the one before")
	f.BoolVar(&f.selection.WithoutFirstOfFamily, "without-first-of-family", false, "leave out what met a warm cache in a measured run")
	f.StringArrayVar(&f.split, "split", nil, "deal the rows out to tenants by weight: NAME=WEIGHT (repeatable)")
	seedFlag(f)
}

func headFlags(f *traceFlags) {
	writeFlags(f, "IN's, if it can be written")
	f.IntVarP(&f.selection.Head, "rows", "n", 10, "how many rows")
}

func sampleFlags(f *traceFlags) {
	writeFlags(f, "IN's, if it can be written")
	f.Float64Var(&f.fraction, "fraction", 0.1, "share to keep, above 0, up to 1")
	f.BoolVar(&f.bySession, "by-session", false, "keep sessions and families whole, at random; arrivals become less bursty")
	seedFlag(f)
}

func scaleFlags(f *traceFlags) {
	writeFlags(f, "IN's, if it can be written")
	f.Float64Var(&f.selection.Rate, "rate", 1, "how many times as frequent")
}

func infoFlags(f *traceFlags) {
	f.StringVar(&f.format, "format", "text", "text or json")
	f.IntVar(&f.engineBlock, "engine-block", 16, "tokens of an engine's cache block, in which hits are counted")
}

func writeFlags(f *traceFlags, otherwise string) {
	f.StringVar(&f.toFormat, "to-format", "", "format to write (default: "+otherwise+")")
}

func seedFlag(f *traceFlags) { f.Uint64Var(&f.seed, "seed", 1, "of what is drawn at random") }

// check completes the options from the flags and reports all that is wrong with
// them.
func (f *traceFlags) check() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	least := func(flag string, n, least int) {
		if n < least {
			bad("--%s %d: allowed is %d or more", flag, n, least)
		}
	}
	most := 2
	if f.Lookup("to-format") == nil {
		most = 1
	}
	if f.NArg() < 1 || f.NArg() > most {
		bad("%d file names are given: allowed are IN and, where something is written, OUT (see sim %s --help)", f.NArg(), f.Name())
	}
	f.reading.Format = f.fromFormat
	if f.fromFormat != "" {
		problems = append(problems, oneOf("from-format", f.fromFormat, trimmed(traceFormats())...))
	}
	var err error
	if f.reading.TimeUnit, err = trace.ParseTimeUnit(f.timeUnit); err != nil {
		bad("--time-unit %q: allowed are s, ms, us, ns", f.timeUnit)
	}
	least("block-tokens", f.reading.BlockTokens, 0)
	least("default-output", f.reading.DefaultOutput, 0)
	least("family-tokens", f.reading.FamilyTokens, 0)
	least("skip-first", f.reading.SkipFirst, 0)
	least("max-errors", f.reading.MaxErrors, -1)
	if c := f.reading.CharsPerToken; !(c > 0 && c <= 1000) {
		bad("--chars-per-token %g: allowed is above 0, up to 1000", c)
	}
	f.selection.From, f.selection.To = f.from.Time, f.to.Time
	if f.to.Time > 0 && f.to.Time <= f.from.Time {
		bad("--to %v: allowed is later than --from %v", f.to, f.from)
	}
	if out := f.Arg(1); out != "" && out != "-" {
		problems = append(problems, checkFile(out), apart([]string{f.input()}, output{"OUT", out}))
	}
	problems = append(problems, f.checkOwn())
	return errors.Join(problems...)
}

// checkOwn is check for the flags that only some commands have.
func (f *traceFlags) checkOwn() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	positive := func(flag string, v float64) {
		if f.Changed(flag) && !(v > 0 && v <= math.MaxFloat32) {
			bad("--%s %g: allowed is a positive number", flag, v)
		}
	}
	positive("rate", f.selection.Rate)
	positive("untimed-rate", f.selection.UntimedRate)
	if f.Lookup("fraction") != nil {
		if !(f.fraction > 0 && f.fraction <= 1) {
			bad("--fraction %g: allowed is above 0, up to 1", f.fraction)
		}
		if f.bySession {
			f.selection.Sample = f.fraction
		} else {
			f.selection.Thin = f.fraction
		}
	}
	if f.Lookup("rows") != nil && f.selection.Head < 1 {
		bad("--rows %d: allowed is 1 or more", f.selection.Head)
	}
	switch f.selection.Think = f.think.Time; {
	case f.closedLoop && f.replayed:
		bad("--closed-loop and --replayed are given: allowed is one of them")
	case f.closedLoop:
		f.selection.Sessions = trace.Waiting
	case f.replayed:
		f.selection.Sessions = trace.Replayed
	}
	if f.Changed("think") && !f.closedLoop {
		bad("--think is for --closed-loop only")
	}
	if f.Lookup("split") != nil {
		problems = append(problems, f.belongs("seed", "split"))
	}
	for _, s := range f.split {
		name, weight, _ := strings.Cut(s, "=")
		w, err := strconv.ParseFloat(weight, 64)
		if err != nil || name == "" || !(w > 0 && w <= math.MaxFloat32) {
			bad("--split %q: allowed is NAME=WEIGHT with a positive weight, such as a=2", s)
			continue
		}
		f.selection.Tenants = append(f.selection.Tenants, trace.TenantShare{Name: name, Weight: w})
	}
	if f.toFormat != "" {
		problems = append(problems, oneOf("to-format", f.toFormat, writableFormats()...))
	}
	if f.Lookup("engine-block") != nil {
		if f.engineBlock < 1 {
			bad("--engine-block %d: allowed is 1 or more", f.engineBlock)
		}
		problems = append(problems, oneOf("format", f.format, "text", "json"))
	}
	return errors.Join(problems...)
}

// input is the name of the file that IN is.
func (f *traceFlags) input() string {
	if f.Arg(0) == "-" {
		return os.Stdin.Name()
	}
	return f.Arg(0)
}

func trimmed(names []string) []string {
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], "*")
	}
	return names
}

func writableFormats() []string {
	var names []string
	for _, f := range trace.Formats() {
		if f.Writable {
			names = append(names, f.Name)
		}
	}
	return names
}

// A traceSource is IN, opened, with the rows that the flags select.
type traceSource struct {
	reader   *trace.Reader
	rows     trace.Rows
	selected int  // rows given so far
	failed   bool // the rows could not be read to the end
	close    func()
}

const noneSelected = "none of its rows is selected"

var errStopped = errors.New("stopped: nothing is written")

func (f *traceFlags) open() (*traceSource, error) {
	name, in := f.Arg(0), os.Stdin
	if name == "-" {
		name = "standard input"
	} else {
		var err error
		if in, err = os.Open(name); err != nil {
			return nil, err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	s := &traceSource{close: func() {
		stop()
		in.Close() // it was only read
	}}
	var err error
	if s.reader, err = trace.Open(name, in, f.reading); err != nil {
		s.close()
		return nil, err
	}
	selected, err := f.selection.Apply(s.reader.Rows(), random.Stream(f.seed, "trace"))
	if err != nil {
		s.close()
		return nil, err
	}
	s.rows = func(yield func(trace.Row, error) bool) {
		for row, err := range selected {
			s.failed = s.failed || err != nil
			if err == nil && ctx.Err() != nil {
				err = errStopped
			}
			if err == nil {
				s.selected++
			}
			if !yield(row, err) {
				return
			}
		}
		if s.selected == 0 && f.reading.Strict {
			yield(trace.Row{}, trace.Problem{File: name, Text: noneSelected})
		}
	}
	return s, nil
}

// report says on w how the source was read, once the rows are.
func (s *traceSource) report(w io.Writer) *trace.Report {
	report := s.reader.Report()
	fmt.Fprintln(w, report)
	if s.selected == 0 && report.Rows > 0 {
		fmt.Fprintln(w, "warning:", noneSelected)
	}
	return report
}

// status is the exit status after err: the input's fault, or another's.
func (s *traceSource) status(err error) int {
	if problem := (trace.Problem{}); s.failed || errors.As(err, &problem) {
		return statusUsage
	}
	return statusFailed
}

// write writes the selected rows.
func (f *traceFlags) write() int {
	in, err := f.open()
	if err != nil {
		return f.fail(statusUsage, err)
	}
	defer in.close()
	format, target := f.targetFormat(in.reader.Format()), f.Arg(1)
	var written int
	var lost *trace.Losses
	convert := func(w io.Writer) (err error) {
		written, lost, err = trace.Convert(w, in.rows, format, trace.WriteOptions{CharsPerToken: f.reading.CharsPerToken})
		return err
	}
	switch {
	case target == "" || target == "-":
		target = "standard output"
		err = convert(f.stdout)
	case strings.HasSuffix(target, ".gz"):
		err = writeFile(target, packed(convert))
	default:
		err = writeFile(target, convert)
	}
	if err != nil {
		return f.fail(in.status(err), trace.Located(in.reader.Report().Name, err))
	}
	in.report(f.stderr)
	fmt.Fprintf(f.stderr, "%s: %s, %d rows written\n", target, format, written)
	if s := lost.String(); s != "" {
		fmt.Fprintln(f.stderr, s)
	}
	return statusOK
}

// targetFormat is the format to write a trace of the given format in.
func (f *traceFlags) targetFormat(source string) string {
	if f.toFormat != "" {
		return f.toFormat
	}
	if f.Name() != "trace convert" {
		for _, name := range writableFormats() {
			if name == source {
				return name
			}
		}
	}
	return "fleetsim"
}

// packed is write through gzip.
func packed(write func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		z := gzip.NewWriter(w)
		if err := write(z); err != nil {
			return err
		}
		return z.Close()
	}
}

// traceInfo is what info says in JSON: how the source was read, and its statistics.
type traceInfo struct {
	Name      string         `json:"name"`
	Format    string         `json:"format"`
	Found     int            `json:"found"` // requests in the source
	Skipped   map[string]int `json:"skipped"`
	BadRows   int            `json:"bad_rows"`
	Truncated string         `json:"truncated,omitempty"`
	Reading   []string       `json:"reading_warnings"`
	trace.Summary
}

// info prints the statistics of the selected rows.
func (f *traceFlags) info() int {
	in, err := f.open()
	if err != nil {
		return f.fail(statusUsage, err)
	}
	defer in.close()
	info := trace.NewInfo(trace.InfoOptions{EngineBlock: f.engineBlock, CharsPerToken: f.reading.CharsPerToken})
	for row, err := range in.rows {
		if err != nil {
			return f.fail(in.status(err), err)
		}
		info.Add(&row)
	}
	report := in.report(f.stderr)
	if f.format == "text" {
		fmt.Fprint(f.stdout, info.Summary())
		return statusOK
	}
	out := traceInfo{Name: report.Name, Format: report.Format, Found: report.Found, Skipped: map[string]int{},
		BadRows: report.Bad, Truncated: report.Truncated, Reading: append([]string{}, report.Warnings...), Summary: info.Summary()}
	for _, c := range report.Skipped {
		out.Skipped[c.What] = c.N
	}
	e := json.NewEncoder(f.stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(out); err != nil {
		return f.fail(statusFailed, err)
	}
	return statusOK
}
