package autoscale

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fleetsim/simtime"
)

// goldenLine is a line of autoscaler.jsonl: a configuration, a step or a change
// by hand.
type goldenLine struct {
	Cfg    string
	Config bool
	PA     struct {
		Strategy      string
		Min, Max      int
		Target        string
		Annotations   map[string]string
		StartReplicas int `json:"start_replicas"`
	}

	ExternalSet *int `json:"external_set"`

	TS          float64 `json:"t_s"`
	Current     int
	PodValues   []float64 `json:"pod_values"`
	Error       bool
	Stable      float64
	Panic       float64
	PanicMode   bool `json:"panic_mode"`
	Recommended int
	Stabilized  int
	Applied     int
}

// TestGolden replays what AIBrix v0.7.0 itself computed and demands equality of
// every value to the last digit.
func TestGolden(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "..", "..", "shared", "golden", "aibrix", "autoscaler.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the golden vectors are not beside the checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	var scaler *Scaler
	var strategy Strategy
	current, runs, steps, wrong := 0, 0, 0, 0
	lines := bufio.NewScanner(file)
	for line := 1; lines.Scan(); line++ {
		var g goldenLine
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		switch {
		case g.Config:
			strategy = Strategy(strings.ToLower(g.PA.Strategy))
			scaler = goldenScaler(t, g, strategy)
			current = g.PA.StartReplicas
			runs++
			continue
		case g.ExternalSet != nil:
			current = *g.ExternalSet
			continue
		}
		steps++
		if g.Current != current {
			t.Fatalf("line %d: %s: current %d, the replay has %d", line, g.Cfg, g.Current, current)
		}
		got := scaler.Reconcile(simtime.FromSeconds(g.TS), current, goldenSamples(g.PodValues))
		want := Decision{
			Desired: g.Applied, Stable: g.Stable, Panic: g.Panic, PanicMode: g.PanicMode,
			Recommended: g.Recommended, Stabilized: g.Stabilized, Reason: Computed,
		}
		if g.Error {
			want = Decision{Desired: current, Reason: NoMetric}
		}
		if strategy == APA {
			want.Panic = got.Panic // the vectors have none
		}
		if got != want {
			wrong++
			if wrong <= 10 {
				t.Errorf("line %d: %s at %v s:\n got %+v\nwant %+v", line, g.Cfg, g.TS, got, want)
			}
		}
		current = got.Desired
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs, %d steps, %d wrong", runs, steps, wrong)
	if runs < 60 || steps < 5000 {
		t.Errorf("replayed only %d runs with %d steps", runs, steps)
	}
}

func goldenScaler(t *testing.T, g goldenLine, strategy Strategy) *Scaler {
	t.Helper()
	target, err := strconv.ParseFloat(g.PA.Target, 64)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Strategy: strategy, Min: g.PA.Min, Max: g.PA.Max, Target: target, Annotations: g.PA.Annotations})
	if err != nil {
		t.Fatalf("%s: %v", g.Cfg, err)
	}
	return s
}

// goldenSamples: -1 is a pod whose fetch failed.
func goldenSamples(values []float64) []Sample {
	pods := make([]Sample, len(values))
	for i, v := range values {
		pods[i] = Sample{Pod: i, Value: v}
		if v == -1 {
			pods[i] = Sample{Pod: i, State: NoAddress}
		}
	}
	return pods
}
