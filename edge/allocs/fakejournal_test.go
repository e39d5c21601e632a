package allocs_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

const (
	boot1 = fleet.BootID("11111111-1111-4111-8111-111111111111")
	boot2 = fleet.BootID("22222222-2222-4222-8222-222222222222")
)

// fakeJournal is a Journal in memory.
type fakeJournal struct {
	mu             sync.Mutex
	boot           fleet.BootID
	wants          map[fleet.AllocID]journal.DesiredAlloc
	states         map[fleet.AllocID]journal.State
	rows           []fleet.Transition
	acked          fleet.Seq
	uncounted      time.Duration // that a loss of power may have taken
	lastHeartbeat  time.Time     // zero: never
	fenced         string
	hubTimeUnknown bool // HubNow is not known
	mark           time.Duration
	full           bool                 // writes fail
	floor          int64                // a time that is surely over, UnixNano
	mono           func() time.Duration // nil: task states are not stored
	// handles are stored by allocation and key.
	handles map[fleet.AllocID]map[string][]byte
}

func newFakeJournal() *fakeJournal {
	return &fakeJournal{boot: boot1, wants: map[fleet.AllocID]journal.DesiredAlloc{}, states: map[fleet.AllocID]journal.State{}}
}

// wantStoppedOnEdge checks that one row says that the edge itself stops an allocation for good, and none says it of another one.
func (n *fakeJournal) wantStoppedOnEdge(tb testing.TB, id fleet.AllocID) {
	tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	var said []fleet.AllocID
	for _, row := range n.rows {
		if row.StoppedOnEdge {
			said = append(said, row.Alloc)
		}
	}
	if len(said) != 1 || said[0] != id {
		tb.Errorf("rows say that the edge itself stops %q, want %s once", said, id)
	}
}

func (n *fakeJournal) Desired(context.Context) (journal.Desired, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wants := map[fleet.AllocID]journal.DesiredAlloc{}
	for id, w := range n.wants {
		wants[id] = w
	}
	return journal.Desired{Allocs: wants}, nil
}

func (n *fakeJournal) PutDesired(_ context.Context, d syncproto.Desired) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range d.Run {
		w := n.wants[r.ID]
		w.Alloc.ID, w.Alloc.AllocModifyIndex, w.Mentioned = r.ID, r.ModifyIndex, d.Index
		if r.JobHash != "" {
			w.Alloc.Job, w.Alloc.TaskGroup = job(nil), "g"
		}
		n.wants[r.ID] = w
	}
	for _, s := range d.Stop {
		w := n.wants[s.ID]
		w.Alloc.ID, w.Stop, w.StopReason, w.Mentioned, w.Windows = s.ID, true, s.Reason, d.Index, nil
		w.NoDelay = w.NoDelay || s.NoDelay
		for _, window := range s.Windows {
			w.Windows = append(w.Windows, fleet.UpdateWindow(window))
		}
		n.wants[s.ID] = w
	}
	return nil, nil
}

func (n *fakeJournal) Adopt(ctx context.Context, d syncproto.Desired) error {
	_, err := n.PutDesired(ctx, d)
	return err
}

func (n *fakeJournal) Stop(ctx context.Context, stop syncproto.DesiredStop, ts ...fleet.Transition) error {
	if err := n.Record(ctx, ts...); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wants[stop.ID]
	if !w.Stop || len(w.Windows) > 0 {
		w.StopReason = stop.Reason
	}
	w.Stop, w.Windows, w.NoDelay = true, nil, w.NoDelay || stop.NoDelay
	n.wants[stop.ID] = w
	return nil
}

func (n *fakeJournal) KeepStopped(ctx context.Context, ids []fleet.AllocID, kept bool, ts ...fleet.Transition) error {
	n.mu.Lock()
	for _, id := range ids {
		w := n.wants[id]
		w.KeptStopped = kept
		n.wants[id] = w
	}
	n.mu.Unlock()
	return n.Record(ctx, ts...)
}

func (n *fakeJournal) Remove(_ context.Context, id fleet.AllocID) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wants, id)
	return nil
}

func (n *fakeJournal) Record(_ context.Context, ts ...fleet.Transition) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.full {
		return errors.New("the disk is full")
	}
	for _, t := range ts {
		t.Seq = fleet.Seq(len(n.rows) + 1)
		n.rows = append(n.rows, t)
		s := n.states[t.Alloc]
		s.BootID, s.Seq = n.boot, t.Seq
		if t.ClientStatus != "" {
			s.ClientStatus, s.ClientDescription = t.ClientStatus, t.ClientDescription
		}
		if t.Healthy != nil {
			s.Healthy, s.HealthOf = t.Healthy, t.Deployment
		}
		switch {
		case t.Hold != nil:
			s.Held = t.Hold
		case t.Released:
			s.Held = nil
		}
		if n.mono != nil {
			s = n.noteTask(s, t)
		}
		n.states[t.Alloc] = s
	}
	return nil
}

// noteTask stores a task's state and start from a row.
func (n *fakeJournal) noteTask(s journal.State, t fleet.Transition) journal.State {
	if t.TaskState == nil {
		return s
	}
	s.TaskStates, s.Since = maps.Clone(s.TaskStates), maps.Clone(s.Since)
	if s.TaskStates == nil {
		s.TaskStates = map[string]fleet.TaskState{}
	}
	if s.Since == nil {
		s.Since = map[string]time.Duration{}
	}
	s.TaskStates[t.Task] = *t.TaskState
	if delete(s.Since, t.Task); t.TaskState.State == fleet.TaskRunning {
		s.Since[t.Task] = n.mono() - t.TaskState.RunningFor
	}
	return s
}

func (n *fakeJournal) PutHandle(ctx context.Context, id fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	if err := n.Record(ctx, ts...); err != nil && len(ts) > 0 {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handles == nil {
		n.handles = map[fleet.AllocID]map[string][]byte{}
	}
	if n.handles[id] == nil {
		n.handles[id] = map[string][]byte{}
	}
	if n.handles[id][key] = handle; handle == nil {
		delete(n.handles[id], key)
	}
	return nil
}

func (n *fakeJournal) PutHandles(ctx context.Context, key string, handles map[fleet.AllocID][]byte) error {
	for id, handle := range handles {
		if err := n.PutHandle(ctx, id, key, handle); err != nil {
			return err
		}
	}
	return nil
}

func (n *fakeJournal) HandlesUnder(_ context.Context, key string) (map[fleet.AllocID][]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	under := map[fleet.AllocID][]byte{}
	for id, handles := range n.handles {
		if handle := handles[key]; handle != nil {
			under[id] = handle
		}
	}
	return under, nil
}

func (n *fakeJournal) Handles(_ context.Context, id fleet.AllocID) (map[string][]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.handles[id]), nil
}

func (n *fakeJournal) States() map[fleet.AllocID]journal.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	states := map[fleet.AllocID]journal.State{}
	for id, s := range n.states {
		states[id] = s
	}
	return states
}

func (n *fakeJournal) Head() (h journal.Head) {
	n.withLock(func() { h.Acknowledged = n.acked })
	return h
}

func (n *fakeJournal) Link() (l journal.Link) {
	n.withLock(func() { l.Fenced = n.fenced })
	return l
}

func (n *fakeJournal) Mono() time.Duration {
	if n.mono == nil {
		return 0
	}
	return n.mono()
}

func (n *fakeJournal) Away() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lastHeartbeat.IsZero() {
		return 0
	}
	return time.Since(n.lastHeartbeat)
}

func (n *fakeJournal) AwayAtMost() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lastHeartbeat.IsZero() {
		return 0
	}
	return time.Since(n.lastHeartbeat) + n.uncounted
}

func (n *fakeJournal) TimeFloor() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.floor
}

func (n *fakeJournal) HubNow() (time.Time, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hubTimeUnknown {
		return time.Time{}, false
	}
	return time.Now(), true
}

func (n *fakeJournal) SetCheckpointInterval(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mark = d
}

func (n *fakeJournal) withLock(f func()) { n.mu.Lock(); defer n.mu.Unlock(); f() }
