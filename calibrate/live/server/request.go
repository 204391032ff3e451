package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"fleetsim/calibrate/live/text"
)

// A body is what the server reads of a completion request. Other members are
// taken and ignored: sampling changes nothing here.
type body struct {
	Model               *string         `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            []message       `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	N                   *int            `json:"n"`
	Stream              bool            `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// defaultMaxTokens is vLLM's and OpenAI's for completions.
const defaultMaxTokens = 16

// readBody reads the request's body, up to the limit in length and time.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) (*body, *Error) {
	in := http.NewResponseController(w)
	err := supported(in.SetReadDeadline(s.Now().Add(s.ClientTimeout)))
	var data []byte
	if err == nil {
		data, err = io.ReadAll(http.MaxBytesReader(w, r.Body, s.MaxBody))
	}
	if err == nil {
		// The connection is read on, for the client's end to be seen.
		err = supported(in.SetReadDeadline(time.Time{}))
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(s.MaxBody)
	case err != nil:
		return nil, badRequest("", "the request body broke off, or took longer than %v", s.ClientTimeout)
	}
	return parseBody(data)
}

func parseBody(data []byte) (*body, *Error) {
	var b body
	in := json.NewDecoder(bytes.NewReader(data))
	err := in.Decode(&b)
	if err == nil {
		if _, more := in.Token(); more != io.EOF {
			err = errors.New("there is more behind the object")
		}
	}
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
		return nil, badRequest(wrongType.Field, "%s: not a JSON %s", wrongType.Field, wrongType.Value)
	case err != nil:
		return nil, badRequest("", "the request body is no JSON object: %s", strings.ToValidUTF8(err.Error(), "\uFFFD"))
	}
	return &b, b.check()
}

func (b *body) check() *Error {
	switch {
	case b.Model == nil:
		return badRequest("model", "model: field required")
	case b.N != nil && *b.N != 1:
		return badRequest("n", "n = %d: the simulated cluster gives one answer", *b.N)
	case b.StreamOptions != nil && !b.Stream:
		return badRequest("stream_options", "stream_options are allowed with stream = true only")
	}
	for _, limit := range []struct {
		name string
		n    *int
	}{{"max_tokens", b.MaxTokens}, {"max_completion_tokens", b.MaxCompletionTokens}} {
		if limit.n != nil && *limit.n < 1 {
			return badRequest(limit.name, "%s must be at least 1, got %d", limit.name, *limit.n)
		}
	}
	return nil
}

// text is the prompt as AIBrix and, here, the engine see it: the prompt string,
// or the contents of the messages joined by spaces, strings without their
// quotes, anything else as its JSON. Roles and a chat template add nothing.
func (b *body) text(chat bool) (text.Text, *Error) {
	if chat {
		return b.chatText()
	}
	var prompt string
	if json.Unmarshal(b.Prompt, &prompt) == nil && string(b.Prompt) != "null" {
		return nonEmpty("prompt", prompt)
	}
	var list []string
	if json.Unmarshal(b.Prompt, &list) == nil && len(list) == 1 {
		return nonEmpty("prompt", list[0])
	}
	return "", badRequest("prompt", "prompt: want a string, or a list of one string")
}

func (b *body) chatText() (text.Text, *Error) {
	if len(b.Messages) == 0 {
		return "", badRequest("messages", "messages: want at least one message")
	}
	contents := make([]string, len(b.Messages))
	for i, m := range b.Messages {
		if m.Role == "" {
			return "", badRequest("messages", "messages[%d]: field required: role", i)
		}
		var s string
		if json.Unmarshal(m.Content, &s) != nil {
			s = string(m.Content)
		}
		contents[i] = s
	}
	return nonEmpty("messages", strings.Join(contents, " "))
}

func nonEmpty(param, s string) (text.Text, *Error) {
	if s == "" {
		return "", badRequest(param, "%s: the prompt is empty", param)
	}
	return text.Text(s), nil
}

// output is the number of tokens to generate. Where the request names none, a
// completion has vLLM's default and a chat the scenario's length: the model that
// would end by itself does not exist.
func (b *body) output(chat bool, scenario int) int {
	switch {
	case b.MaxCompletionTokens != nil:
		return *b.MaxCompletionTokens
	case b.MaxTokens != nil:
		return *b.MaxTokens
	case chat:
		return scenario
	}
	return defaultMaxTokens
}
