package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fleetsim/calibrate/live/text"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// parse is a scenario with short unique prompts and the given workload.
func parse(t *testing.T, workload string, sets ...string) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.ParseWith("test.toml", []byte(`
name = "test"
policies = ["random"]
[workload]
output_tokens = 8
`+workload+`
[workload.prompt]
salt_chars = 16
salt_tokens = 12
salt_tokens_spread = 0
body_repeat = 1
`), sets)
	require.NoError(t, err)
	return sc
}

// replayer replays the scenario against url, with short time-outs.
func replayer(t *testing.T, sc *scenario.Scenario, url string, change ...func(*Options)) *Replayer {
	o := Options{
		Scenario: sc, Seed: 1, Target: Target{URL: url, Model: "m"}, Texts: text.New(sim.Shape(sc.Workload.Prompt), "salt"),
		Now: time.Now, Speed: 1, Budget: NewBudget(100_000), Silence: 5 * time.Second, Drain: 10 * time.Second,
	}
	for _, c := range change {
		c(&o)
	}
	transport := NewTransport(time.Minute, false)
	t.Cleanup(transport.Close)
	return New(o, transport)
}

// replay runs one phase.
func (r *Replayer) run(t *testing.T) *Result {
	t.Helper()
	result, err := r.Phase(context.Background(), "phase", "random")
	require.NoError(t, err)
	checkCounts(t, result)
	return result
}

// checkCounts checks that every planned arrival is one of what the phase counts.
func checkCounts(t *testing.T, r *Result) {
	p := &r.Phase
	require.Len(t, r.Requests, p.Planned.Or(-1), "a record for every arrival")
	require.Equal(t, p.Planned.Or(-1), p.Dropped.Or(0)+p.Requests.Or(0))
	require.Equal(t, p.Requests.Or(-1), p.Success.Or(0)+p.Rejected.Or(0)+p.Failed.Or(0))
	for i, req := range r.Requests {
		require.Equal(t, i, req.Index.Or(-1), "each arrival once, in order")
	}
}

// serve answers every request with the handler. The body has been read before:
// only then does a handler see its client go.
func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// say writes pieces, each flushed.
func say(w http.ResponseWriter, pieces ...string) {
	for _, p := range pieces {
		_, _ = w.Write([]byte(p)) // a client that is gone is what some tests are about
		w.(http.Flusher).Flush()
	}
}

// An SSE stream as vLLM sends it.
const (
	usageEvent = `data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":8,"total_tokens":48}}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

func textEvent(words string) string {
	return fmt.Sprintf(`data: {"choices":[{"index":0,"text":%q,"finish_reason":null}]}`+"\n\n", words)
}

func deltaEvent(delta string) string {
	return `data: {"choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
}

// good is a whole answer.
func good(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	say(w, textEvent(" a b c d"), textEvent(" e f g h"), usageEvent, doneEvent)
}

const oneRequest = "requests = 1\n[workload.arrivals]\nrate_per_second = 1.0"

func only(t *testing.T, r *Result) (record.Request, *Attempt) {
	t.Helper()
	require.Len(t, r.Requests, 1)
	require.NotEmpty(t, r.Sends)
	return r.Requests[0], r.Sends[len(r.Sends)-1].Attempt
}
