package live

import (
	"encoding/json"
	"net/http"
	"strings"

	"fleetsim/calibrate/live/text"
)

// A Target is where requests go and how they look there.
type Target struct {
	URL    string // of the gateway, without a path of the API
	Model  string
	Chat   bool        // /v1/chat/completions instead of /v1/completions
	Whole  bool        // answers in one piece instead of streams
	Header http.Header // further headers, such as one that names a cluster
	// Authorization is the header of that name; "" sends none. It is never
	// recorded or printed.
	Authorization string
}

// ask is the request with the prompt under the policy ("" names none).
func (t *Target) ask(prompt text.Text, output int, policy, tenant string) *Ask {
	return t.askAt(t.URL, prompt, output, policy, tenant)
}

func (t *Target) askAt(base string, prompt text.Text, output int, policy, tenant string) *Ask {
	path, body := "/v1/completions", map[string]any{"prompt": string(prompt)}
	if t.Chat {
		path, body = "/v1/chat/completions", map[string]any{"messages": []any{map[string]any{"role": "user", "content": string(prompt)}}}
	}
	body["model"], body["max_tokens"], body["temperature"], body["ignore_eos"] = t.Model, output, 0, true
	if !t.Whole {
		body["stream"], body["stream_options"] = true, map[string]any{"include_usage": true}
	}
	data, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	header := t.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	if policy != "" {
		header.Set("routing-strategy", policy)
	}
	if tenant != "" {
		header.Set("user", tenant)
	}
	if t.Authorization != "" {
		header.Set("Authorization", t.Authorization)
	}
	return &Ask{URL: strings.TrimSuffix(base, "/") + path, Header: header, Body: data, Stream: !t.Whole, Requested: output}
}
