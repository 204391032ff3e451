package model

import (
	"math"

	"fleetsim/simtime"
)

// Most sequences of a batch need nothing of a step but one more token. Those are
// in stride: the steps of the stride are numbered, and a sequence in it has one
// token of each from the one after it joined. So neither a step nor its end
// looks at every sequence; what a sequence has is worked out when somebody asks
// (settle), and the scheduler looks at it when its last token has been scheduled
// or a block or state of it is due.
type stride struct {
	n       int          // sequences that take part in the next step
	formed  int          // number of the latest step scheduled
	ended   int          // number of the latest step that has ended
	last    simtime.Time // when it did
	due     int          // number of the first step before which a sequence needs a look
	done    int          // number of the step with which the first sequence is complete, or before
	context int          // tokens that the sequences attend to in the next step, one after the other
	shared  int          // of these, tokens that another attends to before
}

// A pace is where a sequence in stride is.
type pace struct {
	formed, ended int // its counters hold the stride's steps up to these
	fin           int // number of the last step that it takes part in
	done          int // number of the step that brings its last token: fin, or before it after a preemption
	due           int // number of the step before which it needs a look
}

// settle brings the counters of a sequence that is or was in stride up to date.
func (e *engine) settle(s *Seq) {
	if s.state != inStride && s.state != drained {
		return
	}
	if formed := min(e.stride.formed, s.pace.fin); formed > s.pace.formed {
		s.computed += formed - s.pace.formed
		s.scheduled += formed - s.pace.formed
		s.pace.formed = formed
	}
	if ended := min(e.stride.ended, s.pace.fin); ended > s.pace.ended {
		s.processed += ended - s.pace.ended
		s.Outputs += ended - s.pace.ended
		s.Last = e.stride.last
		s.pace.ended = ended
	}
}

// settleAll brings all sequences up to date.
func (e *engine) settleAll() {
	for _, s := range e.running {
		e.settle(s)
	}
}

// joins reports whether s, which is to decode a token in the step being formed,
// has it as one of the stride. Tokens that are seen as the first go by themselves.
func (e *engine) joins(s *Seq) bool {
	if s.state != inStride {
		if e.stepwise || s.computed < s.target || s.scheduled <= s.Hidden {
			return false
		}
		formed := e.stride.formed
		s.state = inStride
		s.pace = pace{formed: formed, ended: formed, fin: formed + s.Output - s.scheduled, done: formed + s.Output - s.Outputs - e.underway(s)}
		e.stride.n++
		e.stride.context += s.computed + 1
		e.stride.shared += e.read(s.attn[:s.cached])
	}
	s.pace.due = e.stride.formed + 2 + e.calm(s)
	return true
}

// underway is how many tokens the steps in flight bring to a sequence that is
// not in stride.
func (e *engine) underway(s *Seq) int {
	n := 0
	for i := range e.flight.n {
		for _, it := range e.flight.at(i).items {
			if it.seq == s && it.emits {
				n++
			}
		}
	}
	return n
}

// drain notes that all tokens of s have been scheduled.
func (e *engine) drain(s *Seq) {
	if s.state == inStride {
		e.leave(s)
		s.state = drained
	}
}

// leave takes s, which is settled, out of the steps to come.
func (e *engine) leave(s *Seq) {
	e.stride.n--
	e.stride.context -= s.computed + 1
	e.stride.shared -= e.unread(s.attn[:s.cached])
}

// strides reports whether s has its token of the step being formed without a
// look at it.
func (e *engine) strides(s *Seq) bool { return s.state == inStride && s.pace.due > e.stride.formed+1 }

// onlyStride reports whether the next step needs a look at no running sequence: all
// are in stride, none is due, and the budget has a token for each.
func (e *engine) onlyStride() bool {
	return e.stride.due > e.stride.formed+1 && e.stride.n == len(e.running) && e.stride.n <= e.MaxBatchedTokens
}

// takeStride makes the sequences in stride take part in the step.
func (e *engine) takeStride(st *step) {
	s := &e.stride
	if s.n == 0 {
		return
	}
	s.formed++
	st.number, st.members = s.formed, s.n
	s.addTo(&st.work)
	s.context += s.n
}

// addTo adds to w what the next step does for the stride.
func (s *stride) addTo(w *Work) {
	w.Decodes += s.n
	w.DecodeContext += int64(s.context - s.shared)
	w.SharedContext += int64(s.shared)
}

// lookOut finds when a sequence is next due or complete.
func (e *engine) lookOut() {
	due, done := math.MaxInt, math.MaxInt
	for _, s := range e.running {
		switch s.state {
		case inStride:
			due, done = min(due, s.pace.due), min(done, s.pace.done)
		case drained:
			done = min(done, s.pace.done)
		}
	}
	e.stride.due, e.stride.done = due, done
}

// calm is for how many steps after the one being formed a sequence, which is
// settled up to the one before, needs no look: it has more outputs to schedule,
// its last block has room, no block of it fills and no state of it is dropped.
// The latter two happen when steps have ended, by now or later.
func (e *engine) calm(s *Seq) int {
	b := e.BlockTokens
	n := min(s.Output-s.scheduled, len(s.attn)*b-s.computed)
	if len(s.states) > 1 {
		n = min(n, (s.states[0]+1)*b-s.computed+1)
	}
	if e.PrefixCaching && s.cached < len(s.Hashes) {
		n = min(n, (s.cached+1)*b-s.computed-1)
	}
	return max(n-1, 0)
}

// endStride takes the stride's results of a step that has ended, and reports
// whether they complete a sequence.
func (e *engine) endStride(st *step) (complete bool) {
	if st.number == 0 {
		return false
	}
	e.stride.ended, e.stride.last = st.number, st.end
	e.stats.OutputTokens += int64(st.members)
	return st.number >= e.stride.done
}

// detach takes s out of the stride. From the steps in flight it still gets its
// tokens, unless it is about to leave the engine.
func (e *engine) detach(s *Seq, leaves bool) {
	if s.state != inStride && s.state != drained {
		return
	}
	e.settle(s)
	for i := range e.flight.n {
		st := e.flight.at(i)
		if st.number <= s.pace.ended || st.number > s.pace.formed {
			continue
		}
		st.members--
		if !leaves {
			st.items = append(st.items, item{seq: s, n: 1, epoch: s.epoch, emits: true})
		}
	}
	if s.state == inStride {
		e.leave(s)
	}
	s.state = running
}

// pass takes the stride on by n steps, which end at last, in one go. The steps in
// flight must be of the stride alone, and no sequence may need a look.
func (e *engine) pass(n int, last simtime.Time) {
	s := &e.stride
	s.formed += n
	s.ended += n
	s.last = last
	s.context += n * s.n
	for i := range e.flight.n {
		e.flight.at(i).number += n
	}
	e.stats.Steps += int64(n)
	e.stats.OutputTokens += int64(n) * int64(s.n)
}

// steady reports whether the stride is all there is: in the steps in flight, in
// the batch, and in what the next step will be.
func (e *engine) steady() bool {
	if !e.flight.full() || e.stride.n == 0 || !e.onlyStride() ||
		e.waiting.len() > 0 && len(e.running) < e.MaxNumSeqs {
		return false
	}
	for i := range e.flight.n {
		st := e.flight.at(i)
		if st.members != e.stride.n || len(st.items) > 0 || st.work.PrefillTokens > 0 {
			return false
		}
	}
	return true
}

// endsQuietly reports whether nobody outside can tell when the step in flight
// ends that is the oldest after skip more: it completes no sequence.
func (e *engine) endsQuietly(skip int) bool {
	if e.stepwise || e.flight.n < 2 || e.pool.log != nil {
		return false
	}
	st := e.flight.at(0)
	if st.number > 0 && st.number+skip >= e.stride.done {
		return false
	}
	for i := range st.items {
		if it := &st.items[i]; it.emits && it.seq.Outputs+1 >= it.seq.Output {
			return false
		}
	}
	return true
}
