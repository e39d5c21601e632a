package taskenv_test

import (
	"reflect"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/fleet/validate"
)

// allocWithServices is an allocation that offers a service of its group and one of its task, and
// its node.
func allocWithServices() (fleet.Alloc, *fleet.Node) {
	job := &fleet.Job{ID: "shop", Name: "shop", TaskGroups: []fleet.TaskGroup{{
		Name: "web", Count: 1,
		Networks: []fleet.NetworkResource{{DynamicPorts: []fleet.Port{{Label: "http"}, {Label: "lan", HostNetwork: "lan"}}}},
		Services: []fleet.Service{{
			Name: "shop-${node.datacenter}", Provider: fleet.ProviderNomad, PortLabel: "http",
			Tags: []string{"v1", "${attr.kernel.name}"}, CanaryTags: []string{"canary"}, Meta: map[string]string{"floor": "${meta.floor}"},
		}},
		Tasks: []fleet.Task{{Name: "main", Driver: "sim", Services: []fleet.Service{
			{Name: "admin", Provider: fleet.ProviderNomad, PortLabel: "lan"},
		}}},
	}}}
	validate.FillDefaults(job)
	a := fleet.Alloc{
		ID: "a1", Namespace: "default", JobID: "shop", Job: job, TaskGroup: "web", NodeID: "n1",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientRunning, ReportedStatus: fleet.ClientRunning,
		TaskStates: map[string]fleet.TaskState{"main": {State: fleet.TaskRunning}},
		Allotment: &fleet.AssignedResources{Ports: []fleet.AssignedPort{
			{Label: "http", Value: 20_000, HostIP: "10.0.0.5"}, {Label: "lan", Value: 20_001, To: 80, HostIP: "192.0.2.7"},
		}},
		CreateIndex: 7, ModifyIndex: 9,
	}
	n := &fleet.Node{
		ID: "n1", Datacenter: "dc1", Meta: map[string]string{"floor": "2"},
		Attributes:   map[string]string{"kernel.name": "linux", fleet.AttributeIPAddress: "10.0.0.5"},
		HostNetworks: []fleet.HostNetwork{{Name: "lan", IP: "192.0.2.7"}},
	}
	return a, n
}

// runningTask is a task that runs and to which that has happened.
func runningTask(events ...string) fleet.TaskState {
	s := fleet.TaskState{State: fleet.TaskRunning}
	for _, e := range events {
		s.Events = append(s.Events, fleet.TaskEvent{Type: e})
	}
	return s
}

func TestRegistrations(t *testing.T) {
	a, n := allocWithServices()
	got := taskenv.Registrations(&a, n, "global")
	want := []fleet.ServiceRegistration{
		{
			ID: "_nomad-task-a1-group-web-shop-dc1-http", ServiceName: "shop-dc1", Namespace: "default", NodeID: "n1", Datacenter: "dc1",
			JobID: "shop", AllocID: "a1", Tags: []string{"v1", "linux"}, Meta: map[string]string{"floor": "2"}, Address: "10.0.0.5", Port: 20_000,
			Status: fleet.ServiceReachable, CreateIndex: 7, ModifyIndex: 9,
		},
		{
			ID: "_nomad-task-a1-main-admin-lan", ServiceName: "admin", Namespace: "default", NodeID: "n1", Datacenter: "dc1",
			JobID: "shop", AllocID: "a1", Tags: []string{}, Address: "192.0.2.7", Port: 20_001,
			Status: fleet.ServiceReachable, CreateIndex: 7, ModifyIndex: 9,
		},
	}
	wantEqual(t, "registrations", got, want)
}

func TestWhatIsRegistered(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(a *fleet.Alloc, n *fleet.Node)
		want   []string // NAME ADDRESS:PORT STATUS
	}{
		{"pending", func(a *fleet.Alloc, _ *fleet.Node) { a.ClientStatus = fleet.ClientPending }, nil},
		{"told to stop", func(a *fleet.Alloc, _ *fleet.Node) { a.DesiredStatus = fleet.DesiredStop }, nil},
		{"told to stop when a window opens", func(a *fleet.Alloc, _ *fleet.Node) {
			a.DesiredStatus, a.StopWindows = fleet.DesiredStop, []fleet.UpdateWindow{{Cron: "0 2 * * *", Duration: time.Hour}}
		}, []string{"shop-dc1 10.0.0.5 20000 reachable", "admin 192.0.2.7 20001 reachable"}},
		{"ended", func(a *fleet.Alloc, _ *fleet.Node) { a.ClientStatus = fleet.ClientComplete }, nil},
		{"lost", func(a *fleet.Alloc, _ *fleet.Node) { a.ClientStatus = fleet.ClientLost }, nil},
		{"its edge is away", func(a *fleet.Alloc, _ *fleet.Node) { a.ClientStatus = fleet.ClientUnknown },
			[]string{"shop-dc1 10.0.0.5 20000 unreachable", "admin 192.0.2.7 20001 unreachable"}},
		{"its edge went away just now", func(_ *fleet.Alloc, n *fleet.Node) { n.Status = fleet.NodeDisconnected },
			[]string{"shop-dc1 10.0.0.5 20000 unreachable", "admin 192.0.2.7 20001 unreachable"}},
		{"its edge went away before it ran", func(a *fleet.Alloc, _ *fleet.Node) {
			a.ClientStatus, a.ReportedStatus = fleet.ClientUnknown, fleet.ClientPending
		}, nil},
		{"its task waits for a restart", func(a *fleet.Alloc, _ *fleet.Node) {
			a.TaskStates = map[string]fleet.TaskState{"main": {State: fleet.TaskPending}}
		}, []string{"shop-dc1 10.0.0.5 20000 reachable"}},
		{"its task waits to be stopped", func(a *fleet.Alloc, _ *fleet.Node) {
			a.TaskStates = map[string]fleet.TaskState{"main": runningTask(fleet.TaskStarted, fleet.TaskWaitsToStop, fleet.TaskRestored)}
		}, nil},
		{"its task is being stopped", func(a *fleet.Alloc, _ *fleet.Node) {
			a.TaskStates = map[string]fleet.TaskState{"main": runningTask(fleet.TaskStarted, fleet.TaskKilling)}
		}, nil},
		{"another task of the group was stopped", func(a *fleet.Alloc, _ *fleet.Node) {
			a.TaskStates["beside"] = fleet.TaskState{State: fleet.TaskDead, Events: runningTask(fleet.TaskKilling, fleet.TaskTerminated, fleet.TaskKilled).Events}
		}, []string{"admin 192.0.2.7 20001 reachable"}},
		{"its task was started again since", func(a *fleet.Alloc, _ *fleet.Node) {
			a.TaskStates = map[string]fleet.TaskState{"main": runningTask(fleet.TaskKilling, fleet.TaskTerminated, fleet.TaskStarted)}
		}, []string{"shop-dc1 10.0.0.5 20000 reachable", "admin 192.0.2.7 20001 reachable"}},
		{"the machine moved", func(_ *fleet.Alloc, n *fleet.Node) { n.Attributes[fleet.AttributeIPAddress] = "10.0.0.6" },
			[]string{"shop-dc1 10.0.0.6 20000 reachable", "admin 192.0.2.7 20001 reachable"}},
		{"an address of its own", func(a *fleet.Alloc, _ *fleet.Node) { a.Job.TaskGroups[0].Services[0].Address = "shop.example" },
			[]string{"shop-dc1 shop.example 20000 reachable", "admin 192.0.2.7 20001 reachable"}},
		{"a number for a port", func(a *fleet.Alloc, _ *fleet.Node) { a.Job.TaskGroups[0].Services[0].PortLabel = "8080" },
			[]string{"shop-dc1 10.0.0.5 8080 reachable", "admin 192.0.2.7 20001 reachable"}},
		{"no port", func(a *fleet.Alloc, _ *fleet.Node) { a.Job.TaskGroups[0].Services[0].PortLabel = "" },
			[]string{"shop-dc1 10.0.0.5 0 reachable", "admin 192.0.2.7 20001 reachable"}},
		{"a port that is not there", func(a *fleet.Alloc, _ *fleet.Node) { a.Job.TaskGroups[0].Services[0].PortLabel = "nope" },
			[]string{"admin 192.0.2.7 20001 reachable"}},
		{"a number that is no port", func(a *fleet.Alloc, _ *fleet.Node) { a.Job.TaskGroups[0].Services[0].PortLabel = "70000" },
			[]string{"admin 192.0.2.7 20001 reachable"}},
		{"another provider", func(a *fleet.Alloc, _ *fleet.Node) { a.Job.TaskGroups[0].Services[0].Provider = fleet.ProviderConsul },
			[]string{"admin 192.0.2.7 20001 reachable"}},
		// F171: what a name is shows only once it is filled in.
		{"F171", func(a *fleet.Alloc, n *fleet.Node) { n.Datacenter = "not a name" }, []string{"admin 192.0.2.7 20001 reachable"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, n := allocWithServices()
			tc.change(&a, n)
			var got []string
			for _, r := range taskenv.Registrations(&a, n, "global") {
				got = append(got, r.String())
			}
			wantEqual(t, "registrations", got, tc.want)
		})
	}
}

// TestOffersOfConsul: services of Consul are offered as others are, and are in no catalogue of the hubs.
func TestOffersOfConsul(t *testing.T) {
	a, n := allocWithServices()
	s := &a.Job.TaskGroups[0].Services[0]
	s.Provider, s.TaggedAddresses = fleet.ProviderConsul, map[string]string{"wan": "${meta.floor}.example"}
	got := taskenv.Offers(&a, n, "global", fleet.ProviderConsul)
	if len(got) != 1 || got[0].ID != "_nomad-task-a1-group-web-shop-dc1-http" || got[0].Address != "10.0.0.5" || got[0].Port != 20_000 || got[0].Task != "" {
		t.Fatalf("%+v", got)
	}
	wantEqual(t, "tagged addresses", got[0].Service.TaggedAddresses, map[string]string{"wan": "2.example"})
	a.TaskStates["main"] = runningTask(fleet.TaskWaitsToStop)
	if got := taskenv.Offers(&a, n, "global", fleet.ProviderConsul); len(got) != 0 {
		t.Errorf("an allocation that ends offers %+v", got)
	}
}

func TestACanaryHasTagsOfItsOwn(t *testing.T) {
	a, n := allocWithServices()
	a.DeploymentStatus = &fleet.AllocDeployment{Canary: true}
	got := taskenv.Registrations(&a, n, "global")
	wantEqual(t, "tags of the service that has some for canaries", got[0].Tags, []string{"canary"})
	wantEqual(t, "meta", got[0].Meta, map[string]string{"floor": "2"})
	a.Job.TaskGroups[0].Services[0].CanaryMeta = map[string]string{"floor": "test"}
	wantEqual(t, "meta of the canary", taskenv.Registrations(&a, n, "global")[0].Meta, map[string]string{"floor": "test"})
}

// TestAddressModes: tasks have their edge's own address, whichever of the modes that are
// taken a service or its check says.
func TestAddressModes(t *testing.T) {
	for _, mode := range []string{"", fleet.AddressAuto, fleet.AddressHost} {
		a, n := allocWithServices()
		s := &a.Job.TaskGroups[0].Services[0]
		s.AddressMode = mode
		s.Checks = []fleet.ServiceCheck{{Type: fleet.CheckTCP, AddressMode: mode}}
		if got := taskenv.Registrations(&a, n, "global"); len(got) != 2 || got[0].Address != "10.0.0.5" || got[0].Port != 20_000 {
			t.Errorf("address_mode %q: %+v", mode, got)
		}
	}
}

// TestAddressesInside: a service with the mode alloc has the address of its allocation, and its ports inside, once the
// edge has reported them.
func TestAddressesInside(t *testing.T) {
	for _, tc := range []struct {
		label, want string
	}{
		{"http", "admin 172.26.64.2 20000 reachable"}, {"lan", "admin 172.26.64.2 80 reachable"}, {"8080", "admin 172.26.64.2 8080 reachable"},
		{"", "admin 172.26.64.2 0 reachable"}, {"nope", ""}, {"70000", ""},
	} {
		a, n := allocWithServices()
		a.Job.TaskGroups[0].Services = nil
		s := &a.Job.TaskGroups[0].Tasks[0].Services[0]
		s.AddressMode, s.PortLabel = fleet.AddressAlloc, tc.label
		if got := taskenv.Registrations(&a, n, "global"); len(got) != 0 {
			t.Errorf("before its address is known: %v", got)
		}
		a.NetworkStatus = &fleet.NetworkStatus{InterfaceName: "eth0", Address: "172.26.64.2"}
		text := ""
		for _, r := range taskenv.Registrations(&a, n, "global") {
			text += r.String()
		}
		if text != tc.want {
			t.Errorf("port %q: %q, want %q", tc.label, text, tc.want)
		}
	}
}

// TestAddressesOfDrivers: a service with the mode driver has the address of its task, once the edge has reported it.
func TestAddressesOfDrivers(t *testing.T) {
	a, n := allocWithServices()
	a.Job.TaskGroups[0].Services = nil
	a.Job.TaskGroups[0].Tasks[0].Services[0].AddressMode = fleet.AddressDriver
	if got := taskenv.Registrations(&a, n, "global"); len(got) != 0 {
		t.Errorf("before its address is known: %v", got)
	}
	a.TaskStates["main"] = fleet.TaskState{State: fleet.TaskRunning, Address: "172.17.0.2"}
	if got := taskenv.Registrations(&a, n, "global"); len(got) != 1 || got[0].Address != "172.17.0.2" || got[0].Port != 80 {
		t.Errorf("%v", got)
	}
}

func wantEqual[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if !reflect.DeepEqual(got, want) {
		tb.Errorf("%s: got %+v\nwant %+v", what, got, want)
	}
}
