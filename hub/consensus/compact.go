package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// trailingBytes bounds what is kept of the log behind a snapshot: a hub that
	// was away for less gets entries, one that was away for more gets the snapshot.
	trailingBytes = 16 << 20
	// minTrailing entries are kept also where they are large.
	minTrailing = 64
)

// runSnapshotLoop takes a snapshot whenever one is due. Raft counts entries alone, and a
// folded update of many edges has a thousand times the size of an evaluation.
func (n *Node) runSnapshotLoop(ctx context.Context, r *raft.Raft, d *disk) error {
	tick := time.NewTicker(n.cfg.SnapshotInterval)
	defer tick.Stop()
	var taken int64 // what the machine had applied, in bytes, at the last snapshot
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

// growth of the log since the last snapshot.
type growth struct {
	entries uint64
	bytes   int64
}

// isSnapshotDue reports whether a snapshot pays: by the time that reading the log again
// takes, or by its size. Bytes should be at least the size of a snapshot, so that
// not more is written for snapshots than for the log.
func (g growth) isSnapshotDue(entries uint64, bytes int64) bool {
	return g.entries > 0 && (g.entries >= entries || g.bytes >= bytes)
}

// trailingEntries is how many entries to keep behind a snapshot: at most limit, and as
// many as are trailingBytes by the size of an average one.
func (g growth) trailingEntries(limit uint64) uint64 {
	if g.entries == 0 || g.bytes <= 0 {
		return limit
	}
	fit := uint64(float64(g.entries) / float64(g.bytes) * trailingBytes)
	return min(limit, max(fit, minTrailing))
}
