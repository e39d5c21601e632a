package fleet_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/fleet/validate"
)

func sampleAlloc() fleet.Alloc {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	j := job()
	return fleet.Alloc{
		ID: "a1", Namespace: "default", EvalID: "e1", Name: "j.a[0]", NodeID: "n1", NodeName: "ship", JobID: "j", Job: j, JobVersion: 3,
		TaskGroup: "a", AllocatedResources: j.TaskGroups[0].Resources(),
		Metrics: &fleet.AllocMetric{NodesEvaluated: 4, NodesAvailable: map[string]int{"dc1": 4}, AllocationTime: time.Millisecond,
			ScoreMetaData: []fleet.NodeScore{{NodeID: "n1", Scores: map[string]float64{"binpack": 0.5}, NormScore: 0.5}}},
		DesiredStatus: "run", DesiredTransition: fleet.DesiredTransition{Migrate: true}, ClientStatus: "running",
		TaskStates: map[string]fleet.TaskState{"t": {State: "running", Restarts: 2, StartedAt: &at, RunningFor: time.Hour,
			Events: []fleet.TaskEvent{{Type: "Started", Time: at.UnixNano(), DisplayMessage: "started", Details: map[string]string{"a": "b"}}}}},
		AllocStates:       []fleet.AllocState{{Field: "ClientStatus", Value: "unknown", Time: at}},
		RescheduleTracker: &fleet.RescheduleTracker{Events: []fleet.RescheduleEvent{{RescheduleTime: 5, PrevAllocID: "a0", PrevNodeID: "n0", Delay: time.Second}}},
		CreateIndex:       4, ModifyIndex: 9, CreateTime: at.UnixNano(), ModifyTime: at.UnixNano(),
	}
}

// TestClientReadsAlloc decodes an allocation into the type of Nomad's published client.
func TestClientReadsAlloc(t *testing.T) {
	a := sampleAlloc()
	var got api.Allocation
	mustDecode(t, mustJSON(t, a), &got)
	if got.ID != "a1" || got.Job == nil || *got.Job.Priority != 50 || got.Job.TaskGroups[0].Tasks[0].Name != "t" {
		t.Errorf("allocation %+v", got)
	}
	task := got.AllocatedResources.Tasks["t"]
	if task == nil || task.Cpu.CpuShares != 100 || task.Memory.MemoryMB != 300 || got.AllocatedResources.Shared.DiskMB != 300 {
		t.Errorf("resources %+v", got.AllocatedResources)
	}
	if got.Resources == nil || *got.Resources.CPU != 100 || *got.TaskResources["t"].MemoryMB != 300 || *got.Resources.DiskMB != 300 {
		t.Errorf("resources as older clients read them: %+v, %+v", got.Resources, got.TaskResources["t"])
	}
	var more struct {
		SharedResources    struct{ DiskMB int }
		AllocatedResources struct{ TaskLifecycles map[string]*api.TaskLifecycle }
	}
	mustDecode(t, mustJSON(t, a), &more)
	if _, there := more.AllocatedResources.TaskLifecycles["t"]; !there || more.SharedResources.DiskMB != 300 {
		t.Errorf("what no client type has: %+v", more)
	}
	state := got.TaskStates["t"]
	if state.Restarts != 2 || !state.StartedAt.Equal(*a.TaskStates["t"].StartedAt) || !state.FinishedAt.IsZero() || state.Events[0].DisplayMessage != "started" {
		t.Errorf("task state %+v", state)
	}
	if got.Metrics.ScoreMetaData[0].NormScore != 0.5 || !*got.DesiredTransition.Migrate || got.RescheduleTracker.Events[0].PrevAllocID != "a0" {
		t.Errorf("allocation %+v", got)
	}
	var own fleet.Alloc
	mustDecode(t, mustJSON(t, a), &own)
	if d := diff.Jobs(a.Job, own.Job); d.Type != diff.None {
		t.Errorf("the job changed on its way: %+v", d)
	}
	a.Job, own.Job = nil, nil
	wantEqual(t, "allocation", own, a)
}

// TestAllocResourcesWithoutJob keeps the sum where nobody knows the tasks.
// TestClientReadsNetworkStatus: an allocation has the address of its own network, else that of its ports.
func TestClientReadsNetworkStatus(t *testing.T) {
	a := sampleAlloc()
	a.Allotment = &fleet.AssignedResources{Ports: []fleet.AssignedPort{{Label: "http", Value: 20_000, HostIP: "192.0.2.5"}}}
	for _, status := range []*fleet.NetworkStatus{nil, {InterfaceName: "eth0", Address: "172.26.64.2"}} {
		want := api.AllocNetworkStatus{Address: "192.0.2.5"}
		if a.NetworkStatus = status; status != nil {
			want = api.AllocNetworkStatus{InterfaceName: "eth0", Address: "172.26.64.2"}
		}
		var got api.Allocation
		mustDecode(t, mustJSON(t, a), &got)
		if !reflect.DeepEqual(got.NetworkStatus, &want) {
			t.Errorf("%+v, want %+v", got.NetworkStatus, want)
		}
		var back fleet.Alloc
		mustDecode(t, mustJSON(t, a), &back)
		if !reflect.DeepEqual(back.NetworkStatus, status) {
			t.Errorf("came back as %+v, want %+v", back.NetworkStatus, status)
		}
	}
}

func TestAllocResourcesWithoutJob(t *testing.T) {
	a := fleet.Alloc{ID: "x", TaskGroup: "g", AllocatedResources: fleet.Resources{CPU: 7, MemoryMB: 8, DiskMB: 9}}
	var got fleet.Alloc
	mustDecode(t, mustJSON(t, a), &got)
	wantEqual(t, "resources", got.AllocatedResources, a.AllocatedResources)
	var stub fleet.Alloc
	mustDecode(t, []byte(`{"ID": "x", "AllocatedResources": null, "TaskStates": null}`), &stub)
	wantEqual(t, "stub", stub, fleet.Alloc{ID: "x"})
}

func TestClientReadsNode(t *testing.T) {
	n := fleet.Node{
		ID: "n1", Name: "ship", Datacenter: "dc1", NodePool: "default", Status: fleet.NodeReady, SchedulingEligibility: fleet.NodeEligible,
		Attributes: map[string]string{"kernel.name": "linux"}, Meta: map[string]string{"a": "b"},
		ReservedPorts: "22", MaxAllocs: 7, HTTPAddr: "hub:4646",
		Resources: fleet.Resources{CPU: 4000, Cores: 4, MemoryMB: 2048, DiskMB: 9000}, Reserved: fleet.Resources{CPU: 100},
		Drivers: map[string]fleet.DriverInfo{"raw_exec": {Detected: true, Healthy: true, Attributes: map[string]string{"x": "y"}}},
		Devices: []fleet.Device{
			{Kind: "usb", Vendor: "v", Type: "usb", Name: "p", ID: "1", Attributes: map[string]string{"class": "08"}},
			{Kind: "usb", Vendor: "v", Type: "usb", Name: "p", ID: "2"},
			{Kind: "usb", Vendor: "w", Type: "usb", Name: "q", ID: "3"},
		},
		MissingDevices: []fleet.MissingDevice{
			{Vendor: "v", Type: "usb", Name: "p", ID: "0", AllocID: "a1", Since: time.Unix(60, 0).UTC()}, {Vendor: "x", Type: "usb", Name: "r", ID: "4", AllocID: "a2", Since: time.Unix(60, 0).UTC()},
		},
		HostVolumes:     map[string]fleet.HostVolume{"data": {Path: "/srv/data", ReadOnly: true, ID: "v1"}},
		Events:          []fleet.NodeEvent{{Message: "m", Timestamp: time.Unix(5, 0).UTC(), CreateIndex: 3}},
		StatusUpdatedAt: 7, CreateIndex: 1, ModifyIndex: 2, ChainHash: []byte{1, 2},
	}
	var got api.Node
	mustDecode(t, mustJSON(t, n), &got)
	if got.Status != "ready" || got.NodeResources.Cpu.CpuShares != 4000 || got.NodeResources.Memory.MemoryMB != 2048 ||
		got.NodeResources.Disk.DiskMB != 9000 || got.ReservedResources.Cpu.CpuShares != 100 || *got.Resources.CPU != 4000 {
		t.Errorf("node %+v", got)
	}
	if v := got.HostVolumes["data"]; v == nil || v.Path != "/srv/data" || !v.ReadOnly || v.ID != "v1" {
		t.Errorf("host volumes %+v", got.HostVolumes)
	}
	devices := got.NodeResources.Devices
	if len(devices) != 3 || devices[0].ID() != "v/usb/p" || len(devices[0].Instances) != 3 || !devices[0].Instances[1].Healthy || *devices[0].Attributes["class"].StringVal != "08" {
		t.Errorf("devices %+v", devices)
	}
	for _, gone := range []*api.NodeDevice{devices[0].Instances[2], devices[2].Instances[0]} {
		if gone.Healthy || gone.HealthDescription != "not found since 1970-01-01T00:01:00Z" {
			t.Errorf("missing device %+v", gone)
		}
	}
	if !got.Drivers["raw_exec"].Healthy || got.Events[0].CreateIndex != 3 || !got.Events[0].Timestamp.Equal(time.Unix(5, 0)) {
		t.Errorf("node %+v", got)
	}
	if r := got.NodeResources; r.Cpu.TotalCpuCores != 4 || len(r.Cpu.ReservableCpuCores) != 4 || got.ReservedResources.Networks.ReservedHostPorts != "22" ||
		got.Links == nil || got.NodeMaxAllocs != 7 || got.HTTPAddr != "hub:4646" {
		t.Errorf("node %+v, resources %+v, reserved %+v", got, r, got.ReservedResources)
	}
	if r := got.NodeResources; len(r.Networks) != 0 || r.MinDynamicPort != fleet.MinDynamicPort {
		t.Errorf("networks of a node that names no address: %+v", r)
	}
	var own fleet.Node
	mustDecode(t, mustJSON(t, n), &own)
	wantEqual(t, "node", own, n)
}

func TestClientReadsNetworksOfANode(t *testing.T) {
	n := fleet.Node{
		ID: "n1", Attributes: map[string]string{fleet.AttributeIPAddress: "10.0.0.5"}, MaxDynamicPort: 21_000,
		HostNetworks: []fleet.HostNetwork{{Name: "wan", IP: "2001:db8::7", ReservedPorts: "22"}, {Name: "wan", IP: "2001:db8::8"}},
	}
	var got api.Node
	mustDecode(t, mustJSON(t, n), &got)
	r := got.NodeResources
	if len(r.Networks) != 3 || r.Networks[0].IP != "10.0.0.5" || r.Networks[1].CIDR != "2001:db8::7/128" || r.Networks[0].CIDR != "10.0.0.5/32" || r.Networks[0].Mode != "host" ||
		r.MinDynamicPort != 20_000 || r.MaxDynamicPort != 21_000 {
		t.Errorf("resources %+v", r)
	}
	if wan := got.HostNetworks["wan"]; wan == nil || wan.CIDR != "2001:db8::7/128" || wan.ReservedPorts != "22" {
		t.Errorf("host networks %+v", got.HostNetworks)
	}
	var own fleet.Node
	mustDecode(t, mustJSON(t, n), &own)
	wantEqual(t, "node", own, n)
}

// TestNodeShowsProcessorsAndNetworks reads two parts of a node's resources that Nomad's servers send, and that the types of
// its Go client leave out.
func TestNodeShowsProcessorsAndNetworks(t *testing.T) {
	n := fleet.Node{
		ID: "n1", Resources: fleet.Resources{CPU: 5000, Cores: 2},
		Attributes:   map[string]string{fleet.AttributeIPAddress: "10.0.0.5", fleet.AttributeNetworkMode + "bridge": "1", fleet.AttributeNetworkMode + fleet.NetworkHost: "1"},
		HostNetworks: []fleet.HostNetwork{{Name: "wan", IP: "2001:db8::7", ReservedPorts: "22"}},
	}
	var got struct{ NodeResources map[string]any }
	mustDecode(t, mustJSON(t, n), &got)
	for key, want := range map[string]string{
		"Processors": `{"Topology": {"NodeIDs": [0], "Distances": [[10]], "Cores": [
			{"SocketID": 0, "NodeID": 0, "ID": 0, "Grade": true, "Disable": false, "BaseSpeed": 2500, "MaxSpeed": 0, "GuessSpeed": 0},
			{"SocketID": 0, "NodeID": 0, "ID": 1, "Grade": true, "Disable": false, "BaseSpeed": 2500, "MaxSpeed": 0, "GuessSpeed": 0}
		]}}`,
		"NodeNetworks": `[
			{"Mode": "host", "Device": "", "MacAddress": "", "Speed": 0, "Addresses": [
				{"Family": "ipv4", "Alias": "default", "Address": "10.0.0.5", "ReservedPorts": "", "Gateway": ""}]},
			{"Mode": "host", "Device": "", "MacAddress": "", "Speed": 0, "Addresses": [
				{"Family": "ipv6", "Alias": "wan", "Address": "2001:db8::7", "ReservedPorts": "22", "Gateway": ""}]},
			{"Mode": "bridge", "Device": "", "MacAddress": "", "Speed": 0, "Addresses": []}
		]`,
	} {
		var wanted any
		mustDecode(t, []byte(want), &wanted)
		wantEqual(t, key, got.NodeResources[key], wanted)
	}
}

// TestMapsOfANodeAreThere lets clients index them: Nomad's CLI does.
func TestMapsOfANodeAreThere(t *testing.T) {
	var got map[string]any
	mustDecode(t, mustJSON(t, fleet.Node{ID: "n1"}), &got)
	for _, name := range []string{"Attributes", "Meta", "Links", "HostNetworks"} {
		if m, ok := got[name].(map[string]any); !ok || m == nil {
			t.Errorf("%s is %v", name, got[name])
		}
	}
}

// TestAJobShowsTheUpdateOfItsGroups is where Nomad's clients look for it, and reading the job
// back changes nothing.
func TestAJobShowsTheUpdateOfItsGroups(t *testing.T) {
	j := job()
	var got api.Job
	mustDecode(t, mustJSON(t, j), &got)
	if got.Update == nil || *got.Update.MaxParallel != j.TaskGroups[0].Update.MaxParallel {
		t.Errorf("the job's update is %+v", got.Update)
	}
	own, problems := validate.DecodeJob(mustJSON(t, j))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if d := diff.Jobs(j, own); d.Type != diff.None {
		t.Errorf("the job changed on its way: %+v", d)
	}
}

func TestClientReadsEvaluation(t *testing.T) {
	e := fleet.Evaluation{
		ID: "e1", Namespace: "default", Priority: 50, Type: "service", TriggeredBy: "job-register", JobID: "j", Status: "blocked",
		WaitUntil: time.Unix(9, 0).UTC(), FailedTGAllocs: map[string]*fleet.AllocMetric{"a": {CoalescedFailures: 3}},
		ClassEligibility: map[string]bool{"c": true}, EscapedClass: true, QueuedAllocations: map[string]int{"a": 4}, CreateIndex: 5,
	}
	var got api.Evaluation
	mustDecode(t, mustJSON(t, e), &got)
	if got.ID != "e1" || !got.EscapedComputedClass || got.FailedTGAllocs["a"].CoalescedFailures != 3 || got.QueuedAllocations["a"] != 4 ||
		!got.WaitUntil.Equal(e.WaitUntil) || got.CreateIndex != 5 {
		t.Errorf("evaluation %+v", got)
	}
}

func TestClientReadsJobDiff(t *testing.T) {
	updated := job()
	updated.TaskGroups[0].Tasks[0].Env["A"] = "2"
	var got api.JobDiff
	mustDecode(t, mustJSON(t, diff.Jobs(job(), updated)), &got)
	if got.Type != "Edited" || got.TaskGroups[0].Tasks[0].Fields[0].Name != "Env[A]" || got.TaskGroups[0].Tasks[0].Fields[0].New != "2" {
		t.Errorf("diff %+v", got)
	}
}

func mustDecode(tb testing.TB, data []byte, into any) {
	tb.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		tb.Fatalf("%v: %s", err, data)
	}
}

// TestClientReadsAllotment: ports, cores and devices are where Nomad's client looks
// for them.
func TestClientReadsAllotment(t *testing.T) {
	a := sampleAlloc()
	a.AllocatedResources.Cores, a.AllocatedResources.MemoryMaxMB = 1, 600
	j := *a.Job
	j.TaskGroups = slices.Clone(j.TaskGroups)
	j.TaskGroups[0].Tasks = slices.Clone(j.TaskGroups[0].Tasks)
	j.TaskGroups[0].Tasks[0].Resources.Cores, j.TaskGroups[0].Tasks[0].Resources.MemoryMaxMB = 1, 600
	j.TaskGroups[0].Networks = []fleet.NetworkResource{{Mode: "host", ReservedPorts: []fleet.Port{{Label: "http", Value: 80}}, DynamicPorts: []fleet.Port{{Label: "admin"}}}}
	j.TaskGroups[0].Tasks[0].Resources.Networks = []fleet.NetworkResource{{Mode: "host", DynamicPorts: []fleet.Port{{Label: "own"}}}}
	a.Job = &j
	a.Allotment = &fleet.AssignedResources{
		Ports: []fleet.AssignedPort{{Label: "http", Value: 80, HostIP: "192.0.2.1"}, {Label: "admin", Value: 20001, To: 9, HostIP: "192.0.2.1"}, {Label: "own", Value: 20002, HostIP: "192.0.2.1"}},
		Tasks: map[string]fleet.AssignedTaskResources{"t": {Cores: []int{3}, Devices: []fleet.AssignedDevice{{Vendor: "v", Type: "gpu", Name: "m", DeviceIDs: []string{"g0"}}}}},
	}
	var got api.Allocation
	mustDecode(t, mustJSON(t, a), &got)
	task, shared := got.AllocatedResources.Tasks["t"], got.AllocatedResources.Shared
	if task == nil || task.Memory.MemoryMaxMB != 600 ||
		len(task.Devices) != 1 || task.Devices[0].DeviceIDs[0] != "g0" {
		t.Errorf("task %+v", task)
	}
	if own := task.Networks; len(own) != 1 || own[0].IP != "192.0.2.1" || len(own[0].ReservedPorts) != 0 || len(own[0].DynamicPorts) != 1 || own[0].DynamicPorts[0].Value != 20002 {
		t.Errorf("networks of the task %+v", own)
	}
	if len(shared.Ports) != 3 || shared.Ports[1].Value != 20001 || shared.Ports[1].To != 9 || shared.Ports[1].HostIP != "192.0.2.1" ||
		len(shared.Networks) != 1 || shared.Networks[0].ReservedPorts[0].Value != 80 || shared.Networks[0].DynamicPorts[0].Label != "admin" {
		t.Errorf("shared %+v", shared)
	}
}

// TestClientReadsHowATaskEnded reads the details of events, where Nomad's clients look.
func TestClientReadsHowATaskEnded(t *testing.T) {
	var got []api.TaskEvent
	mustDecode(t, mustJSON(t, []fleet.TaskEvent{
		{Type: fleet.TaskTerminated, ExitCode: 3, FailsTask: true}, {Type: fleet.TaskTerminated, Signal: 9}, {Type: fleet.TaskStarted},
	}), &got)
	for i, want := range []string{"map[exit_code:3 fails_task:true signal:0]", "map[exit_code:0 signal:9]", "map[]"} {
		if said := fmt.Sprint(got[i].Details); said != want {
			t.Errorf("event %d: %s, want %s", i, said, want)
		}
	}
}

// TestClientReadsTasksThatRunOneAfterTheOther reads the resources of each task of a group that
// takes less than their sum.
func TestClientReadsTasksThatRunOneAfterTheOther(t *testing.T) {
	a := sampleAlloc()
	j := *a.Job
	j.TaskGroups = slices.Clone(j.TaskGroups)
	g := &j.TaskGroups[0]
	main := g.Tasks[0]
	main.Name, main.Lifecycle = "main", nil
	before := main
	before.Name, before.Lifecycle, before.Resources.MemoryMB = "before", &fleet.Lifecycle{Hook: fleet.HookPrestart}, 10
	g.Tasks = []fleet.Task{main, before}
	a.Job, a.AllocatedResources, a.Allotment = &j, g.Resources(), nil
	var got api.Allocation
	mustDecode(t, mustJSON(t, a), &got)
	tasks := got.AllocatedResources.Tasks
	if len(tasks) != 2 || tasks["main"] == nil || tasks["before"] == nil || tasks["before"].Memory.MemoryMB != 10 {
		t.Errorf("tasks %+v", tasks)
	}
}

func job() *fleet.Job {
	j := &fleet.Job{ID: "j", TaskGroups: []fleet.TaskGroup{{Name: "a", Count: 2, Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec", Env: map[string]string{"A": "1"}}}}}}
	validate.FillDefaults(j)
	return j
}

func mustJSON(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func wantEqual[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		tb.Errorf("%s: got %s\nwant %s", what, g, w)
	}
}
