package live

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/calibrate/live/text"
	"fleetsim/sim/record"
	"fleetsim/workload"
)

// What is sent is what the scenario plans: prompts, lengths, headers.
func TestRequestsAreThePlans(t *testing.T) {
	for _, chat := range []bool{false, true} {
		var mu sync.Mutex
		prompts := make(map[string]bool)
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				Model, Prompt string
				Messages      []struct{ Role, Content string }
				MaxTokens     int            `json:"max_tokens"`
				Temperature   *float64       `json:"temperature"`
				IgnoreEOS     bool           `json:"ignore_eos"`
				Stream        bool           `json:"stream"`
				StreamOptions map[string]any `json:"stream_options"`
			}
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			prompt, path := body.Prompt, "/v1/completions"
			if chat {
				prompt, path = body.Messages[0].Content, "/v1/chat/completions"
			}
			ok := body.Model == "m" && body.MaxTokens == 8 && body.Temperature != nil && *body.Temperature == 0 && body.IgnoreEOS && body.Stream &&
				body.StreamOptions["include_usage"] == true && r.URL.Path == path && r.Header.Get("routing-strategy") == "random" &&
				r.Header.Get("Authorization") == "Bearer secret" && r.Header.Get("x-cluster") == "staging" && r.Header.Get("user") != "" &&
				r.Header.Get("Accept-Encoding") == ""
			if !ok {
				http.Error(w, "not as planned", http.StatusBadRequest)
				return
			}
			mu.Lock()
			prompts[prompt] = true
			mu.Unlock()
			good(w)
		})
		sc := parse(t, "requests = 6\n[workload.arrivals]\nrate_per_second = 1000.0\n[[workload.tenants]]\nname = \"A\"\n[[workload.tenants]]\nname = \"B\"")
		r := replayer(t, sc, url, func(o *Options) {
			o.Target.Chat, o.Target.Authorization, o.Target.Header = chat, "Bearer secret", http.Header{"X-Cluster": {"staging"}}
		})
		result := r.run(t)
		require.Equal(t, 6, result.Phase.Success.Or(-1), "%v", result.Sends[0].Attempt.Message)
		require.Len(t, result.Phase.Tenants, 2)
		for _, s := range result.Sends {
			require.True(t, prompts[string(r.Texts.Text(s.Request.Prompt))])
		}
	}
}

// The server's token counts are compared with the plan's.
func TestTokenDifferenceIsNoted(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { good(w) })
	sc := parse(t, oneRequest)
	result := replayer(t, sc, url).run(t)
	planned := result.Sends[0].Request.Prompt.Len(workload.Tokens)
	require.NotEqual(t, 40, planned)
	require.Contains(t, strings.Join(result.Phase.Notes, "\n"), "prompt tokens by usage differ from the plan's in 1 of 1 answers")
}

// Coordinated omission (F24): a server that stalls keeps nobody from sending, so
// everyone who came during the stall shows it.
func TestOpenLoopNeverWaits(t *testing.T) {
	const stall = time.Second
	var begin sync.Once
	var end time.Time
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		begin.Do(func() { end = time.Now().Add(stall) })
		time.Sleep(time.Until(end))
		good(w)
	})
	sc := parse(t, "requests = 40\n[workload.arrivals]\nrate_per_second = 20.0") // 2 s
	result := replayer(t, sc, url).run(t)
	waited := 0
	for i, r := range result.Requests {
		ttft := r.TTFT.Or(-1)
		if i < 18 { // sent up to 0.85 s: each waits for what is left
			require.InDelta(t, stall.Seconds()-r.Started.Or(0), ttft, 0.2, "request %d", i)
			waited++
		}
	}
	require.Equal(t, 18, waited)
	require.Greater(t, result.Phase.TTFT.P50.Or(-1)+result.Phase.TTFT.P95.Or(-1), 0.8)
}

// Beyond the cap an arrival is dropped and counted, as the simulator does it.
func TestInFlightCap(t *testing.T) {
	release := make(chan struct{})
	var once sync.Once
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		good(w)
	})
	sc := parse(t, "requests = 20\nin_flight_cap = 3\n[workload.arrivals]\nrate_per_second = 200.0")
	time.AfterFunc(500*time.Millisecond, func() { once.Do(func() { close(release) }) })
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	result := replayer(t, sc, url).run(t)
	require.Equal(t, 17, result.Phase.Dropped.Or(-1))
	require.Equal(t, 3, result.Phase.Success.Or(-1))
	for i, r := range result.Requests {
		require.Equal(t, i >= 3, r.Result == record.Dropped)
		if i >= 3 {
			require.Equal(t, catInFlightCap, r.ErrorCategory)
		}
	}
}

// No cap of our own (F26): all streams start at once, each on its connection.
func TestNoHiddenConnectionLimit(t *testing.T) {
	const streams = 150
	var open, most atomic.Int64
	all := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := open.Add(1)
		defer open.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == streams {
			close(all)
		}
		select {
		case <-all:
			good(w)
		case <-r.Context().Done():
		}
	})
	sc := parse(t, "requests = 150\n[workload.arrivals]\nrate_per_second = 10000.0")
	result := replayer(t, sc, url).run(t)
	require.EqualValues(t, streams, most.Load())
	require.Equal(t, streams, result.Phase.Success.Or(-1))
	require.Equal(t, streams, facts(t, result).Connections)
}

// A connection is used again, and no request is cancelled behind [DONE] (F21).
func TestConnectionsAreUsedAgain(t *testing.T) {
	var cancelled atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		good(w)
		select {
		case <-r.Context().Done():
			cancelled.Add(1)
		case <-time.After(20 * time.Millisecond):
		}
	})
	sc := parse(t, "requests = 8\n[workload.closed_loop]\nconcurrency = 1")
	result := replayer(t, sc, url).run(t)
	require.Equal(t, 8, result.Phase.Success.Or(-1))
	require.Zero(t, cancelled.Load())
	require.Equal(t, 1, facts(t, result).Connections)
}

type factsRead struct {
	Attempts    int
	Connections int `json:"connections_opened"`
	Lateness    struct{ Max float64 }
	DueTTFT     struct{ P50 float64 } `json:"ttft_from_due"`
	Salt        string
}

func facts(t *testing.T, r *Result) (f factsRead) {
	require.NoError(t, json.Unmarshal(r.Phase.Other["client"], &f))
	return f
}

// A generator that is late says so (F22): here the clock stands still for a
// while, as on a machine that was busy.
func TestLatenessIsReported(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { good(w) })
	sc := parse(t, "requests = 10\n[workload.arrivals]\nrate_per_second = 100.0")
	jump, asked := 0*time.Second, 0
	var mu sync.Mutex
	r := replayer(t, sc, url, func(o *Options) {
		o.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			if asked++; asked > 3 {
				jump = 300 * time.Millisecond
			}
			return time.Now().Add(jump)
		}
	})
	result := r.run(t)
	require.GreaterOrEqual(t, facts(t, result).Lateness.Max, 0.15)
	require.Contains(t, strings.Join(result.Phase.Notes, "\n"), "late")
	require.Greater(t, facts(t, result).DueTTFT.P50, result.Phase.TTFT.P50.Or(0))
	require.Equal(t, 10, result.Phase.Success.Or(-1), "late ones are sent all the same")
}

func TestClosedLoop(t *testing.T) {
	var open, most atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), open.Add(1)))
		time.Sleep(10 * time.Millisecond)
		open.Add(-1)
		good(w)
	})
	sc := parse(t, "[workload.closed_loop]\nconcurrency = 3\nduration = \"300ms\"\nthink_time = \"20ms\"")
	result := replayer(t, sc, url).run(t)
	n := len(result.Requests)
	require.Equal(t, n, result.Phase.Success.Or(-1))
	require.LessOrEqual(t, most.Load(), int64(3))
	require.LessOrEqual(t, n, 3*300/30+3, "a lane thinks")
	require.Greater(t, n, 3)
	for _, r := range result.Requests {
		require.Less(t, r.Started.Or(99), 0.3+0.2, "none begins after the loop's end, but for what sending takes")
	}
	limited := replayer(t, parse(t, "requests = 7\n[workload.closed_loop]\nconcurrency = 3"), url).run(t)
	require.Len(t, limited.Requests, 7)
}

// The speed shortens waits and lengthens what is recorded.
func TestSpeed(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(20 * time.Millisecond)
		good(w)
	})
	sc := parse(t, "requests = 5\n[workload.arrivals]\nrate_per_second = 1.0") // 4 s
	begin := time.Now()
	result := replayer(t, sc, url, func(o *Options) { o.Speed = 20 }).run(t)
	require.Less(t, time.Since(begin), 3*time.Second)
	for i, r := range result.Requests {
		require.GreaterOrEqual(t, r.Started.Or(-1), float64(i))
		require.GreaterOrEqual(t, r.TTFT.Or(-1), 0.4)
	}
}

// 429 once, then 200 (F29): one rejection by default, and both attempts on
// record when a retry was asked for.
func TestRetriesOnlyWhenAsked(t *testing.T) {
	for retries, want := range []string{record.Rejected, record.OK} {
		var asked atomic.Int64
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "", http.StatusTooManyRequests)
				return
			}
			good(w)
		})
		result := replayer(t, parse(t, oneRequest), url, func(o *Options) { o.Retries = retries }).run(t)
		require.Equal(t, want, result.Requests[0].Result)
		require.Len(t, result.Sends, retries+1)
		require.Equal(t, record.Rejected, result.Sends[0].Attempt.Result)
		if retries == 1 {
			require.GreaterOrEqual(t, result.Requests[0].TTFT.Or(0), 1.0, "the client's time runs from its first attempt")
		}
	}
}

// What the limits keep from being sent is dropped and says why.
func TestLimits(t *testing.T) {
	var asked atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("routing-strategy") == "slow" {
			<-r.Context().Done()
			return
		}
		good(w)
	})
	sc := parse(t, "requests = 10\n[workload.arrivals]\nrate_per_second = 100.0")
	result := replayer(t, sc, url, func(o *Options) { o.Budget = NewBudget(4) }).run(t)
	require.EqualValues(t, 4, asked.Load())
	require.Equal(t, 6, result.Phase.Dropped.Or(-1))
	require.Equal(t, catMaxRequests, result.Requests[9].ErrorCategory)

	ctx, cancel := WithMaxDuration(context.Background(), 55*time.Millisecond)
	defer cancel()
	slow, err := replayer(t, sc, url).Phase(ctx, "slow", "slow")
	require.NoError(t, err)
	checkCounts(t, slow)
	require.Equal(t, catMaxDuration, slow.Requests[0].ErrorCategory)
	require.Equal(t, record.Failed, slow.Requests[0].Result, "what was in flight has failed")
	require.Equal(t, record.Dropped, slow.Requests[9].Result, "what was not sent is dropped")

	ctx, stop := context.WithCancel(context.Background())
	time.AfterFunc(55*time.Millisecond, stop)
	stopped, err := replayer(t, sc, url).Phase(ctx, "stopped", "slow")
	require.NoError(t, err)
	checkCounts(t, stopped)
	require.Equal(t, catCancelled, stopped.Requests[0].ErrorCategory)
}

// A stream that never ends is cancelled at the end of the drain (F53).
func TestDrainTimeout(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("user") == "B" {
			stream(words[0])(w, r)
			<-r.Context().Done()
			return
		}
		good(w)
	})
	sc := parse(t, "requests = 2\n[workload.arrivals]\nrate_per_second = 100.0\n[[workload.tenants]]\nname = \"A\"\n[[workload.tenants]]\nname = \"B\"")
	begin := time.Now()
	result := replayer(t, sc, url, func(o *Options) { o.Drain = 200 * time.Millisecond }).run(t)
	require.Less(t, time.Since(begin), 3*time.Second)
	require.Equal(t, record.OK, result.Requests[0].Result)
	require.Equal(t, catDrainTimeout, result.Requests[1].ErrorCategory)
}

// Answers in one piece have no TTFT, and the phase says so (F55).
func TestWholeAnswers(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); bytes.Contains(body, []byte(`"stream"`)) {
			http.Error(w, "no stream was wanted", http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"choices":[{"text":" a b","finish_reason":"length"}],"usage":{"prompt_tokens":40,"completion_tokens":8}}`)
	})
	result := replayer(t, parse(t, oneRequest), url, func(o *Options) { o.Target.Whole = true }).run(t)
	r := result.Requests[0]
	require.Equal(t, record.OK, r.Result)
	require.False(t, r.TTFT.Valid() || r.TPOT.Valid())
	require.True(t, r.E2E.Valid())
	require.Contains(t, strings.Join(result.Phase.Notes, "\n"), "no TTFT")
}

func TestAlias(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("target-pod", "qwen-7f9c")
		good(w)
	})
	result := replayer(t, parse(t, oneRequest), url, func(o *Options) { o.Alias = map[string]string{"qwen-7f9c": "L20-A"} }).run(t)
	require.Equal(t, "L20-A", result.Requests[0].Replica)
	require.Equal(t, "qwen-7f9c", result.Sends[0].Attempt.TargetPod)
	require.Equal(t, "L20-A", result.Phase.Replicas[0].Name)
}

// Other machines are refused where the connection is made, whatever their name.
func TestOnlyThisMachine(t *testing.T) {
	result := replayer(t, parse(t, oneRequest), "http://192.0.2.1:9").run(t) // TEST-NET-1
	require.Equal(t, catForeignAddress, result.Requests[0].ErrorCategory)
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "127.1.2.3": true, "::1": true, "10.0.0.1": false, "example.org": false, "localhost.example.org": false, "": false} {
		require.Equal(t, want, IsLoopbackHost(host), host)
	}
}

// A run directory reads back as records do; no secret is in it.
func TestWriteDir(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { good(w) })
	r := replayer(t, parse(t, "requests = 3\n[workload.arrivals]\nrate_per_second = 1000.0"), url, func(o *Options) { o.Target.Authorization = "Bearer secret" })
	result := r.run(t)
	dir := t.TempDir()
	require.NoError(t, WriteDir(dir, []*Result{result}))
	for _, name := range []string{record.PhasesFile, record.RequestsFile, SendsFile} {
		data := readFile(t, filepath.Join(dir, name))
		require.NotContains(t, string(data), "secret", name)
		require.NotEmpty(t, data)
	}
	phases, err := record.ReadPhases("phases", bytes.NewReader(readFile(t, filepath.Join(dir, record.PhasesFile))))
	require.NoError(t, err)
	require.Equal(t, 3, phases[0].Success.Or(-1))
	require.False(t, phases[0].Simulated)
	requests, err := record.ReadRequests("requests", bytes.NewReader(readFile(t, filepath.Join(dir, record.RequestsFile))))
	require.NoError(t, err)
	require.Equal(t, result.Requests, requests)
	lines := strings.Split(strings.TrimSpace(string(readFile(t, filepath.Join(dir, SendsFile)))), "\n")
	require.Len(t, lines, 3)
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &line))
	for _, member := range []string{"due", "sent", "first", "end", "lateness"} {
		require.IsType(t, 0.0, line[member], member)
	}
	var plan bytes.Buffer
	require.NoError(t, r.WritePlan(&plan, "phase", "random"))
	require.NotContains(t, plan.String(), "secret")
	require.Contains(t, plan.String(), "3 requests")
}

func readFile(t *testing.T, name string) []byte {
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	if strings.HasSuffix(name, ".gz") {
		in, err := gzip.NewReader(bytes.NewReader(data))
		require.NoError(t, err)
		data, err = io.ReadAll(in)
		require.NoError(t, err)
	}
	return data
}

// Whatever a server says, an attempt ends with one of the results, and a success
// has all that one needs.
func TestAnyStreamIsJudged(t *testing.T) {
	pieces := []string{words[0], words[1], usageEvent, doneEvent, ": ping\n\n", "data: {\n\n", `data: {"error":"no"}` + "\n\n", "data: null\n\n", "data: 7\n\n",
		`data: {"choices":[{"finish_reason":"abort"}]}` + "\n\n", `data: {"usage":null,"choices":null}` + "\n\n"}
	var said atomic.Pointer[[]string]
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { stream(*said.Load()...)(w, r) })
	transport := NewTransport(time.Second, false)
	defer transport.Close()
	target := Target{URL: url, Model: "m"}
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 6).Draw(rt, "pieces")
		said.Store(&s)
		a := transport.Send(context.Background(), time.Now, target.ask(text.Text("hello"), 8, "", ""), time.Second)
		switch a.Result {
		case record.OK:
			require.Empty(rt, a.Category)
			require.False(rt, a.First.IsZero() || a.Done.IsZero())
			require.Equal(rt, 8, a.Usage.CompletionTokens)
		case record.Failed:
			require.NotEmpty(rt, a.Category)
		default:
			require.Fail(rt, "unexpected result", a.Result)
		}
		require.False(rt, a.End.Before(a.Sent))
	})
}

func FuzzChunk(f *testing.F) {
	f.Add([]byte(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}`))
	f.Add([]byte(`{"error":{"message":"x"}}`))
	f.Add([]byte(`{"error":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader{now: time.Now, attempt: &Attempt{}, in: bytes.NewReader([]byte("data: " + strings.ReplaceAll(string(data), "\n", " ") + "\n\n" + doneEvent))}
		err := r.stream()
		r.attempt.judge(&Ask{Requested: 1})
		require.NotEmpty(t, r.attempt.Result)
		require.False(t, errors.Is(err, io.EOF))
	})
}
