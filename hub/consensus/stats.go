package consensus

import "skerry/hub/state"

// Stats holds the counters and sizes of a Node, for people and metrics.
type Stats struct {
	Term          uint64
	LastIndex     uint64 // of the log
	CommitIndex   uint64
	AppliedIndex  uint64
	SnapshotIndex uint64
	LeaderChanges uint64 // seen by this hub since it started
	// Commands counts the commands applied since the process started, by kind.
	Commands map[state.Kind]Traffic
	// Sizes on disk, in bytes. The log's files are created at their full size.
	LogBytes      int64
	SnapshotBytes int64
}

// Traffic counts applied commands of one kind, and their bytes in the log.
type Traffic struct {
	Entries uint64
	Bytes   uint64
}

// Stats returns the current counters and sizes; all are zero before Ready.
func (n *Node) Stats() Stats {
	r, d := n.raft.Load(), n.disk.Load()
	if r == nil {
		return Stats{}
	}
	s := Stats{
		Term: r.CurrentTerm(), LastIndex: r.LastIndex(), CommitIndex: r.CommitIndex(), AppliedIndex: r.AppliedIndex(),
		LeaderChanges: n.leaderChanges.Load(), Commands: map[state.Kind]Traffic{},
	}
	for kind := range n.machine.traffic {
		t := &n.machine.traffic[kind]
		if entries := t.entries.Load(); entries > 0 {
			s.Commands[state.Kind(kind)] = Traffic{Entries: entries, Bytes: t.bytes.Load()}
		}
	}
	index, _, err := d.newestSnapshot()
	if err != nil {
		n.log.Warn("snapshots cannot be listed", "error", err)
	}
	s.SnapshotIndex = index
	s.LogBytes, s.SnapshotBytes = d.diskUsage()
	return s
}
