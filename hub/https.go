package hub

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"skerry/fleet"
	"skerry/hub/api"
	"skerry/hub/httpserver"
)

// servesTLS reports whether the HTTP API is served by HTTPS.
func (c Config) servesTLS() bool { return c.HTTPTLS || c.HTTPTLSCert != "" }

// findHTTPErrors returns everything that is wrong with the settings of the HTTP API.
func (c Config) findHTTPErrors() (errs []error) {
	if (c.HTTPTLSCert == "") != (c.HTTPTLSKey == "") {
		errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "serve HTTPS: the certificate and its key have to be given together").
			WithHint("give --http-tls-cert and --http-tls-key, or --http-tls alone for a certificate of the cluster's CA"))
	}
	if c.HTTPTLSClientCA != "" && !c.servesTLS() {
		errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "ask clients for certificates: the hub does not serve HTTPS").
			WithHint("add --http-tls, or --http-tls-cert and --http-tls-key"))
	}
	if bind, err := netip.ParseAddr(c.HTTPBind); err != nil {
		errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "HTTP bind address %q: not an IP address", c.HTTPBind))
	} else if !bind.IsLoopback() && !c.HTTPInsecure && c.HTTPTLSClientCA == "" && !(c.ACLEnabled && c.servesTLS()) {
		what := "HTTP without access control"
		if c.ACLEnabled {
			what = "tokens over unencrypted HTTP"
		}
		errs = append(errs, fleet.Errorf(fleet.CodeForbidden, "refuse to serve %s on %s", what, c.HTTPBind).
			WithHint("serve it on loopback with --http-bind 127.0.0.1, or to tokens with --http-tls and --acl-enabled, or to clients with a certificate with --http-tls and --http-tls-client-ca, or say that the network is trusted with --http-insecure"))
	}
	for _, host := range c.HTTPHosts {
		if !api.ValidHostName(host) {
			errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "HTTP host %q: not a host name or an IP address", host).
				WithHint("give the name alone, without a scheme and without a port"))
		}
	}
	return errs
}

// certifiedNames returns the names for which the CA signs the certificate of the HTTP API: all by which a request may
// address this hub. Those of the machine's addresses may change while it runs.
func (c Config) certifiedNames() []string {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, c.HTTPHosts...)
	if advertised, err := c.advertisedAddr(); err == nil {
		names = append(names, advertised)
	}
	if bind, err := netip.ParseAddr(c.HTTPBind); err == nil && !bind.IsUnspecified() {
		names = append(names, c.HTTPBind)
	} else if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, addr := range addrs {
			if n, ok := addr.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				names = append(names, n.IP.String())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// openTLS reads the files of HTTPS, if the HTTP API is served by it.
func (h *Hub) openTLS() (err error) {
	if !h.cfg.servesTLS() {
		return nil
	}
	h.https, err = httpserver.OpenTLS(httpserver.TLSConfig{
		CertFile: h.cfg.HTTPTLSCert, KeyFile: h.cfg.HTTPTLSKey, ClientCAFile: h.cfg.HTTPTLSClientCA,
		Issued: func(ctx context.Context) (*tls.Certificate, error) { return h.own.HTTPCertificate(ctx) },
		Now:    h.cfg.Now, Log: h.log.With("component", "http"),
	})
	return err
}

// httpNames returns the function for pki.OwnConfig.HTTPNames.
func (h *Hub) httpNames() func() []string {
	if !h.cfg.servesTLS() || h.cfg.HTTPTLSCert != "" {
		return nil
	}
	return h.cfg.certifiedNames
}

// HTTPCAHash returns the SHA-256 digest of the cluster's CA if it signs the certificate of the HTTP API; "": it does not.
func (h *Hub) HTTPCAHash() string {
	if h.httpNames() == nil {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(h.own.Identity().CA.Raw))
}

// HTTPURL returns the URL of the HTTP API.
func (h *Hub) HTTPURL() string {
	if h.https != nil {
		return "https://" + h.addr.HTTP
	}
	return "http://" + h.addr.HTTP
}
