package checks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"skerry/fleet"
	"skerry/internal/redact"
)

// maxOutput bounds the stored part of an answer, in bytes.
const maxOutput = 3 << 10

// Dial opens a connection, as DialContext of net.Dialer does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// endingWith returns a Dial that ends with ctx. A transport's own context for a connection does not end with the request.
func (d Dial) endingWith(ctx context.Context) Dial {
	return func(_ context.Context, network, address string) (net.Conn, error) { return d(ctx, network, address) }
}

// probeOnce runs a check once, within its timeout. It returns Success, Warning or Failure, the text to show, and the
// status of an HTTP answer or the exit code of a script (0: none).
func (c *check) probeOnce(ctx context.Context, dial Dial, run Exec) (status, output string, code int) {
	if c.problem != "" {
		return Failure, c.problem, 0
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	switch c.Type {
	case fleet.CheckGRPC:
		status, output = c.probeGRPC(ctx, dial)
		return status, output, 0
	case fleet.CheckScript:
		if run == nil {
			return Failure, "this edge runs no scripts", 0
		}
		return c.probeScript(ctx, run)
	case fleet.CheckTCP:
		conn, err := dial(ctx, "tcp", c.address)
		if err != nil {
			return Failure, c.explainNoAnswer(ctx, err), 0
		}
		_ = conn.Close() // opening the connection is the whole check
		return Success, "connected to " + c.address, 0
	}
	return c.probeHTTP(ctx, dial)
}

// probeHTTP requests the path of an http check. A status from 200 to 399 is a success; a redirect is not
// followed. A check as Consul's follows redirects; only 2xx is a success, and 429 a warning.
func (c *check) probeHTTP(ctx context.Context, dial Dial) (status, output string, code int) {
	url := cmp.Or(c.Protocol, "http") + "://" + c.address + "/" + strings.TrimPrefix(c.Path, "/")
	req, err := http.NewRequestWithContext(ctx, strings.ToUpper(cmp.Or(c.Method, http.MethodGet)), url, bytes.NewReader([]byte(c.Body)))
	if err != nil {
		return Failure, displayText(redact.Error(err).Error()), 0
	}
	for k, values := range c.Header {
		for _, v := range values {
			req.Header.Add(k, v)
		}
		if strings.EqualFold(k, "Host") {
			req.Host = req.Header.Get(k)
		}
	}
	transport := &http.Transport{
		DialContext: dial.endingWith(ctx), DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{ServerName: c.TLSServerName, InsecureSkipVerify: c.TLSSkipVerify},
	}
	client, best := http.Client{Transport: transport}, 299
	if !c.asConsul {
		// A redirect is the answer; its target is not checked.
		client.CheckRedirect, best = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, 399
	}
	res, err := client.Do(req)
	if err != nil {
		return Failure, c.explainNoAnswer(ctx, err), 0
	}
	defer res.Body.Close()
	if res.StatusCode >= 200 && res.StatusCode <= best {
		return Success, "answered " + res.Status, res.StatusCode
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	if err != nil {
		body = []byte(err.Error())
	}
	status = Failure
	if c.asConsul && res.StatusCode == http.StatusTooManyRequests {
		status = Warning
	}
	return status, displayText(fmt.Sprintf("answered %s: %s", res.Status, body)), res.StatusCode
}

// displayText cuts a text to maxOutput bytes and removes invalid UTF-8.
func displayText(s string) string {
	return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), maxOutput)], ""))
}

// loopbacks are this machine's addresses that do not depend on a link.
var loopbacks = []string{"127.0.0.1", "::1"}

// loopbackFallback returns a Dial that tries the loopback addresses before the checked one. It is used while
// this machine has lost the checked address, for example because a cable is unplugged: a service that listens
// on all addresses still runs.
func (c *check) loopbackFallback(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, port, err := net.SplitHostPort(address); err == nil && address == c.address {
			for _, host := range loopbacks {
				if conn, err := dial(ctx, network, net.JoinHostPort(host, port)); err == nil {
					return conn, nil
				}
			}
		}
		return dial(ctx, network, address)
	}
}

// onMachine reports whether an interface of this machine has the address host. It returns true for a name, and
// if the interfaces cannot be read.
func onMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if has, ok := netip.AddrFromSlice(n.IP); ok && has.Unmap() == ip.Unmap().WithZone("") {
				return true
			}
		}
	}
	return ip.IsLoopback()
}
