package transport

import (
	"errors"
	"net"
	"strings"

	"github.com/quic-go/quic-go"

	"skerry/fleet"
)

// Application error codes in the packet that closes a connection.
const (
	closeNormal quic.ApplicationErrorCode = 0
	closeError  quic.ApplicationErrorCode = 1
)

// Bounds of the texts in the packet that closes a connection, in bytes: it has at most packetSize bytes.
const (
	maxReasonCode = 64
	maxReasonText = 400
)

// encodeReason returns an error as the reason phrase of a closing packet: code, message and hint, each on a line,
// cut to their bounds.
func encodeReason(err *fleet.Error) string {
	return truncateText(string(err.Code), maxReasonCode) + "\n" + truncateText(err.Message, maxReasonText) + "\n" + truncateText(err.Hint, maxReasonText)
}

// decodeReason is the inverse of encodeReason. A text of another form becomes the message of a CodeUnavailable.
func decodeReason(s string) *fleet.Error {
	parts := strings.SplitN(s, "\n", 3)
	if len(parts) != 3 || parts[0] == "" {
		return fleet.Errorf(fleet.CodeUnavailable, "the peer closed the connection: %s", truncateText(s, maxReasonText))
	}
	return &fleet.Error{Code: fleet.Code(truncateText(parts[0], maxReasonCode)), Message: truncateText(parts[1], maxReasonText), Hint: truncateText(parts[2], maxReasonText)}
}

// truncateText returns s cut to n bytes, on one line and in valid UTF-8.
func truncateText(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\n", " ")
}

// connectionError converts an error of quic-go about the end of a connection, or about a failed dial, to a
// *fleet.Error, or to net.ErrClosed if this side closed it. Other errors (io.EOF, deadlines, a context's) are
// returned unchanged.
func connectionError(err error) error {
	if err == nil {
		return nil
	}
	var known *fleet.Error
	var app *quic.ApplicationError
	var transport *quic.TransportError
	var idle *quic.IdleTimeoutError
	var handshake *quic.HandshakeTimeoutError
	var reset *quic.StatelessResetError
	var versions *quic.VersionNegotiationError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &app):
		return applicationError(app)
	case errors.As(err, &idle):
		return fleet.Errorf(fleet.CodeTimeout, "no packet of the peer arrived within the idle timeout")
	case errors.As(err, &handshake):
		return fleet.Errorf(fleet.CodeTimeout, "no answer from the peer")
	case errors.As(err, &reset):
		return fleet.Errorf(fleet.CodeUnavailable, "the peer has restarted")
	case errors.As(err, &versions):
		return fleet.Errorf(fleet.CodeVersion, "no QUIC version in common")
	case errors.As(err, &transport):
		return transportError(transport)
	case errors.Is(err, quic.ErrTransportClosed):
		return net.ErrClosed
	}
	return err
}

// applicationError returns net.ErrClosed if this side closed the connection, and else the error that the peer gave
// to CloseWith.
func applicationError(err *quic.ApplicationError) error {
	switch {
	case !err.Remote:
		return net.ErrClosed
	case err.ErrorCode == closeNormal:
		return fleet.Errorf(fleet.CodeUnavailable, "the peer closed the connection")
	}
	return decodeReason(err.ErrorMessage)
}

// alertBase is what QUIC adds to a TLS alert to make an error code.
const alertBase = 0x100

// TLS alerts (RFC 8446 6.2) that say something about certificates or protocols.
const (
	alertBadCertificate        = 42
	alertAccessDenied          = 49
	alertCertificateRequired   = 116
	alertNoApplicationProtocol = 120
)

// transportError converts an error of QUIC or TLS: ErrBusy, CodeVersion (no common protocol), CodeForbidden (a
// certificate was not accepted), or CodeUnavailable.
func transportError(err *quic.TransportError) error {
	if err.Remote && err.ErrorCode == quic.ConnectionRefused {
		return ErrBusy
	}
	if !err.ErrorCode.IsCryptoError() {
		return fleet.Errorf(fleet.CodeUnavailable, "the connection failed: %v", err)
	}
	switch alert := err.ErrorCode - alertBase; {
	case alert == alertNoApplicationProtocol:
		return fleet.Errorf(fleet.CodeVersion, "no protocol in common with the peer: %v", err)
	case alert >= alertBadCertificate && alert <= alertAccessDenied, alert == alertCertificateRequired:
		if err.Remote {
			return fleet.Errorf(fleet.CodeForbidden, "the peer refused this side's certificate: %v", err)
		}
		return fleet.Errorf(fleet.CodeForbidden, "the peer's certificate is not accepted: %v", err)
	}
	return fleet.Errorf(fleet.CodeUnavailable, "the handshake failed: %v", err)
}
