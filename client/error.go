package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"skerry/api"
	"skerry/fleet"
)

// maxErrorText bounds what is read of an error's text, or of the object in its place, in bytes. A variable of 64 KiB is
// up to six times as large in JSON.
const maxErrorText = 1 << 20

// Error is a hub's answer that reports a failure, or says that no hub answered. It wraps the fleet.Error that has the
// code, message and hint.
type Error struct {
	Status int // of HTTP; 0: there is no answer
	Err    *fleet.Error
	Cause  error // why there is no answer

	object []byte // JSON of the object that the answer has instead of a text; nil: none
}

// Error returns the message and the hint.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error of the hub, and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// StatusOf returns the HTTP status of the answer that an error came with; 0: there was none.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// unreachableError returns an *Error with CodeUnavailable if the connection failed, and else wraps err.
func (c *Client) unreachableError(ctx context.Context, path string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask the hub for %s: %w", path, err)
	}
	if explained := c.tlsError(err); explained != nil {
		return &Error{Err: explained, Cause: err}
	}
	var op *net.OpError
	if errors.As(err, &op) {
		refused := fleet.Errorf(fleet.CodeUnavailable, "no hub answers at %s: %v", c.base, op.Err).
			WithHint("is a hub running there? --addr or SKERRY_ADDR name another one")
		return &Error{Err: refused, Cause: err}
	}
	return fmt.Errorf("ask the hub for %s: %w", path, err)
}

// readErrorAnswer reads the error in an answer and returns it as an *Error.
func readErrorAnswer(resp *http.Response, path string) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
	if err != nil {
		return fmt.Errorf("read the hub's answer to %s: %w", path, err)
	}
	if resp.StatusCode == http.StatusBadRequest && strings.Contains(string(text), "HTTP request to an HTTPS server") { // as net/http says
		clear := fleet.Errorf(fleet.CodeInvalid, "ask the hub at %s: it serves HTTPS alone", resp.Request.URL.Host).
			WithHint("write its address as https://%s, in --addr or SKERRY_ADDR", resp.Request.URL.Host)
		return &Error{Status: resp.StatusCode, Err: clear}
	}
	hint := resp.Header.Get(api.HintHeader)
	e := &fleet.Error{
		Code: fleet.Code(resp.Header.Get(api.CodeHeader)), Hint: hint,
		Message: strings.TrimSuffix(strings.TrimSpace(string(text)), " ("+hint+")"),
	}
	var object []byte
	if said := resp.Header.Get(api.MessageHeader); said != "" {
		e.Message, object = said, text
	}
	if resp.StatusCode == http.StatusForbidden && e.Message == "Permission denied" && resp.Request.Header.Get(api.TokenHeader) == "" {
		e.Hint = "the request had no token: set SKERRY_TOKEN, or keep the token in a context with skerry context add"
	}
	if e.Code == "" {
		e.Code = fleet.CodeInternal
	}
	if e.Message == "" {
		e.Message = fmt.Sprintf("ask the hub for %s: %s", path, resp.Status)
	}
	return &Error{Status: resp.StatusCode, Err: e, object: object}
}
