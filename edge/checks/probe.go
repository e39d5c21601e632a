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
)

// maxOutput is how much of an answer is kept and shown, in bytes.
const maxOutput = 3 << 10

// Dial opens a connection, as net.Dialer's DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// probeOnce does a check once, within its timeout.
func (c *check) probeOnce(ctx context.Context, dial Dial) (status, output string, code int) {
	if c.problem != "" {
		return Failure, c.problem, 0
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if c.Type == fleet.CheckTCP {
		conn, err := dial(ctx, "tcp", c.address)
		if err != nil {
			return Failure, displayText(err.Error()), 0
		}
		_ = conn.Close() // it was opened, which is all that is asked
		return Success, "connected to " + c.address, 0
	}
	return c.probeHTTP(ctx, dial)
}

func (c *check) probeHTTP(ctx context.Context, dial Dial) (status, output string, code int) {
	url := cmp.Or(c.Protocol, "http") + "://" + c.address + "/" + strings.TrimPrefix(c.Path, "/")
	req, err := http.NewRequestWithContext(ctx, strings.ToUpper(cmp.Or(c.Method, http.MethodGet)), url, bytes.NewReader([]byte(c.Body)))
	if err != nil {
		return Failure, displayText(err.Error()), 0
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
		DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{ServerName: c.TLSServerName, InsecureSkipVerify: c.TLSSkipVerify},
	}
	// A redirect is an answer of its own: what it points to is not what is checked.
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return Failure, displayText(err.Error()), 0
	}
	defer res.Body.Close()
	if res.StatusCode >= 200 && res.StatusCode < 400 {
		return Success, "answered " + res.Status, res.StatusCode
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	if err != nil {
		body = []byte(err.Error())
	}
	return Failure, displayText(fmt.Sprintf("answered %s: %s", res.Status, body)), res.StatusCode
}

// displayText makes a text fit to be shown.
func displayText(s string) string {
	return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), maxOutput)], ""))
}

// loopbacks are this machine's addresses that no link takes away.
var loopbacks = []string{"127.0.0.1", "::1"}

// loopbackFallback returns how the check is dialed while this machine has lost the address: a cable
// that is pulled takes it along, and what listens on all addresses runs all the same. Only
// then the loopback addresses are tried before it.
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

// onMachine reports whether an interface of this machine has an address; what is no
// address is not looked for, and where the machine does not say it has it.
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
