package oci_test

import (
	"testing"

	"skerry/drivers"
	"skerry/drivers/oci"
	"skerry/fleet"
)

func TestNetworkFiles(t *testing.T) {
	n := drivers.Network{
		Hostname: "till", IP: "10.0.0.7", Hosts: []string{"10.0.0.9 printer"},
		DNS: &fleet.DNSConfig{Servers: []string{"10.0.0.53", "10.0.0.54"}, Searches: []string{"shop", "hq"}, Options: []string{"ndots:2"}},
	}
	if got, want := oci.ResolvConf(n), "nameserver 10.0.0.53\nnameserver 10.0.0.54\nsearch shop hq\noptions ndots:2\n"; got != want {
		t.Errorf("resolv.conf: %q, want %q", got, want)
	}
	if got, want := oci.HostsFile(n), "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n10.0.0.7 till\n10.0.0.9 printer\n"; got != want {
		t.Errorf("hosts: %q, want %q", got, want)
	}
}
