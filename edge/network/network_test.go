package network_test

import (
	"log/slog"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/rawexec"
	"skerry/drivers/sim"
	"skerry/edge/network"
	"skerry/edge/runner"
	"skerry/fleet"
)

// hostOnly is a driver that can run in the edge's own network alone.
type hostOnly struct{ drivers.Driver }

func (hostOnly) Capabilities() drivers.Capabilities {
	return drivers.Capabilities{FSIsolation: drivers.FSNone, Networks: []string{fleet.NetworkHost}}
}

// TestDriversAndModes: a task is refused, with a reason, if its driver cannot give the mode, hostname or dns that its
// group asks for.
func TestDriversAndModes(t *testing.T) {
	h, err := network.New(network.Config{
		Drivers: map[string]drivers.Driver{sim.Name: sim.New(sim.NewSimMachine()), rawexec.Name: mustRawExec(t), "host_only": hostOnly{}},
		Dir:     t.TempDir(), RunDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	dns := &fleet.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"shop"}, Options: []string{"ndots:1"}}
	for name, tc := range map[string]struct {
		driver  string
		network fleet.NetworkResource
		want    string // of the error; "": none
	}{
		"no network":         {rawexec.Name, fleet.NetworkResource{}, ""},
		"host":               {rawexec.Name, fleet.NetworkResource{Mode: "host"}, ""},
		"a mode":             {"host_only", fleet.NetworkResource{Mode: "bridge"}, `cannot run in a network of mode "bridge"`},
		"a named network":    {"host_only", fleet.NetworkResource{Mode: "cni/lan"}, `cannot run in a network of mode "cni/lan"`},
		"dns":                {rawexec.Name, fleet.NetworkResource{DNS: dns}, "can set neither dns nor a hostname"},
		"a name in a bridge": {rawexec.Name, fleet.NetworkResource{Mode: "bridge", Hostname: "till"}, "can set neither dns nor a hostname"},
		"a host name":        {rawexec.Name, fleet.NetworkResource{Hostname: "till"}, "can set neither dns nor a hostname"},
		"dns where it can":   {sim.Name, fleet.NetworkResource{DNS: dns, Hostname: "till"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := &fleet.Job{TaskGroups: []fleet.TaskGroup{{Name: "g", Networks: []fleet.NetworkResource{tc.network}, Tasks: []fleet.Task{{Name: "t", Driver: tc.driver}}}}}
			p := &runner.Preparation{
				Alloc: fleet.Alloc{ID: "a", Job: j, TaskGroup: "g", Allotment: &fleet.AssignedResources{Ports: []fleet.AssignedPort{{Label: "http", Value: 80}}}},
				Task:  &j.TaskGroups[0].Tasks[0], Config: &drivers.TaskConfig{},
			}
			err := h.Prepare(t.Context(), p)
			switch n := p.Config.Network; {
			case tc.want == "" && (err != nil || n.Mode != fleet.NetworkHost || n.Hostname != tc.network.Hostname || (n.DNS == nil) != (tc.network.DNS == nil) || len(n.Ports) != 1):
				t.Errorf("%+v, %v", n, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || drivers.IsRecoverable(err)):
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestConfiguration(t *testing.T) {
	good := network.Config{Dir: "/x", Log: slog.New(slog.DiscardHandler)}
	for name, change := range map[string]func(*network.Config){
		"a subnet":      func(c *network.Config) { c.Subnet = "172.26.64.0" },
		"an IPv6 one":   func(c *network.Config) { c.Subnet = "fd00::/64" },
		"a bridge":      func(c *network.Config) { c.Bridge = "a/b" },
		"no directory":  func(c *network.Config) { c.Dir = "" },
		"a long bridge": func(c *network.Config) { c.Bridge = strings.Repeat("x", 16) },
	} {
		c := good
		change(&c)
		if _, err := network.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := network.New(good); err != nil {
		t.Error(err)
	}
}

func TestPluginVersion(t *testing.T) {
	for text, want := range map[string]string{
		"CNI bridge plugin v1.5.1\nCNI protocol versions supported: 0.1.0, 1.0.0\n":               "v1.5.1",
		"CNI bridge plugin version unknown\nCNI protocol versions supported: 0.1.0, 0.4.0, 1.0.0": "v1.0.0",
		"usage: bridge": "",
	} {
		if got := network.ParsePluginVersion(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzDecode: nothing that lies on the disk of an edge makes it panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"Version":1,"Plugins":[{"type":"bridge"}],"Ports":[{"hostPort":1}],"Result":{}}`))
	f.Add([]byte(`{"name":"lan","cniVersion":"0.4.0","plugins":[{"type":"ptp"}]}`))
	f.Add([]byte(`{"name":"lan","type":"../ptp"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := network.DecodeState(b); err == nil && s.Version != 1 {
			t.Errorf("version %d", s.Version)
		}
		if c, err := network.DecodeNetworkConfig(b); err == nil && (c.Name == "" || len(c.Plugins) == 0) {
			t.Errorf("%+v", c)
		}
		network.ParsePluginVersion(string(b))
	})
}

// mustRawExec returns the driver raw_exec, which has the edge's own files and network.
func mustRawExec(tb testing.TB) drivers.Driver {
	tb.Helper()
	d, err := rawexec.New(rawexec.Config{BootID: "boot", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}
