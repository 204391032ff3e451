package sim

import (
	"slices"

	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/workload"
)

// prime brings caches and index into the scenario's starting state.
func (r *run) prime() {
	start := r.Scenario.Start
	r.primeSpares()
	if start.EngineCache == "cold" && start.RouterIndex == "cold" {
		return
	}
	var hashes []uint64
	for f := range r.client.prompts.Families() {
		prompt := r.primingPrompt(f)
		hashes = r.hashes(hashes[:0], prompt)
		for id, rep := range r.replicas {
			owns := r.owns(f, id)
			if start.EngineCache == "all" || start.EngineCache == "owners" && owns {
				rep.Prime(prompt.Len(workload.Tokens), hashes)
			}
			if start.RouterIndex == "owners" && owns {
				r.gateways.remember(&router.Request{Prompt: prompt}, id)
				r.ledgers.learn(prompt, id)
			}
		}
	}
}

// owns reports whether the replica is an owner of the family at the start.
func (r *run) owns(family, id int) bool {
	owners := r.Scenario.Start.Owners
	if owners == nil {
		return family%len(r.replicas) == id
	}
	return family < len(owners) && slices.Contains(owners[family], r.replicas[id].name)
}

// primingPrompt is a prompt of the family with a question that no arrival asks.
func (r *run) primingPrompt(family int) workload.Prompt {
	const beyondAnyIndex = 1 << 30
	return r.client.prompts.Prompt(nil, family, beyondAnyIndex+family, r.client.w.Prompt.BodyRepeat)
}

// primeSpares fills engines with further prefixes that no arrival uses.
func (r *run) primeSpares() {
	spares := workload.NewGenerator(Shape(r.client.w.Prompt), 0, spareContents, random.Stream(r.Seed, "spares"))
	var prompt workload.Prompt
	var hashes []uint64
	for _, rep := range r.replicas {
		for i := range r.Scenario.Start.Spare[rep.name] {
			prompt = spares.Prompt(prompt[:0], -1, rep.id<<20+i, r.client.w.Prompt.BodyRepeat)
			hashes = r.hashes(hashes[:0], prompt)
			rep.Prime(prompt.Len(workload.Tokens), hashes)
		}
	}
}

// hashes appends those of the prompt's blocks in an engine that caches them.
func (r *run) hashes(dst []uint64, p workload.Prompt) []uint64 {
	if r.blocks == nil {
		return dst
	}
	return r.blocks.AppendHashes(dst, p)
}
