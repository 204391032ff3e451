package live

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

// pause is long for a machine in the tests and short for the people who wait.
const pause = 60 * time.Millisecond

// A behaviour is something that a server does, and what the record says of it.
type behaviour struct {
	does     string // as docs/live.md has it
	handler  http.HandlerFunc
	raw      func(net.Conn) // instead of a handler: after the request has been read
	chat     bool
	change   func(*Options)
	result   string
	status   int // 0: none
	category string
	says     string // what else the record says, for docs/live.md
	check    func(*testing.T, record.Request, *Attempt)
}

func stream(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		say(w, pieces...)
	}
}

// words are eight tokens in two events.
var words = []string{textEvent(" a b c d"), textEvent(" e f g h")}

func behaviours() []behaviour {
	all := strings.Join(words, "") + usageEvent + doneEvent
	impatient := func(o *Options) { o.Silence = 4 * pause }
	return []behaviour{
		{does: "a whole stream", handler: func(w http.ResponseWriter, _ *http.Request) { good(w) }, result: record.OK, status: 200,
			says: "TTFT, TPOT, E2E, tokens by usage", check: func(t *testing.T, r record.Request, a *Attempt) {
				require.Equal(t, []int{40, 8}, []int{r.InputTokens.Or(-1), r.OutputTokens.Or(-1)})
				require.True(t, r.TTFT.Valid() && r.TPOT.Valid() && r.E2E.Valid())
			}},
		{does: "lines that end in CRLF", handler: stream(strings.ReplaceAll(all, "\n", "\r\n")), result: record.OK, status: 200},
		{does: "events in single bytes", handler: stream(strings.Split(all, "")...), result: record.OK, status: 200},
		{does: "comments as keep-alives before, between and behind events", handler: stream(": ping\n\n", words[0], ": ping\n", ":\n\n", words[1], usageEvent, doneEvent, ": bye\n\n"),
			result: record.OK, status: 200},
		{does: "one event over two data lines", handler: stream(strings.Replace(words[0], `"index"`, "\ndata: \"index\"", 1), words[1], usageEvent, doneEvent), result: record.OK, status: 200},
		{does: "a first delta without content, the content later", chat: true, handler: func(w http.ResponseWriter, r *http.Request) {
			stream(deltaEvent(`{"role":"assistant","content":""}`), deltaEvent(`{"content":null}`))(w, r)
			time.Sleep(pause)
			say(w, deltaEvent(`{"content":"a b c d"}`), deltaEvent(`{"content":" e f g h"}`), usageEvent, doneEvent)
		}, result: record.OK, status: 200, says: "TTFT ends with the content", check: func(t *testing.T, r record.Request, a *Attempt) {
			require.GreaterOrEqual(t, r.TTFT.Or(0), pause.Seconds())
		}},
		{does: "reasoning before the content", chat: true, handler: func(w http.ResponseWriter, r *http.Request) {
			stream(deltaEvent(`{"reasoning_content":"hm"}`))(w, r)
			time.Sleep(pause)
			say(w, deltaEvent(`{"content":"a b c d e f g"}`), usageEvent, doneEvent)
		}, result: record.OK, status: 200, says: "TTFT ends with the reasoning; the log of sendings has the content's time and the kind", check: func(t *testing.T, r record.Request, a *Attempt) {
			require.Equal(t, "reasoning_content", a.FirstKind)
			require.GreaterOrEqual(t, a.Content.Sub(a.First), pause)
			require.Less(t, r.TTFT.Or(99), a.Content.Sub(a.Sent).Seconds())
		}},
		{does: "a tool call instead of content", chat: true, handler: stream(deltaEvent(`{"tool_calls":[]}`), deltaEvent(`{"tool_calls":[{"index":0}]}`), usageEvent, doneEvent), result: record.OK, status: 200,
			check: func(t *testing.T, _ record.Request, a *Attempt) {
				require.Equal(t, "tool_calls", a.FirstKind)
				require.Equal(t, 1, a.Chunks)
			}},
		{does: "several tokens in one event", handler: func(w http.ResponseWriter, r *http.Request) {
			stream(words[0])(w, r)
			time.Sleep(pause)
			say(w, words[1], usageEvent, doneEvent)
		}, result: record.OK, status: 200, says: "TPOT divides by the tokens of the usage", check: func(t *testing.T, r record.Request, a *Attempt) {
			require.InDelta(t, a.Last.Sub(a.First).Seconds()/7, r.TPOT.Or(-1), 1e-9)
		}},
		{does: "usage in every event", handler: stream(
			`data: {"choices":[{"text":"a"}],"usage":{"prompt_tokens":40,"completion_tokens":3}}`+"\n\n",
			`data: {"choices":[{"text":"b"}],"usage":{"prompt_tokens":40,"completion_tokens":8}}`+"\n\n", doneEvent), result: record.OK, status: 200, says: "the last usage counts",
			check: func(t *testing.T, r record.Request, _ *Attempt) { require.Equal(t, 8, r.OutputTokens.Or(-1)) }},
		{does: "a body that ends some time behind [DONE]", handler: func(w http.ResponseWriter, r *http.Request) {
			good(w)
			time.Sleep(pause)
		}, result: record.OK, status: 200, says: "E2E ends with [DONE]; the client reads on to the end", check: func(t *testing.T, r record.Request, a *Attempt) {
			require.GreaterOrEqual(t, a.End.Sub(a.Done), pause/2)
			require.Less(t, r.E2E.Or(99), a.End.Sub(a.Sent).Seconds())
		}},
		{does: "more data behind [DONE]", handler: stream(all, words[0], "data: nonsense\n\n", doneEvent), result: record.OK, status: 200},
		{does: "no usage, though asked for", handler: stream(words[0], words[1], doneEvent), result: record.Failed, status: 200, category: catNoUsage, says: "tokens null, not 0",
			check: func(t *testing.T, r record.Request, _ *Attempt) { require.False(t, r.OutputTokens.Valid()) }},
		{does: "no [DONE]", handler: stream(words[0], words[1], usageEvent), result: record.Failed, status: 200, category: catMissingDone},
		{does: "[DONE] without the blank line that ends an event", handler: stream(words[0], words[1], usageEvent, "data: [DONE]\n"), result: record.Failed, status: 200, category: catMissingDone},
		{does: "no content at all", handler: stream(textEvent(""), usageEvent, doneEvent), result: record.Failed, status: 200, category: catEmpty, says: "TTFT null",
			check: func(t *testing.T, r record.Request, _ *Attempt) { require.False(t, r.TTFT.Valid()) }},
		{does: "fewer tokens than asked for", handler: stream(words[0], strings.ReplaceAll(usageEvent, ":8", ":4"), doneEvent), result: record.Failed, status: 200, category: catWrongTokens,
			says: "the tokens received", check: func(t *testing.T, r record.Request, _ *Attempt) { require.Equal(t, 4, r.OutputTokens.Or(-1)) }},
		{does: "an answer that the engine aborts", handler: stream(words[0], `data: {"choices":[{"text":"","finish_reason":"abort"}]}`+"\n\n", usageEvent, doneEvent),
			result: record.Failed, status: 200, category: catAborted},
		{does: "an error object in the stream", handler: stream(words[0], `data: {"error":{"message":"EngineDeadError","type":"InternalServerError","code":500}}`+"\n\n", doneEvent),
			result: record.Failed, status: 200, category: catStreamError, says: "the message, in the log", check: func(t *testing.T, _ record.Request, a *Attempt) {
				require.Equal(t, "EngineDeadError", a.Message)
			}},
		{does: "an event that is no JSON", handler: stream(words[0], "data: {\"choices\":[\n\n", doneEvent), result: record.Failed, status: 200, category: catBadJSON},
		{does: "an event of more than 1 MiB", handler: stream(words[0], textEvent(strings.Repeat("x", maxEvent))), result: record.Failed, status: 200, category: catTooLong},
		{does: "HTTP 200 with an error as JSON", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			say(w, `{"error":{"message":"overloaded"}}`)
		}, result: record.Failed, status: 200, category: catErrorBody, check: func(t *testing.T, _ record.Request, a *Attempt) { require.Equal(t, "overloaded", a.Message) }},
		{does: "HTTP 200 with a web page", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			say(w, "<html>captive portal</html>")
		}, result: record.Failed, status: 200, category: catNotStream},
		{does: "a compressed stream, though none was asked for", handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			stream(all)(w, r)
		}, result: record.Failed, status: 200, category: catEncoding, check: func(t *testing.T, _ record.Request, a *Attempt) { require.Equal(t, "gzip", a.Message) }},
		{does: "HTTP 200, then silence", handler: func(w http.ResponseWriter, r *http.Request) {
			stream(words[0])(w, r)
			<-r.Context().Done()
		}, change: impatient, result: record.Failed, status: 200, category: catSilence, says: "E2E to the time-out"},
		{does: "silence from the start", handler: func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, change: impatient, result: record.Failed, category: catSilence},
		{does: "comments for ever", handler: func(w http.ResponseWriter, r *http.Request) {
			stream(words[0])(w, r)
			for r.Context().Err() == nil {
				say(w, ": ping\n\n")
				time.Sleep(pause / 4)
			}
		}, change: func(o *Options) { o.Drain = 4 * pause }, result: record.Failed, status: 200, category: catDrainTimeout, says: "cancelled at the end of the drain"},
		{does: "a stream that is cut off", raw: func(c net.Conn) {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(words[0]), words[0])
		}, result: record.Failed, status: 200, category: catBroken},
		{does: "a connection reset in the stream", raw: func(c net.Conn) {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(words[0]), words[0])
			time.Sleep(pause) // for the client to have read it
			_ = c.(*net.TCPConn).SetLinger(0)
		}, result: record.Failed, status: 200, category: catReset},
		{does: "a connection closed without an answer", raw: func(net.Conn) {}, result: record.Failed, category: catBroken},
		{does: "an answer that is no HTTP", raw: func(c net.Conn) { fmt.Fprint(c, "SSH-2.0-OpenSSH_9.2\r\n\r\n") }, result: record.Failed, category: catBadHTTP},
		{does: "nobody listening", result: record.Failed, category: catRefused, says: "no HTTP status"},
		{does: "429 with Retry-After", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			http.Error(w, `{"error":{"message":"quota"}}`, http.StatusTooManyRequests)
		}, result: record.Rejected, status: 429, category: catRejected, says: "Retry-After, in the log; no second attempt", check: func(t *testing.T, _ record.Request, a *Attempt) {
			require.Equal(t, "7", a.RetryAfter)
		}},
		{does: "503 from the gateway", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("x-error-no-model-backends", "true")
			http.Error(w, "", http.StatusServiceUnavailable)
		}, result: record.Error, status: 503, category: "http_status_503", says: "AIBrix's error header, in the log", check: func(t *testing.T, _ record.Request, a *Attempt) {
			require.Equal(t, "x-error-no-model-backends", a.ErrorHeader)
		}},
		{does: "500 from an engine", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("target-pod", "pod-x")
			http.Error(w, "boom", http.StatusInternalServerError)
		}, result: record.Error, status: 500, category: "http_status_500", says: "the replica that failed", check: func(t *testing.T, r record.Request, a *Attempt) {
			require.Equal(t, "pod-x", r.Replica)
			require.Equal(t, "boom", a.Message)
		}},
		{does: "a redirect", handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, result: record.Error, status: 307, category: catRedirect, says: "it is not followed"},
	}
}

// address is where the behaviour can be met; hits counts the requests.
func (b *behaviour) address(t *testing.T, hits *atomic.Int64) string {
	if b.handler != nil {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			hits.Add(1)
			b.handler(w, r)
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if b.raw == nil {
		l.Close() // nobody listens there from now on
		return "http://" + l.Addr().String()
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			hits.Add(1)
			go func() {
				defer c.Close()
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body) // unread bytes would make closing a reset
					b.raw(c)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func TestHostileServers(t *testing.T) {
	sc := parse(t, oneRequest)
	for _, b := range behaviours() {
		t.Run(b.does, func(t *testing.T) {
			t.Parallel()
			var hits atomic.Int64
			r := replayer(t, sc, b.address(t, &hits), func(o *Options) {
				o.Target.Chat = b.chat
				if b.change != nil {
					b.change(o)
				}
			})
			req, a := only(t, r.run(t))
			require.Equal(t, b.result, req.Result, "%s %s", req.ErrorCategory, a.Message)
			require.Equal(t, b.status, req.HTTPStatus.Or(0))
			require.Equal(t, b.category, req.ErrorCategory)
			require.Equal(t, b.result == record.OK, req.Good.Or(false))
			require.LessOrEqual(t, hits.Load(), int64(1), "no second attempt, no redirect followed")
			if b.check != nil {
				b.check(t, req, a)
			}
		})
	}
}

// docs/live.md has the table of behaviours, as it is tested here.
func TestDocumentedBehaviours(t *testing.T) {
	doc, err := os.ReadFile("../../docs/live.md")
	require.NoError(t, err)
	table := behaviourTable()
	require.GreaterOrEqual(t, len(behaviours()), 25)
	require.Contains(t, string(doc), table, "docs/live.md should hold this table:\n%s", table)
}

func behaviourTable() string {
	var b strings.Builder
	b.WriteString("| # | The server's behaviour | result | status | error_category | The record also says |\n| --- | --- | --- | --- | --- | --- |\n")
	for i, x := range behaviours() {
		status, category := "null", "null"
		if x.status != 0 {
			status = fmt.Sprint(x.status)
		}
		if x.category != "" {
			category = "`" + x.category + "`"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s |\n", i+1, x.does, x.result, status, category, x.says)
	}
	return b.String()
}
