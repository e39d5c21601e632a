package consul_test

import (
	"encoding/pem"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/edge/consul"
	"skerry/edge/consul/consultest"
	"skerry/edge/logins"
	"skerry/fleet"
	"skerry/fleet/template"
)

var attributes = map[string]string{
	"consul.version": "1.21.0", "consul.datacenter": "dc7", "consul.revision": "f4f0f4eb", "consul.server": "false", "consul.sku": "oss",
	"unique.consul.name": "shop-17", "skerry.consul_login": "1",
}

// The node has the attributes of the agent from its first answer on, also while it is away later.
func TestAttributes(t *testing.T) {
	agent := consultest.New()
	c, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", Transport: agent})
	if err != nil {
		t.Fatal(err)
	}
	agent.FailNetwork(errors.New("connection refused"))
	if got := c.Attributes(t.Context()); len(got) != 0 {
		t.Errorf("an agent that never answered has %v", got)
	}
	agent.FailNetwork(nil)
	for _, away := range []error{nil, errors.New("connection refused")} {
		agent.FailNetwork(away)
		if got := c.Attributes(t.Context()); !maps.Equal(got, attributes) {
			t.Errorf("%v: attributes %v, want %v", away, got, attributes)
		}
	}
}

// The agent is reached by each kind of address, with the token as the file has it now.
func TestAddresses(t *testing.T) {
	agent := consultest.New()
	plain, secure := httptest.NewServer(agent), httptest.NewTLSServer(agent)
	defer plain.Close()
	defer secure.Close()
	dir := t.TempDir()
	socket, token, ca := filepath.Join(dir, "consul.sock"), filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	onSocket := &httptest.Server{Listener: l, Config: &http.Server{Handler: agent}}
	onSocket.Start()
	defer onSocket.Close()
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []consul.ClientConfig{
		{Address: plain.Listener.Addr().String()}, {Address: plain.URL + "/"}, {Address: secure.URL, CAFile: ca}, {Address: "unix://" + socket},
	} {
		cfg.TokenFile = token
		c, err := consul.NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			token string
			want  int
		}{{"other", 0}, {"secret\n", len(attributes)}} {
			agent.RequireToken("secret")
			if err := os.WriteFile(token, []byte(tc.token), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := c.Attributes(t.Context()); len(got) != tc.want {
				t.Errorf("%s with token %q: %v", cfg.Address, tc.token, got)
			}
		}
	}
	c, err := consul.NewClient(consul.ClientConfig{Address: secure.URL})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Attributes(t.Context()); len(got) != 0 {
		t.Errorf("an agent with an unknown certificate is believed: %v", got)
	}
}

// The token goes to the agent alone: a redirect is not followed.
func TestRedirectsAreNotFollowed(t *testing.T) {
	agent := httptest.NewServer(consultest.New())
	defer agent.Close()
	away := httptest.NewServer(http.RedirectHandler(agent.URL+"/v1/agent/self", http.StatusFound))
	defer away.Close()
	c, err := consul.NewClient(consul.ClientConfig{Address: away.URL})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Attributes(t.Context()); len(got) != 0 {
		t.Errorf("followed a redirect: %v", got)
	}
}

func TestInvalidClients(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []consul.ClientConfig{
		{}, {Address: "127.0.0.1"}, {Address: ":8500"}, {Address: "ftp://127.0.0.1:8500"}, {Address: "http://127.0.0.1:8500/v1"},
		{Address: "http://a:b@127.0.0.1:8500"}, {Address: "unix://"}, {Address: "127.0.0.1:8500", CAFile: empty},
	} {
		if _, err := consul.NewClient(cfg); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, cfg := range []consul.ClientConfig{
		{Address: "127.0.0.1:8500", CAFile: empty + "x"}, {Address: "127.0.0.1:8500", CertFile: empty, KeyFile: empty},
	} {
		if _, err := consul.NewClient(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

// TestLoginsArePrivate: no task logs in at an agent on another machine without TLS.
func TestLoginsArePrivate(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1:8500": "", "https://192.0.2.1:8501": "1", "localhost:8500": "1", "unix:///run/consul.sock": "1"} {
		c, err := consul.NewClient(consul.ClientConfig{Address: address, Transport: consultest.New()})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Attributes(t.Context())[fleet.AttributeConsulLogin]; got != want || c.LetsLogIn() != (want != "") {
			t.Errorf("%s: %q", address, got)
		}
	}
}

// FuzzDecodeSelf feeds the answer of an agent that may say anything.
func FuzzDecodeSelf(f *testing.F) {
	f.Add([]byte(`{"Config":{"Version":"1.21.0+ent","Datacenter":"dc1"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if attributes, err := consul.DecodeSelf(b); (err == nil) != (attributes != nil) {
			t.Errorf("%q, %v", attributes, err)
		}
	})
}

// FuzzQueryName: what is taken is asked for below /v1/kv/, and says its own key.
func FuzzQueryName(f *testing.F) {
	for _, s := range []string{"a/b", "/a/b/", "a@dc1", "a/../b", "a b?c#d", "ä", "%2e%2e/a"} {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, key string, below bool) {
		name, err := consul.QueryName(template.KeyQuery{Key: key, Below: below})
		if err != nil {
			return
		}
		asked := ""
		client, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", Transport: roundTrip(func(r *http.Request) { asked = r.URL.EscapedPath() })})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = client.Read(t.Context(), logins.Record{Token: "x"}, name)
		if asked != "" && (!strings.HasPrefix(asked, "/v1/kv/") || strings.Contains("/"+asked+"/", "/../")) {
			t.Errorf("%q asks for %q", key, asked)
		}
	})
}

// roundTrip notes a request, and fails.
type roundTrip func(r *http.Request)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return nil, errors.New("no network")
}

// FuzzLoginAnswers feeds the answers of a Consul that may say anything: tokens are such, leases are not negative, and what was
// read can be read from the journal.
func FuzzLoginAnswers(f *testing.F) {
	for _, s := range []string{`{"SecretID":"x","CreateTime":"2026-01-01T00:00:00Z","ExpirationTime":"2026-01-01T01:00:00Z"}`, `[{"Key":"a","Value":"YQ==","Flags":1}]`, `[{"Value":null}]`, `null`, `{"SecretID":"a\nb"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		client, err := consul.NewClient(consul.ClientConfig{Address: "127.0.0.1:8500", Transport: answers(b)})
		if err != nil {
			t.Fatal(err)
		}
		if token, err := client.LogIn(t.Context(), logins.Task{}, "jwt"); err == nil && (!logins.IsToken(token.Text) || token.Lease < 0) {
			t.Errorf("%s: %+v", b, token)
		}
		if left, err := client.Extend(t.Context(), logins.Record{Token: "x"}, false); err == nil && left < 0 {
			t.Errorf("%s: %d seconds", b, left)
		}
		for _, name := range []string{"key a", "below a"} {
			c, err := client.Read(t.Context(), logins.Record{Token: "x"}, name)
			if err == nil && (c.Name != name || client.CheckContent(c) != nil) {
				t.Errorf("%s: %s", b, c.Body)
			}
			_ = client.CheckContent(logins.Content{Body: b})
		}
	})
}

// answers is a body that answers each request.
type answers []byte

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	_, _ = w.Write(a)
	return w.Result(), nil
}
