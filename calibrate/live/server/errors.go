package server

import (
	"fmt"
	"net/http"
)

// An Error is an answer that is none: vLLM's and AIBrix's error objects.
type Error struct {
	Status  int
	Message string
	Type    string
	Param   string // "" for null
	Code    any    // vLLM gives the status, AIBrix a word
	Header  string // AIBrix's x-error-… header with its value; "" for none
	Value   string
}

func (e *Error) Error() string { return e.Message }

// body is the error as JSON gives it.
func (e *Error) body() any {
	var param any
	if e.Param != "" {
		param = e.Param
	}
	return map[string]any{"error": map[string]any{"message": e.Message, "type": e.Type, "param": param, "code": e.Code}}
}

// badRequest is vLLM's answer to a request that it cannot take.
func badRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: "BadRequestError", Param: param, Code: http.StatusBadRequest}
}

func tooLong(limit, prompt, output int) *Error {
	return badRequest("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains at least %d input tokens, for a total of at least %d tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
		limit, output, prompt, prompt+output)
}

func badPolicy(err error) *Error {
	return &Error{Status: http.StatusBadRequest, Message: err.Error(), Type: "invalid_request_error", Code: "invalid_routing_strategy", Header: "x-error-routing", Value: "true"}
}

func routingFailed(err error) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: err.Error(), Type: "api_error", Code: "routing_failed", Header: "x-error-routing", Value: "true"}
}

func noPod() *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: "no routable pod", Type: "api_error", Code: "no_routable_pod", Header: "x-error-no-model-backends", Value: "true"}
}

// gatewayModel is the gateway's answer to a model that nobody serves, engineModel
// vLLM's own.
func gatewayModel(model string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("model %s does not exist", model), Type: "invalid_request_error", Code: "model_not_found", Header: "x-error-no-model-backends", Value: model}
}

func engineModel(model string) *Error {
	return &Error{Status: http.StatusNotFound, Message: fmt.Sprintf("The model `%s` does not exist.", model), Type: "NotFoundError", Param: "model", Code: http.StatusNotFound}
}

func tooLarge(limit int64) *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request body is over %d bytes", limit), Type: "invalid_request_error", Code: "request_too_large"}
}

func shuttingDown() *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: "the server is shutting down", Type: "api_error", Code: "shutting_down"}
}
