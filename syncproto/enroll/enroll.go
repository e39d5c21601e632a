// Package enroll is the conversation by which a machine that holds a join token
// gets its certificate, for hubs and edges alike, and by which an edge renews it
// (ALPN skerry-enroll/1). The answering half is package hub/pki.
//
// It starts no goroutine and persists nothing.
package enroll

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

// timeout bounds an attempt. The hub may have to wait for an election before it
// can record a certificate.
const timeout = 20 * time.Second

// Dialer opens connections: a *transport.Endpoint.
type Dialer interface {
	Dial(ctx context.Context, cfg transport.DialConfig) (*transport.Conn, error)
}

// Applicant asks for a certificate.
type Applicant struct {
	// Held is what it has, and wants to renew; nil: nothing yet. The hub is checked
	// against its CA, and is shown its certificate.
	Held  *identity.Identity
	Token identity.Token    // may be zero with Held: it counts where that ended too long ago
	Role  string            // fleet.RoleHub or RoleEdge
	ID    string            // a hub's name, an edge's node id
	Name  string            // of an edge: the name that people see
	Key   *ecdsa.PrivateKey // identity.NewKey
	// Now gives the latest time that is known to be past (see package identity).
	Now func() time.Time
}

// Enroll asks the hub at addr. The hub is checked against the CA, or the token's
// hash of it, before the secret is sent, and what it answers is checked, too.
// Errors are *fleet.Error: token_bad, token_expiry, cert_expiry, ca_mismatch,
// conflict, forbidden, unavailable, timeout.
func Enroll(ctx context.Context, d Dialer, addr net.Addr, a Applicant) (*identity.Identity, syncproto.Enrolled, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout,
		fleet.Errorf(fleet.CodeTimeout, "enrol at %s: no answer within %s", addr, timeout))
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
	id, err := acceptEnrolled(a, answer)
	if err != nil {
		return nil, syncproto.Enrolled{}, errors.Join(err, conn.CloseWith(nil))
	}
	return id, answer, conn.CloseWith(nil)
}

func (a Applicant) clientTLSConfig() *tls.Config {
	if a.Held != nil {
		return a.Held.ClientTLS(a.Now)
	}
	return a.Token.EnrollTLS(a.Now)
}

// isExpectedCA reports whether ca (DER) is that of the cluster it asks.
func (a Applicant) isExpectedCA(ca []byte) bool {
	if a.Held != nil {
		return bytes.Equal(ca, a.Held.CA.Raw)
	}
	return a.Token.Names(ca)
}

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
		return syncproto.Enrolled{}, fleet.Errorf(fleet.CodeFrameBad, "enrol: the hub answered with a %T", m)
	}
}

func exchange(stream *transport.Stream, req syncproto.Enroll) (syncproto.Message, error) {
	if err := syncproto.NewWriter(stream).Write(req); err != nil {
		return nil, err
	}
	if err := stream.CloseWrite(); err != nil {
		return nil, err
	}
	return syncproto.NewReader(stream).Read()
}

// acceptEnrolled checks that the answer is what was asked for.
func acceptEnrolled(a Applicant, answer syncproto.Enrolled) (*identity.Identity, error) {
	if !a.isExpectedCA(answer.CA) {
		return nil, fleet.Errorf(fleet.CodeCAMismatch, "enrol: the hub gave a CA that is not the cluster's")
	}
	id, err := identity.New(answer.Cert, answer.CA, a.Key)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeForbidden, "enrol: the hub gave an unusable certificate: %v", err)
	}
	if id.Role != a.Role || id.Name != a.ID {
		return nil, fleet.Errorf(fleet.CodeForbidden, "enrol: the hub gave a certificate of %s", identity.CommonName(id.Role, id.Name))
	}
	return id, nil
}
