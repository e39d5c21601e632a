// Package api has the request and answer types of a hub's HTTP API, /v1: Nomad's shapes and
// Skerry's additions. hub/api serves them, client asks for them. It is plain data: no I/O, no
// goroutines.
package api

import (
	"net/http"

	"skerry/fleet"
)

// NextTokenHeader names the page after this one, where there is one.
const NextTokenHeader = "X-Nomad-NextToken"

// CodeHeader carries the fleet.Code of an error; the body is its message, as
// Nomad's clients expect. HintHeader carries the hint.
const (
	CodeHeader = "X-Skerry-Code"
	HintHeader = "X-Skerry-Hint"
)

// Status is the HTTP status of a code.
func Status(c fleet.Code) int {
	switch c {
	case fleet.CodeInvalid, fleet.CodeUnsupported:
		return http.StatusBadRequest
	case fleet.CodeForbidden, fleet.CodeTokenBad, fleet.CodeTokenExpiry, fleet.CodeCertExpiry, fleet.CodeRevoked:
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

// IndexAnswer is the index of the log entry that made a change.
type IndexAnswer struct{ Index fleet.Index }
