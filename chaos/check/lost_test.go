package check_test

import (
	"slices"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// TestWhatAHubLetGoIsNotLost has rows that the journal no longer holds, and that the
// hub let go at its own bound, where the edge's clock went back to 1970 in between. The
// journal was damaged twice, and held them both times.
func TestWhatAHubLetGoIsNotLost(t *testing.T) {
	for _, try := range []struct {
		dropped  uint64
		replaced bool
		want     int
	}{{2, false, 0}, {3, false, 0}, {1, false, 1}, {0, true, 0}} {
		p := sound()
		e := &p.Edges[0]
		var old []fleet.Transition
		for i := range 2 {
			old = append(old, fleet.Transition{
				Seq: fleet.Seq(i + 1), BootID: "0", Wall: int64(1_000_000 + i), Kind: fleet.TransitionTask, Alloc: alloc, Task: "main",
				Event: &fleet.TaskEvent{Type: fleet.TaskTerminated},
			})
		}
		e.Before, e.Replaced = slices.Concat(old, old, e.Rows), try.replaced
		for i := range p.Hubs {
			p.Hubs[i].Dropped = map[fleet.AllocID]uint64{alloc: try.dropped}
		}
		found := check.Quiet(p)
		if try.want == 0 && len(found) > 0 || try.want > 0 && len(found) != len(p.Hubs) {
			t.Errorf("the hub let %d go: %v", try.dropped, found)
		}
	}
}

// TestWhatTheHubSaysIsGoneIsNotLost has an edge that let rows go after the cluster acknowledged them, and a cluster
// that was put back to a state without them.
func TestWhatTheHubSaysIsGoneIsNotLost(t *testing.T) {
	for gone, want := range map[uint64]int{1: 1, 2: 0, 0: 0} { // 0: a release that did not count
		p := sound()
		e := &p.Edges[0]
		for i := range 2 {
			e.Before = append(e.Before, fleet.Transition{
				Seq: fleet.Seq(i + 1), BootID: "0", Wall: int64(1_000_000 + i), Kind: fleet.TransitionTask, Alloc: alloc, Task: "main",
				Event: &fleet.TaskEvent{Type: fleet.TaskTerminated},
			})
		}
		e.Before = append(e.Before, e.Before...) // it was damaged twice, and held them both times
		e.Before = append(e.Before, e.Rows...)
		for i := range p.Hubs {
			p.Hubs[i].NodeHistory = map[fleet.NodeID][]fleet.HistoryEntry{e.NodeID: {{
				Side: fleet.SideHub, Event: fleet.EventGap, Gone: gone,
			}}}
		}
		if found := check.Quiet(p); len(found) != want*len(p.Hubs) {
			t.Errorf("%d are said to be gone: %v", gone, found)
		}
	}
}

// TestABootOfWhichOneRowIsLeft has an allocation's rows of a boot lost with the journal's
// damage, and those of one before it was placed.
func TestABootOfWhichOneRowIsLeft(t *testing.T) {
	for boot, want := range map[fleet.BootID]int{"a": 1, "c": 0} {
		p := sound()
		p.Starts[alloc] = 3
		p.Edges[0].Before = []fleet.Transition{{Seq: 1, BootID: "0", Kind: fleet.TransitionAgent}}
		p.Edges[0].Rows = append(p.Edges[0].Rows, fleet.Transition{Seq: 7, BootID: boot, Kind: fleet.TransitionAgent, Mono: 1})
		for i := range p.Hubs {
			p.Hubs[i].Nodes[0].Applied = 7
		}
		found := check.Quiet(p)
		if n := len(slices.DeleteFunc(found, func(v check.Violation) bool { return v.Invariant != check.RebootBringsBack })); n != want {
			t.Errorf("its last row is of boot %s: %v", boot, found)
		}
	}
}

// TestARowThatNobodyLookedAt has a task's end in a row that the journal had let go of before
// anybody looked, and one more start than that explains.
func TestARowThatNobodyLookedAt(t *testing.T) {
	for starts, want := range map[int]int{3: 0, 4: 1} {
		p := sound()
		p.Starts[alloc] = starts
		p.Edges[0].Before = append(slices.Clone(p.Edges[0].Rows[:2]), fleet.Transition{Seq: 4, BootID: "a", Kind: fleet.TransitionTask, Alloc: alloc, Task: "main",
			Event: &fleet.TaskEvent{Type: fleet.TaskStarted}, Mono: 1})
		if found := check.Quiet(p); len(slices.DeleteFunc(found, func(v check.Violation) bool { return v.Invariant != check.RebootBringsBack })) != want {
			t.Errorf("%d starts: %v", starts, found)
		}
	}
}

// TestStartThatADriverCallsFailed has a daemon die between a start and its answer: the task has run, and is started again.
func TestStartThatADriverCallsFailed(t *testing.T) {
	for event, want := range map[string]int{fleet.TaskDriverFailure: 0, fleet.TaskSetup: 1} {
		p := sound()
		p.Starts[alloc] = 3
		p.Edges[0].Rows = append(p.Edges[0].Rows, fleet.Transition{Seq: 7, BootID: "b", Kind: fleet.TransitionTask, Alloc: alloc, Task: "main",
			TaskState: &fleet.TaskState{State: fleet.TaskRunning}, Event: &fleet.TaskEvent{Type: event}, Mono: 1})
		for i := range p.Hubs {
			p.Hubs[i].Nodes[0].Applied = 7
		}
		if found := check.Quiet(p); len(slices.DeleteFunc(found, func(v check.Violation) bool { return v.Invariant != check.RebootBringsBack })) != want {
			t.Errorf("%s: %v", event, found)
		}
	}
}

// TestWhatAJournalDroppedIsTold has tasks whose ends nobody can read of any more, in a
// snapshot and while a run goes on.
func TestWhatAJournalDroppedIsTold(t *testing.T) {
	for dropped, want := range map[uint64]int{0: 1, 1: 0} {
		p := sound()
		p.Starts[alloc] = 3
		gap := fleet.Transition{Seq: 7, BootID: "b", Kind: fleet.TransitionGap, Dropped: dropped}
		p.Edges[0].Rows = append(p.Edges[0].Rows, gap)
		for i := range p.Hubs {
			p.Hubs[i].Nodes[0].Applied = 7
		}
		if found := check.Quiet(p); len(found) != want {
			t.Errorf("%d rows dropped: %v", dropped, found)
		}

		m := check.NewMonitor(check.Limits{})
		see := func(at time.Duration, o check.Observation) {
			o.At = at
			m.Observe(o)
		}
		look := func(at time.Duration, n uint64) {
			see(at, check.Observation{Edge: &check.Edge{Name: "edge1", NodeID: node, Journal: &check.Journal{Dropped: n}}})
		}
		see(0, check.Observation{Process: &check.Process{Name: "edge1", Edge: true, What: check.ProcessStart, Boot: "a"}})
		look(time.Second, 0)
		see(2*time.Second, check.Observation{Task: &check.Task{Edge: "edge1", Alloc: alloc, Task: "main", What: check.TaskExited}})
		for at := 3 * time.Second; at < time.Minute; at += time.Second {
			look(at, dropped)
		}
		if found := m.Violations(); len(found) != want {
			t.Errorf("%d rows dropped while it ran: %v", dropped, found)
		}
	}
}
