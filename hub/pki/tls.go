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
// Enrolment shows the CAs and accepts an edge's certificate, for a renewal; sessions need an edge's
// certificate, calls and Raft a hub's. An edge's certificate that has expired, or of a CA that was replaced, passes
// here, so that CheckEdge can refuse it with a message. self is called for each handshake.
func ServerTLS(self func() *identity.Identity, now func() time.Time) func(alpn []string) (*tls.Config, error) {
	server := func(alpn string) *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS13,
			NextProtos: []string{alpn},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				id := self()
				own := id.Certificate()
				if alpn == syncproto.ALPNEnroll {
					for _, ca := range slices.Concat(id.Authorities(), id.Former) {
						own.Certificate = append(own.Certificate, ca.Raw)
					}
				}
				return &own, nil
			},
		}
	}
	checkEdge := func(cs tls.ConnectionState) error {
		id := self()
		return identity.Check{CA: id.CA, Also: slices.Concat(id.Also, id.Former), Role: fleet.RoleEdge}.Verify(cs.PeerCertificates)
	}
	checkHub := func(cs tls.ConnectionState) error {
		id := self()
		return identity.Check{CA: id.CA, Also: id.Also, Role: fleet.RoleHub, Now: now()}.Verify(cs.PeerCertificates)
	}
	mutual := func(alpn string, check func(tls.ConnectionState) error) *tls.Config {
		c := server(alpn)
		c.ClientAuth = tls.RequireAnyClientCert // VerifyConnection checks the certificate
		c.VerifyConnection = check
		return c
	}
	enrol := server(syncproto.ALPNEnroll)
	enrol.ClientAuth = tls.RequestClientCert
	enrol.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return nil
		}
		return checkEdge(cs)
	}
	configs := map[string]*tls.Config{
		syncproto.ALPNEdge:   mutual(syncproto.ALPNEdge, checkEdge),
		syncproto.ALPNHub:    mutual(syncproto.ALPNHub, checkHub),
		syncproto.ALPNRaft:   mutual(syncproto.ALPNRaft, checkHub),
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
