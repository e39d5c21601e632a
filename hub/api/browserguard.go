package api

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"skerry/fleet"
)

// A browser sends requests for any web page to any address, this hub's too. The
// API has effects behind every method (a command in a task is a GET), so each
// request is checked, whatever its method and content type:
//
//   - Host must be a name of this hub. A page whose own name an attacker lets
//     resolve to the hub's address (DNS rebinding) sends that name.
//   - Sec-Fetch-Site and Origin, which a page cannot choose, must not tell of a
//     page of another origin. http.CrossOriginProtection lets GET through, so it
//     is of no use here. Programs send neither header.

// checkBrowser returns an error for a request that a foreign web page may have sent: see above.
func (a *API) checkBrowser(r *http.Request) error {
	if !a.isOwnHost(r) {
		return fleet.Errorf(fleet.CodeForbidden, "%s %s: refuse a request for the host %q, which is not a name of this hub", r.Method, r.URL.Path, r.Host).
			WithHint("ask for localhost or the hub's own address, or start the hub with --http-host %s", hostNameOr(r.Host, "NAME"))
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return foreignPage(r, "a browser says that it is "+site)
		}
	}
	for _, origin := range r.Header.Values("Origin") {
		if !isOriginOf(origin, r.Host) {
			return foreignPage(r, "its origin is "+origin+", and the host "+r.Host)
		}
	}
	return nil
}

// foreignPage returns the error for a request that a page of another origin sent.
func foreignPage(r *http.Request, why string) error {
	return fleet.Errorf(fleet.CodeForbidden, "%s %s: refuse a request of a web page of another origin: %s", r.Method, r.URL.Path, why).
		WithHint("call the API from a program, which sends no Origin; a proxy that serves a page and the API under one name must pass on the Host that the browser sent, and the hub needs that name as --http-host")
}

// isOwnHost reports whether the request's Host is this hub: localhost, a loopback address, the address that the
// connection came in on, one of Config.Hosts, or over HTTPS a name of the certificate. Ports are not compared.
func (a *API) isOwnHost(r *http.Request) bool {
	name := hostName(r.Host)
	if name == "localhost" || slices.Contains(a.hosts, name) || r.TLS != nil && a.cfg.Certified != nil && a.cfg.Certified(name) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	if ip = ip.Unmap().WithZone(""); ip.IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && hostName(local.String()) == ip.String()
}

// hostName returns the host of HOST, HOST:PORT, [V6] or [V6]:PORT in the form for comparisons: lower case, no
// trailing dot, IP addresses as netip writes them.
func hostName(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// hostNameOr returns the host name of hostport, or fallback if it is not a valid host name.
func hostNameOr(hostport, fallback string) string {
	name := hostName(hostport)
	if ValidHostName(name) {
		return name
	}
	return fallback
}

// ValidHostName reports whether a name may be given as one of Config.Hosts: an IP
// address, or up to 253 letters, digits, '.', '-' and '_'.
func ValidHostName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
	}
	return name != "" && len(name) <= 253 && !strings.ContainsFunc(name, other)
}

// isOriginOf reports whether an Origin header has the host and port of the request's Host. The scheme is not
// compared: a proxy may speak TLS.
func isOriginOf(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false // "null" too, which sandboxed pages send
	}
	return hostName(u.Host) == hostName(host) && portOr(u.Host, u.Scheme) == portOr(host, u.Scheme)
}

// portOr returns the port of HOST:PORT; without a port, the default port of the scheme.
func portOr(hostport, scheme string) string {
	if _, port, err := net.SplitHostPort(hostport); err == nil && port != "" {
		return port
	}
	if scheme == "https" {
		return "443"
	}
	return "80"
}
