// Package journal is an edge's memory: what was desired, what happened, and what
// the cluster has acknowledged, in one SQLite database with full synchronous
// commits. It is the only package that imports SQLite.
//
// edge.Open opens it; the allocations record into it and the link reads from
// it. Everything an edge does is written here before it is done, and everything
// that happened before it is told. Open makes or migrates the database and
// succeeds on a damaged one: what cannot be read is set aside and reported.
//
// One goroutine, from Open to Close, owns the database: it folds what concurrent
// callers write into one commit, and reads for them between commits. Nothing is
// told to a caller that is not durable.
//
// It knows nothing of the network, of drivers, or of what a row means beyond the
// client status and task states that it folds into each allocation's State.
//
// # Numbers, the chain, and the bound
//
// Rows are numbered without holes, and each row's hash covers the row before it
// and the row's bytes, so a row that may have been sent can neither be changed
// nor taken out. The bound therefore works at the door. Past three quarters of
// Config.MaxBytes a transition that may be dropped (fleet.Transition.Droppable)
// is folded into its allocation's State and durably counted, but gets no number;
// the next row that is taken is preceded by a gap row with the count. Status
// transitions are always taken; the last quarter is theirs.
//
// Acknowledged rows go after Config.Retention, or sooner where their bytes are
// needed; always from the oldest on, and the chain hash before the oldest one
// held is kept.
//
// # Damage
//
// A damaged database is set aside, and a new one made of what can be read. A small
// file beside it, the witness, tells how far the rows went, also where SQLite's log
// is cut short or all is gone. Where a row may be missing, Head.Lost says so, and
// goes on saying so until Rebase: the cluster tells where to go on, and one gap row
// says what is lost. Damaged rows that are acknowledged are only dropped, with those
// before them: the cluster has them.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"skerry/fleet"
)

// ErrClosed is returned by whatever is asked of a closed Journal.
var ErrClosed = errors.New("the journal is closed")

// Defaults of Config.
const (
	DefaultMaxBytes  = 64 << 20
	DefaultRetention = 24 * time.Hour
	DefaultMarkEvery = 10 * time.Minute
)

// Config of a Journal. Path, BootID and Mono are required.
type Config struct {
	Path   string // DATA/journal.db
	BootID fleet.BootID
	Now    func() time.Time     // wall clock; nil: time.Now
	Mono   func() time.Duration // since boot, never going back within BootID
	// MonoRelative says that Mono counts from an arbitrary point: the journal
	// makes it go on from where the same boot's last mark stands.
	MonoRelative bool
	// Expected says that a database must be there: one that is gone counts as
	// damaged, so that numbers which the cluster has seen are not used again.
	Expected  bool
	MaxBytes  int64         // bound of the row bytes held, 0: 64 MiB
	Retention time.Duration // of acknowledged rows, in machine time; 0: 24 h
	MarkEvery time.Duration // how often the time is written, 0: 10 min
	Log       *slog.Logger
	// MakeRoom gives up disk space where the disk is full, so that what failed is tried
	// again; false: there is nothing to give up. nil: there never is.
	MakeRoom func() bool
	// Step is called before each labelled step of the disk protocol (see Steps);
	// an error makes that step fail. Tests kill the process in it. nil: nothing.
	Step func(label string) error
	// Paranoid checks the whole database after every commit and panics where it
	// is not sound. For tests.
	Paranoid bool
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.MarkEvery == 0 {
		c.MarkEvery = DefaultMarkEvery
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MakeRoom == nil {
		c.MakeRoom = func() bool { return false }
	}
	if c.Step == nil {
		c.Step = func(string) error { return nil }
	}
	return c
}

// Journal is an open journal. Its methods may be called from any goroutine.
type Journal struct {
	cfg Config
	log *slog.Logger

	ops  chan *op // unbuffered: what is taken from it is answered
	quit chan struct{}
	wg   sync.WaitGroup
	once sync.Once // closes quit

	clock clock // set by Open
	// Owned by the writer:
	db            *database
	highWaterFile *os.File
	files         [2]fs.FileInfo // the database and its log as they were seen last; nil: not there

	mu                   sync.Mutex
	durable              durableState  // what is durable; replaced after each commit
	contact              hubContact    // what counts at once and is written along
	clockCheckpointEvery time.Duration // how often the time is written
	appended             chan struct{} // closed at the next append, then replaced
	closeErr             error         // of the writer, read when it has ended
}

// Open opens the journal at cfg.Path. Errors are of a directory that cannot be
// written, of a disk that is full, or of a database of a newer release
// (fleet.CodeVersion).
func Open(cfg Config) (*Journal, error) {
	cfg = cfg.withDefaults()
	if cfg.Path == "" || cfg.BootID == "" || cfg.Mono == nil {
		return nil, errors.New("open journal: Path, BootID and Mono are required")
	}
	j := &Journal{
		cfg: cfg, log: cfg.Log,
		ops: make(chan *op), quit: make(chan struct{}), appended: make(chan struct{}),
	}
	if err := j.loadJournal(); err != nil {
		return nil, fmt.Errorf("open journal %s: %w", cfg.Path, err)
	}
	j.wg.Go(j.runWriter)
	return j, nil
}

// loadJournal reads everything that is kept in memory, from a sound database.
func (j *Journal) loadJournal() error {
	db, mem, err := openSound(j.cfg)
	for isFull(err) && j.cfg.MakeRoom() {
		db, mem, err = openSound(j.cfg)
	}
	if err != nil {
		return err
	}
	j.db, j.durable = db, mem
	if j.highWaterFile, err = openHighWaterFile(j.cfg.Path); err != nil {
		return errors.Join(err, db.close())
	}
	j.writeHighWater(highWaterMark{mem.generation, mem.head.Last})
	j.clock, j.clockCheckpointEvery = startClock(j.cfg, mem.checkpoint), j.cfg.MarkEvery
	j.contact = hubContact{
		acknowledged: min(mem.checkpoint.Acknowledged, mem.head.Last),
		ackAge:       mem.checkpoint.AckAge, floor: mem.checkpoint.Floor, floorAge: mem.checkpoint.FloorAge,
		hubTime: mem.checkpoint.HubTime, hubAge: mem.checkpoint.HubAge,
		dirty: true, // the first commit marks this boot
	}
	if j.contact.acknowledged < mem.head.First-1 {
		j.contact.acknowledged = mem.head.First - 1
	}
	j.files = statFiles(j.cfg.Path)
	return nil
}

// Close waits for what is being written and closes the database.
func (j *Journal) Close() error {
	j.once.Do(func() { close(j.quit) })
	j.wg.Wait()
	return j.closeErr
}

// Quarantined reports what was set aside in this database's past, oldest first;
// empty where it was always sound.
func (j *Journal) Quarantined() []Quarantine {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durable.quarantined
}

// Head is what a Hello announces: oldest and newest row held, what the cluster
// has acknowledged, the newest urgent row, and the chain hash at the newest. An
// empty journal has Last = First - 1.
type Head struct {
	First, Last, Acknowledged, Urgent fleet.Seq
	ChainHash                         []byte
	// Lost is why rows may be missing, "" where none are. The rows since then have
	// numbers that no hub may be told: Rebase gives them others.
	Lost string
}

// Head returns the durable head; it reads memory only.
func (j *Journal) Head() Head {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.durable.head
	h.Acknowledged, h.Lost = j.contact.acknowledged, j.durable.missing.Reason
	return h
}

// Appended returns a channel that is closed when rows are appended after the
// call; Head.Urgent tells whether one of them is urgent.
func (j *Journal) Appended() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appended
}

// Usage is what the journal holds.
type Usage struct {
	Bytes   int64  // of rows, as the bound counts them
	Dropped uint64 // transitions counted instead of kept, ever
}

// Usage reads memory only.
func (j *Journal) Usage() Usage {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Usage{Bytes: j.durable.bytes, Dropped: j.durable.checkpoint.DroppedEver}
}

// submitOp hands an op to the writer and waits for its answer. Where ctx ends first
// the op may still be carried out.
func (j *Journal) submitOp(ctx context.Context, o *op) error {
	o.done = make(chan error, 1)
	select {
	case j.ops <- o:
	case <-j.quit:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
