package router

import (
	"slices"

	"fleetsim/simtime"
)

// A prebleTree is the radix tree of prefix-cache-preble: each node stands for a
// run of prompt content that has not been seen to branch, and knows which pods
// were sent it.
//
// The original's keys are token ids. Here a key is the chain of hashes of blocks
// of prebleBlock tokens, so a tree splits at the last block boundary before the
// first different token, and a trailing partial block is not seen.
type prebleTree struct {
	root *prebleNode
}

// prebleBlock is the tree's resolution in tokens.
const prebleBlock = 16

// prebleIdle is how long a node may go unvisited, fixed in the original.
const prebleIdle = 5 * simtime.Minute

type prebleNode struct {
	parent   *prebleNode
	children map[uint64]*prebleNode // by the first hash of their key
	key      []uint64
	context  int               // tokens from the root to the node's end
	pods     map[string]podSet // by model
	touched  simtime.Time
	evicted  bool
	window   prebleWindow
}

// A prebleWindow is what a node has seen in the sliding window, in tokens but for
// the count of requests.
type prebleWindow struct {
	total, hit, prompt int
	requests           int
}

func newPrebleTree() *prebleTree {
	return &prebleTree{root: newPrebleNode(nil, nil, 0)}
}

func newPrebleNode(parent *prebleNode, key []uint64, now simtime.Time) *prebleNode {
	n := &prebleNode{
		parent: parent, key: key, touched: now,
		children: make(map[uint64]*prebleNode), pods: make(map[string]podSet),
	}
	if parent != nil {
		n.context = parent.context + n.tokens()
	}
	return n
}

// tokens is the length of the node's own content.
func (n *prebleNode) tokens() int { return len(n.key) * prebleBlock }

func (n *prebleNode) holds(model string, pod int) bool { return n.pods[model].has(pod) }

// holdsAny reports whether the node was sent to the pod for any model.
func (n *prebleNode) holdsAny(pod int) bool {
	for _, set := range n.pods {
		if set.has(pod) {
			return true
		}
	}
	return false
}

// podCount is the number of pods, counted once for each model.
func (n *prebleNode) podCount() (count int) {
	for _, set := range n.pods {
		count += set.size()
	}
	return count
}

// insert walks the key down, splitting and adding nodes so that one ends where
// the key does. It returns that node and how many blocks were there before.
func (t *prebleTree) insert(now simtime.Time, key []uint64) (node *prebleNode, matched int) {
	node = t.root
	node.touched = now
	for matched < len(key) {
		rest := key[matched:]
		child := node.children[rest[0]]
		if child == nil {
			leaf := newPrebleNode(node, slices.Clone(rest), now)
			node.children[rest[0]] = leaf
			return leaf, matched
		}
		common := commonPrefix(child.key, rest)
		if common < len(child.key) {
			child = child.split(now, common)
		}
		child.touched = now
		matched += common
		node = child
	}
	return node, matched
}

// split puts a new node with the first blocks of n's key above n and returns it.
// It knows the pods that n does, but nothing of n's window.
func (n *prebleNode) split(now simtime.Time, blocks int) *prebleNode {
	upper := newPrebleNode(n.parent, n.key[:blocks:blocks], now)
	for model, set := range n.pods {
		upper.pods[model] = slices.Clone(set)
	}
	n.parent.children[n.key[0]] = upper
	n.parent, n.key = upper, n.key[blocks:]
	upper.children[n.key[0]] = n
	return upper
}

func commonPrefix(a, b []uint64) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// each calls f for n and every node below it, in no particular order.
func (n *prebleNode) each(f func(*prebleNode)) {
	f(n)
	for _, c := range n.children {
		c.each(f)
	}
}

// evict removes the nodes below n that nobody has visited since before and
// everything under them. As in the original, the pods of a removed node are
// taken from every node above it, too, though they may still hold that content.
func (n *prebleNode) evict(before simtime.Time) {
	for first, c := range n.children {
		if c.touched >= before {
			c.evict(before)
			continue
		}
		delete(n.children, first)
		c.each(func(e *prebleNode) { e.evicted = true })
		for above := n; above != nil; above = above.parent {
			above.release(c.pods)
		}
	}
}

// release takes pods out of the node.
func (n *prebleNode) release(pods map[string]podSet) {
	for model, gone := range pods {
		for w := range min(len(gone), len(n.pods[model])) {
			n.pods[model][w] &^= gone[w]
		}
	}
}

// keepOnly takes all other pods out of the node and reports whether any is left.
func (n *prebleNode) keepOnly(present podSet) (left bool) {
	for _, set := range n.pods {
		for w := range set {
			if w < len(present) {
				set[w] &= present[w]
			} else {
				set[w] = 0
			}
			left = left || set[w] != 0
		}
	}
	return left
}
