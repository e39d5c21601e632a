package templates_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/fleet"
)

// routeTable has two default routes; the one over lo has the lower metric.
const routeTable = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
far0	00000000	010200C0	0003	0	0	100	00000000	0	0	0
lo	00000000	010200C0	0003	0	0	5	00000000	0	0	0
lo	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
`

// TestSockaddr: the line that public job files have, and those that need no default route.
func TestSockaddr(t *testing.T) {
	const first = `{{ sockaddr "with $ifAddrs := GetDefaultInterfaces | include \"type\" \"IPv4\" | limit 1 -}}{{- range $ifAddrs -}}{{ attr \"address\" . }}{{ end }}{{ end " }}`
	m := newMachine(t,
		fleet.Template{EmbeddedTmpl: first, DestPath: "local/default"},
		fleet.Template{EmbeddedTmpl: `{{ sockaddr "GetAllInterfaces | include \"name\" \"^lo$\" | include \"type\" \"IPv4\" | attr \"name\"" }}`, DestPath: "local/all"})
	m.routes = filepath.Join(t.TempDir(), "route")
	if err := os.WriteFile(m.routes, []byte(routeTable), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.prepare(); err != nil {
		t.Fatal(err)
	}
	m.mustHave(t, "web/local/default", "127.0.0.1")
	m.mustHave(t, "web/local/all", "lo")
}

// TestSockaddrAddressesOfThisMachine: whatever addresses the machine has, a private one is none of the public ones.
func TestSockaddrAddressesOfThisMachine(t *testing.T) {
	m := newMachine(t, fleet.Template{EmbeddedTmpl: `{{ sockaddr "GetPrivateIP" }} {{ sockaddr "GetPublicIP" }}`, DestPath: "local/ip"})
	if err := m.prepare(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(m.dir, "allocs/a/web/local/ip"))
	if err != nil {
		t.Fatal(err)
	}
	private, public, _ := strings.Cut(string(text), " ")
	for _, ip := range []string{private, public} {
		if ip != "" && (net.ParseIP(ip) == nil || net.ParseIP(ip).IsLoopback()) {
			t.Errorf("%q is an address of this machine", ip)
		}
	}
	if private != "" && private == public {
		t.Errorf("%s is private and public", private)
	}
}

// TestSockaddrThatFails: a machine without a default route may get one; a wrong template stays wrong.
func TestSockaddrThatFails(t *testing.T) {
	for text, want := range map[string]struct {
		message string
		again   bool
	}{
		`{{ sockaddr "GetDefaultInterfaces" }}`:                {"this machine has no default route", true},
		`{{ sockaddr "GetAllInterfaces | sort \"default\"" }}`: {`sort by "default" is not supported`, false},
		`{{ sockaddr "GetNothing" }}`:                          {`function "GetNothing" not defined`, false},
	} {
		m := newMachine(t, fleet.Template{EmbeddedTmpl: text, DestPath: "local/x"})
		m.routes = filepath.Join(t.TempDir(), "route")
		if err := os.WriteFile(m.routes, []byte("Iface\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		m.mustFail(t, want.message, want.again)
	}
}
