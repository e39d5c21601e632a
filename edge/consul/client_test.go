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
	"testing"

	"skerry/edge/consul"
	"skerry/edge/consul/consultest"
	"skerry/fleet"
)

var attributes = map[string]string{
	"consul.version": "1.21.0", "consul.datacenter": "dc7", "consul.revision": "f4f0f4eb", "consul.server": "false", "consul.sku": "oss",
	"unique.consul.name": "shop-17",
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
