package sim

import "fleetsim/simtime"

// What a client does when it has had enough. It closes the connection, and the
// engine, if one has the request, aborts it at that moment.

// The categories of streams that did not end well.
const (
	errReadTimeout = "read_timeout" // the client heard nothing for too long
	errCancelled   = "cancelled"    // the client gave up
	errStreamCut   = "stream_cut"   // the connection broke
	errAborted     = "aborted"      // the engine ended the stream before its time
	errRefused     = "connection_refused"
	errNoAnswer    = "no_answer"
	errNoPod       = "no_routable_pod"
	errTooLong     = "prompt_too_long"
)

// watch makes the client look, after the read timeout, whether it has heard
// anything. One such event a request is enough: it puts itself off.
func (r *run) watch(q *request) {
	if timeout := r.client.w.ReadTimeout.Time; timeout > 0 && !q.watched {
		q.watched = true
		r.push(r.now+timeout, evSilence, q)
	}
}

// silence looks whether the client has heard nothing for its read timeout.
func (r *run) silence(q *request) {
	q.watched = false
	if q.status == statusRefused {
		return // between two attempts, or about to hear
	}
	if deadline := r.heard(q) + r.client.w.ReadTimeout.Time; deadline > r.now {
		q.watched = true
		r.push(deadline, evSilence, q)
		return
	}
	r.giveUp(q, errReadTimeout)
}

// heard is when the client last heard of its attempt: the latest token, or else
// the sending itself. Headers come with it, as good as at once.
func (r *run) heard(q *request) simtime.Time {
	if q.inEngine {
		q.replica.Sync(r.now)
	}
	if q.seq.First == simtime.Never {
		return q.asked
	}
	return q.seq.Last + r.Profile.ResponseOverhead
}

// cancel is a client that has waited long enough. Between two attempts it leaves
// it at the refusal that it had.
func (r *run) cancel(q *request) {
	if q.status == statusRefused {
		r.end(q)
		return
	}
	r.giveUp(q, errCancelled)
}

// giveUp ends a request from the client's side.
func (r *run) giveUp(q *request, why string) {
	q.err = why
	if q.inEngine {
		r.abort(q)
	}
	r.end(q)
}

// abort takes the request out of its engine.
func (r *run) abort(q *request) {
	rep := q.replica
	rep.Sync(r.now)
	rep.Abort(r.now, &q.seq)
	q.inEngine, q.aborted = false, true
	rep.active--
	r.expect(rep)
	r.exitIfDrained(rep)
}
