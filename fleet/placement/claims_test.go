package placement_test

import (
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/placement"
	"skerry/fleet/taskenv"
)

func portGroup(ports ...fleet.Port) *fleet.TaskGroup {
	n := fleet.NetworkResource{Mode: fleet.NetworkHost}
	for _, p := range ports {
		if p.Value > 0 {
			n.ReservedPorts = append(n.ReservedPorts, p)
		} else {
			n.DynamicPorts = append(n.DynamicPorts, p)
		}
	}
	return &fleet.TaskGroup{Name: "web", Networks: []fleet.NetworkResource{n}, Tasks: []fleet.Task{{Name: "t"}}}
}

// mustAssign takes what a group needs, or fails where the outcome is not the wanted
// one ("" for success).
func mustAssign(tb testing.TB, c *placement.Claims, g *fleet.TaskGroup, want string) *fleet.AssignedResources {
	tb.Helper()
	a, _, why := c.Offer(g, 0)
	if !strings.Contains(why, want) || (want == "") != (why == "") {
		tb.Fatalf("got %q, want %q", why, want)
	}
	if clash := c.Hold(a); clash != "" {
		tb.Fatalf("what was offered clashes: %s", clash)
	}
	return a
}

func TestPorts(t *testing.T) {
	t.Run("B73", func(t *testing.T) {
		c := placement.NewClaims(&fleet.Node{})
		g := portGroup(fleet.Port{Label: "http", Value: 80}, fleet.Port{Label: "a"}, fleet.Port{Label: "b", To: -1})
		a := mustAssign(t, c, g, "")
		if len(a.Ports) != 3 || a.Ports[0].Value != 80 || a.Ports[1].Value == a.Ports[2].Value || a.Ports[2].To != a.Ports[2].Value {
			t.Errorf("ports %+v", a.Ports)
		}
		for _, p := range a.Ports[1:] {
			if p.Value < fleet.MinDynamicPort || p.Value > fleet.MaxDynamicPort {
				t.Errorf("dynamic port %d", p.Value)
			}
		}
		mustAssign(t, c, g, "reserved port collision http=80")
		if clash := c.Hold(a); clash == "" {
			t.Error("held twice, and nobody minds")
		}
	})
	t.Run("B74", func(t *testing.T) {
		n := &fleet.Node{MinDynamicPort: 20000, MaxDynamicPort: 20001}
		a := mustAssign(t, placement.NewClaims(n), portGroup(fleet.Port{Label: "a"}, fleet.Port{Label: "b"}), "")
		if a.Ports[0].Value == a.Ports[1].Value {
			t.Errorf("ports %+v", a.Ports)
		}
		n.MaxDynamicPort = 20000
		mustAssign(t, placement.NewClaims(n), portGroup(fleet.Port{Label: "a"}, fleet.Port{Label: "b"}), "dynamic port selection failed")
	})
	t.Run("B76", func(t *testing.T) {
		n := &fleet.Node{HostNetworks: []fleet.HostNetwork{{Name: "lan", IP: "192.0.2.1"}, {Name: "lan", IP: "192.0.2.2"}}}
		c := placement.NewClaims(n)
		g := portGroup(fleet.Port{Label: "x", Value: 7000, HostNetwork: "lan"})
		if a, b := mustAssign(t, c, g, ""), mustAssign(t, c, g, ""); a.Ports[0].HostIP == b.Ports[0].HostIP {
			t.Errorf("both on %s", a.Ports[0].HostIP)
		}
		mustAssign(t, c, g, "reserved port collision x=7000")
		mustAssign(t, c, portGroup(fleet.Port{Label: "y", HostNetwork: "wan"}), "no host network wan")
	})
	t.Run("B77", func(t *testing.T) {
		c := placement.NewClaims(&fleet.Node{})
		mustAssign(t, c, portGroup(fleet.Port{Label: "a", Value: 10, IgnoreCollision: true}), "")
		mustAssign(t, c, portGroup(fleet.Port{Label: "b", Value: 10, IgnoreCollision: true}), "")
		mustAssign(t, c, portGroup(fleet.Port{Label: "c", Value: 10}), "c=10")
	})
	t.Run("reserved", func(t *testing.T) {
		c := placement.NewClaims(&fleet.Node{ReservedPorts: "22,8000-8100"})
		mustAssign(t, c, portGroup(fleet.Port{Label: "a", Value: 22}), "a=22")
		mustAssign(t, c, portGroup(fleet.Port{Label: "a", Value: 8100}), "a=8100")
		mustAssign(t, c, portGroup(fleet.Port{Label: "a", Value: 8101}), "")
	})
	t.Run("an address that is gone", func(t *testing.T) {
		c := placement.NewClaims(&fleet.Node{Attributes: map[string]string{"unique.network.ip-address": "192.0.2.2"}})
		c.Hold(&fleet.AssignedResources{Ports: []fleet.AssignedPort{{Label: "a", Value: 99, HostIP: "192.0.2.1"}}})
		mustAssign(t, c, portGroup(fleet.Port{Label: "a", Value: 99}), "a=99")
	})
}

func TestParsePorts(t *testing.T) {
	t.Run("B79", func(t *testing.T) {
		set, err := placement.ParsePorts("1-3,2-4, 65535")
		if err != nil || !set.Has(1) || !set.Has(4) || set.Has(5) || !set.Has(65535) {
			t.Errorf("%v", err)
		}
		for _, bad := range []string{"-1", "0", "0-1", "3-1", "65536", "1-65536", "9223372036854775807", "a", "1,", strings.Repeat("1,", 5000) + "1"} {
			if _, err := placement.ParsePorts(bad); err == nil {
				t.Errorf("%.20q was taken", bad)
			}
			if placement.ValidatePorts((&fleet.Node{ReservedPorts: bad})) == nil {
				t.Errorf("a node that reserves %.20q is valid", bad)
			}
		}
		if placement.ValidatePorts((&fleet.Node{MinDynamicPort: 30000, MaxDynamicPort: 20000})) == nil {
			t.Error("an empty range of dynamic ports is valid")
		}
	})
}

func FuzzParsePorts(f *testing.F) {
	f.Add("22,80,8000-8100")
	f.Add("1-65535")
	f.Fuzz(func(t *testing.T, spec string) {
		if set, err := placement.ParsePorts(spec); err == nil && set.Has(0) {
			t.Error("port 0 is in it")
		}
	})
}

func gpus(vendor, model string, n int) []fleet.Device {
	var out []fleet.Device
	for i := range n {
		out = append(out, fleet.Device{Kind: "pci", Vendor: vendor, Type: "gpu", Name: model, ID: model + "-" + string(rune('a'+i)),
			Attributes: map[string]string{"memory": map[string]string{"1080ti": "11", "2080ti": "24"}[model]}})
	}
	return out
}

func deviceGroup(r fleet.RequestedDevice) *fleet.TaskGroup {
	return &fleet.TaskGroup{Name: "web", Tasks: []fleet.Task{{Name: "t", Resources: fleet.TaskResources{Devices: []fleet.RequestedDevice{r}}}}}
}

func TestDevices(t *testing.T) {
	t.Run("B71", func(t *testing.T) {
		n := &fleet.Node{Devices: append(gpus("nvidia", "1080ti", 4), gpus("nvidia", "2080ti", 2)...)}
		c := placement.NewClaims(n)
		first := mustAssign(t, c, deviceGroup(fleet.RequestedDevice{Name: "nvidia/gpu/1080ti", Count: 2}), "")
		second := mustAssign(t, c, deviceGroup(fleet.RequestedDevice{Name: "nvidia/gpu/1080ti", Count: 2}), "")
		if both := append(first.DeviceIDs(), second.DeviceIDs()...); len(slices.Compact(slices.Sorted(slices.Values(both)))) != 4 {
			t.Errorf("given %v", both)
		}
		mustAssign(t, c, deviceGroup(fleet.RequestedDevice{Name: "nvidia/gpu/1080ti", Count: 1}), "no nvidia/gpu/1080ti free")
		mustAssign(t, c, deviceGroup(fleet.RequestedDevice{Name: "amd/gpu", Count: 1}), "no amd/gpu free")
		if a := mustAssign(t, c, deviceGroup(fleet.RequestedDevice{Name: "gpu"}), ""); a.Tasks["t"].Devices[0].Name != "2080ti" {
			t.Errorf("given %+v", a)
		}
		mustAssign(t, c, deviceGroup(fleet.RequestedDevice{Name: "gpu", Count: 2}), "no gpu free")
	})
	t.Run("wishes", func(t *testing.T) {
		n := &fleet.Node{Devices: append(gpus("nvidia", "1080ti", 2), gpus("nvidia", "2080ti", 2)...)}
		memory := fleet.Constraint{LTarget: "${device.attr.memory}", Operand: ">", RTarget: "20"}
		r := fleet.RequestedDevice{Name: "gpu", Count: 1, Constraints: []fleet.Constraint{memory}}
		if a := mustAssign(t, placement.NewClaims(n), deviceGroup(r), ""); a.Tasks["t"].Devices[0].Name != "2080ti" {
			t.Errorf("the constraint: %+v", a)
		}
		r = fleet.RequestedDevice{Name: "gpu", Count: 1, Affinities: []fleet.Affinity{
			{LTarget: "${device.model}", Operand: "=", RTarget: "2080ti", Weight: 50}, {LTarget: "${device.model}", Operand: "=", RTarget: "1080ti", Weight: -50},
		}}
		a, liked, _ := placement.NewClaims(n).Offer(deviceGroup(r), 0)
		if a.Tasks["t"].Devices[0].Name != "2080ti" || liked != 0.5 {
			t.Errorf("the affinities: %+v, %v", a, liked)
		}
	})
}

func TestCores(t *testing.T) {
	n := &fleet.Node{Attributes: map[string]string{"cpu.numcores": "4"}, Resources: fleet.Resources{CPU: 8000}}
	g := &fleet.TaskGroup{Tasks: []fleet.Task{
		{Name: "a", Resources: fleet.TaskResources{Resources: fleet.Resources{Cores: 1}}},
		{Name: "b", Resources: fleet.TaskResources{Resources: fleet.Resources{Cores: 2}}},
	}}
	c := placement.NewClaims(n)
	a := mustAssign(t, c, g, "")
	if !slices.Equal(a.CoreIDs(), []int{0, 1, 2}) || len(a.Tasks["b"].Cores) != 2 || n.CoreMHz() != 2000 {
		t.Errorf("given %+v", a)
	}
	mustAssign(t, c, g, "cores")
}

// B68: what runs before the main tasks does not need its room beside them.
func TestLifecycleResources(t *testing.T) {
	task := func(name string, cpu int, l *fleet.Lifecycle) fleet.Task {
		return fleet.Task{Name: name, Lifecycle: l, Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: cpu}}}
	}
	for _, c := range []struct{ cpu, main, prestart, sidecar, want int }{
		{500, 1, 1, 1, 1000}, {700, 1, 1, 1, 1400}, {100, 3, 5, 5, 1000}, {100, 10, 10, 10, 2000}, {1000, 10, 10, 10, 20000},
	} {
		g := &fleet.TaskGroup{}
		for range c.main {
			g.Tasks = append(g.Tasks, task("m", c.cpu, nil))
		}
		for range c.prestart {
			g.Tasks = append(g.Tasks, task("p", c.cpu, &fleet.Lifecycle{Hook: fleet.HookPrestart}))
		}
		for range c.sidecar {
			g.Tasks = append(g.Tasks, task("s", c.cpu, &fleet.Lifecycle{Hook: fleet.HookPrestart, Sidecar: true}))
		}
		if got := g.Resources().CPU; got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestAllottedVariables(t *testing.T) {
	a := &fleet.Alloc{Name: "j.g[0]", Allotment: &fleet.AssignedResources{
		Ports: []fleet.AssignedPort{{Label: "http", Value: 20001, To: 8080, HostIP: "192.0.2.1"}, {Label: "my-admin", Value: 22222, HostIP: "192.0.2.1"}},
		Tasks: map[string]fleet.AssignedTaskResources{"t": {Cores: []int{2, 3}}},
	}}
	vars := taskenv.New(taskenv.Place{Alloc: a, Task: "t"}).Vars()
	for k, want := range map[string]string{
		"NOMAD_PORT_http": "8080", "NOMAD_HOST_PORT_http": "20001", "NOMAD_ADDR_http": "192.0.2.1:8080", "NOMAD_HOST_ADDR_http": "192.0.2.1:20001",
		"NOMAD_IP_http": "192.0.2.1", "NOMAD_PORT_my_admin": "22222", "NOMAD_ADDR_my_admin": "192.0.2.1:22222", "NOMAD_CPU_CORES": "2,3",
	} {
		if vars[k] != want {
			t.Errorf("%s is %q, want %q", k, vars[k], want)
		}
	}
}

// TestTaskPorts: a port in the network block of a task is one of its allocation, and has the names of old job files.
func TestTaskPorts(t *testing.T) {
	own := fleet.TaskResources{Networks: []fleet.NetworkResource{{ReservedPorts: []fleet.Port{{Label: "fixed", Value: 80}}, DynamicPorts: []fleet.Port{{Label: "db"}}}}}
	j := &fleet.Job{ID: "j", Name: "j", TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{{Name: "my-task", Resources: own}, {Name: "other"}}}}}
	g := &j.TaskGroups[0]
	if !g.NeedsAssignedResources() {
		t.Fatal("the group asks for no ports")
	}
	a := &fleet.Alloc{Name: "j.g[0]", TaskGroup: "g", Job: j, Allotment: &fleet.AssignedResources{Ports: []fleet.AssignedPort{
		{Label: "fixed", Value: 80, HostIP: "192.0.2.1"}, {Label: "db", Value: 20001, HostIP: "192.0.2.1"},
	}}}
	for _, task := range []string{"my-task", "other"} {
		vars := taskenv.New(taskenv.Place{Alloc: a, Task: task}).Vars()
		for k, want := range map[string]string{
			"NOMAD_PORT_db": "20001", "NOMAD_ADDR_db": "192.0.2.1:20001", "NOMAD_PORT_fixed": "80",
			"NOMAD_PORT_my_task_db": "20001", "NOMAD_IP_my_task_db": "192.0.2.1", "NOMAD_ADDR_my_task_db": "192.0.2.1:20001",
		} {
			if vars[k] != want {
				t.Errorf("%s of %s is %q, want %q", k, task, vars[k], want)
			}
		}
	}
}
