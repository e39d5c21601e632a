package consensus

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/metadb"
)

// Log is the log on disk, as raft uses it.
type Log interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// OpenLog opens a log in files of size bytes.
func OpenLog(dir string, size int, fail func(error)) (Log, error) {
	l, err := openLog(logConfig{dir: dir, size: size, fail: fail, log: newRaftLog(slog.New(slog.DiscardHandler))})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// LoseRotation puts the log in dir, which is closed, back to where it was when
// its newest but one file had just become full.
func LoseRotation(dir string) (lost bool, err error) {
	meta := &metadb.BoltMetaDB{}
	defer meta.Close()
	st, err := meta.Load(dir)
	if err != nil || len(st.Segments) < 2 {
		return false, err
	}
	st.Segments = st.Segments[:len(st.Segments)-1]
	full := &st.Segments[len(st.Segments)-1]
	full.SealTime, full.MaxIndex, full.IndexStart = time.Time{}, 0, 0
	return true, meta.CommitState(st)
}

// Due and Trailing are the rules of compaction.
func Due(entries uint64, bytes int64, maxEntries uint64, maxBytes int64) bool {
	return growth{entries, bytes}.isSnapshotDue(maxEntries, maxBytes)
}

func Trailing(entries uint64, bytes int64, limit uint64) uint64 {
	return growth{entries, bytes}.trailingEntries(limit)
}

// AloneWaits reports whether a command that goes alone waits for those before it.
func (n *Node) AloneWaits() bool {
	if n.applyTurns.TryAcquire(1) {
		n.applyTurns.Release(1)
		return false
	}
	return true
}

// ServeRequests has a transport answer requests until the test ends, and returns the requests that
// are left to raft.
func ServeRequests(tb testing.TB, requests <-chan raft.RPC, term func() uint64, log raft.LogStore) <-chan raft.RPC {
	t := newCoveredSnapshots(nil)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { t.serveRequests(ctx, requests, term, log) })
	tb.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return t.Consumer()
}

// CommitIndex is that of a hub.
type CommitIndex uint64

func (c CommitIndex) CommitIndex() uint64 { return uint64(c) }

// IsCommittedAs reports whether the entry that is committed at index has a tag, and whether that is not decided yet.
func IsCommittedAs(commit CommitIndex, log raft.LogStore, index uint64, tag [8]byte) (ours, undecided bool, err error) {
	ours, err = isCommittedAs(commit, log, index, tag)
	return ours, errors.Is(err, errUndecided), err
}
