// Package server is the simulated cluster in real time behind an
// OpenAI-compatible front end: what a load generator, a dashboard or a script
// that talks to a gateway of vLLM engines finds there.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fleetsim/calibrate/live/text"
	"fleetsim/sim/metrics"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// Options of a Server.
type Options struct {
	Model  string // the one that is served
	Policy string // of requests without a routing-strategy header; "" balances
	Output int    // tokens of a chat that names no limit
	Clock  Clock
	Now    func() time.Time // for deadlines and creation times
	// MaxBody is the largest request body in bytes.
	MaxBody int64
	// ClientTimeout is how long a client may take to send its body, and how long
	// it may leave a write waiting before its request is aborted.
	ClientTimeout time.Duration
}

// The defaults of Options.
const (
	DefaultMaxBody       = 8 << 20
	DefaultClientTimeout = 30 * time.Second
)

// A Server is an http.Handler over a cluster.
type Server struct {
	Options
	mux    *http.ServeMux
	actor  *actor
	pods   []string
	number atomic.Int64

	mu      sync.Mutex
	closing bool
	calls   sync.WaitGroup // grows only while closing is false
}

// New serves the cluster, which is the server's from now on. Close ends it.
func New(c *Cluster, o Options) *Server {
	s := &Server{Options: o, mux: http.NewServeMux(), pods: c.Pods(), actor: newActor(c, o.Clock)}
	for _, front := range []string{"", "/pods/{pod}"} {
		s.mux.HandleFunc("POST "+front+"/v1/completions", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, false) })
		s.mux.HandleFunc("POST "+front+"/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, true) })
		s.mux.HandleFunc("GET "+front+"/v1/models", s.models)
		s.mux.HandleFunc("GET "+front+"/health", s.health)
		s.mux.HandleFunc("GET "+front+"/metrics", s.metrics)
		s.mux.HandleFunc("POST "+front+"/reset_prefix_cache", s.reset)
	}
	s.mux.HandleFunc("GET /admin/pods", s.list)
	s.mux.HandleFunc("POST /admin/pods/{pod}/drain", func(w http.ResponseWriter, r *http.Request) { s.drain(w, r, true) })
	s.mux.HandleFunc("POST /admin/pods/{pod}/undrain", func(w http.ResponseWriter, r *http.Request) { s.drain(w, r, false) })
	s.mux.HandleFunc("/", s.unknown)
	return s
}

// unknown answers for a path that the gateway does not know.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	s.fail(w, &Error{Status: http.StatusNotImplemented, Message: r.Method + " " + r.URL.Path + " is not served", Type: "invalid_request_error",
		Code: "unknown_path", Header: "x-error-request-body-processing", Value: "true"})
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close refuses new requests and waits for those in flight; when ctx ends first
// it aborts them, as an engine without a grace period does, and returns ctx's
// error. A server may be closed again.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
		s.actor.ask(func(now simtime.Time) { s.actor.cluster.AbortAll(now, "") })
		<-idle
	}
	s.actor.stop()
	return err
}

// enter counts a request as in flight, unless the server is closing.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.calls.Add(1)
	}
	return !s.closing
}

// pod is the pod that the path names, "" for the gateway; ok is false, and the
// request answered, if there is no such pod.
func (s *Server) pod(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	name = r.PathValue("pod")
	if name == "" {
		return "", true
	}
	for _, p := range s.pods {
		if p == name {
			return name, true
		}
	}
	s.fail(w, &Error{Status: http.StatusNotFound, Message: "no pod is called " + strconv.Quote(name), Type: "NotFoundError", Code: http.StatusNotFound})
	return "", false
}

func (s *Server) fail(w http.ResponseWriter, e *Error) {
	if e.Header != "" {
		w.Header().Set(e.Header, e.Value)
	}
	s.write(w, e.Status, e.body())
}

// write answers with JSON. A client that is gone has no use for an error.
func (s *Server) write(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // all that is written here has a JSON form
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.pod(w, r); ok {
		s.write(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
			"id": s.Model, "object": "model", "created": s.Now().Unix(), "owned_by": "fleetsim",
			"max_model_len": s.actor.cluster.Limits().MaxModelLen}}})
	}
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.pod(w, r); !ok {
		return
	}
	if !s.enter() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.calls.Done()
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	var families []metrics.Family
	if !s.actor.ask(func(now simtime.Time) { families = s.actor.cluster.Metrics(now, s.Model, pod) }) {
		s.fail(w, shuttingDown())
		return
	}
	w.Header().Set("Content-Type", metrics.TextContentType)
	_ = metrics.WriteText(w, families) // a client that is gone has no use for an error
}

// reset empties the prefix cache of a pod, or of all. Like vLLM's, the answer is
// 200 with an empty body whether or not a cache could be emptied.
func (s *Server) reset(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	s.actor.ask(func(now simtime.Time) {
		for _, name := range s.pods {
			if pod == "" || pod == name {
				s.actor.cluster.ResetPrefixCache(now, name)
			}
		}
	})
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	pods := []any{}
	s.actor.ask(func(now simtime.Time) {
		s.actor.cluster.Advance(now)
		for _, p := range s.actor.cluster.pods {
			g := p.Gauges()
			pods = append(pods, map[string]any{"name": p.name, "draining": p.draining,
				"in_flight": s.actor.cluster.inFlight(p), "running": g.Running, "waiting": g.Waiting})
		}
	})
	s.write(w, http.StatusOK, map[string]any{"pods": pods})
}

// drain takes a pod off the gateway's list or puts it back. With ?abort=true its
// requests end at once.
func (s *Server) drain(w http.ResponseWriter, r *http.Request, drain bool) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	s.actor.ask(func(now simtime.Time) {
		s.actor.cluster.Drain(now, pod, drain)
		if drain && r.URL.Query().Get("abort") == "true" {
			s.actor.cluster.AbortAll(now, pod)
		}
	})
}

// generate answers a completion or a chat.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, chat bool) {
	if !s.enter() {
		s.fail(w, shuttingDown())
		return
	}
	defer s.calls.Done()
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	call, b, err := s.call(w, r, chat, pod)
	if err != nil {
		s.fail(w, err)
		return
	}
	box := newMailbox()
	call.Listener = box
	if !s.actor.tell(func(now simtime.Time) { s.actor.cluster.Submit(now, call) }) {
		s.fail(w, shuttingDown())
		return
	}
	a := newAnswerTo(s, call, chat)
	var said error
	if b.Stream {
		said = s.stream(w, r, box, a, call, b.StreamOptions != nil && b.StreamOptions.IncludeUsage)
	} else {
		said = s.whole(w, r, box, a, call)
	}
	if said != nil {
		s.actor.tell(func(now simtime.Time) { s.actor.cluster.Abort(now, call) })
	}
}

func newAnswerTo(s *Server, call *Call, chat bool) *answer {
	return &answer{chat: chat, id: call.ID, created: s.Now().Unix(), model: s.Model,
		words: text.AnswerTo(call.ID), hidden: s.actor.cluster.Hides(call.Prompt)}
}

// call is the call that the request makes, with the body it was read from.
func (s *Server) call(w http.ResponseWriter, r *http.Request, chat bool, pod string) (*Call, *body, *Error) {
	b, err := s.readBody(w, r)
	if err != nil {
		return nil, nil, err
	}
	if *b.Model != s.Model {
		if pod == "" {
			return nil, nil, gatewayModel(*b.Model)
		}
		return nil, nil, engineModel(*b.Model)
	}
	prompt, err := b.text(chat)
	if err != nil {
		return nil, nil, err
	}
	id := "cmpl-"
	if chat {
		id = "chatcmpl-"
	}
	call := &Call{ID: id + strconv.FormatInt(s.number.Add(1), 10), Prompt: prompt, Output: b.output(chat, s.Output),
		Input: prompt.Len(workload.Tokens), User: r.Header.Get("user"), Pod: pod}
	if pod == "" {
		call.Policy = s.Policy
		if policy := r.Header.Get("routing-strategy"); policy != "" {
			call.Policy = policy
		}
	}
	if limits := s.actor.cluster.Limits(); call.Input+call.Output <= limits.MaxModelLen {
		call.Hashes = s.actor.cluster.Hashes(prompt + text.AnswerTo(call.ID).Text(call.Output))
	}
	return call, b, nil
}

// errGone is the end of a client.
var errGone = errors.New("server: the client is gone")

// await waits for the next news. It fails when the client is gone or the server
// has stopped.
func (s *Server) await(r *http.Request, box *mailbox) (news, error) {
	select {
	case <-box.ready:
		return box.take(), nil
	case <-r.Context().Done():
		return news{}, errGone
	case <-s.actor.done:
		return news{}, errGone
	}
}

// whole answers when all has been said.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, box *mailbox, a *answer, call *Call) error {
	out := http.NewResponseController(w)
	for {
		n, err := s.await(r, box)
		switch {
		case err != nil:
			return err
		case n.err != nil:
			s.headers(w, call, n)
			s.fail(w, n.err)
			return nil
		case n.finish != "":
			s.headers(w, call, n)
			w.Header().Set("Content-Type", "application/json")
			if err := s.extend(out); err != nil {
				return err
			}
			_, err := w.Write(a.whole(ending{call.Input, n.tokens, n.cached}, n.finish))
			return err
		}
	}
}

// extend gives the client until then to take what is written next: of one that
// does not read, the server gives up rather than wait for ever.
func (s *Server) extend(out *http.ResponseController) error {
	return supported(out.SetWriteDeadline(s.Now().Add(s.ClientTimeout)))
}

// supported is err, but nil where there is no connection to have deadlines.
func supported(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// headers are the gateway's on every answer.
func (s *Server) headers(w http.ResponseWriter, call *Call, n news) {
	h := w.Header()
	h.Set("request-id", call.ID)
	if call.Policy != "" {
		h.Set("routing-strategy", call.Policy)
	}
	if n.pod != "" {
		h.Set("target-pod", n.pod)
	}
}

// stream answers as it is said.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, box *mailbox, a *answer, call *Call, usage bool) error {
	out := http.NewResponseController(w)
	begun := false
	for {
		n, err := s.await(r, box)
		switch {
		case err != nil:
			return err
		case n.err != nil:
			s.headers(w, call, n)
			s.fail(w, n.err)
			return nil
		case !begun:
			begun = true
			s.headers(w, call, n)
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			w.WriteHeader(http.StatusOK)
		}
		if err := s.extend(out); err != nil {
			return err
		}
		if n.tokens > 0 || n.finish != "" {
			if _, err := w.Write(a.events(n.tokens, n.finish)); err != nil {
				return err
			}
		}
		if n.finish != "" {
			if _, err := w.Write(a.end(ending{call.Input, n.tokens, n.cached}, usage)); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if n.finish != "" {
			return nil
		}
	}
}
