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

// errKilled is the error of a disk step of a killed process whose goroutines still run.
var errKilled = errors.New("the process was killed")

// clock is the wall clock of a machine: the bubble's time plus an offset.
type clock struct {
	offset atomic.Int64
	asked  atomic.Uint64 // number of calls of Now
}

// Now returns the machine's wall clock and counts the call.
func (c *clock) Now() time.Time {
	c.asked.Add(1)
	return time.Now().Add(time.Duration(c.offset.Load()))
}

// Jump adds by to the clock's offset.
func (c *clock) Jump(by time.Duration) { c.offset.Add(int64(by)) }

// Set sets the clock to a time.
func (c *clock) Set(to time.Time) { c.offset.Store(int64(time.Until(to))) }

// Right sets the clock to the bubble's time.
func (c *clock) Right() { c.offset.Store(0) }

// disk has the faults of a machine's disk.
type disk struct {
	full atomic.Bool
	// reserve is the path of the agent's reserve file, which it shrinks on a full disk.
	// reserveAtFill is its size at the time of Fill; used are the bytes written since then.
	reserve       string
	reserveAtFill atomic.Int64
	used          atomic.Int64
	slow          atomic.Int64         // duration of each disk step
	hits          atomic.Int64         // see Hits
	trap          atomic.Pointer[trap] // nil: none is set
}

// trap calls spring, once, at the next disk step with its label. The step fails with spring's error.
type trap struct {
	label  string
	spring func() error
}

// Fill starts (true) or ends (false) a full disk. Writes to a full disk fail with ENOSPC, except
// for as many as the space that the agent frees from its reserve allows.
func (d *disk) Fill(full bool) {
	if full {
		d.reserveAtFill.Store(size(d.reserve))
		d.used.Store(0)
	}
	d.full.Store(full)
}

// TakeFreeSpace uses all free space of a full disk, as another program of the machine does.
func (d *disk) TakeFreeSpace() {
	free, _, _ := d.Free("")
	d.used.Add(free)
}

// Size and free space of a machine's disk, in bytes.
const (
	diskSize = 16 << 30
	diskFree = 8 << 30
	// writeSize is the space of one write on a full disk: a page in the journal's log, and its
	// part of the database.
	writeSize = 4 << 10
)

// Free returns the free space and the size of the disk, in bytes.
func (d *disk) Free(string) (free, total int64, err error) {
	if !d.full.Load() {
		return diskFree, diskSize, nil
	}
	return max(0, d.reserveAtFill.Load()-size(d.reserve)-d.used.Load()), diskSize, nil
}

// takeSpaceForWrite reports whether a full disk has space for the step's write. If the step
// writes, it takes that space.
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

// Slow makes every disk step sleep for the duration; 0: none.
func (d *disk) Slow(by time.Duration) { d.slow.Store(int64(by)) }

// Hits returns the number of disk steps that a slow or full disk affected.
func (d *disk) Hits() int64 { return d.hits.Load() }

// beforeDiskStep is called by a daemon before each disk step and applies the disk's faults: it
// sleeps, springs a trap, or returns the step's error. It returns errKilled if life l is over.
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

// life is one process of a daemon: its goroutines, from the start until it ends or is killed.
type life struct {
	cancel context.CancelFunc
	dead   atomic.Bool // killed: its later disk steps fail
	ended  chan struct{}
	err    error // the process's error; valid after ended is closed
}

// runProcess starts run in a goroutine, and closes l.ended when it returns.
func (l *life) runProcess(run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.ended = cancel, make(chan struct{})
	go func() {
		defer close(l.ended)
		l.err = run(ctx)
	}()
}

// stopAndWait cancels the process's context and waits until it has ended.
func (l *life) stopAndWait() {
	l.cancel()
	<-l.ended
}
