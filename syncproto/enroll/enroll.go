// Package enroll is the client side of enrolment (ALPN skerry-enroll/1): a machine, hub or edge, exchanges a join token
// for its certificate, and an edge renews its certificate. The server side is package hub/pki.
//
// It starts no goroutine and persists nothing.
package enroll

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

// timeout bounds one attempt. The hub may have to wait for an election before it can commit the certificate.
const timeout = 20 * time.Second

// Dialer opens connections; a *transport.Endpoint is one.
type Dialer interface {
	Dial(ctx context.Context, cfg transport.DialConfig) (*transport.Conn, error)
}

// Applicant is a machine that asks for a certificate.
type Applicant struct {
	// Held is the identity whose certificate is renewed: the hub must have its CA, and is shown its certificate.
	// nil: the machine has none yet.
	Held  *identity.Identity
	Token identity.Token    // may be zero with Held; needed if Held's certificate ended too long ago
	Role  string            // fleet.RoleHub or RoleEdge
	ID    string            // a hub's name, an edge's node id
	Name  string            // the name of an edge, for display
	Key   *ecdsa.PrivateKey // identity.NewKey
	// Now returns the latest time that is known to be past (see package identity).
	Now func() time.Time
}

// Enroll asks the hub at addr for a certificate, and returns the new identity with the hub's whole answer. It
// checks the hub's CA before it sends the secret, and then checks the certificate. It stores nothing.
//
// Errors are *fleet.Error: token_bad, token_expiry, cert_expiry, ca_mismatch, conflict, forbidden, unavailable,
// timeout.
func Enroll(ctx context.Context, d Dialer, addr net.Addr, a Applicant) (*identity.Identity, syncproto.Enrolled, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout,
		fleet.Errorf(fleet.CodeTimeout, "enrol at %s: no answer within %s", addr, timeout).
			WithHint("check the address, that the hub runs, and that UDP reaches its port"))
	defer cancel()
	csr, err := identity.NewRequest(a.Key, a.Role, a.ID)
	if err != nil {
		return nil, syncproto.Enrolled{}, err
	}
	conn, err := d.Dial(ctx, transport.DialConfig{Addr: addr, ALPN: syncproto.ALPNEnroll, TLS: a.clientTLSConfig()})
	if err != nil {
		return nil, syncproto.Enrolled{}, fmt.Errorf("enrol: %w", err)
	}
	answer, err := requestCertificate(ctx, conn, syncproto.Enroll{
		TokenID: a.Token.ID, Secret: a.Token.Secret, Role: a.Role, Name: a.Name, ID: a.ID, CSR: csr,
	})
	if err != nil {
		return nil, syncproto.Enrolled{}, errors.Join(err, conn.CloseWith(nil))
	}
	id, err := acceptEnrolled(a, answer, conn.State().PeerCertificates)
	if err != nil {
		return nil, syncproto.Enrolled{}, errors.Join(err, conn.CloseWith(nil))
	}
	return id, answer, conn.CloseWith(nil)
}

// clientTLSConfig returns the TLS configuration to dial the hub: with the certificate of Held, or without one if
// there is only a token.
func (a Applicant) clientTLSConfig() *tls.Config {
	if a.Held != nil {
		return a.Held.ClientTLS(a.Now)
	}
	return a.Token.EnrollTLS(a.Now)
}

// knownCAs returns the CAs from which the answer's CA must come: those of Held, or the one in the hub's chain that the
// token names.
func (a Applicant) knownCAs(chain []*x509.Certificate) []*x509.Certificate {
	if a.Held != nil {
		return a.Held.Authorities()
	}
	if named := a.Token.FindCA(chain); named != nil {
		return []*x509.Certificate{named}
	}
	return nil
}

// requestCertificate sends the request over a new stream and returns the hub's answer. A refusal is returned as the
// hub's error.
func requestCertificate(ctx context.Context, conn *transport.Conn, req syncproto.Enroll) (syncproto.Enrolled, error) {
	stream, err := conn.Open(ctx)
	if err != nil {
		return syncproto.Enrolled{}, fmt.Errorf("enrol: %w", err)
	}
	stop := context.AfterFunc(ctx, stream.Abort)
	defer stop()
	m, err := exchange(stream, req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return syncproto.Enrolled{}, fmt.Errorf("enrol: %w", err)
	}
	switch m := m.(type) {
	case syncproto.Enrolled:
		return m, nil
	case syncproto.Refused:
		return syncproto.Enrolled{}, &fleet.Error{Code: m.Code, Message: m.Message, Hint: m.Hint}
	default:
		return syncproto.Enrolled{}, fleet.Errorf(fleet.CodeFrameBad, "enrol: the hub answered with a %s frame", m.FrameType())
	}
}

// exchange writes the request, ends the sending side, and reads one message.
func exchange(stream *transport.Stream, req syncproto.Enroll) (syncproto.Message, error) {
	if err := syncproto.NewWriter(stream).Write(req); err != nil {
		return nil, err
	}
	if err := stream.CloseWrite(); err != nil {
		return nil, err
	}
	return syncproto.NewReader(stream).Read()
}

// acceptEnrolled checks that the answer has a CA that this machine knows, or to which the hub's chain leads from there,
// and a certificate of it for the applicant's key, role and ID. It returns the identity.
func acceptEnrolled(a Applicant, answer syncproto.Enrolled, chain []*x509.Certificate) (*identity.Identity, error) {
	known := a.knownCAs(chain)
	ca, err := x509.ParseCertificate(answer.CA)
	if err != nil || len(known) == 0 || !(identity.Check{CA: known[0], Also: known[1:], Now: a.Now()}).Vouches(ca, chain) {
		return nil, fleet.Errorf(fleet.CodeCAMismatch, "enrol: the hub gave a CA that is not the cluster's")
	}
	id, err := identity.New(answer.Cert, answer.CA, a.Key)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeForbidden, "enrol: the hub gave an unusable certificate: %v", err).
			WithHint("try again; if it stays so, compare the releases of the hub and of this machine")
	}
	if id.Role != a.Role || id.Name != a.ID {
		return nil, fleet.Errorf(fleet.CodeForbidden, "enrol: the hub returned a certificate of %s instead of %s",
			identity.CommonName(id.Role, id.Name), identity.CommonName(a.Role, a.ID))
	}
	return id.WithAuthorities(known), nil
}
