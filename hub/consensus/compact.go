package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// trailingBytes bounds the entries that are kept behind a snapshot. A hub that missed fewer
	// gets entries, one that missed more gets the snapshot.
	trailingBytes = 16 << 20
	// minTrailing is how many entries are kept even if they are large.
	minTrailing = 64
)

// runSnapshotLoop takes a snapshot whenever one is due, until ctx ends. It replaces raft's own rule, which
// counts only entries: an update of many edges has a thousand times the size of an evaluation.
func (n *Node) runSnapshotLoop(ctx context.Context, r *raft.Raft, d *disk) error {
	tick := time.NewTicker(n.cfg.SnapshotInterval)
	defer tick.Stop()
	var taken int64 // bytes of commands that the machine had applied at the last snapshot
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		index, size, err := d.newestSnapshot()
		if err != nil {
			return err
		}
		applied := n.machine.bytes.Load()
		since := growth{entries: r.AppliedIndex() - min(index, r.AppliedIndex()), bytes: applied - taken}
		if !since.isSnapshotDue(n.cfg.SnapshotThreshold, max(n.cfg.SnapshotBytes, size)) {
			continue
		}
		if err := n.takeSnapshot(r, since); err != nil {
			n.log.Warn("snapshot failed", "error", err)
			continue
		}
		taken = applied
	}
}

// takeSnapshot takes a snapshot and compacts the log. It sets the number of trailing entries by the log's
// growth since.
func (n *Node) takeSnapshot(r *raft.Raft, since growth) error {
	reload := r.ReloadableConfig()
	reload.TrailingLogs = since.trailingEntries(n.cfg.TrailingLogs)
	if err := r.ReloadConfig(reload); err != nil {
		return fmt.Errorf("set trailing logs to %d: %w", reload.TrailingLogs, err)
	}
	start := time.Now()
	if err := r.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return err
	}
	n.log.Info("snapshot taken", "entries", since.entries, "bytes", since.bytes, "took", time.Since(start), "trailing", reload.TrailingLogs)
	return nil
}

// growth is how much the log grew since the last snapshot.
type growth struct {
	entries uint64
	bytes   int64
}

// isSnapshotDue reports whether the log grew by at least that many entries, which bounds the time of a
// replay, or bytes. bytes should be at least the size of a snapshot, so that snapshots do not write more
// than the log.
func (g growth) isSnapshotDue(entries uint64, bytes int64) bool {
	return g.entries > 0 && (g.entries >= entries || g.bytes >= bytes)
}

// trailingEntries returns how many entries to keep behind a snapshot: as many as fit into trailingBytes at
// their average size, at least minTrailing, and never more than limit.
func (g growth) trailingEntries(limit uint64) uint64 {
	if g.entries == 0 || g.bytes <= 0 {
		return limit
	}
	fit := uint64(float64(g.entries) / float64(g.bytes) * trailingBytes)
	return min(limit, max(fit, minTrailing))
}
