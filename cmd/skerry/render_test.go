package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/timeline"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/golden anew")

// TestRender holds what commands write against testdata/golden: what people read and
// scripts may parse does not change by accident.
func TestRender(t *testing.T) {
	leaderless := fleetAtSea()
	leaderless.Leader, leaderless.Nodes[0].LastContact = "", nil
	history, progress, eval := partition(), failingCanary(), evaluation()
	deployment := "/v1/deployment/progress/" + string(progress.Deployment.ID)
	for name, tc := range map[string]struct {
		args    string
		known   string // whether the hub knows a leader
		answers map[string]any
	}{
		"fleet":            {"fleet status --limit 0", "true", map[string]any{"/v1/fleet/status": fleetAtSea()}},
		"fleet-leaderless": {"fleet status", "false", map[string]any{"/v1/fleet/status": leaderless}},
		"fleet-400":        {"fleet status", "true", map[string]any{"/v1/fleet/status": fleetOfShops(400)}},
		"fleet-empty":      {"fleet status", "true", map[string]any{"/v1/fleet/status": api.FleetStatus{Region: "global", Time: at(0)}}},
		"history": {"alloc history 12345678", "true", map[string]any{
			"/v1/allocations": []api.AllocStub{history.Alloc}, "/v1/allocation/" + string(history.Alloc.ID) + "/history": history}},
		"eval": {"eval status 87654321", "true", map[string]any{"/v1/evaluations": []fleet.Evaluation{eval}}},
		"deployment": {"deployment status abcdef01", "true", map[string]any{
			"/v1/deployments": []fleet.Deployment{*progress.Deployment}, deployment: progress}},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustShow(t, tc.answers, http.Header{"X-Nomad-Knownleader": {tc.known}}, strings.Fields(tc.args)...)
			path := filepath.Join("testdata", "golden", name+".txt")
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// at is a time of the story, in seconds.
func at(second int) time.Time {
	return time.Date(2026, 5, 1, 2, 10, 0, 0, time.Local).Add(time.Duration(second) * time.Second)
}

func fleetAtSea() api.FleetStatus {
	heard, away := at(118), at(20)
	return api.FleetStatus{
		Time: at(120), Index: 4711, Region: "global", Term: 3, Leader: "hub1",
		Hubs: []api.HubStatus{
			{ID: "hub1", QUIC: "192.0.2.1:4647", HTTP: "127.0.0.1:4646", Status: "alive", Leader: true},
			{ID: "hub2", QUIC: "192.0.2.2:4647", HTTP: "127.0.0.1:4646", Status: "failed"},
			{ID: "hub3", QUIC: "192.0.2.3:4647", HTTP: "127.0.0.1:4646"},
		},
		Sites: []api.SiteStatus{
			{Site: "harbour", Nodes: map[fleet.NodeStatus]int{fleet.NodeReady: 1, fleet.NodeInitializing: 1}, Allocs: map[string]int{"running": 2}},
			{Site: "sea", Nodes: map[fleet.NodeStatus]int{fleet.NodeDisconnected: 1}, Allocs: map[string]int{"unknown": 1}},
		},
		Nodes: []api.NodeLine{
			{ID: "aaaaaaaa-1", Name: "crane", Site: "harbour", Status: fleet.NodeReady, Hub: "hub1", LastContact: &heard, Allocs: map[string]int{"running": 2}},
			{ID: "bbbbbbbb-2", Name: "gate", Site: "harbour", Status: fleet.NodeInitializing, StatusDescription: "waiting for its history: row 7 of 90", Hub: "hub1",
				Newcomer: &fleet.FencedSession{Code: fleet.CodeFormerSession, Addr: "198.51.100.8:4000", Time: at(90).UnixNano()},
				Fenced:   []fleet.FencedSession{{Code: fleet.CodeCloned, Addr: "198.51.100.7:4000", Time: at(60).UnixNano()}},
				Orphans:  []fleet.AllocID{"dddddddd-4", "eeeeeeee-5"}},
			{ID: "cccccccc-3", Name: "ship-1", Site: "sea", Status: fleet.NodeDisconnected, StatusDescription: "heartbeat missed", DisconnectedAt: &away, Allocs: map[string]int{"unknown": 1}},
		},
		Waiting: []api.WaitingLine{
			{Kind: "allocation", ID: "12345678-9", Of: "nav", For: "node ship-1 to come back"},
			{Kind: "evaluation", ID: "87654321-0", Of: "shop", For: "capacity: waits for capacity"},
		},
	}
}

// fleetOfShops is a chain of which the last shop is away.
func fleetOfShops(n int) api.FleetStatus {
	s := api.FleetStatus{Time: at(120), Region: "global", Leader: "hub1"}
	heard, away := at(118), at(20)
	for i := range n {
		name := fmt.Sprintf("shop-%03d", i)
		line := api.NodeLine{ID: fleet.NodeID(fmt.Sprintf("%08d-0", i)), Name: name, Site: name, Status: fleet.NodeReady, Hub: "hub1", LastContact: &heard, Allocs: map[string]int{"running": 3}}
		if i == n-1 {
			line.Status, line.StatusDescription, line.DisconnectedAt, line.Allocs = fleet.NodeDisconnected, "heartbeat missed", &away, map[string]int{"unknown": 3}
			for j := range 3 {
				s.Waiting = append(s.Waiting, api.WaitingLine{Kind: "allocation", ID: fmt.Sprintf("a%07d-0", j), Of: "till", For: "node " + name + " to come back"})
			}
		}
		s.Nodes = append(s.Nodes, line)
		s.Sites = append(s.Sites, api.SiteStatus{Site: name, Nodes: map[fleet.NodeStatus]int{line.Status: 1}, Allocs: line.Allocs})
	}
	return s
}

func partition() api.HistoryAnswer {
	row := func(index fleet.Index, second int, offline bool, tr fleet.Transition) fleet.HistoryEntry {
		tr.Wall = at(second).UnixNano()
		return fleet.HistoryEntry{Side: fleet.SideEdge, Index: index, Time: at(second), Offline: offline, Transition: &tr}
	}
	hub := func(index fleet.Index, second int, event, message string) fleet.HistoryEntry {
		return fleet.HistoryEntry{Side: fleet.SideHub, Index: index, Time: at(second), Event: event, Message: message}
	}
	missed := hub(12, 30, "node disconnected", "heartbeat missed")
	missed.Since = &[]time.Time{at(15)}[0]
	return api.HistoryAnswer{
		Alloc: api.AllocStub{ID: "12345678-9", Name: "nav.nav[0]", NodeName: "ship-1"},
		Entries: timeline.Order([]fleet.HistoryEntry{
			hub(10, 0, "placed", "group nav wants 1"),
			row(11, 1, false, fleet.Transition{Seq: 4, Kind: fleet.TransitionAlloc, Task: "nav", Event: &fleet.TaskEvent{Type: "Started"}, ClientStatus: "running"}),
			missed,
			hub(13, 31, "unknown", "its node is disconnected"),
			hub(20, 3600, "node reconnected", "epoch 2"),
			row(21, 25, true, fleet.Transition{Seq: 6, Kind: fleet.TransitionTask, Task: "nav", Event: &fleet.TaskEvent{Type: "Terminated", DisplayMessage: "Exit Code: 1"}}),
			row(21, 40, true, fleet.Transition{Seq: 7, Kind: fleet.TransitionTask, Task: "nav", Event: &fleet.TaskEvent{Type: "Restarting"}}),
			row(21, 900, true, fleet.Transition{Seq: 9, Kind: fleet.TransitionOperator, Message: "restarted on site"}),
			hub(22, 3601, "node ready", ""),
			hub(23, 3601, "reconnected", "it runs, and has no replacement"),
		}),
	}
}

func failingCanary() api.Progress {
	deadline, version := at(600), uint64(3)
	return api.Progress{
		Deployment: &fleet.Deployment{
			ID: "abcdef01-2", JobID: "shop", JobVersion: 4, Status: fleet.DeploymentRunning, StatusDescription: fleet.DescFailedCanaries,
			TaskGroups: map[string]fleet.DeploymentState{"web": {
				DesiredTotal: 3, DesiredCanaries: 2, AutoRevert: true, ProgressDeadline: 10 * time.Minute, RequireProgressBy: deadline,
			}},
		},
		Groups:  map[string]map[string]api.SiteProgress{"web": {"harbour": {Failed: 1, Running: 1, Waiting: 3}}},
		Outlook: &fleet.DeploymentOutlook{Deadline: &deadline, Description: fleet.DescRollback(fleet.DescProgressDeadline, version), RevertsTo: &version},
		Failed: []api.AllocStub{
			{ID: "22222222-2", NodeName: "gate", DeploymentStatus: &fleet.AllocDeployment{Canary: true}, ClientStatus: fleet.ClientRunning},
			{ID: "11111111-1", NodeName: "crane", DeploymentStatus: &fleet.AllocDeployment{Canary: true}, ClientStatus: fleet.ClientFailed, NextAllocation: "33333333-3",
				TaskStates: map[string]fleet.TaskState{"main": {Failed: true, Events: []fleet.TaskEvent{{Type: fleet.TaskTerminated, DisplayMessage: "Exit Code: 1"}}}}},
		},
	}
}

func evaluation() fleet.Evaluation {
	return fleet.Evaluation{
		ID: "87654321-0", JobID: "shop", Status: "blocked", StatusDescription: "waits for capacity", TriggeredBy: "queued-allocs", Priority: 50,
		CreateTime: time.Now().Add(-26 * time.Hour).UnixNano(), PreviousEval: "11111111-1", QueuedAllocations: map[string]int{"web": 2},
		FailedTGAllocs: map[string]*fleet.AllocMetric{"web": {NodesInPool: 3}},
	}
}
