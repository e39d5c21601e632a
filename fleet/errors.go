package fleet

import (
	"errors"
	"fmt"
)

// Code names a kind of failure that crosses a process boundary. The set is closed: any other
// error is CodeInternal outside of the process.
type Code string

// The codes of an Error.
const (
	CodeInternal    Code = "internal"
	CodeInvalid     Code = "invalid"      // the input is wrong; sending it again is no use
	CodeNotFound    Code = "not_found"    //
	CodeConflict    Code = "conflict"     // somebody else was there first; read again
	CodeForbidden   Code = "forbidden"    // who asks may not
	CodeUnavailable Code = "unavailable"  // no leader, shutting down, overloaded: try again
	CodeUnsupported Code = "unsupported"  // asked for something this release does not do
	CodeTimeout     Code = "timeout"      //
	CodeNotLeader   Code = "not_leader"   // asked a hub that is not the leader for what only the leader does
	CodeVersion     Code = "version"      // no protocol version in common, or data of a newer release
	CodeTokenBad    Code = "token_bad"    // a join token that is malformed, unknown, tampered with
	CodeTokenExpiry Code = "token_expiry" // a join token whose time is over
	CodeCAMismatch  Code = "ca_mismatch"  // the hub's CA is not the one the token names
	CodeCertExpiry  Code = "cert_expiry"  // a certificate that ended too long ago to be renewed
	CodeCAEnded     Code = "ca_ended"     // a certificate of a CA that was replaced too long ago: renew it
	CodeRevoked     Code = "revoked"      // the node was expelled: it can come back as another one alone

	// Of the protocol between edge and hub.
	CodeHeartbeatFirst Code = "heartbeat_first" // updates before this session's heartbeat was acknowledged
	CodeStaleEpoch     Code = "stale_epoch"     // a newer session of the node exists
	CodeNodeNotReady   Code = "node_not_ready"  // the replicated node is neither initializing nor ready
	CodeForeignAlloc   Code = "foreign_alloc"   // a batch names an allocation of another node
	CodeGap            Code = "gap"             // a batch does not start at the next sequence number
	CodeFork           Code = "fork"            // a chain hash that does not extend the one the cluster knows
	CodeCloned         Code = "cloned"          // another live machine has this identity
	CodePutBack        Code = "put_back"        // an older copy of the journal: go on from where the cluster stands
	CodeFormerSession  Code = "former_session"  // nobody knows yet whether the node's session on another hub is over
	CodeStaleSession   Code = "stale_session"   // the edge's session counter went back; see Welcome
	CodeFrameTooLarge  Code = "frame_too_large" //
	CodeFrameBad       Code = "frame_bad"       // not decodable, truncated, of an unknown type, out of order
)

// Error is what crosses a process boundary: a code, what was being done and why
// it failed, and what to do about it (may be empty).
type Error struct {
	Code    Code   `json:"Code" cbor:"1,keyasint"`
	Message string `json:"Message" cbor:"2,keyasint"`
	Hint    string `json:"Hint,omitempty" cbor:"3,keyasint,omitempty"`

	cause error // the error that Errorf wrapped; it does not leave the process
}

// Error returns the message and the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

// Unwrap returns the error that Errorf wrapped, nil where it wrapped none.
func (e *Error) Unwrap() error { return e.cause }

// Errorf makes an Error without a hint. It wraps an error that the format has with %w.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// WithHint returns a copy of e that says what to do.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// CodeOf returns the code of the first Error in err's chain, CodeInternal where
// there is none, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// AsError turns any error into the one type that may leave the process.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		if e.Error() == err.Error() {
			return e
		}
		return &Error{Code: e.Code, Message: err.Error()}
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}
