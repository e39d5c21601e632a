package remoteapi_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/internal/clienttls"
	"skerry/internal/remoteapi"
)

func mustClient(tb testing.TB, address string, change func(*remoteapi.Config)) *remoteapi.Client {
	tb.Helper()
	cfg := remoteapi.Config{
		Address: address, TLS: clienttls.Files{Server: "the server"}, TokenHeader: "X-Token", NamespaceHeader: "X-Space", Timeout: 5 * time.Second, MaxAnswer: 64,
	}
	if change != nil {
		change(&cfg)
	}
	c, err := remoteapi.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// TestRequests: a request has the headers, its own token or else that of the file as it is then, and its body in JSON.
func TestRequests(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	c := mustClient(t, server.URL, func(cfg *remoteapi.Config) { cfg.TokenFile, cfg.Header = file, http.Header{"X-Each": {"1"}} })
	if _, err := c.Send(t.Context(), remoteapi.Request{Method: http.MethodGet, Path: "/"}); err == nil || !strings.Contains(err.Error(), "read the token") || got != nil {
		t.Errorf("without the file: %v, %v", err, got)
	}
	for _, tc := range []struct{ file, token, want string }{{"a\n", "", "a"}, {"b", "", "b"}, {"b", "c", "c"}} {
		if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := c.Send(t.Context(), remoteapi.Request{Method: http.MethodPut, Path: "/x?y", Token: tc.token, Namespace: "n", Body: 1})
		if err != nil || got.Get("X-Token") != tc.want || got.Get("X-Space") != "n" || got.Get("X-Each") != "1" || got.Get("Content-Type") != "application/json" {
			t.Errorf("%+v: %v, %v", tc, got, err)
		}
	}
}

// TestAnswers says which answers are refusals, which are final, and what an error has of them.
func TestAnswers(t *testing.T) {
	const plain, page, vault = "text/plain", "text/html", "application/json"
	for _, tc := range []struct {
		status            int
		kind, body        string
		refusal, isFinal  bool
		missing, tooLarge bool
		says              string
	}{
		{200, vault, `{}`, false, false, false, false, ""},
		{204, vault, ``, false, false, false, false, ""},
		{200, vault, strings.Repeat(" ", 65), false, false, false, true, "more than 64 bytes"},
		{400, vault, `{"errors":["bad marked-token","and marked-jwt"]}`, true, true, false, false, "400 Bad Request: bad …; and …"},
		{403, plain, "Permission denied: marked-token\n", true, true, false, false, "403 Forbidden: Permission denied: …"},
		{404, page, "<html>marked</html>", true, true, true, false, "404 Not Found"},
		{412, vault, `{}`, true, false, false, false, "412"},
		{429, vault, `{}`, true, false, false, false, "429"},
		{472, vault, `{}`, true, false, false, false, "472"},
		{503, plain, "sealed", true, false, false, false, "503 Service Unavailable: sealed"},
		{302, page, "<a>", true, false, false, false, "302"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tc.kind)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tc.status)
			_, _ = w.Write([]byte(tc.body))
		}))
		err := mustClient(t, server.URL, nil).Call(t.Context(), remoteapi.Request{Method: http.MethodGet, Path: "/v1/x", Token: "marked-token", Hidden: "marked-jwt"}, nil)
		server.Close()
		if (remoteapi.RefusalOf(err) != nil) != tc.refusal || remoteapi.IsRefused(err) != tc.isFinal || remoteapi.IsMissing(err) != tc.missing || errors.Is(err, remoteapi.ErrTooLarge) != tc.tooLarge {
			t.Errorf("%d %s: %v", tc.status, tc.body, err)
		}
		if (err == nil) != (tc.says == "") || err != nil && (!strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "marked") || strings.Contains(err.Error(), "html") || !strings.Contains(err.Error(), "ask the server at "+server.URL+" (GET /v1/x)")) {
			t.Errorf("%d %s: %v, want %q", tc.status, tc.body, err, tc.says)
		}
	}
}

// TestAttributes: what the server has said stays while it is away or says less, and is bounded.
func TestAttributes(t *testing.T) {
	status, more := 200, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	c := mustClient(t, server.URL, nil)
	read := func([]byte) (map[string]string, error) {
		return map[string]string{"version": strings.Repeat("1", 300), "cluster": more}, nil
	}
	for _, tc := range []struct {
		status        int
		more, cluster string
	}{{503, "x", ""}, {200, "a", "a"}, {200, "", "a"}, {503, "b", "a"}, {200, "b", "b"}} {
		status, more = tc.status, tc.more
		got := c.Attributes(t.Context(), remoteapi.Request{Method: http.MethodGet, Path: "/"}, read)
		if got["cluster"] != tc.cluster || tc.cluster != "" && len(got["version"]) != 256 {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// TestAddresses: tokens cross no network in clear, unless the caller allows it.
func TestAddresses(t *testing.T) {
	for _, address := range []string{"https://user:marked@a:1", "https://marked@a:1", "https://a:1?token=marked", "http://user:pa/marked@a:1"} {
		if _, err := remoteapi.New(remoteapi.Config{Address: address}); err == nil || strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, tc := range []struct {
		address            string
		strict, easy, port bool // whether it is accepted as it is, with plain HTTP, and where a port is needed
	}{
		{"https://a", true, true, false}, {"https://a:1/", true, true, true}, {"http://a:1", false, true, false}, {"http://127.0.0.1:1", true, true, true},
		{"unix:///run/x", true, true, true}, {"unix://", false, false, false}, {"a:1", false, false, false}, {"https://a/x", false, false, false},
		{"https://a?x", false, false, false}, {"https://a#x", false, false, false}, {"https://u@a", false, false, false}, {"", false, false, false},
	} {
		for i, want := range []bool{tc.strict, tc.easy, tc.port} {
			_, err := remoteapi.New(remoteapi.Config{Address: tc.address, AddressHint: "write it", HTTPSHint: "encrypt it", PlainHTTP: i == 1, NeedsPort: i == 2})
			if (err == nil) != want || !want && (fleet.CodeOf(err) != fleet.CodeInvalid || fleet.AsError(err).Hint == "") {
				t.Errorf("%q, %d: %v", tc.address, i, err)
			}
		}
	}
}
