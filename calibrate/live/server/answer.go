package server

import (
	"encoding/json"
	"strconv"

	"fleetsim/calibrate/live/text"
)

// An answer writes what vLLM writes of one answer: events of a stream, or one
// object.
type answer struct {
	chat    bool
	id      string
	created int64 // Unix time, s
	model   string
	words   text.Answer
	hidden  bool // the first token has no visible content by itself
	begun   bool // the stream's first event is out
	said    int  // tokens whose words are out
	dst     []byte
}

// An ending is what is known when an answer is over.
type ending struct {
	prompt, output, cached int // tokens
}

// events are those that say the answer up to its to-th token; finish is the
// reason when that is the last, else "". They are valid until the next call.
func (a *answer) events(to int, finish string) []byte {
	a.dst = a.dst[:0]
	if a.chat && !a.begun {
		a.event(`{"role":"assistant","content":""}`, "")
	}
	a.begun = true
	if to == 1 && a.hidden && finish == "" {
		to = 0 // its content comes with the second token's
	}
	words := quote(a.words.Append(nil, a.said, to))
	a.said = max(a.said, to)
	if a.chat {
		words = `{"content":` + words + `}`
	}
	a.event(words, finish)
	return a.dst
}

// event appends one event with the delta of a chat, or the text of a completion.
func (a *answer) event(delta, finish string) {
	a.dst = append(a.dst, "data: "...)
	if a.chat {
		a.head("chat.completion.chunk")
		a.dst = append(a.dst, `{"index":0,"delta":`...)
	} else {
		a.head("text_completion")
		a.dst = append(a.dst, `{"index":0,"text":`...)
	}
	a.dst = append(append(a.dst, delta...), `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		a.dst = append(a.dst, "null"...)
	} else {
		a.dst = strconv.AppendQuote(a.dst, finish)
	}
	a.dst = append(a.dst, "}]}\n\n"...)
}

// end is the rest of a stream: usage if it is asked for, and the terminator.
func (a *answer) end(e ending, usage bool) []byte {
	a.dst = a.dst[:0]
	if usage {
		a.dst = append(a.dst, "data: "...)
		if a.chat {
			a.head("chat.completion.chunk")
		} else {
			a.head("text_completion")
		}
		a.dst = append(a.dst, `],"usage":`...)
		a.usage(e)
		a.dst = append(a.dst, "}\n\n"...)
	}
	a.dst = append(a.dst, "data: [DONE]\n\n"...)
	return a.dst
}

// whole is the answer in one object.
func (a *answer) whole(e ending, finish string) []byte {
	a.dst = a.dst[:0]
	words := quote(a.words.Append(nil, 0, e.output))
	if a.chat {
		a.head("chat.completion")
		a.dst = append(a.dst, `{"index":0,"message":{"role":"assistant","content":`+words+`}`...)
	} else {
		a.head("text_completion")
		a.dst = append(a.dst, `{"index":0,"text":`+words...)
	}
	a.dst = append(a.dst, `,"logprobs":null,"finish_reason":`+strconv.Quote(finish)+`}],"usage":`...)
	a.usage(e)
	a.dst = append(a.dst, "}\n"...)
	return a.dst
}

// head begins an object, up to its first choice.
func (a *answer) head(object string) {
	a.dst = append(a.dst, `{"id":"`+a.id+`","object":"`+object+`","created":`...)
	a.dst = strconv.AppendInt(a.dst, a.created, 10)
	a.dst = append(a.dst, `,"model":`+quote([]byte(a.model))+`,"choices":[`...)
}

// usage is the usage block, with the cached tokens that vLLM gives under
// --enable-prompt-tokens-details.
func (a *answer) usage(e ending) {
	a.dst = append(a.dst, `{"prompt_tokens":`...)
	a.dst = strconv.AppendInt(a.dst, int64(e.prompt), 10)
	a.dst = append(a.dst, `,"total_tokens":`...)
	a.dst = strconv.AppendInt(a.dst, int64(e.prompt+e.output), 10)
	a.dst = append(a.dst, `,"completion_tokens":`...)
	a.dst = strconv.AppendInt(a.dst, int64(e.output), 10)
	a.dst = append(a.dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	a.dst = strconv.AppendInt(a.dst, int64(e.cached), 10)
	a.dst = append(a.dst, `}}`...)
}

// quote is s as a JSON string.
func quote(s []byte) string {
	quoted, err := json.Marshal(string(s))
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return string(quoted)
}
