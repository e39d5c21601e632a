package api

import (
	"net/http"

	"skerry/fleet"
	"skerry/syncproto/identity"
)

// checkCertificate returns an error for a client without the certificate that Config.NeedsCertificate asks for. One of
// the cluster's own edges and hubs is none of a client's, also if the cluster's CA is among the authorities.
func (a *API) checkCertificate(r *http.Request) error {
	if !a.cfg.NeedsCertificate {
		return nil
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return fleet.Errorf(fleet.CodeForbidden, "%s %s: this hub serves only clients with a certificate of an authority that it knows", r.Method, r.URL.Path).
			WithHint("show one with --client-cert and --client-key; the file of the hub's --http-tls-client-ca has the authorities")
	}
	if role, name, ok := identity.Subject(r.TLS.PeerCertificates[0]); ok {
		return fleet.Errorf(fleet.CodeForbidden, "%s %s: the certificate of %s %s is none of a client", r.Method, r.URL.Path, role, name).
			WithHint("give clients certificates of another authority than the cluster's CA")
	}
	return nil
}
