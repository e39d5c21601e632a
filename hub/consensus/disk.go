package consensus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"skerry/fleet"
)

const (
	// logDir is the log's folder below Config.Dir. raft creates the folder "snapshots" beside it.
	logDir       = "log"
	snapshotsDir = "snapshots"
	// keptSnapshots: the newest snapshot, and an older one in case that is damaged.
	keptSnapshots = 2
)

// disk is the open log and snapshots of a hub.
type disk struct {
	dir       string
	log       *guardedLog
	snapshots raft.SnapshotStore
}

// openDisk opens the log and the snapshots in dir, and creates what is missing. The caller closes it.
func (n *Node) openDisk(dir string) (*disk, error) {
	d := &disk{dir: dir}
	var err error
	if d.log, err = openLog(logConfig{
		dir: filepath.Join(dir, logDir), size: n.cfg.SegmentBytes, step: n.cfg.DiskStep, fail: n.failRun, log: n.raftLog,
	}); err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", dir, err)
	}
	if d.snapshots, err = raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, n.raftLog); err != nil {
		return nil, errors.Join(fmt.Errorf("open the snapshots in %s: %w", dir, err), d.close())
	}
	return d, nil
}

// close closes the log. The snapshots need no closing.
func (d *disk) close() error {
	if err := d.log.Close(); err != nil {
		return fmt.Errorf("close the log in %s: %w", d.dir, err)
	}
	return nil
}

// newestSnapshot returns the index and the size in bytes of the newest snapshot; zeros if there is none.
func (d *disk) newestSnapshot() (index uint64, size int64, err error) {
	list, err := d.snapshots.List()
	if err != nil {
		return 0, 0, fmt.Errorf("list snapshots: %w", err)
	}
	if len(list) == 0 {
		return 0, 0, nil
	}
	return list[0].Index, list[0].Size, nil
}

// diskUsage returns the sizes of the log and the snapshots on disk, in bytes.
func (d *disk) diskUsage() (log, snapshots int64) {
	return dirSize(filepath.Join(d.dir, logDir)), dirSize(filepath.Join(d.dir, snapshotsDir))
}

// dirSize adds up the sizes of all files below dir. It skips files that it cannot read.
func dirSize(dir string) int64 {
	var sum int64
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if fi, err := e.Info(); err == nil {
			sum += fi.Size()
		}
		return nil
	})
	return sum
}

// guardedLog is raft's log. It stops the hub at the first write that fails: raft would go on, and could
// win elections without being able to store anything.
type guardedLog struct {
	*wal.WAL
	cfg     logConfig
	files   *segments
	meta    *metadb.BoltMetaDB
	failing atomic.Bool
	// turn is held by the one writer. raft-wal has a mutex for that, but a goroutine that waits for a
	// mutex stops virtual time, so that a simulated slow disk would never finish.
	turn chan struct{}
}

// logConfig configures a guardedLog.
type logConfig struct {
	dir  string
	size int                      // of each file, in bytes
	step func(label string) error // Config.DiskStep
	fail func(error)              // called once, when a write fails
	log  hclog.Logger
}

var (
	_ raft.MonotonicLogStore = (*guardedLog)(nil)
	_ raft.StableStore       = (*guardedLog)(nil)
)

// openLog opens the log in its directory, or creates it. It finishes a rotation that a crash interrupted.
func openLog(cfg logConfig) (*guardedLog, error) {
	if err := os.MkdirAll(cfg.dir, 0o700); err != nil {
		return nil, err
	}
	var files types.VFS = walfs.New()
	if cfg.step != nil {
		files = steppedFS{files, cfg.step}
	}
	l := &guardedLog{
		cfg: cfg, meta: &metadb.BoltMetaDB{}, turn: make(chan struct{}, 1),
		files: &segments{Filer: segment.NewFiler(cfg.dir, files)},
	}
	err := l.files.finishRotation(l.meta, cfg.dir)
	if err == nil {
		l.WAL, err = wal.Open(cfg.dir, wal.WithLogger(cfg.log), wal.WithSegmentSize(cfg.size),
			wal.WithMetaStore(l.meta), wal.WithSegmentFiler(l.files))
	}
	if err != nil {
		return nil, errors.Join(err, l.meta.Close())
	}
	return l, nil
}

// Close closes the log and its list of files. raft-wal would leave the list open and locked.
func (l *guardedLog) Close() error {
	defer l.acquireTurn()()
	return errors.Join(l.WAL.Close(), l.meta.Close())
}

// StoreLog and StoreLogs append entries, and return when they are durable.
func (l *guardedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *guardedLog) StoreLogs(entries []*raft.Log) error {
	defer l.acquireTurn()()
	_ = l.files.waitForRotation() // if the rotation does not finish, the write itself fails
	return l.reportWriteError(l.WAL.StoreLogs(entries))
}

// acquireTurn waits until no other write is in progress. The caller must call release.
func (l *guardedLog) acquireTurn() (release func()) {
	l.turn <- struct{}{}
	return func() { <-l.turn }
}

// DeleteRange removes entries at the beginning (after a snapshot) or at the end (a conflict with the
// leader) of the log.
func (l *guardedLog) DeleteRange(first, last uint64) error {
	defer l.acquireTurn()()
	if err := l.files.waitForRotation(); err != nil {
		return l.reportWriteError(err)
	}
	return l.reportWriteError(l.WAL.DeleteRange(first, last))
}

// Set and SetUint64 store raft's term and vote, and return when they are durable.
func (l *guardedLog) Set(key, val []byte) error {
	return l.reportWriteError(l.writeVote(func() error { return l.WAL.Set(key, val) }))
}

func (l *guardedLog) SetUint64(key []byte, val uint64) error {
	return l.reportWriteError(l.writeVote(func() error { return l.WAL.SetUint64(key, val) }))
}

// writeVote calls write, after the step StepVote.
func (l *guardedLog) writeVote(write func() error) error {
	if l.cfg.step != nil {
		if err := l.cfg.step(StepVote); err != nil {
			return err
		}
	}
	return write()
}

// reportWriteError returns err. The first error other than wal.ErrClosed also stops the hub.
func (l *guardedLog) reportWriteError(err error) error {
	if err != nil && !errors.Is(err, wal.ErrClosed) && !l.failing.Swap(true) {
		l.cfg.fail(fleet.Errorf(fleet.CodeUnavailable, "write the log in %s: %v", l.cfg.dir, err).
			WithHint("see to the disk, then start the hub again: nothing that was acknowledged is lost"))
	}
	return err
}

// bootstrapLog creates a log in which this hub is the only voter, unless there is a log. It builds the log
// in another directory and renames that, so that a crash leaves no partial log.
func (n *Node) bootstrapLog() error {
	if _, err := os.Stat(filepath.Join(n.cfg.Dir, logDir)); !errors.Is(err, fs.ErrNotExist) {
		return err // nil: the log exists
	}
	aside := n.cfg.Dir + ".new"
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove %s, which a crash left: %w", aside, err)
	}
	d, err := n.openDisk(aside)
	if err != nil {
		return err
	}
	_, trans := raft.NewInmemTransport(raft.ServerAddress(n.cfg.Addr))
	err = raft.BootstrapCluster(n.raftConfig(), d.log, d.log, d.snapshots, trans, raft.Configuration{
		Servers: []raft.Server{{ID: raft.ServerID(n.cfg.ID), Address: raft.ServerAddress(n.cfg.Addr)}},
	})
	if err := errors.Join(err, d.close(), syncDir(aside)); err != nil {
		return err
	}
	if err := os.Rename(aside, n.cfg.Dir); err != nil {
		return fmt.Errorf("put the log in place: %w", err)
	}
	return syncDir(filepath.Dir(n.cfg.Dir))
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return errors.Join(f.Sync(), f.Close())
}
