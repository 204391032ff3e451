package router

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A GPUProfile is what AIBrix's GPU optimizer measured of a model on one kind of
// GPU, and the SLO that goes with it. Rates and latencies are tables over
// ascending output and input lengths.
type GPUProfile struct {
	// PodPrefix says whose profile it is: that of the pods whose name starts with
	// it, which for the pods of a Kubernetes deployment is the deployment's name.
	PodPrefix    string
	OutputTokens []float64   // the tables' first index
	InputTokens  []float64   // the tables' second index
	Rate         [][]float64 // the highest rate that can be sustained, requests a second
	E2E          [][]float64 // mean end-to-end latency, seconds
	TTFT         [][]float64 // mean time to first token, seconds; needed with an SLO on TTFT alone
	SLO          ProfileSLO
}

// A ProfileSLO is the target of a profile, in seconds; 0 is none. Of several, the
// first in this order counts: TPOT (with TTFT added), TTFT, TPAT, E2E.
type ProfileSLO struct {
	TPOT float64 // for each output token
	TTFT float64
	TPAT float64 // for each token of input and output
	E2E  float64
}

func checkProfiles(profiles []GPUProfile) error {
	var problems []error
	for i := range profiles {
		if err := profiles[i].check(); err != nil {
			problems = append(problems, fmt.Errorf("GPU profile %q: %w", profiles[i].PodPrefix, err))
		}
	}
	return errors.Join(problems...)
}

func (p *GPUProfile) check() error {
	problems := []error{
		checkIndex("output tokens", p.OutputTokens),
		checkIndex("input tokens", p.InputTokens),
		p.checkTable("rate", p.Rate, 0),
		p.checkTable("e2e", p.E2E, minE2E),
	}
	if p.TTFT != nil || p.SLO.TTFT > 0 && p.SLO.TPOT == 0 {
		problems = append(problems, p.checkTable("ttft", p.TTFT, 0))
	}
	return errors.Join(problems...)
}

// minE2E is the shortest latency that a profile may hold, in seconds.
const minE2E = 1e-6

func checkIndex(name string, index []float64) error {
	if len(index) == 0 || !(index[0] > 0) || !slices.IsSorted(index) || !finite(index[len(index)-1]) {
		return fmt.Errorf("%s: want at least one length above 0, in ascending order", name)
	}
	return nil
}

func (p *GPUProfile) checkTable(name string, table [][]float64, least float64) error {
	bad := len(table) != len(p.OutputTokens)
	for _, row := range table {
		bad = bad || len(row) != len(p.InputTokens)
		for _, v := range row {
			bad = bad || !finite(v) || v < least
		}
	}
	if bad {
		return fmt.Errorf("%s: want %d rows (output tokens) of %d values (input tokens), finite and at least %g",
			name, len(p.OutputTokens), len(p.InputTokens), least)
	}
	return nil
}

func (p *GPUProfile) covers(pod string) bool { return strings.HasPrefix(pod, p.PodPrefix) }

// A signature is a place in a profile's tables.
type signature struct{ output, input int }

func (p *GPUProfile) signature(output, input float64) signature {
	return signature{nearestLength(p.OutputTokens, output), nearestLength(p.InputTokens, input)}
}

// nearestLength is the place of the length nearest to tokens on a scale of
// logarithms, the higher one at the middle between two.
func nearestLength(lengths []float64, tokens float64) int {
	hi, _ := slices.BinarySearch(lengths, tokens)
	switch {
	case hi == 0:
		return 0
	case hi == len(lengths):
		return hi - 1
	}
	if math.Log2(tokens) < (math.Log2(lengths[hi-1])+math.Log2(lengths[hi]))/2 {
		return hi - 1
	}
	return hi
}

// load is the share of a pod's capacity that one request takes: by Little's law a
// pod at its highest rate has rate * latency requests pending. A rate of 0 says
// that the profile knows no rate that keeps the SLO; the original then adds
// nothing and still uses the pod.
func (p *GPUProfile) load(s signature) float64 {
	rate := p.Rate[s.output][s.input]
	if rate == 0 {
		return 0
	}
	return 1 / rate / p.E2E[s.output][s.input]
}

// slack is by how much a request of the signature is expected to miss its SLO,
// below 0 if it keeps it, in seconds and without the time that it has waited.
// There is none without an SLO.
func (p *GPUProfile) slack(s signature, output, input float64) (late float64, ok bool) {
	switch e2e := p.E2E[s.output][s.input]; {
	case p.SLO.TPOT > 0:
		return e2e - (p.SLO.TPOT*output + p.SLO.TTFT), true
	case p.SLO.TTFT > 0:
		return p.TTFT[s.output][s.input] - p.SLO.TTFT, true
	case p.SLO.TPAT > 0:
		return e2e - p.SLO.TPAT*(input+output), true
	case p.SLO.E2E > 0:
		return e2e - p.SLO.E2E, true
	}
	return 0, false
}
