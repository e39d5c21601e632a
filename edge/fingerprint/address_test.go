package fingerprint_test

import (
	"encoding/hex"
	"net"
	"testing"

	"skerry/edge/fingerprint"
	"skerry/fleet"
)

func TestAddressIsTheOneThatHubsAreDialedFrom(t *testing.T) {
	for _, hubs := range [][]string{{"127.0.0.1:4647"}, {"hub.example:4647", "127.0.0.9:4647"}} {
		if got := fingerprint.Address(hubs); got != "127.0.0.1" {
			t.Errorf("hubs %v: address %q", hubs, got)
		}
	}
	for _, hubs := range [][]string{nil, {"hub.example:4647"}, {"not an address"}} {
		if got := fingerprint.Address(hubs); got != "" && net.ParseIP(got) == nil {
			t.Errorf("hubs %v: address %q", hubs, got)
		}
	}
}

func TestFirstGlobal(t *testing.T) {
	for _, tc := range []struct {
		name  string
		addrs []string
		want  string
	}{
		{"none", nil, ""},
		{"loopback and link-local", []string{"127.0.0.1/8", "::1/128", "fe80::1/64", "169.254.3.4/16"}, ""},
		{"the first", []string{"127.0.0.1/8", "10.1.2.3/24", "192.168.0.2/24"}, "10.1.2.3"},
		{"IPv4 before IPv6", []string{"fd00::5/64", "10.1.2.3/24"}, "10.1.2.3"},
		{"IPv6 alone", []string{"fe80::1/64", "fd00::5/64"}, "fd00::5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var addrs []net.Addr
			for _, a := range tc.addrs {
				ip, n, err := net.ParseCIDR(a)
				if err != nil {
					t.Fatal(err)
				}
				addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
			}
			if got := fingerprint.FirstGlobal(addrs); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// A machine that moves reports its new address at the next reading.
func TestAddressIsLookedAtAgain(t *testing.T) {
	ip := "10.0.0.5"
	f := mustNew(t, func(cfg *fingerprint.Config) { cfg.Address = func() string { return ip } })
	before := mustRead(t, f)
	ip = "10.0.0.6"
	after := mustRead(t, f)
	if before.Attributes[fleet.AttributeIPAddress] != "10.0.0.5" || after.Attributes[fleet.AttributeIPAddress] != "10.0.0.6" {
		t.Errorf("addresses %q, then %q", before.Attributes[fleet.AttributeIPAddress], after.Attributes[fleet.AttributeIPAddress])
	}
	if after.DescriptionHash == before.DescriptionHash || after.DescriptionHash != hex.EncodeToString(fingerprint.Hash(after)) {
		t.Errorf("hash %s, then %s", before.DescriptionHash, after.DescriptionHash)
	}
	ip = ""
	if _, ok := mustRead(t, f).Attributes[fleet.AttributeIPAddress]; ok {
		t.Error("no address is an attribute")
	}
}
