package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"skerry/fleet"
	"skerry/hub/state"
)

// machine applies the log to the state. Raft calls it from one goroutine, but
// for a snapshot's Persist.
type machine struct {
	store   *state.Store
	fail    func(error)   // stops the hub
	applied func(Applied) // nil: nobody watches

	err     error // why nothing is applied any more; raft's goroutine only
	traffic [256]traffic
	bytes   atomic.Int64 // of all commands applied
}

// traffic counts the commands of one kind.
type traffic struct{ entries, bytes atomic.Uint64 }

var (
	_ raft.FSM                = (*machine)(nil)
	_ raft.ConfigurationStore = (*machine)(nil)
)

// Apply gives a state.Result, or an error where the hub must stop: going on
// without the command would make this hub another one than the rest.
func (m *machine) Apply(l *raft.Log) any {
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

// StoreConfiguration is there so that raft counts entries that change the
// members as applied, too: else it takes no snapshot while one is the newest.
func (m *machine) StoreConfiguration(uint64, raft.Configuration) {}

// Snapshot takes the state as it is now; writing it comes later.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.err != nil {
		return nil, m.err
	}
	return snapshot{m.store.View()}, nil
}

func (m *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	if err := m.store.Restore(r); err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	return nil
}

// snapshot is a view on its way to the disk.
type snapshot struct{ view *state.View }

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.view.Persist(sink); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil // raft closes the sink, or cancels it after an error
}

func (s snapshot) Release() {}
