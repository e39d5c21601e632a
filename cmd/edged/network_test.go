package edged_test

import (
	"log/slog"
	"testing"

	"github.com/spf13/pflag"

	"skerry/cmd/edged"
	"skerry/fleet"
)

// mustDescribe returns the node that an edge with these flags would describe.
func mustDescribe(tb testing.TB, args ...string) (fleet.Node, error) {
	tb.Helper()
	var f edged.Flags
	flags := pflag.NewFlagSet("edge", pflag.ContinueOnError)
	f.Add(flags)
	if err := flags.Parse(append(args, "--data-dir="+tb.TempDir())); err != nil {
		tb.Fatal(err)
	}
	cfg, err := f.EdgeConfig(slog.New(slog.DiscardHandler), "1")
	if err != nil {
		return fleet.Node{}, err
	}
	d, err := cfg.Describe(fleet.Node{ID: "n"})
	if err != nil {
		tb.Fatal(err)
	}
	n, err := d.Read(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return n, nil
}

func TestAddressThatAnEdgeAdvertises(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"that it dials hubs from", []string{"--hub=127.0.0.1:4647"}, "127.0.0.1"},
		{"that it is bound to", []string{"--hub=127.0.0.1:4647", "--bind=127.0.0.3"}, "127.0.0.3"},
		{"bound to any", []string{"--hub=127.0.0.1:4647", "--bind=0.0.0.0"}, "127.0.0.1"},
		{"that it is told", []string{"--hub=127.0.0.1:4647", "--bind=127.0.0.3", "--advertise=10.9.8.7"}, "10.9.8.7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := mustDescribe(t, tc.args...)
			if err != nil || n.Attributes[fleet.AttributeIPAddress] != tc.want {
				t.Errorf("%q (%v), want %q", n.Attributes[fleet.AttributeIPAddress], err, tc.want)
			}
		})
	}
}

func TestNetworksAndPorts(t *testing.T) {
	plain, err := mustDescribe(t)
	if err != nil || plain.HostNetworks != nil || plain.ReservedPorts != "" || plain.MinDynamicPort != 0 || plain.MaxDynamicPort != 0 {
		t.Errorf("%+v, %v: what holds anyway is said", plain, err)
	}
	n, err := mustDescribe(t, "--host-network=lan=10.0.0.5,wan=192.0.2.7", "--reserved-ports=22,8000-8100", "--min-dynamic-port=21000", "--max-dynamic-port=21010")
	if err != nil || len(n.HostNetworks) != 2 || n.HostNetworks[1] != (fleet.HostNetwork{Name: "wan", IP: "192.0.2.7"}) ||
		n.ReservedPorts != "22,8000-8100" || n.MinDynamicPort != 21_000 || n.MaxDynamicPort != 21_010 {
		t.Errorf("%+v, %v", n, err)
	}
	for _, bad := range []string{
		"--advertise=here", "--host-network=lan", "--host-network==10.0.0.5", "--host-network=lan=there",
		"--reserved-ports=70000", "--min-dynamic-port=33000", "--max-dynamic-port=-1",
	} {
		if _, err := mustDescribe(t, bad); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
