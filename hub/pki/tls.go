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

// ServerTLS gives the server's side for each protocol, as transport.Config.TLS
// wants it: enrolment asks for no certificate and shows the CA, edges' sessions
// want an edge's, the rest a hub's.
func ServerTLS(id *identity.Identity, now func() time.Time) func(alpn []string) (*tls.Config, error) {
	own := id.Certificate()
	withCA := own
	withCA.Certificate = append(slices.Clone(own.Certificate), id.CA.Raw)

	mutual := func(alpn string, check identity.Check) *tls.Config {
		check.CA = id.CA
		return &tls.Config{
			MinVersion:   tls.VersionTLS13,
			NextProtos:   []string{alpn},
			Certificates: []tls.Certificate{own},
			ClientAuth:   tls.RequireAnyClientCert, // VerifyConnection does the rest
			VerifyConnection: func(cs tls.ConnectionState) error {
				c := check
				c.Now = now()
				return c.Verify(cs.PeerCertificates)
			},
		}
	}
	hub := identity.Check{Role: syncproto.RoleHub}
	configs := map[string]*tls.Config{
		syncproto.ALPNEdge: mutual(syncproto.ALPNEdge, identity.Check{Role: syncproto.RoleEdge, Grace: EdgeGrace}),
		syncproto.ALPNHub:  mutual(syncproto.ALPNHub, hub),
		syncproto.ALPNRaft: mutual(syncproto.ALPNRaft, hub),
		syncproto.ALPNEnroll: {
			MinVersion:   tls.VersionTLS13,
			NextProtos:   []string{syncproto.ALPNEnroll},
			Certificates: []tls.Certificate{withCA},
		},
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
