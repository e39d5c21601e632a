package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skerry/api"
	"skerry/client"
	"skerry/fleet"
)

func TestRead(t *testing.T) {
	var asked string
	c := mustServe(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		w.Header().Set("X-Nomad-Index", "42")
		_, _ = io.WriteString(w, `{"ID": "n1"}`)
	})
	index := fleet.Index(7)
	n, err := c.AllowStale().Watch(&index).Node(t.Context(), "n/1")
	if err != nil || index != 42 || n.ID != "n1" {
		t.Fatalf("%v %d %+v", err, index, n)
	}
	if want := "GET /v1/node/n%2F1?index=7&stale=&wait=1m0s"; asked != want {
		t.Errorf("asked %q, want %q", asked, want)
	}
	index = 0
	if _, err := c.Watch(&index).Node(t.Context(), "n1"); err != nil || index != 42 || asked != "GET /v1/node/n1" {
		t.Errorf("%v %d %q", err, index, asked)
	}
}

// An answer of a hub that knows no leader may be old, and says so.
func TestStale(t *testing.T) {
	known := "true"
	c := mustServe(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Nomad-KnownLeader", known)
		_, _ = io.WriteString(w, `[]`)
	})
	said := 0
	c = c.OnStale(func() { said++ }).In("*")
	for _, tc := range []struct {
		known string
		want  int
	}{{"true", 0}, {"false", 1}, {"true", 1}} {
		known = tc.known
		if _, err := c.Nodes(t.Context(), client.List{}); err != nil || said != tc.want {
			t.Errorf("a leader is known: %s; said %d times, want %d (%v)", tc.known, said, tc.want, err)
		}
	}
}

// Copies of a client send tokens of their own, through what wraps the sender of requests.
func TestWithToken(t *testing.T) {
	var tokens []string
	c, err := client.New(client.Config{Addr: client.DefaultAddr, Token: "first", Wrap: func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			tokens = append(tokens, req.Header.Get(api.TokenHeader))
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client.Client{c.WithToken("second"), c, c.WithToken("")} {
		if _, err := c.Node(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(tokens, ","); got != "second,first," {
		t.Errorf("tokens %q", got)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestCall(t *testing.T) {
	c := mustServe(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(r.Method + " " + r.URL.String() + " " + string(body))
	})
	var got string
	if err := c.In("ships").Call(t.Context(), http.MethodPut, "/v1/any%2Fthing?a=b", []int{1}, &got); err != nil || got != "PUT /v1/any%2Fthing?a=b&namespace=ships [1]" {
		t.Errorf("%q %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	c := mustServe(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/job/full":
			w.Header().Set(api.CodeHeader, string(fleet.CodeConflict))
			w.Header().Set(api.HintHeader, "read again")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, "somebody was first (read again)\n")
		case "/v1/job/bare":
			w.WriteHeader(http.StatusBadGateway)
		default:
			_, _ = io.WriteString(w, "not JSON")
		}
	})
	_, err := c.Job(t.Context(), "full")
	var e *fleet.Error
	if !errors.As(err, &e) || client.StatusOf(err) != http.StatusConflict ||
		*e != (fleet.Error{Code: fleet.CodeConflict, Message: "somebody was first", Hint: "read again"}) {
		t.Errorf("full: %#v", err)
	}
	_, err = c.Job(t.Context(), "bare")
	if fleet.CodeOf(err) != fleet.CodeInternal || !strings.Contains(err.Error(), "502 Bad Gateway") {
		t.Errorf("bare: %v", err)
	}
	if _, err := c.Job(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "read the hub's answer to /v1/job/other") {
		t.Errorf("other: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Job(ctx, "full"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	for _, addr := range []string{"", "nonsense://x", "http://", "http://%zz"} {
		if _, err := client.New(client.Config{Addr: addr}); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%q: %v", addr, err)
		}
	}
	c, err := client.New(client.Config{Addr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.RegisterJob(t.Context(), &fleet.Job{}, api.JobRegisterRequest{})
	var dial *net.OpError
	if fleet.CodeOf(err) != fleet.CodeUnavailable || client.StatusOf(err) != 0 || !errors.As(err, &dial) {
		t.Errorf("%v", err)
	}
}

func TestFind(t *testing.T) {
	c := mustServe(t, func(w http.ResponseWriter, r *http.Request) {
		prefix := r.URL.Query().Get("prefix")
		var list []any
		for _, id := range []string{"aa11", "aa22", "bb33", "job", "job-2"} {
			if strings.HasPrefix(id, prefix) {
				list = append(list, map[string]string{"ID": id, "Name": "name-" + id, "JobID": "j"})
			}
		}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	})
	if a, err := c.FindAlloc(t.Context(), "BB"); err != nil || a.ID != "bb33" {
		t.Errorf("upper case: %+v, %v", a, err)
	}
	if _, err := c.FindAlloc(t.Context(), "aa"); fleet.CodeOf(err) != fleet.CodeConflict || !strings.Contains(err.Error(), "aa11 (name-aa11), aa22 (name-aa22)") {
		t.Errorf("ambiguous: %v", err)
	}
	if _, err := c.FindEval(t.Context(), "cc"); fleet.CodeOf(err) != fleet.CodeNotFound || !strings.Contains(err.Error(), `no evaluation begins with "cc"`) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := c.FindEval(t.Context(), ""); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("empty: %v", err)
	}
	if j, err := c.FindJob(t.Context(), "job"); err != nil || j.ID != "job" {
		t.Errorf("exact: %+v, %v", j, err)
	}
	if n, err := c.FindNode(t.Context(), "name-aa22"); err != nil || n.ID != "aa22" {
		t.Errorf("by name: %+v, %v", n, err)
	}
	if n, err := c.FindNode(t.Context(), "bb"); err != nil || n.ID != "bb33" {
		t.Errorf("by id: %+v, %v", n, err)
	}
	if _, err := c.FindNode(t.Context(), "name"); fleet.CodeOf(err) != fleet.CodeNotFound {
		t.Errorf("half a name: %v", err)
	}
}

func mustServe(tb testing.TB, h http.HandlerFunc) *client.Client {
	tb.Helper()
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	c, err := client.New(client.Config{Addr: server.URL})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
