package drivers_test

import (
	"os"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/fleet"
)

func TestNetworkFiles(t *testing.T) {
	n := drivers.Network{
		Hostname: "till", IP: "10.0.0.7", Hosts: []string{"10.0.0.9 printer"},
		DNS: &fleet.DNSConfig{Servers: []string{"10.0.0.53", "10.0.0.54"}, Searches: []string{"shop", "hq"}, Options: []string{"ndots:2"}},
	}
	if got, want := n.ResolvConf(), "nameserver 10.0.0.53\nnameserver 10.0.0.54\nsearch shop hq\noptions ndots:2\n"; got != want {
		t.Errorf("resolv.conf: %q, want %q", got, want)
	}
	if got, want := n.HostsFile(), "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n10.0.0.7 till\n10.0.0.9 printer\n"; got != want {
		t.Errorf("hosts: %q, want %q", got, want)
	}
}

// TestResolversOfTheMachine: a network that names no servers has those of the machine.
func TestResolversOfTheMachine(t *testing.T) {
	b, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Skip(err)
	}
	var want []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "nameserver ") {
			want = append(want, strings.TrimSpace(line))
		}
	}
	got := drivers.Network{DNS: &fleet.DNSConfig{Searches: []string{"shop"}}}.ResolvConf()
	if !strings.HasPrefix(got, strings.Join(append(want, "search shop\n"), "\n")) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (drivers.Network{}).ResolvConf(); got != string(b) {
		t.Errorf("without dns: %q, want the machine's", got)
	}
}
