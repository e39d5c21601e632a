package pki

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/identity"
)

// ServerTLS returns the function for transport.Config.TLS: the server's TLS for each offered protocol.
// Enrolment shows the CA and accepts an edge's certificate, for a renewal; sessions need an edge's
// certificate, calls and Raft a hub's. An expired edge certificate passes here, so that CheckEdge can
// refuse it with a message. self is called for each handshake, and its CA never changes.
func ServerTLS(self func() *identity.Identity, now func() time.Time) func(alpn []string) (*tls.Config, error) {
	ca := self().CA
	server := func(alpn string, extra ...[]byte) *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS13,
			NextProtos: []string{alpn},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				own := self().Certificate()
				own.Certificate = append(slices.Clone(own.Certificate), extra...)
				return &own, nil
			},
		}
	}
	mutual := func(alpn, role string, at func() time.Time) *tls.Config {
		c := server(alpn)
		c.ClientAuth = tls.RequireAnyClientCert // VerifyConnection checks the certificate
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			return identity.Check{CA: ca, Role: role, Now: at()}.Verify(cs.PeerCertificates)
		}
		return c
	}
	anyTime := func() time.Time { return time.Time{} }
	enrol := server(syncproto.ALPNEnroll, ca.Raw)
	enrol.ClientAuth = tls.RequestClientCert
	enrol.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return nil
		}
		return identity.Check{CA: ca, Role: fleet.RoleEdge}.Verify(cs.PeerCertificates)
	}
	configs := map[string]*tls.Config{
		syncproto.ALPNEdge:   mutual(syncproto.ALPNEdge, fleet.RoleEdge, anyTime),
		syncproto.ALPNHub:    mutual(syncproto.ALPNHub, fleet.RoleHub, now),
		syncproto.ALPNRaft:   mutual(syncproto.ALPNRaft, fleet.RoleHub, now),
		syncproto.ALPNEnroll: enrol,
	}
	return func(alpn []string) (*tls.Config, error) {
		for _, name := range alpn {
			if c, ok := configs[name]; ok {
				return c, nil
			}
		}
		return nil, fmt.Errorf("serve a connection: %w",
			fleet.Errorf(fleet.CodeVersion, "none of the offered protocols is served: %s", strings.Join(alpn, ", ")))
	}
}
