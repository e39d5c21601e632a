package virtual

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"skerry/edge/journal"
	"skerry/internal/datadir"
)

// errKilled is what the disk answers to a process that is dead but does not know it.
var errKilled = errors.New("the process was killed")

// clock is a machine's wall clock.
type clock struct {
	offset atomic.Int64
	asked  atomic.Uint64 // how often
}

func (c *clock) Now() time.Time {
	c.asked.Add(1)
	return time.Now().Add(time.Duration(c.offset.Load()))
}

// Jump moves the clock.
func (c *clock) Jump(by time.Duration) { c.offset.Add(int64(by)) }

// Set sets the clock.
func (c *clock) Set(to time.Time) { c.offset.Store(int64(time.Until(to))) }

// Right sets the clock to the true time.
func (c *clock) Right() { c.offset.Store(0) }

// disk is what is wrong with a machine's disk.
type disk struct {
	full atomic.Bool
	// reserve is where the agent keeps what it gives up on a full disk, held how much that
	// was when the disk was filled, and used how much of what it gave up is written to.
	reserve       string
	reserveAtFill atomic.Int64
	used          atomic.Int64
	slow          atomic.Int64 // each step takes so long
	hits          atomic.Int64
	trap          atomic.Pointer[trap]
}

// trap waits for a step of a disk protocol.
type trap struct {
	label  string
	spring func() error // called at the step, which fails with what it returns
}

// Fill makes every write fail for want of space, but for what fits into the reserve that the
// agent gives up.
func (d *disk) Fill(full bool) {
	if full {
		d.reserveAtFill.Store(size(d.reserve))
		d.used.Store(0)
	}
	d.full.Store(full)
}

// Sizes of a machine's disk.
const (
	diskSize = 16 << 30
	diskFree = 8 << 30
	// writeSize is what a write takes of a full disk: a page of the journal's log, and what
	// of it ends up in the database.
	writeSize = 4 << 10
)

// Free is how much of the disk is free, and its size.
func (d *disk) Free(string) (free, total int64, err error) {
	if !d.full.Load() {
		return diskFree, diskSize, nil
	}
	return max(0, d.reserveAtFill.Load()-size(d.reserve)-d.used.Load()), diskSize, nil
}

// takeSpaceForWrite reports whether a full disk has room for one more write.
func (d *disk) takeSpaceForWrite(label string) bool {
	free, _, _ := d.Free("")
	if free < writeSize {
		return false
	}
	if label == journal.StepCommit || label == datadir.StepWrite {
		d.used.Add(writeSize)
	}
	return true
}

// Slow makes every step take so long.
func (d *disk) Slow(by time.Duration) { d.slow.Store(int64(by)) }

// Hits is how many steps were made to fail or to wait.
func (d *disk) Hits() int64 { return d.hits.Load() }

// beforeDiskStep is what a daemon asks before each step; l is its life.
func (d *disk) beforeDiskStep(label string, l *life) error {
	if l.dead.Load() {
		return errKilled
	}
	if by := time.Duration(d.slow.Load()); by > 0 {
		d.hits.Add(1)
		time.Sleep(by)
	}
	if t := d.trap.Load(); t != nil && t.label == label && d.trap.CompareAndSwap(t, nil) {
		return t.spring()
	}
	if d.full.Load() {
		d.hits.Add(1)
		if !d.takeSpaceForWrite(label) {
			return syscall.ENOSPC
		}
	}
	return nil
}

// life is one life of a process: its goroutines, until it is stopped or killed.
type life struct {
	cancel context.CancelFunc
	dead   atomic.Bool // killed: what it still writes must not reach the disk
	ended  chan struct{}
	err    error // why it ended; after ended
}

// runProcess runs the process.
func (l *life) runProcess(run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.ended = cancel, make(chan struct{})
	go func() {
		defer close(l.ended)
		l.err = run(ctx)
	}()
}

// stopAndWait stops it and waits.
func (l *life) stopAndWait() {
	l.cancel()
	<-l.ended
}
