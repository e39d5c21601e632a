package journal_test

import (
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// TestNothingIsSaidOfWhatHasNoStatus makes no row of an allocation without a status.
func TestNothingIsSaidOfWhatHasNoStatus(t *testing.T) {
	states := map[fleet.AllocID]journal.State{
		"new": {TaskStates: map[string]fleet.TaskState{"main": {State: fleet.TaskPending}}}, "runs": {ClientStatus: fleet.ClientRunning},
	}
	ts := journal.Restatement(states, journal.Moment{Boot: boot1}, "why")
	if len(ts) != 1 || ts[0].Alloc != "runs" || ts[0].Message != "why" {
		t.Errorf("rows: %+v", ts)
	}
}

// TestReconnected makes one row for each running task, with its running time by the machine's clock.
func TestReconnected(t *testing.T) {
	now := journal.Moment{Boot: boot1, Mono: time.Hour, Wall: time.Unix(1000, 0)}
	running := fleet.TaskState{State: fleet.TaskRunning, RunningFor: time.Second, Events: []fleet.TaskEvent{{Type: fleet.TaskStarted}}}
	states := map[fleet.AllocID]journal.State{
		"b": {BootID: boot1, ClientStatus: fleet.ClientRunning, TaskStates: map[string]fleet.TaskState{"main": running, "side": running, "over": {State: fleet.TaskDead}},
			Since: map[string]time.Duration{"main": 20 * time.Minute}},
		"a":     {BootID: boot1, ClientStatus: fleet.ClientRunning, TaskStates: map[string]fleet.TaskState{"main": running}, Since: map[string]time.Duration{"main": -time.Minute}},
		"ended": {BootID: boot1, ClientStatus: fleet.ClientFailed, TaskStates: map[string]fleet.TaskState{"main": running}},
		"boot":  {BootID: boot2, ClientStatus: fleet.ClientRunning, TaskStates: map[string]fleet.TaskState{"main": running}, Since: map[string]time.Duration{"main": 0}},
	}
	type line struct {
		alloc fleet.AllocID
		task  string
		ran   time.Duration
	}
	var got []line
	for _, tr := range journal.Reconnected(states, now) {
		if tr.Kind != fleet.TransitionTask || tr.Event.Type != fleet.TaskReconnected || tr.ClientStatus != "" || tr.TaskState.State != fleet.TaskRunning || tr.TaskState.Events != nil {
			t.Errorf("row: %+v", tr)
		}
		got = append(got, line{tr.Alloc, tr.Task, tr.TaskState.RunningFor})
	}
	want := []line{{"a", "main", 61 * time.Minute}, {"b", "main", 40 * time.Minute}, {"b", "side", time.Second}}
	if len(got) != len(want) {
		t.Fatalf("rows: %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// A cluster that went back is told again who holds an allocation, also one that never ran, and that others are not held.
func TestHoldsAreRestated(t *testing.T) {
	hold := &fleet.Hold{By: "anna", Reason: "smoke"}
	states := map[fleet.AllocID]journal.State{
		"a": {ClientStatus: fleet.ClientPending, BootID: boot1, Seq: 1, Held: hold},
		"b": {BootID: boot1, Seq: 2, Held: hold},
		"c": {ClientStatus: fleet.ClientRunning, BootID: boot1, Seq: 3},
	}
	held, released := map[fleet.AllocID]int{}, map[fleet.AllocID]int{}
	for _, row := range journal.Restatement(states, journal.Moment{Boot: boot1}, "why") {
		if row.Hold == hold {
			held[row.Alloc]++
		}
		if row.Released {
			released[row.Alloc]++
		}
	}
	if held["a"] != 1 || held["b"] != 1 || len(held) != 2 || released["c"] != 1 || len(released) != 1 {
		t.Errorf("held %v, released %v", held, released)
	}
}

// The network status of an allocation outlives the agent, and a cluster that went back is told it again.
func TestNetworkStatusIsKept(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	network := &fleet.NetworkStatus{InterfaceName: "eth0", Address: "172.26.64.2"}
	mustRecord(t, j, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: allocID(1), Network: network}, status(1, fleet.ClientRunning))
	mustClose(t, j)
	j = mustOpen(t, m.journalConfig(path))
	s, ok := j.State(allocID(1))
	if !ok || s.Network == nil || *s.Network != *network || s.ClientStatus != fleet.ClientRunning {
		t.Fatalf("%+v", s)
	}
	rows := journal.Restatement(j.States(), journal.Moment{Boot: boot1}, "why")
	if len(rows) != 1 || rows[0].Network == nil || *rows[0].Network != *network {
		t.Errorf("restated as %+v", rows)
	}
}

// The address of a task outlives the agent and is restated, until the task is started again.
func TestTaskAddressIsKept(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	mustRecord(t, j, status(1, fleet.ClientRunning), taskEvent(1, "web", fleet.TaskRunning, fleet.TaskStarted),
		fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: allocID(1), Task: "web", Network: &fleet.NetworkStatus{Address: "172.17.0.2"}},
		taskEvent(1, "web", fleet.TaskRunning, fleet.TaskSignaling))
	mustClose(t, j)
	j = mustOpen(t, m.journalConfig(path))
	if s, _ := j.State(allocID(1)); s.TaskStates["web"].Address != "172.17.0.2" || s.Network != nil {
		t.Fatalf("%+v", s)
	}
	rows := journal.Restatement(j.States(), journal.Moment{Boot: boot1}, "why")
	if len(rows) != 2 || rows[1].Network == nil || rows[1].Network.Address != "172.17.0.2" || rows[1].Task != "web" {
		t.Errorf("restated as %+v", rows)
	}
	mustRecord(t, j, taskEvent(1, "web", fleet.TaskRunning, fleet.TaskStarted))
	if s, _ := j.State(allocID(1)); s.TaskStates["web"].Address != "" {
		t.Errorf("started again: %+v", s.TaskStates)
	}
}
