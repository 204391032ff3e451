package sweep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Shard is part Index, from 0, of a sweep that is cut in Of parts. A sweep that
// is not cut is shard 0 of 1.
type Shard struct {
	Index int `json:"index"`
	Of    int `json:"of"`
}

// Whole is the one shard of a sweep that is not cut.
var Whole = Shard{0, 1}

// maxShards bounds the parts of a sweep.
const maxShards = 100_000

// ParseShard reads "i/n": part i, from 0, of n.
func ParseShard(text string) (Shard, error) {
	index, of, ok := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(of)
	if !ok || err1 != nil || err2 != nil || n < 1 || n > maxShards || i < 0 || i >= n {
		return Shard{}, fmt.Errorf("shard %q: allowed is i/n with n from 1 to %d and i from 0 to n-1, such as 0/8", text, maxShards)
	}
	return Shard{i, n}, nil
}

// String is "i/n".
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Of) }

// DirName is the name of the shard's directory among its siblings.
func (s Shard) DirName() string { return fmt.Sprintf("shard-%d-of-%d", s.Index, s.Of) }

// groupsOf are the groups of the shard. Groups are dealt in turn, so that costly
// corners of the grid are spread; a group stays together, because the stopping
// rule compares its cells.
func (s *Sweep) groupsOf(shard Shard) []int {
	var groups []int
	for g := shard.Index; g < len(s.groups); g += shard.Of {
		groups = append(groups, g)
	}
	return groups
}

// own are the cells of the shard, in order.
func (s *Sweep) own(shard Shard) []int {
	var cells []int
	for _, g := range s.groupsOf(shard) {
		cells = append(cells, s.groups[g]...)
	}
	slices.Sort(cells)
	return cells
}
