package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/hub/api"
	"skerry/hub/state"
)

// A browser sends requests for any web page, with headers that other programs do not send.
func TestForeignWebPagesAreRefused(t *testing.T) {
	h, srv, _ := mustServe(t)
	own := strings.TrimPrefix(srv.URL, "http://") // 127.0.0.1:PORT
	_, port, _ := strings.Cut(own, ":")
	for name, tc := range map[string]struct {
		host    string
		headers []string
		refused string // a part of the text; "": taken
	}{
		"curl":                            {host: own},
		"localhost":                       {host: "localhost:" + port},
		"localhost, absolute":             {host: "LocalHost.:" + port},
		"IPv6 loopback":                   {host: "[::1]:" + port},
		"another loopback address":        {host: "127.8.8.8"},
		"a name that the hub was given":   {host: "hub.example:80"},
		"an address that it was given":    {host: "192.0.2.10:4646"},
		"the same page, old browser":      {host: own, headers: []string{"Origin: http://" + own}},
		"the same page":                   {host: own, headers: []string{"Origin: http://" + own, "Sec-Fetch-Site: same-origin"}},
		"a proxy that speaks TLS":         {host: "hub.example", headers: []string{"Origin: https://hub.example", "Sec-Fetch-Site: same-origin"}},
		"typed in a browser":              {host: own, headers: []string{"Sec-Fetch-Site: none"}},
		"rebinding":                       {host: "evil.example:" + port, refused: "--http-host evil.example"},
		"rebinding, same-origin":          {host: "evil.example", headers: []string{"Sec-Fetch-Site: same-origin", "Origin: http://evil.example"}, refused: "not a name of this hub"},
		"a name that begins alike":        {host: "localhost.evil.example", refused: "--http-host"},
		"an address of somebody else":     {host: "192.0.2.99:4646", refused: "--http-host 192.0.2.99"},
		"no host":                         {host: "", refused: "--http-host NAME"},
		"no name":                         {host: "a;rm", refused: "--http-host NAME"},
		"another origin":                  {host: own, headers: []string{"Origin: http://evil.example"}, refused: "a web page of another origin"},
		"another port":                    {host: "localhost:" + port, headers: []string{"Origin: http://localhost:3000"}, refused: "a web page of another origin"},
		"localhost and 127.0.0.1":         {host: own, headers: []string{"Origin: http://localhost:" + port}, refused: "a web page of another origin"},
		"a sandboxed page":                {host: own, headers: []string{"Origin: null"}, refused: "a web page of another origin"},
		"a file":                          {host: own, headers: []string{"Origin: file://" + own}, refused: "a web page of another origin"},
		"cross-site":                      {host: own, headers: []string{"Sec-Fetch-Site: cross-site"}, refused: "cross-site"},
		"same site, another origin":       {host: own, headers: []string{"Sec-Fetch-Site: same-site"}, refused: "same-site"},
		"cross-site, and its own origin":  {host: own, headers: []string{"Origin: http://" + own, "Sec-Fetch-Site: cross-site"}, refused: "cross-site"},
		"two origins, one of which is it": {host: own, headers: []string{"Origin: http://" + own, "Origin: http://evil.example"}, refused: "a web page of another origin"},
	} {
		for _, request := range []string{
			"GET /v1/jobs", "GET /v1/operator/snapshot", "GET /v1/client/allocation/x/exec", "POST /v1/jobs", "PUT /v1/operator/snapshot",
			"DELETE /v1/job/x", "POST /v1/nothing", "OPTIONS /v1/jobs", "HEAD /v1/jobs",
		} {
			t.Run(name+"/"+request, func(t *testing.T) {
				before := h.store.View().Index()
				status, text := mustSpeak(t, own, request, tc.host, tc.headers)
				if tc.refused == "" {
					if status == http.StatusForbidden {
						t.Fatalf("refused: %s", text)
					}
					return
				}
				if status != http.StatusForbidden || !strings.HasPrefix(request, "HEAD") && !strings.Contains(text, tc.refused) {
					t.Fatalf("%d %q, want 403 with %q", status, text, tc.refused)
				}
				if h.store.View().Index() != before {
					t.Fatal("it changed the state")
				}
			})
		}
	}
}

// mustSpeak sends a request as it is written, with a body that a browser may send
// without asking, and returns the answer.
func mustSpeak(tb testing.TB, addr, request, host string, headers []string) (int, string) {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	lines := append([]string{request + " HTTP/1.1", "Host: " + host, "Content-Type: text/plain", "Content-Length: 2", "Connection: close"}, headers...)
	if _, err := fmt.Fprintf(conn, "%s\r\n\r\n{}", strings.Join(lines, "\r\n")); err != nil {
		tb.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// The address that a connection came in on is the hub's own.
func TestHostOfTheConnection(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	a, err := api.New(api.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h)})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"198.51.100.7:4646": http.StatusOK, "198.51.100.8:4646": http.StatusForbidden} {
		r := httptest.NewRequestWithContext(withLocalAddr(t.Context(), "198.51.100.7:4646"), http.MethodGet, "/v1/regions", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if a.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d, want %d: %s", host, w.Code, want, w.Body)
		}
	}
}

func TestNomadsClientByEveryNameOfThisMachine(t *testing.T) {
	_, srv, _ := mustServe(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(srv.URL, "http://"), ":")
	for _, host := range []string{"127.0.0.1", "localhost"} {
		client, err := nomad.NewClient(&nomad.Config{Address: "http://" + net.JoinHostPort(host, port)})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := client.Jobs().List(nil); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func withLocalAddr(ctx context.Context, addr string) context.Context {
	return context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))))
}

// Whatever headers a request has, it is served only for a host of this hub and for no
// other page than the hub's own.
func FuzzCheckBrowser(f *testing.F) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	a, err := api.New(api.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: []string{"hub.example"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("localhost:4646", "http://localhost:4646", "same-origin")
	f.Add("[::1]", "http://[::1]", "none")
	f.Add("hub.example.", "https://hub.example", "")
	f.Add("localhost:4646@evil.example", "http://evil.example#localhost:4646", "same-origin")
	f.Add("[localhost]:1", "//localhost", "cross-site")
	f.Fuzz(func(t *testing.T, host, origin, site string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/regions", nil)
		r.Host = host
		r.Header.Set("Origin", origin)
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		if a.ServeHTTP(w, r); w.Code == http.StatusForbidden {
			return
		}
		named := func(text string) bool {
			text = strings.ToLower(text)
			return strings.Contains(text, "localhost") || strings.Contains(text, "hub.example") || strings.Contains(text, "127.") || strings.Contains(text, "::")
		}
		if u, err := url.Parse(origin); err != nil || !named(host) || !named(u.Host) || site != "same-origin" && site != "none" {
			t.Fatalf("served for host %q, origin %q, site %q", host, origin, site)
		}
	})
}
