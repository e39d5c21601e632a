package check_test

import (
	"slices"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

const (
	node  = fleet.NodeID("node-1")
	alloc = fleet.AllocID("alloc-1")
)

var task = check.TaskKey{Alloc: alloc, Task: "main"}

// sound is a snapshot in which nothing is wrong: one edge that lost its link,
// rebooted, and came back.
func sound() check.FleetSnapshot {
	rows := []fleet.Transition{
		{Seq: 1, BootID: "a", Kind: fleet.TransitionAgent},
		{Seq: 2, BootID: "a", Kind: fleet.TransitionAlloc, Alloc: alloc, Task: "main", ClientStatus: fleet.ClientRunning, Event: &fleet.TaskEvent{Type: fleet.TaskStarted}},
		{Seq: 3, BootID: "a", Kind: fleet.TransitionDisconnect},
		{Seq: 4, BootID: "b", Kind: fleet.TransitionAgent},
		{Seq: 5, BootID: "b", Kind: fleet.TransitionAlloc, Alloc: alloc, Task: "main", ClientStatus: fleet.ClientRunning, Event: &fleet.TaskEvent{Type: fleet.TaskStarted}},
		{Seq: 6, BootID: "b", Kind: fleet.TransitionReconnect},
	}
	p := check.FleetSnapshot{
		Wanted: map[fleet.JobID]int{"job": 1},
		Starts: map[fleet.AllocID]int{alloc: 2},
		Edges:  []check.Edge{{Name: "edge1", NodeID: node, Rows: rows, Processes: map[check.TaskKey]int{task: 1}}},
	}
	for _, name := range []string{"hub1", "hub2"} {
		p.Hubs = append(p.Hubs, hub(name, rows))
	}
	return p
}

func hub(name string, rows []fleet.Transition) check.Hub {
	mark := func(index fleet.Index, event, message string) fleet.HistoryEntry {
		return fleet.HistoryEntry{Side: fleet.SideHub, Index: index, NodeID: node, Event: event, Message: message}
	}
	row := func(index fleet.Index, i int) fleet.HistoryEntry {
		t := rows[i]
		return fleet.HistoryEntry{Side: fleet.SideEdge, Index: index, NodeID: node, AllocID: t.Alloc, Transition: &t}
	}
	return check.Hub{
		Name: name,
		Nodes: []fleet.Node{{
			ID: node, Name: "edge1", Status: fleet.NodeReady, Applied: 6, JournalHead: 5, Epoch: 2,
			Resources: fleet.Resources{CPU: 100, MemoryMB: 100},
		}},
		Allocs: []fleet.Alloc{{
			ID: alloc, NodeID: node, JobID: "job", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientRunning, ReportedStatus: fleet.ClientRunning,
			TaskStates: map[string]fleet.TaskState{"main": {State: fleet.TaskRunning}},
			AllocStates: []fleet.AllocState{
				{Field: fleet.AllocStateClientStatus, Value: fleet.ClientUnknown, Time: time.Unix(1, 0)},
				{Field: fleet.AllocStateClientStatus, Value: fleet.ClientRunning, Time: time.Unix(2, 0)},
			},
		}},
		NodeHistory: map[fleet.NodeID][]fleet.HistoryEntry{node: {
			mark(10, "session", "epoch 1 on hub hub1"), row(11, 0), mark(12, "disconnected", "missed its deadline"),
			mark(13, "session", "epoch 2 on hub hub2"), row(14, 2), row(14, 3), mark(14, "ready", ""), row(15, 5),
		}},
		AllocHistory: map[fleet.AllocID][]fleet.HistoryEntry{alloc: {row(11, 1), row(14, 4)}},
	}
}

func TestSoundPictureHasNoViolation(t *testing.T) {
	for _, v := range check.Quiet(sound()) {
		t.Error(v)
	}
}

// TestStopThatTheHubAskedForIsNoViolation carries a hub's stop out when the link
// has just gone.
func TestStopThatTheHubAskedForIsNoViolation(t *testing.T) {
	p := sound()
	kill := &p.Edges[0].Rows[4]
	kill.Event = &fleet.TaskEvent{Type: fleet.TaskKilling, DisplayMessage: "not needed: it is given 5s"}
	for i := range p.Hubs {
		h := p.Hubs[i].AllocHistory
		heard := *h[alloc][1].Transition
		heard.Event = kill.Event
		h[alloc][1].Transition = &heard
		h[alloc] = append(h[alloc], fleet.HistoryEntry{Side: fleet.SideHub, Index: 11, AllocID: alloc, Event: "stop", Message: "not needed"})
	}
	for _, v := range check.Quiet(p) {
		t.Error(v)
	}
}

// loseRow5 damages the journal of the sound snapshot: the task's second start is
// known to nobody any more.
func loseRow5(p *check.FleetSnapshot) {
	e := &p.Edges[0]
	e.Before = slices.Clone(e.Rows)
	e.Rows = slices.Clone(e.Rows)
	e.Rows[4] = fleet.Transition{Seq: 5, BootID: "b", Kind: fleet.TransitionAgent}
	for i := range p.Hubs {
		h := p.Hubs[i].AllocHistory
		h[alloc] = h[alloc][:1]
	}
}

// TestLossThatIsSaidIsNoViolation adds the row that speaks of the loss.
func TestLossThatIsSaidIsNoViolation(t *testing.T) {
	p := sound()
	loseRow5(&p)
	gap := fleet.Transition{Seq: 5, BootID: "b", Kind: fleet.TransitionGap, Dropped: 1, Message: "the journal was damaged"}
	p.Edges[0].Rows[4] = gap
	for i := range p.Hubs {
		h := p.Hubs[i].NodeHistory
		h[node] = append(h[node], fleet.HistoryEntry{Side: fleet.SideEdge, Index: 15, NodeID: node, Transition: &gap})
	}
	for _, v := range check.Quiet(p) {
		t.Error(v)
	}
}

// TestViolationsOfQuietAreFound breaks the sound snapshot in one way at a time.
func TestViolationsOfQuietAreFound(t *testing.T) {
	for _, tc := range []struct {
		name             string
		want             check.Invariant
		violationHarness func(p *check.FleetSnapshot)
	}{
		{"a row is dropped", 1, func(p *check.FleetSnapshot) { p.Hubs[0].AllocHistory[alloc] = p.Hubs[0].AllocHistory[alloc][:1] }},
		{"a row is applied twice", 1, func(p *check.FleetSnapshot) {
			h := p.Hubs[0].AllocHistory
			h[alloc] = append(h[alloc], h[alloc][1])
		}},
		{"rows change places", 1, func(p *check.FleetSnapshot) {
			h := p.Hubs[0].AllocHistory[alloc]
			h[0], h[1] = h[1], h[0]
		}},
		{"a row is not the one that was journaled", 1, func(p *check.FleetSnapshot) {
			changed := *p.Hubs[0].AllocHistory[alloc][1].Transition
			changed.ClientStatus = fleet.ClientFailed
			p.Hubs[0].AllocHistory[alloc][1].Transition = &changed
		}},
		{"the journal has a gap", 1, func(p *check.FleetSnapshot) { p.Edges[0].Rows = append(p.Edges[0].Rows[:2:2], p.Edges[0].Rows[3:]...) }},
		{"a damaged journal's row is lost silently", 1, func(p *check.FleetSnapshot) { loseRow5(p) }},
		{"a hub lags", 1, func(p *check.FleetSnapshot) { p.Hubs[1].Nodes[0].Applied = 4 }},
		{"an update before the heartbeat", 2, func(p *check.FleetSnapshot) { p.Hubs[0].AllocHistory[alloc][1].Index = 12 }},
		{"ready before history", 2, func(p *check.FleetSnapshot) { p.Hubs[0].Nodes[0].JournalHead = 9 }},
		{"an epoch goes back", 2, func(p *check.FleetSnapshot) { p.Hubs[0].NodeHistory[node][3].Message = "epoch 1 on hub hub2" }},
		{"ready without a session", 2, func(p *check.FleetSnapshot) { p.Hubs[0].NodeHistory[node][3].Event = "resync" }},
		{"a task is killed while away", 3, func(p *check.FleetSnapshot) {
			p.Edges[0].Rows[3].Event = &fleet.TaskEvent{Type: fleet.TaskKilling, DisplayMessage: "the link is gone"}
			p.Edges[0].Rows[3].Alloc = alloc
		}},
		{"a task is started twice", 4, func(p *check.FleetSnapshot) { p.Starts[alloc] = 3 }},
		{"too few run", 5, func(p *check.FleetSnapshot) { p.Wanted["job"] = 2 }},
		{"one was never settled", 5, func(p *check.FleetSnapshot) { p.Hubs[0].Allocs[0].AllocStates = p.Hubs[0].Allocs[0].AllocStates[:1] }},
		{"its process is gone", 5, func(p *check.FleetSnapshot) { delete(p.Edges[0].Processes, task) }},
		{"a process is left over", 5, func(p *check.FleetSnapshot) { p.Edges[0].Processes[check.TaskKey{Alloc: "alloc-2", Task: "main"}] = 1 }},
		{"hubs disagree", 5, func(p *check.FleetSnapshot) { p.Hubs[1].Allocs[0].DesiredStatus = fleet.DesiredStop }},
		{"a status is not what was journaled last", 1, func(p *check.FleetSnapshot) { p.Hubs[1].Allocs[0].ReportedStatus = fleet.ClientPending }},
		{"a loss of the link follows a loss", 12, func(p *check.FleetSnapshot) { p.Edges[0].Rows[3].Kind = fleet.TransitionDisconnect }},
		{"a hub has a node back twice", 12, func(p *check.FleetSnapshot) {
			back := fleet.HistoryEntry{Side: fleet.SideHub, Index: 12, AllocID: alloc, Event: fleet.EventNodeReconnected}
			h := p.Hubs[0].AllocHistory
			h[alloc] = append(h[alloc], back, back)
		}},
		{"a node is over-committed", 7, func(p *check.FleetSnapshot) { p.Hubs[0].Allocs[0].AllocatedResources.CPU = 101 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := sound()
			tc.violationHarness(&p)
			found := check.Quiet(p)
			for _, v := range found {
				if v.Invariant == tc.want {
					return
				}
			}
			t.Errorf("want a violation of invariant %d, found %v", tc.want, found)
		})
	}
}

// A node that is down may be revoked, and is not down twice otherwise.
func TestRevokedWhileDown(t *testing.T) {
	for message, violations := range map[string]int{"revoked: stolen": 0, "no heartbeat": 1} {
		p := sound()
		h := p.Hubs[0].AllocHistory
		for i, why := range []string{"no heartbeat", message} {
			h[alloc] = append(h[alloc], fleet.HistoryEntry{Side: fleet.SideHub, Index: fleet.Index(12 + i), AllocID: alloc, Event: fleet.EventNodeDown, Message: why})
		}
		if found := check.Quiet(p); len(found) != violations {
			t.Errorf("%s: %v", message, found)
		}
	}
}

// TestOfWhatNobodyKnowsNothingIsSaid has an edge that was away and stopped an allocation for its stop_on_client_after.
// The hub was put back, and does not know that allocation.
func TestOfWhatNobodyKnowsNothingIsSaid(t *testing.T) {
	p := sound()
	row := &p.Edges[0].Rows[3]
	row.Alloc, row.Task = "forgotten", "main"
	row.Event = &fleet.TaskEvent{Type: fleet.TaskKilling, DisplayMessage: "no hub for 46s (stop_on_client_after)"}
	for _, v := range check.Quiet(p) {
		if v.Invariant == check.AbsenceStopsNothing {
			t.Error(v)
		}
	}
}

// TestAStopThatHubsForgotIsLeftToTheMonitor has an edge that was told of a stop, lost its link, and ended the task. The hubs
// were put back behind the stop.
func TestAStopThatHubsForgotIsLeftToTheMonitor(t *testing.T) {
	for message, violations := range map[string]int{"hub h:4647, away for 3s": 1, "hub h:4647, away for 3s; the cluster went back: it is at index 4": 0} {
		p := sound()
		rows := p.Edges[0].Rows
		rows[3].Alloc, rows[3].Task = alloc, "main"
		rows[3].Event = &fleet.TaskEvent{Type: fleet.TaskKilling, DisplayMessage: "version 21 of the job changes its tasks"}
		for i := range rows[4:] {
			if row := &rows[4+i]; row.Kind == fleet.TransitionReconnect {
				row.Message = message
			}
		}
		found := 0
		for _, v := range check.Quiet(p) {
			if v.Invariant == check.AbsenceStopsNothing {
				found++
			}
		}
		if found != violations {
			t.Errorf("%s: %d violations, want %d", message, found, violations)
		}
	}
}
