package real

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/disk"
	"skerry/chaos/schedule"
)

var diskKinds = []realKind{
	{kind: schedule.DiskFull, needs: needs{disks: true}, effects: []check.Effect{check.Chokes, check.Halts}, edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &full{s: s, name: e.Name, disk: e.Disk, running: e.Running, again: func() error { return s.startEdge(e) }}
	}},
	{kind: schedule.HubDiskFull, needs: needs{disks: true}, effects: []check.Effect{check.Chokes, check.Halts}, hub: func(s *campaignRun, _ schedule.Fault, h *cluster.Hub) memberFault {
		return &full{s: s, name: h.Name, disk: h.Disk, running: h.Running, again: func() error { return s.startHub(h) }}
	}},
	{
		kind: schedule.SlowDisk, needs: needs{disks: true}, effects: []check.Effect{check.Chokes},
		edge: func(_ *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault {
			return &slow{name: e.Name, disk: e.Disk, sync: f.Params.Sync}
		},
		hub: func(_ *campaignRun, f schedule.Fault, h *cluster.Hub) memberFault {
			return &slow{name: h.Name, disk: h.Disk, sync: f.Params.Sync}
		},
	},
}

// full is a disk on which nothing more fits. A process that gives up is started
// again when there is room.
type full struct {
	s       *campaignRun
	name    string
	disk    *disk.Disk
	running func() bool
	again   func() error
	said    error
}

func (t *full) injectFault(context.Context) (err error) {
	t.s.expectDown(t.name)
	t.said, err = t.disk.Fill()
	return err
}

func (t *full) healFault(context.Context) error {
	defer t.s.expectUp(t.name)
	// What was freed meanwhile is taken first, so that the disk was full to the end.
	_, err := t.disk.Fill()
	err = errors.Join(err, t.disk.Empty())
	if !t.running() && t.s.onlyDown(t.name) {
		err = errors.Join(err, t.again())
	}
	return err
}

func (t *full) faultEvidence() (uint64, string) {
	if t.said == nil {
		return 0, ""
	}
	return 1, fmt.Sprintf("%s: %v", t.name, t.said)
}

// slow is a disk that takes nothing for a while, again and again.
type slow struct {
	name string
	disk *disk.Disk
	sync time.Duration

	cancel context.CancelFunc
	over   sync.WaitGroup
	times  int
	err    error
}

func (t *slow) injectFault(ctx context.Context) error {
	ctx, t.cancel = context.WithCancel(ctx)
	t.over.Go(func() { t.times, t.err = t.disk.Stutter(ctx, t.sync, t.sync/4+10*time.Millisecond) })
	return nil
}

func (t *slow) healFault(context.Context) error {
	t.cancel()
	t.over.Wait()
	return t.err
}

func (t *slow) faultEvidence() (uint64, string) {
	return uint64(t.times), fmt.Sprintf("%s: stalled %d times for %s", t.name, t.times, t.sync)
}

// tearPage leaves the first half of a page behind what the journal's log holds, as a
// write does that the power cut short. What was synced before it stays: a disk that
// loses that as well keeps no promise, and is another fault.
func tearPage(journal string) error {
	const page = 4096
	f, err := os.OpenFile(newest(journal), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("tear a page: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("tear a page: %w", err)
	}
	half := make([]byte, min(page/2, info.Size()))
	if _, err := f.ReadAt(half, info.Size()-int64(len(half))); err != nil {
		return fmt.Errorf("tear a page: %w", err)
	}
	if _, err := f.WriteAt(half, info.Size()); err != nil {
		return fmt.Errorf("tear a page: %w", err)
	}
	return nil
}

// newest is the part of the journal that was written last: its log, where it has one.
func newest(journal string) string {
	if info, err := os.Stat(journal + "-wal"); err == nil && info.Size() > 0 {
		return journal + "-wal"
	}
	return journal
}

// flipBits flips bits anywhere in the journal and its log.
func flipBits(journal string, bits int) error {
	for range bits {
		path := journal
		if rand.IntN(2) == 0 {
			path = newest(journal)
		}
		if err := flipBit(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("flip a bit: %w", err)
		}
	}
	return nil
}

func flipBit(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	at, b := rand.Int64N(info.Size()), []byte{0}
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 1 << rand.IntN(8)
	_, err = f.WriteAt(b, at)
	return err
}
