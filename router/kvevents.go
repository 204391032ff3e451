package router

import (
	"fleetsim/simtime"
	"fleetsim/workload"
)

// A BlockStored event says that an engine's cache now holds some consecutive
// blocks of a prompt.
type BlockStored struct {
	Pod    int
	Model  string
	Blocks []uint64 // the engine's names of the blocks
	// Parent is the engine's name of the block before the first one, when
	// HasParent.
	Parent    uint64
	HasParent bool
	// Prompt holds the blocks' content: Blocks[i] is the BlockTokens tokens from
	// token Start + i*BlockTokens on.
	Prompt      BlockHasher
	Start       int
	BlockTokens int
}

// A BlockRemoved event says that an engine's cache no longer holds blocks.
type BlockRemoved struct {
	Pod    int
	Model  string
	Blocks []uint64
}

// A KVEventSink is a policy whose index hears what engines store and evict.
type KVEventSink interface {
	BlockStored(now simtime.Time, e *BlockStored)
	BlockRemoved(now simtime.Time, e *BlockRemoved)
	// AllBlocksCleared says that a pod's engine has emptied its cache.
	AllBlocksCleared(now simtime.Time, pod int)
	// HearsKVEvents reports whether events have any effect as the policy is set.
	HearsKVEvents() bool
}

// A BlockHasher is a prompt whose blocks can be hashed under any parent. Text
// and Symbolic implement it.
type BlockHasher interface {
	// HashBlock is the hash of the length units from start on under parent's
	// hash. AppendHashes gives the same values when it chains them.
	HashBlock(seed, parent uint64, start, length int, u workload.Unit) uint64
}

// HashBlock hashes one block of the text under parent's hash; the block must lie
// inside the text.
func (t Text) HashBlock(seed, parent uint64, start, length int, u workload.Unit) uint64 {
	if u == workload.Tokens {
		start, length = start*tokenBytes, length*tokenBytes
	}
	return hashText(seed, parent, string(t[start:start+length]))
}

// Symbolic is a workload prompt as the content of KV events.
type Symbolic workload.Prompt

// HashBlock hashes one block of the prompt under parent's hash, as
// workload.Prompt's AppendHashes does.
func (p Symbolic) HashBlock(seed, parent uint64, start, length int, u workload.Unit) uint64 {
	return workload.Prompt(p).HashBlock(seed, parent, start, length, u)
}

// BlockStored hands an engine's event to the policy, if it listens.
func (g *Gateway) BlockStored(now simtime.Time, e *BlockStored) {
	if s, ok := g.policy.(KVEventSink); ok {
		s.BlockStored(now, e)
	}
}

// BlockRemoved hands an engine's event to the policy, if it listens.
func (g *Gateway) BlockRemoved(now simtime.Time, e *BlockRemoved) {
	if s, ok := g.policy.(KVEventSink); ok {
		s.BlockRemoved(now, e)
	}
}

// AllBlocksCleared hands an engine's event to the policy, if it listens.
func (g *Gateway) AllBlocksCleared(now simtime.Time, pod int) {
	if s, ok := g.policy.(KVEventSink); ok {
		s.AllBlocksCleared(now, pod)
	}
}
