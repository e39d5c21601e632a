package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"skerry/fleet"
	"skerry/hub/state"
)

// machine is raft's FSM: it applies the log to the state. Raft calls all but a snapshot's Persist from one
// goroutine.
type machine struct {
	store   *state.Store
	fail    func(error)   // stops the hub (failRun)
	applied func(Applied) // Config.Applied; may be nil
	waiters tagWaiters    // of commands that this hub wrote to the log as the leader

	err     error // set when an entry could not be applied; nothing is applied after it
	traffic [256]traffic
	bytes   atomic.Int64 // of all commands applied
}

// traffic counts the commands of one kind.
type traffic struct{ entries, bytes atomic.Uint64 }

var (
	_ raft.FSM                = (*machine)(nil)
	_ raft.ConfigurationStore = (*machine)(nil)
)

// Apply returns a state.Result, also to a caller that waits for the entry. If the entry cannot be decoded it returns
// an error, and stops the hub: without the command its state would differ from that of the other hubs.
func (m *machine) Apply(l *raft.Log) any {
	response := m.applyEntry(l)
	m.waiters.deliverResponse(l, response)
	return response
}

func (m *machine) applyEntry(l *raft.Log) any {
	if m.err != nil {
		return m.err
	}
	c, err := state.Decode(l.Data)
	if err != nil {
		m.err = fmt.Errorf("apply entry %d of term %d: %w", l.Index, l.Term, err)
		m.fail(m.err)
		return m.err
	}
	res := m.store.Apply(fleet.Index(l.Index), c)
	res.Index = fleet.Index(l.Index)
	t := &m.traffic[state.KindOf(c)]
	t.entries.Add(1)
	t.bytes.Add(uint64(len(l.Data)))
	m.bytes.Add(int64(len(l.Data)))
	if m.applied != nil {
		m.applied(Applied{Index: res.Index, Term: l.Term, Command: c, Result: res, View: m.store.View()})
	}
	return res
}

// StoreConfiguration does nothing. With this method raft counts entries that change the members as
// applied; otherwise it takes no snapshot while such an entry is the newest.
func (m *machine) StoreConfiguration(uint64, raft.Configuration) {}

// Snapshot returns the current state, to be written later by Persist.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.err != nil {
		return nil, m.err
	}
	return snapshot{m.store.View()}, nil
}

// Restore replaces the state by a snapshot.
func (m *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	if err := m.store.Restore(r); err != nil {
		return fmt.Errorf("replace the state by a Raft snapshot: %w", err)
	}
	return nil
}

// snapshot is a view of the state that raft writes to a snapshot file.
type snapshot struct{ view *state.View }

// Persist writes the view to sink. Raft calls it in another goroutine, while Apply goes on.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.view.Persist(sink); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil // raft closes the sink, or cancels it after an error
}

func (s snapshot) Release() {}
