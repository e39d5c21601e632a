package api_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/fleet/usage"
	"skerry/hub/state"
	"skerry/syncproto"
)

// TestUsage asks with Nomad's client for the usage of an allocation and a node, and checks the errors where the node
// cannot be asked.
func TestUsage(t *testing.T) {
	h, srv, c := mustServe(t)
	var asked []syncproto.Request
	answer := ""
	h.files = func(req syncproto.Request) (io.ReadCloser, error) {
		asked = append(asked, req)
		return io.NopCloser(strings.NewReader(answer)), nil
	}
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	id := mustPlace(t, h, "web")
	alloc := &nomad.Allocation{ID: string(id), NodeID: string(nodeID)}
	answer = mustJSON(t, usage.OfAlloc(map[string]*usage.Task{
		"main": usage.OfTask(nil, []fleet.Consumed{{PID: 7, Start: 1, User: 1e9, RSS: 4096, Swap: 1024}}, 2e9, 3000, 8),
	}, 9))
	u, err := c.Allocations().Stats(alloc, nil)
	if err != nil {
		t.Fatal(err)
	}
	task := u.Tasks["main"]
	if u.Timestamp != 9 || u.ResourceUsage.MemoryStats.RSS != 4096 || u.ResourceUsage.CpuStats.Percent != 50 || u.ResourceUsage.CpuStats.TotalTicks != 1500 ||
		task.Timestamp != 8 || task.Pids["7"].MemoryStats.Swap != 1024 || len(task.ResourceUsage.CpuStats.Measured) == 0 {
		t.Errorf("%+v", u.ResourceUsage)
	}
	answer = mustJSON(t, usage.OfHost(usage.Load{Cores: []usage.CoreTime{{Name: "cpu0"}}}, usage.Load{
		Memory: usage.HostMemory{Total: 100, Used: 60}, Cores: []usage.CoreTime{{Name: "cpu0", User: 1, Idle: 3}},
		Disks: []usage.HostDisk{{Device: "/dev/sda", UsedPercent: 12}}, Data: &usage.HostDisk{Size: 5}, Uptime: 3e9,
	}, 1000, 9))
	n, err := c.Nodes().Stats(string(nodeID), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n.Memory.Used != 60 || n.CPU[0].User != 25 || n.CPUTicksConsumed != 250 || n.DiskStats[0].UsedPercent != 12 || n.AllocDirStats.Size != 5 || n.Uptime != 3 {
		t.Errorf("%+v", n)
	}
	if status, said := mustAnswer(t, "GET", srv.URL+"/v1/client/allocation/"+string(id)+"/stats?task=main", ""); status != 200 {
		t.Errorf("of one task: %d %s", status, said)
	}
	want := []syncproto.Request{{Kind: "usage", Alloc: id}, {Kind: "usage"}, {Kind: "usage", Alloc: id, Task: "main"}}
	if mustJSON(t, asked) != mustJSON(t, want) {
		t.Errorf("asked %+v", asked)
	}
	answer = "{" // an edge that cannot be understood
	if _, err := c.Nodes().Stats(string(nodeID), nil); err == nil || !strings.Contains(err.Error(), "its answer is not JSON") {
		t.Errorf("%v", err)
	}
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: 1, Reason: "no beat"}}, EvalSeed: "s", Now: 9})
	away := len(asked)
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/v1/client/stats":                                          {400, "node_id is missing"},
		"/v1/client/stats?node_id=nobody":                           {404, "not found"},
		"/v1/client/stats?node_id=" + string(nodeID):                {500, "measure node edge1: it is down"},
		"/v1/client/allocation/nobody/stats":                        {404, "not found"},
		"/v1/client/allocation/" + string(id) + "/stats":            {500, "is down"},
		"/v1/client/allocation/" + string(id) + "/stats?task=other": {404, "other"},
	} {
		if status, said := mustAnswer(t, "GET", srv.URL+path, ""); status != want.status || !strings.Contains(said, want.says) {
			t.Errorf("%s: %d %s", path, status, said)
		}
	}
	if len(asked) != away {
		t.Errorf("a node that is away was asked")
	}
}

func mustJSON(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
