package sim

import (
	"fleetsim/simtime"
	traces "fleetsim/workload/trace"
)

// A session is a conversation of which turns can wait for those before.
type session struct {
	open  int          // turns let go that have not ended
	ended simtime.Time // the latest turn's end; Never: none has
	queue []*request   // turns that wait for those before, in order
}

// turn is a request's place in a conversation.
type turn struct {
	session *session // nil: none in which turns wait
	waits   bool     // for the turns before, and is not let go yet
	timed   bool     // it is not sent before its time either
	think   simtime.Time
	paces   bool // the next row is read when this one is due
}

// join makes the row a turn of its session.
func (l *traceLoad) join(q *request, row *traces.Row) {
	if l.sessions == nil || row.Session == "" {
		return
	}
	s, known := l.sessions[row.Session]
	if !known {
		s = &session{ended: simtime.Never}
		l.sessions[row.Session] = s
	}
	if known {
		l.later++
	}
	q.turn = turn{session: s, waits: row.Wait, timed: row.Timed, think: row.Think.Value}
	switch {
	case !row.Wait:
		s.open++
	case known:
		l.waits++
	}
}

// planRow reads on to the trace's next arrival that has a time and puts it in the
// queue. Turns without one go to their sessions on the way.
func (r *run) planRow() {
	for {
		q, err := r.client.row()
		if err != nil {
			r.err = err
		}
		if q == nil {
			return
		}
		if !q.turn.waits || q.turn.timed {
			q.turn.paces = true
			r.push(max(r.now, q.At), evArrival, q)
			return
		}
		r.takeTurn(q)
	}
}

// turnDue reports whether the request that is due is to be sent now: a turn that
// waits takes its turn first. The trace is read on when the request sets its pace.
func (r *run) turnDue(q *request) bool {
	waits, paces := q.turn.waits, q.turn.paces
	q.turn.paces = false
	if waits {
		r.takeTurn(q)
	}
	if paces {
		r.planRow()
	}
	return !waits
}

// takeTurn lets the turn go if the session's turns before it have ended, and else
// leaves it to the end of the last of them.
func (r *run) takeTurn(q *request) {
	s := q.turn.session
	if s.open > 0 {
		s.queue = append(s.queue, q)
		return
	}
	r.letGo(q)
}

// letGo plans the sending of a turn whose time has come: when the think time since
// the turn before is over, and not before its own time if it has one. One that
// has no turn before it has no other time than that.
func (r *run) letGo(q *request) {
	s, due := q.turn.session, r.now
	q.turn.waits = false
	s.open++
	if s.ended != simtime.Never {
		due = max(due, s.ended+q.turn.think)
	}
	if s.ended == simtime.Never || q.turn.timed {
		due = max(due, q.At)
	}
	r.push(due, evArrival, q)
}

// turnEnds makes way for the session's next turn, however this one has ended: a
// client that got no answer asks on all the same.
func (r *run) turnEnds(q *request) {
	s := q.turn.session
	if s == nil {
		return
	}
	s.open--
	s.ended = r.now
	if s.open == 0 && len(s.queue) > 0 {
		next := s.queue[0]
		s.queue = s.queue[1:]
		r.letGo(next)
	}
}
