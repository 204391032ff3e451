package server

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"fleetsim/calibrate/live/plan"
	"fleetsim/calibrate/live/text"
	"fleetsim/sim"
	"fleetsim/sim/scenario"
)

// hides tells which answers begin with a token that has no visible content. That
// depends on the document: those of the scenario do as the simulator has drawn,
// any other by its hash.
type hides struct {
	share float64
	head  int // bytes of a prompt that make its document
	known map[text.Text]bool
}

func newHides(sc *scenario.Scenario, seed uint64, salt string) hides {
	h := hides{share: sc.Workload.HiddenFirst, head: sc.Workload.Prompt.SaltChars + sc.Workload.Prompt.HeadChars, known: make(map[text.Text]bool)}
	texts, hidden := text.New(sim.Shape(sc.Workload.Prompt), salt), plan.Hidden(sc, seed)
	for f, p := range plan.Families(sc, seed) {
		h.known[h.document(texts.Text(p))] = hidden[f]
	}
	return h
}

func (h *hides) document(prompt text.Text) text.Text { return prompt[:min(h.head, len(prompt))] }

func (h *hides) of(prompt text.Text) bool {
	d := h.document(prompt)
	if hidden, ok := h.known[d]; ok {
		return hidden
	}
	return float64(xxhash.Sum64String(string(d)))/math.MaxUint64 < h.share
}
