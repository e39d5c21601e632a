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
	// logDir is the log's folder below Config.Dir; raft puts "snapshots" beside it.
	logDir       = "log"
	snapshotsDir = "snapshots"
	// keptSnapshots is one to use and one for the case that it is damaged.
	keptSnapshots = 2
)

// disk is the log and the snapshots of a hub.
type disk struct {
	dir       string
	log       *guardedLog
	snapshots raft.SnapshotStore
}

// openDisk opens what is in dir, or makes it.
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

func (d *disk) close() error {
	if err := d.log.Close(); err != nil {
		return fmt.Errorf("close the log in %s: %w", d.dir, err)
	}
	return nil
}

// newestSnapshot is the index and the size in bytes of the newest snapshot.
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

// diskUsage is what log and snapshots take on disk, in bytes.
func (d *disk) diskUsage() (log, snapshots int64) {
	return dirSize(filepath.Join(d.dir, logDir)), dirSize(filepath.Join(d.dir, snapshotsDir))
}

// dirSize adds up what is there; files that go meanwhile do not count.
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

// guardedLog is the log, and stops the hub at the first write that fails: raft
// would go on as a hub that wins elections and can keep nothing.
type guardedLog struct {
	*wal.WAL
	cfg     logConfig
	files   *segments
	meta    *metadb.BoltMetaDB
	failing atomic.Bool
	// turn is whose write it is. raft-wal has a lock for that, but where a disk is slow
	// in virtual time, time stands still for whoever waits at a lock.
	turn chan struct{}
}

// logConfig of a guardedLog.
type logConfig struct {
	dir  string
	size int                      // of each file, in bytes
	step func(label string) error // nil: no step fails by intent
	fail func(error)              // told when the log cannot be written any more
	log  hclog.Logger
}

var (
	_ raft.MonotonicLogStore = (*guardedLog)(nil)
	_ raft.StableStore       = (*guardedLog)(nil)
)

// openLog opens the log in its directory, or makes it.
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

// Close closes the list of files, too, which raft-wal leaves open and locked.
func (l *guardedLog) Close() error {
	defer l.acquireTurn()()
	return errors.Join(l.WAL.Close(), l.meta.Close())
}

func (l *guardedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *guardedLog) StoreLogs(entries []*raft.Log) error {
	defer l.acquireTurn()()
	_ = l.files.waitForRotation() // of a rotation that does not come to its end, the write itself tells
	return l.reportWriteError(l.WAL.StoreLogs(entries))
}

// acquireTurn waits for the turn, and returns what gives it back.
func (l *guardedLog) acquireTurn() (release func()) {
	l.turn <- struct{}{}
	return func() { <-l.turn }
}

func (l *guardedLog) DeleteRange(first, last uint64) error {
	defer l.acquireTurn()()
	if err := l.files.waitForRotation(); err != nil {
		return l.reportWriteError(err)
	}
	return l.reportWriteError(l.WAL.DeleteRange(first, last))
}

func (l *guardedLog) Set(key, val []byte) error {
	return l.reportWriteError(l.writeVote(func() error { return l.WAL.Set(key, val) }))
}

func (l *guardedLog) SetUint64(key []byte, val uint64) error {
	return l.reportWriteError(l.writeVote(func() error { return l.WAL.SetUint64(key, val) }))
}

// writeVote writes what raft keeps besides entries.
func (l *guardedLog) writeVote(write func() error) error {
	if l.cfg.step != nil {
		if err := l.cfg.step(StepVote); err != nil {
			return err
		}
	}
	return write()
}

func (l *guardedLog) reportWriteError(err error) error {
	if err != nil && !errors.Is(err, wal.ErrClosed) && !l.failing.Swap(true) {
		l.cfg.fail(fleet.Errorf(fleet.CodeUnavailable, "write the log in %s: %v", l.cfg.dir, err).
			WithHint("see to the disk, then start the hub again: nothing that was acknowledged is lost"))
	}
	return err
}

// bootstrapLog makes a log that says that this hub is the only voter, where there is
// no log yet. It is made aside and put in place at once, so that a crash in the
// middle leaves nothing behind that would have to be understood.
func (n *Node) bootstrapLog() error {
	if _, err := os.Stat(filepath.Join(n.cfg.Dir, logDir)); !errors.Is(err, fs.ErrNotExist) {
		return err // nil: there is one
	}
	aside := n.cfg.Dir + ".new"
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove what a crash left: %w", err)
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

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return errors.Join(f.Sync(), f.Close())
}
