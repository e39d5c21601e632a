// Package api has the request and answer types of a hub's HTTP API, /v1: Nomad's shapes and
// Skerry's additions. hub/api serves them, client asks for them. It is plain data: no I/O, no
// goroutines.
package api

import (
	"net/http"

	"skerry/fleet"
)

// NextTokenHeader is the header with the token of the next page; it is missing on the last page.
const NextTokenHeader = "X-Nomad-NextToken"

// TokenHeader is the header of a request with the secret of its token.
const TokenHeader = "X-Nomad-Token"

// CodeHeader is the header with the fleet.Code of an error, HintHeader that with its hint. The body is the error's
// text, as Nomad's clients expect. Where the body is an object, such as a variable, MessageHeader has the text.
const (
	CodeHeader    = "X-Skerry-Code"
	HintHeader    = "X-Skerry-Hint"
	MessageHeader = "X-Skerry-Message"
)

// Status returns the HTTP status of an error with the code c.
func Status(c fleet.Code) int {
	switch c {
	case fleet.CodeInvalid, fleet.CodeUnsupported:
		return http.StatusBadRequest
	case fleet.CodeForbidden, fleet.CodeTokenBad, fleet.CodeTokenExpiry, fleet.CodeCertExpiry, fleet.CodeCAEnded, fleet.CodeRevoked:
		return http.StatusForbidden
	case fleet.CodeNotFound:
		return http.StatusNotFound
	case fleet.CodeConflict:
		return http.StatusConflict
	case fleet.CodeTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// IndexAnswer answers a change with the index of its log entry.
type IndexAnswer struct{ Index fleet.Index }
