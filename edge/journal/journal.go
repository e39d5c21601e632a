// Package journal stores what an edge must not forget in one SQLite database with synchronous commits: the
// desired state, the transitions, and what the cluster has acknowledged. No other package imports SQLite.
//
// edge.Open opens it. edge/allocs and runners record into it, edge/link reads from it. The edge journals each
// action before doing it, and each transition before sending it. Open makes or migrates the database. It also
// succeeds on a damaged one: it sets that aside, keeps what it can read, and reports it.
//
// One goroutine, from Open to Close, owns the database. It puts the writes of concurrent callers into one commit
// and answers reads between commits. A caller gets its answer after the commit is durable.
//
// The package knows nothing of the network or of drivers. It reads a row only to fold its client status and task
// states into the State of its allocation.
//
// # Numbers, the chain, and the bound
//
// Rows are numbered without gaps. The hash of a row covers the hash before it and the row's bytes, so a row that
// may have been sent cannot be changed or removed. The bound is therefore applied before a row gets its number:
// past three quarters of Config.MaxBytes, a transition that may be dropped (fleet.Transition.Droppable) is folded
// into its State and counted durably, and gets no number. The next row that is stored follows a gap row with the
// count. Status transitions are always stored; the last quarter is reserved for them.
//
// Acknowledged rows are deleted after Config.Retention, or sooner if their bytes are needed, oldest first. The
// chain hash before the oldest row is kept.
//
// # Damage
//
// A damaged database is set aside, and a new one is built from the readable parts. The high-water file beside it
// says how far the rows went, even if SQLite's log is cut short or everything is gone. If a row may be missing,
// Head.Lost says so until Rebase: the cluster says where to continue, and one gap row says what is lost.
// Acknowledged rows that are damaged are dropped with all rows before them: the cluster has them.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"skerry/fleet"
)

// ErrClosed is the error of every call to a closed Journal.
var ErrClosed = errors.New("the journal is closed")

// Defaults of Config.
const (
	DefaultMaxBytes        = 64 << 20
	DefaultRetention       = 24 * time.Hour
	DefaultCheckpointEvery = 10 * time.Minute
)

// Config of a Journal. Path, BootID and Mono are required.
type Config struct {
	Path   string // DATA/journal.db
	BootID fleet.BootID
	Now    func() time.Time     // wall clock; nil: time.Now
	Mono   func() time.Duration // time since boot; never goes back within BootID
	// MonoRelative says that Mono counts from an arbitrary point. The journal then continues from the
	// newest checkpoint of the same boot.
	MonoRelative bool
	// Expected says that a database must exist at Path. A missing one then counts as damaged, so that row
	// numbers that the cluster has seen are not used again.
	Expected        bool
	MaxBytes        int64         // bound of the bytes of rows; 0: 64 MiB
	Retention       time.Duration // of acknowledged rows, in machine time; 0: 24 h
	CheckpointEvery time.Duration // how often the time is written; 0: 10 min
	Log             *slog.Logger
	// FreeReserve is called when the disk is full. It frees reserved disk space and returns true, and the write
	// is tried again; false: no reserve is left. nil: there is none.
	FreeReserve func() bool
	// Step is called before each labelled step of the disk protocol (StepBegin and so on); its error makes the
	// step fail. Tests kill the process in it. nil: nothing.
	Step func(label string) error
	// Paranoid checks the whole database after every commit and panics on damage. For tests.
	Paranoid bool
}

// fillDefaults returns the configuration with its defaults in place of zero values.
func (c Config) fillDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.Retention = cmp.Or(c.Retention, DefaultRetention)
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, DefaultCheckpointEvery)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.FreeReserve == nil {
		c.FreeReserve = func() bool { return false }
	}
	if c.Step == nil {
		c.Step = func(string) error { return nil }
	}
	return c
}

// Journal is an open journal. Its methods may be called from any goroutine. Those with a context wait for the
// writer: a write until it is durable. Those without one read or change memory only.
type Journal struct {
	cfg Config
	log *slog.Logger

	ops             chan *op      // unbuffered: an op that was received gets an answer
	intervalChanged chan struct{} // capacity 1: checkpointInterval is another one
	quit            chan struct{}
	wg              sync.WaitGroup
	once            sync.Once // closes quit

	clock clock // set by Open
	// Owned by the writer:
	db            *database
	highWaterFile *os.File
	files         databaseFiles // after SQLite's last write

	mu                 sync.Mutex
	durable            durableState  // replaced after each commit
	contact            hubContact    // holds at once, written with a later commit
	checkpointInterval time.Duration // how often the time is written
	recorded           bool          // this process has written a checkpoint
	appended           chan struct{} // closed at the next append, then replaced
	closeErr           error         // set by the writer, read after it has ended
}

// Open opens the journal at cfg.Path, makes it if it is missing, and starts its writer goroutine. A damaged
// database is set aside and replaced. Open fails if the directory is not writable, the disk is full, or the
// database is of a newer release (fleet.CodeVersion).
func Open(cfg Config) (*Journal, error) {
	cfg = cfg.fillDefaults()
	if cfg.Path == "" || cfg.BootID == "" || cfg.Mono == nil {
		return nil, errors.New("open journal: Path, BootID and Mono are required")
	}
	j := &Journal{
		cfg: cfg, log: cfg.Log,
		ops: make(chan *op), intervalChanged: make(chan struct{}, 1), quit: make(chan struct{}), appended: make(chan struct{}),
	}
	if err := j.loadJournal(); err != nil {
		return nil, fmt.Errorf("open journal %s: %w", cfg.Path, err)
	}
	j.wg.Go(j.runWriter)
	return j, nil
}

// loadJournal opens the database, replaces it if it is damaged, and sets j's fields from it. If the disk is
// full, it frees the reserve and tries again. It starts no goroutine.
func (j *Journal) loadJournal() error {
	db, mem, err := openSound(j.cfg)
	for isFull(err) && j.cfg.FreeReserve() {
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
	j.clock, j.checkpointInterval = startClock(j.cfg, mem.checkpoint), j.cfg.CheckpointEvery
	if last := mem.checkpoint.NextWithin; last > 0 {
		j.checkpointInterval = min(last, j.checkpointInterval) // until the allocations say what they need
	}
	j.contact = hubContact{
		acknowledged: min(mem.checkpoint.Acknowledged, mem.head.Last),
		ackAge:       mem.checkpoint.AckAge, floor: mem.checkpoint.Floor, floorAge: mem.checkpoint.FloorAge,
		hubTime: mem.checkpoint.HubTime, hubAge: mem.checkpoint.HubAge,
		uncounted: mem.checkpoint.Uncounted + lostBefore(j.cfg, mem),
		dirty:     true, // the first commit records this boot
	}
	if j.contact.acknowledged < mem.head.First-1 {
		j.contact.acknowledged = mem.head.First - 1
	}
	j.files = readDatabaseFiles(j.cfg.Path)
	return nil
}

// Close waits for the writes that the writer is executing, writes a checkpoint of the journal's clock, and
// closes the database. It returns the error of that. Calls that still wait for the writer, and later ones, fail
// with ErrClosed.
func (j *Journal) Close() error {
	j.once.Do(func() { close(j.quit) })
	j.wg.Wait()
	return j.closeErr
}

// Quarantined returns the damaged databases that were set aside, oldest first.
func (j *Journal) Quarantined() []Quarantine {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durable.quarantined
}

// Head says which rows the journal holds, as a Hello announces it: the oldest and the newest row, the newest
// row that the cluster has acknowledged, the newest urgent row, and the chain hash at the newest. An empty
// journal has Last = First - 1.
type Head struct {
	First, Last, Acknowledged, Urgent fleet.Seq
	ChainHash                         []byte
	// Lost is the reason why rows may be missing; "": none are. Rows recorded since then have numbers
	// that no hub may see: Rebase renumbers them.
	Lost string
}

// Head returns the durable head. It reads memory only.
func (j *Journal) Head() Head {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.durable.head
	h.Acknowledged, h.Lost = j.contact.acknowledged, j.durable.missing.Reason
	return h
}

// Appended returns a channel that is closed at the next change of the head: rows are appended, or the database
// was rebuilt. Head.Urgent says if one of the rows is urgent.
func (j *Journal) Appended() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appended
}

// Usage is the space that rows use, and what the bound of that space has cost.
type Usage struct {
	Bytes   int64  // of rows, as MaxBytes counts them
	Dropped uint64 // transitions that were counted and not stored, ever
}

// Usage returns the space in use now. It reads memory only.
func (j *Journal) Usage() Usage {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Usage{Bytes: j.durable.bytes, Dropped: j.durable.checkpoint.DroppedEver}
}

// submitOp hands an op to the writer and waits for its result. If ctx ends first, it returns that error, and
// the writer may still execute the op.
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
