package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"fleetsim/model/profiles"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// start serves hot90 with the clock, and returns the server and its address.
func start(t *testing.T, clock Clock, change ...func(*Options)) (*Server, string) {
	sc, err := scenario.LoadWith("hot90", []string{"workload.hidden_first_share=0.0"})
	require.NoError(t, err)
	profile, err := profiles.Load(sc.Profile)
	require.NoError(t, err)
	c, err := NewCluster(sc, profile, sc.Seed, "salt")
	require.NoError(t, err)
	o := Options{Model: "m", Policy: "least-request", Output: 5, Clock: clock, Now: time.Now, MaxBody: 1 << 16, ClientTimeout: 5 * time.Second}
	for _, f := range change {
		f(&o)
	}
	s := New(c, o)
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ended) // a test may have closed it, or left requests
	})
	return s, h.URL
}

// post sends a body and returns the answer.
func post(t *testing.T, url, body string, header ...string) (*http.Response, string) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(data)
}

func get(t *testing.T, url string) (int, string) {
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data)
}

// events are the data of a stream's events.
func events(t *testing.T, body string) []string {
	var out []string
	for _, e := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(e, "data: ")
		require.True(t, ok, e)
		out = append(out, data)
	}
	return out
}

type answerRead struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Text           string
		Delta, Message struct {
			Role    string
			Content *string
		}
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}

func read(t *testing.T, s string) (a answerRead) {
	require.NoError(t, json.Unmarshal([]byte(s), &a), s)
	return a
}

func TestCompletionStream(t *testing.T) {
	_, url := start(t, NewMaxClock())
	resp, body := post(t, url+"/v1/completions", `{"model":"m","prompt":"What is it","max_tokens":4,"stream":true,"stream_options":{"include_usage":true}}`,
		"routing-strategy", "prefix-cache")
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "text/event-stream; charset=utf-8", resp.Header.Get("Content-Type"))
	require.Contains(t, []string{"L20-A", "L20-B"}, resp.Header.Get("target-pod"))
	require.Equal(t, "prefix-cache", resp.Header.Get("routing-strategy"))
	all := events(t, body)
	require.Equal(t, "[DONE]", all[len(all)-1])
	said, finish := "", ""
	for _, e := range all[:len(all)-2] {
		a := read(t, e)
		require.Equal(t, []string{"text_completion", "m"}, []string{a.Object, a.Model})
		require.Nil(t, a.Usage)
		said += a.Choices[0].Text
		if f := a.Choices[0].FinishReason; f != nil {
			finish += *f
		}
	}
	require.Len(t, strings.Fields(said), 4)
	require.Equal(t, finishLength, finish, "once, on the last")
	last := read(t, all[len(all)-2])
	require.Empty(t, last.Choices)
	require.Equal(t, []int{3, 4, 7}, []int{last.Usage.Prompt, last.Usage.Completion, last.Usage.Total})
	require.Contains(t, body, `"cached_tokens":0`)
}

func TestChatStream(t *testing.T) {
	_, url := start(t, NewMaxClock())
	_, body := post(t, url+"/v1/chat/completions", `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What is it"}],"stream":true}`)
	all := events(t, body)
	first := read(t, all[0])
	require.Equal(t, "chat.completion.chunk", first.Object)
	require.Equal(t, "assistant", first.Choices[0].Delta.Role)
	require.Equal(t, "", *first.Choices[0].Delta.Content)
	said := ""
	for _, e := range all[1 : len(all)-1] {
		said += *read(t, e).Choices[0].Delta.Content
	}
	require.Len(t, strings.Fields(said), 5, "the scenario's length")
	require.Equal(t, "[DONE]", all[len(all)-1], "no usage unless asked for")
}

func TestWholeAnswers(t *testing.T) {
	_, url := start(t, NewMaxClock())
	resp, body := post(t, url+"/v1/completions", `{"model":"m","prompt":["What is it"]}`)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.NotEmpty(t, resp.Header.Get("target-pod"))
	a := read(t, body)
	require.Len(t, strings.Fields(a.Choices[0].Text), 16, "vLLM's default")
	require.Equal(t, 16, a.Usage.Completion)
	_, body = post(t, url+"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is it"}]}],"max_completion_tokens":2}`)
	a = read(t, body)
	require.Equal(t, "chat.completion", a.Object)
	require.Len(t, strings.Fields(*a.Choices[0].Message.Content), 2)
	require.Equal(t, finishLength, *a.Choices[0].FinishReason)
}

// The second turn of a conversation finds the first, answer included, in the
// cache; a longer text is needed for a block to be full.
func TestConversationHits(t *testing.T) {
	_, url := start(t, NewMaxClock())
	prompt := strings.Repeat(" word", 1000)
	ask := func(p string) (answerRead, string) {
		body, err := json.Marshal(map[string]any{"model": "m", "prompt": p, "max_tokens": 1000})
		require.NoError(t, err)
		_, answer := post(t, url+"/pods/L20-A/v1/completions", string(body))
		return read(t, answer), answer
	}
	first, body := ask(prompt)
	require.Contains(t, body, `"cached_tokens":0`)
	_, body = ask(prompt + first.Choices[0].Text + " And now")
	require.Contains(t, body, `"cached_tokens":1568`)
}

func TestErrors(t *testing.T) {
	_, url := start(t, NewMaxClock())
	const good = `{"model":"m","prompt":"What is it"}`
	for name, c := range map[string]struct {
		path, body string
		header     []string
		status     int
		want       string
		xHeader    string
	}{
		"no JSON":               {path: "/v1/completions", body: `{"model":`, status: 400, want: "BadRequestError"},
		"not an object":         {path: "/v1/completions", body: `[1]`, status: 400, want: "BadRequestError"},
		"more behind":           {path: "/v1/completions", body: good + good, status: 400, want: "more behind"},
		"empty":                 {path: "/v1/completions", body: ``, status: 400, want: "no JSON object"},
		"wrong type":            {path: "/v1/completions", body: `{"model":"m","prompt":"x","max_tokens":"many"}`, status: 400, want: `"param":"max_tokens"`},
		"no model":              {path: "/v1/completions", body: `{"prompt":"x"}`, status: 400, want: "field required"},
		"no prompt":             {path: "/v1/completions", body: `{"model":"m"}`, status: 400, want: `"param":"prompt"`},
		"empty prompt":          {path: "/v1/completions", body: `{"model":"m","prompt":""}`, status: 400, want: "empty"},
		"several prompts":       {path: "/v1/completions", body: `{"model":"m","prompt":["a","b"]}`, status: 400, want: "list of one"},
		"no messages":           {path: "/v1/chat/completions", body: `{"model":"m","messages":[]}`, status: 400, want: "at least one message"},
		"no role":               {path: "/v1/chat/completions", body: `{"model":"m","messages":[{"content":"x"}]}`, status: 400, want: "role"},
		"no tokens":             {path: "/v1/completions", body: `{"model":"m","prompt":"x","max_tokens":0}`, status: 400, want: "at least 1"},
		"several answers":       {path: "/v1/completions", body: `{"model":"m","prompt":"x","n":2}`, status: 400, want: `"param":"n"`},
		"options of no stream":  {path: "/v1/completions", body: `{"model":"m","prompt":"x","stream_options":{}}`, status: 400, want: "stream_options"},
		"too long":              {path: "/v1/completions", body: `{"model":"m","prompt":"x","max_tokens":32768}`, status: 400, want: "maximum context length is 32768 tokens"},
		"too long, streamed":    {path: "/v1/completions", body: `{"model":"m","prompt":"x","max_tokens":32768,"stream":true}`, status: 400, want: `"param":"input_tokens"`},
		"too large":             {path: "/v1/completions", body: `{"model":"m","prompt":"` + strings.Repeat("x", 1<<16) + `"}`, status: 413, want: "65536 bytes"},
		"unknown model":         {path: "/v1/completions", body: `{"model":"x","prompt":"x"}`, status: 400, want: "model_not_found", xHeader: "x-error-no-model-backends"},
		"unknown model, engine": {path: "/pods/L20-A/v1/completions", body: `{"model":"x","prompt":"x"}`, status: 404, want: "NotFoundError"},
		"unknown policy":        {path: "/v1/completions", body: good, header: []string{"routing-strategy", "least-requests"}, status: 400, want: "least-request", xHeader: "x-error-routing"},
		"unknown pod":           {path: "/pods/L20-C/v1/completions", body: good, status: 404, want: "L20-C"},
		"unknown path":          {path: "/v1/embeddings", body: good, status: 501, want: "/v1/embeddings", xHeader: "x-error-request-body-processing"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := post(t, url+c.path, c.body, c.header...)
			require.Equal(t, c.status, resp.StatusCode, body)
			var e struct {
				Error struct {
					Message, Type string
					Code          any
				}
			}
			require.NoError(t, json.Unmarshal([]byte(body), &e), body)
			require.NotEmpty(t, e.Error.Message)
			require.NotEmpty(t, e.Error.Type)
			require.Contains(t, body, c.want)
			if c.xHeader != "" {
				require.NotEmpty(t, resp.Header.Get(c.xHeader))
			}
		})
	}
}

func TestDrainAPod(t *testing.T) {
	_, url := start(t, NewMaxClock())
	const ask = `{"model":"m","prompt":"What is it"}`
	for _, pod := range []string{"L20-A", "L20-B"} {
		resp, _ := post(t, url+"/admin/pods/"+pod+"/drain", "")
		require.Equal(t, 200, resp.StatusCode)
	}
	_, list := get(t, url+"/admin/pods")
	require.Contains(t, list, `"draining":true`)
	resp, body := post(t, url+"/v1/completions", ask)
	require.Equal(t, 503, resp.StatusCode, body)
	require.Equal(t, "true", resp.Header.Get("x-error-no-model-backends"))
	post(t, url+"/admin/pods/L20-B/undrain", "")
	for range 5 {
		resp, _ = post(t, url+"/v1/completions", ask)
		require.Equal(t, "L20-B", resp.Header.Get("target-pod"))
	}
}

func TestPages(t *testing.T) {
	s, url := start(t, NewMaxClock())
	post(t, url+"/v1/completions", `{"model":"m","prompt":"What is it"}`, "routing-strategy", "prefix-cache")
	for page, want := range map[string]string{
		"/metrics":            `vllm:num_requests_running{model_name="m",engine="0",node_alias="L20-A"}`,
		"/pods/L20-A/metrics": `vllm:num_requests_running{model_name="m",engine="0"}`,
	} {
		status, body := get(t, url+page)
		require.Equal(t, 200, status)
		require.Contains(t, body, want)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(body))
		require.NoError(t, err)
		require.Contains(t, families, "vllm:time_to_first_token_seconds")
		_, gateway := families["aibrix_prefix_cache_routing_selection_total"]
		require.Equal(t, page == "/metrics", gateway)
	}
	status, body := get(t, url+"/v1/models")
	require.Equal(t, 200, status)
	require.Contains(t, body, `"max_model_len":32768`)
	status, _ = get(t, url+"/health")
	require.Equal(t, 200, status)
	resp, body := post(t, url+"/reset_prefix_cache", "")
	require.Equal(t, 200, resp.StatusCode)
	require.Empty(t, body)
	require.NoError(t, s.Close(context.Background()))
	status, _ = get(t, url+"/health")
	require.Equal(t, 503, status)
	resp, _ = post(t, url+"/v1/completions", `{"model":"m","prompt":"What is it"}`)
	require.Equal(t, 503, resp.StatusCode)
	status, _ = get(t, url+"/metrics")
	require.Equal(t, 503, status)
}

// eventually waits for the cluster to come to a state.
func eventually(t *testing.T, s *Server, what string, holds func(*Cluster) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		ok := false
		return s.actor.ask(func(now simtime.Time) {
			s.actor.cluster.Advance(now)
			ok = holds(s.actor.cluster)
		}) && ok
	}, 10*time.Second, 5*time.Millisecond, what)
}

func inFlight(c *Cluster) int {
	n := 0
	for _, p := range c.pods {
		n += c.inFlight(p)
	}
	return n
}

// A heldClock stands still until it is let go, and then waits for nothing.
type heldClock struct {
	Clock
	free atomic.Bool
}

func (c *heldClock) Wait(t simtime.Time) time.Duration {
	if !c.free.Load() {
		return time.Hour
	}
	return c.Clock.Wait(t)
}

func TestThousandStreams(t *testing.T) {
	const streams = 1000
	clock := &heldClock{Clock: NewMaxClock()}
	s, url := start(t, clock)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	problems := make(chan error, streams)
	for i := range streams {
		all.Go(func() {
			resp, err := client.Post(url+"/v1/completions", "application/json",
				strings.NewReader(fmt.Sprintf(`{"model":"m","prompt":"What is number %d","max_tokens":50,"stream":true}`, i)))
			if err != nil {
				problems <- err
				return
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			if err != nil || !strings.HasSuffix(string(data), "data: [DONE]\n\n") {
				problems <- fmt.Errorf("stream %d: %v, %d bytes", i, err, len(data))
			}
		})
	}
	eventually(t, s, "all streams are open at once", func(c *Cluster) bool { return c.calls == streams })
	clock.free.Store(true)
	s.actor.ask(func(simtime.Time) {}) // for the actor to look at the clock again
	all.Wait()
	close(problems)
	for err := range problems {
		require.NoError(t, err)
	}
	eventually(t, s, "nothing is left", func(c *Cluster) bool { return inFlight(c) == 0 && c.Next() == simtime.Never })
}

// A client that goes takes its request with it.
func TestDisconnectAborts(t *testing.T) {
	s, url := start(t, NewClock(time.Now, 1))
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(context.Background())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions",
			strings.NewReader(fmt.Sprintf(`{"model":"m","prompt":"What is it","max_tokens":20000,"stream":%v}`, stream)))
		require.NoError(t, err)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // until it is cancelled
				resp.Body.Close()
			}
		}()
		eventually(t, s, "it is with an engine", func(c *Cluster) bool { return inFlight(c) == 1 })
		cancel()
		<-gone
		eventually(t, s, "it is aborted", func(c *Cluster) bool {
			return inFlight(c) == 0 && c.ResetPrefixCache(0, "L20-A") && c.ResetPrefixCache(0, "L20-B")
		})
	}
	_, page := get(t, url+"/metrics")
	require.Equal(t, 2, strings.Count(page, `finished_reason="abort"} 1`)+2*strings.Count(page, `finished_reason="abort"} 2`))
}

// smallBuffers makes a listener's connections hold little that is not read.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		err = tcp.SetWriteBuffer(4096)
	}
	return c, err
}

// A client that does not read is given up, and holds up nobody else.
func TestSlowReader(t *testing.T) {
	s, _ := start(t, NewMaxClock(), func(o *Options) { o.ClientTimeout = 300 * time.Millisecond })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &http.Server{Handler: s}
	go func() { _ = h.Serve(smallBuffers{l}) }() // until it is closed
	t.Cleanup(func() { h.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4096))
	const body = `{"model":"m","prompt":"What is it","max_tokens":30000,"stream":true}`
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp, _ := post(t, "http://"+l.Addr().String()+"/v1/completions", `{"model":"m","prompt":"What is it"}`)
	require.Equal(t, 200, resp.StatusCode, "others are served meanwhile")
	_, err = bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	time.Sleep(time.Second) // longer than the time-out, without reading
	n, err := io.Copy(io.Discard, c)
	require.Less(t, n, int64(30000*6), "it was cut off: %v", err)
}

// A client that is slow to send its body gets no answer but an error.
func TestSlowBody(t *testing.T) {
	_, url := start(t, NewMaxClock(), func(o *Options) { o.ClientTimeout = 200 * time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	fmt.Fprint(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 400, resp.StatusCode)
}

// Closing lets streams end; when the grace is over they are aborted, and say so.
func TestClose(t *testing.T) {
	for name, c := range map[string]struct {
		speed  float64
		grace  time.Duration
		finish string
	}{
		"in time":  {100, 10 * time.Second, finishLength},
		"too late": {1, 200 * time.Millisecond, finishAbort},
	} {
		t.Run(name, func(t *testing.T) {
			s, url := start(t, NewClock(time.Now, c.speed))
			body := make(chan string, 1)
			go func() {
				resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"What is it","max_tokens":200,"stream":true}`))
				if err != nil {
					body <- err.Error()
					return
				}
				defer resp.Body.Close()
				data, _ := io.ReadAll(resp.Body) // a cut stream shows in what was read
				body <- string(data)
			}()
			eventually(t, s, "it runs", func(c *Cluster) bool { return c.pods[0].Gauges().Running+c.pods[1].Gauges().Running == 1 })
			ctx, cancel := context.WithTimeout(context.Background(), c.grace)
			defer cancel()
			err := s.Close(ctx)
			require.Equal(t, c.finish == finishAbort, err != nil)
			got := <-body
			require.Contains(t, got, `"finish_reason":"`+c.finish+`"`)
			require.True(t, strings.HasSuffix(got, "data: [DONE]\n\n"))
		})
	}
}

func TestPacedClock(t *testing.T) {
	now := time.Unix(100, 0)
	c := NewClock(func() time.Time { return now }, 10)
	require.Zero(t, c.Now())
	now = now.Add(1500 * time.Millisecond)
	require.Equal(t, 15*simtime.Second, c.Now())
	require.InDelta(t, float64(500*time.Millisecond), float64(c.Wait(20*simtime.Second)), 2)
	require.LessOrEqual(t, c.Wait(10*simtime.Second), time.Duration(0))
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"x","max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text"}]}]}`))
	f.Add([]byte(`{"model":null,"n":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseBody(data)
		if err != nil {
			require.Equal(t, 400, err.Status)
			return
		}
		for _, chat := range []bool{false, true} {
			prompt, err := b.text(chat)
			require.Equal(t, err == nil, prompt != "")
			require.GreaterOrEqual(t, b.output(chat, 7), 1)
		}
	})
}
