package server

import (
	"sync"

	"fleetsim/router"
	"fleetsim/simtime"
)

// A mailbox takes a call's news from the actor, which never waits, and gives
// them to the handler, which may be slow: news that pile up are merged, as a
// front end merges the steps of a client that lags.
type mailbox struct {
	mu    sync.Mutex
	news  news
	ready chan struct{} // holds one: there are news that nobody has taken
}

// news is all that is known of a call.
type news struct {
	pod       string // "" before it is routed
	selection string
	tokens    int    // so far
	cached    int    // prompt tokens from the cache, once there are tokens
	finish    string // "" while it goes on
	err       *Error
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

func (m *mailbox) post(change func(*news)) {
	m.mu.Lock()
	change(&m.news)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default: // the handler has not seen the last ones yet
	}
}

// take is the news so far, after a receive from ready.
func (m *mailbox) take() news {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news
}

// Accepted, Tokens and Refused make it a Listener.
func (m *mailbox) Accepted(pod string, d router.Decision) {
	m.post(func(n *news) { n.pod, n.selection = pod, d.Selection })
}

func (m *mailbox) Tokens(_ simtime.Time, tokens int, finish string, cached int) {
	m.post(func(n *news) { n.tokens, n.finish, n.cached = n.tokens+tokens, finish, cached })
}

func (m *mailbox) Refused(err *Error) { m.post(func(n *news) { n.err = err }) }
