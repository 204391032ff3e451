package trace

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A format is how to read one kind of source.
type format struct {
	name  string // as in Options.Format
	title string
	// unit is that of the arrival times. guessUnit looks for signs of another one
	// having been used.
	unit      TimeUnit
	guessUnit bool
	// absolute clocks have no zero of their own: rows count from the earliest.
	absolute bool
	// window is how many rows it takes to put them in order of time.
	window int
	// document sources are one JSON value with many requests.
	document bool
	// waits says that rows may be closed-loop.
	waits bool

	// required and optional are the columns of a CSV, or the JSON keys that tell the
	// format: all of required must be there, and none of foreign.
	required, optional, foreign []string

	record func(r *Reader, c *cursor, line int) error // JSON
	fields func(r *Reader, t *table) error            // CSV
}

// Windows for putting rows in the order of time: traces are sorted, or nearly;
// logs are in the order of completion.
const (
	traceWindow = 1024
	logWindow   = 65536
)

// formats lists all formats. The first whose required keys are all there, and
// none of its foreign ones, is the one: the narrower stand before the wider.
var formats = []*format{
	ownFormat, bailianFormat, aibrixWorkloadFormat, mooncakeFormat,
	aibrixClientFormat, recordsFormat,
	sglangFormat, vllmBenchFormat, guidellmFormat, inferencePerfFormat, aiperfFormat, genaiPerfFormat,
	azureFormat, burstGPTFormat, blisFormat, vidurFormat,
}

// A FormatInfo describes a format for help texts.
type FormatInfo struct {
	Name, Title string
	Writable    bool
}

// Formats lists the formats that Open reads.
func Formats() []FormatInfo {
	var list []FormatInfo
	for _, f := range formats {
		list = append(list, FormatInfo{f.name, f.title, writerFor(f.name) != nil})
	}
	return list
}

// Sniff finds the format of a source by its beginning, which is to be at least
// its first line, decompressed.
func Sniff(prefix []byte) (string, error) {
	f, err := sniff(prefix)
	if err != nil {
		return "", err
	}
	return f.name, nil
}

func chooseFormat(name string, prefix []byte) (*format, error) {
	if name == "" {
		return sniff(prefix)
	}
	names := make([]string, len(formats))
	for i, f := range formats {
		if f.name == name {
			return f, nil
		}
		names[i] = f.name
	}
	return nil, fmt.Errorf("unknown trace format %q: want %s", name, strings.Join(names, ", "))
}

func firstByte(b []byte) byte {
	c := cursor{b: b}
	return c.peek()
}

func sniff(prefix []byte) (*format, error) {
	switch firstByte(prefix) {
	case 0:
		return nil, errors.New("empty: no request in it")
	case '{', '[':
		return sniffJSON(prefix)
	}
	return sniffCSV(prefix)
}

func sniffJSON(prefix []byte) (*format, error) {
	keys := topKeys(prefix)
	for _, f := range formats {
		if f.record != nil && containsAll(keys, f.required) && !containsAny(keys, f.foreign) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("JSON of no known format; its first keys are %s; name the format to see what it lacks", strings.Join(keys[:min(len(keys), 12)], ", "))
}

// topKeys are the keys of the first object, itself or first in a list, as far as
// the prefix goes.
func topKeys(prefix []byte) (keys []string) {
	c := &cursor{b: prefix}
	first := func() error {
		return c.object(func(key []byte) error {
			keys = append(keys, string(key))
			return c.skip()
		})
	}
	stop := errors.New("first element read")
	if c.peek() == '[' {
		// The error only ends the reading: the prefix ends somewhere, too.
		_ = c.array(func(int) error {
			if err := first(); err != nil {
				return err
			}
			return stop
		})
		return keys
	}
	_ = first()
	return keys
}

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !containsAny(have, strings.Split(w, "|")) {
			return false
		}
	}
	return true
}

func containsAny(have, want []string) bool {
	return slices.ContainsFunc(want, func(w string) bool { return slices.Contains(have, w) })
}

// sniffCSV goes by the header. A header that is nearly that of a format is taken
// for it, so that the missing columns can be named.
func sniffCSV(prefix []byte) (*format, error) {
	line, _, _ := bytes.Cut(prefix, []byte("\n"))
	if bytes.HasPrefix(line, []byte("trace_version:")) {
		return nil, errors.New("this is the header of a BLIS trace: give the CSV file beside it")
	}
	header := splitHeader(trimEnd(line))
	var best *format
	bestShare := 0.0
	for _, f := range formats {
		if f.fields == nil {
			continue
		}
		n := 0
		for _, column := range f.required {
			if slices.Contains(header, column) {
				n++
			}
		}
		if share := float64(n) / float64(len(f.required)); share > bestShare {
			best, bestShare = f, share
		}
	}
	if bestShare < 0.5 {
		return nil, fmt.Errorf("neither JSON nor a CSV of a known format; its first line is %.80q", line)
	}
	return best, nil
}

func splitHeader(line []byte) []string {
	s := csvSplitter{record: bytes.Clone(line)}
	var names []string
	for _, field := range s.quoted() {
		names = append(names, string(field))
	}
	return names
}
