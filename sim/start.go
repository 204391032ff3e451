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
	for f := range r.client.prompts.Families() {
		for id, rep := range r.replicas {
			owns := r.owns(f, id)
			if start.EngineCache == "all" || start.EngineCache == "owners" && owns {
				rep.prime(r.primingPrompt(f))
			}
			if start.RouterIndex == "owners" && owns {
				prompt := r.primingPrompt(f)
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
	for _, rep := range r.replicas {
		for i := range r.Scenario.Start.Spare[rep.name] {
			rep.prime(spares.Prompt(nil, -1, rep.id<<20+i, r.client.w.Prompt.BodyRepeat))
		}
	}
}

func (rep *replica) prime(p workload.Prompt) {
	rep.Prime(p.Len(workload.Tokens), p.AppendHashes(nil, 0, rep.Limits().BlockTokens, workload.Tokens))
}
