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

	"skerry/chaos/engine"
)

// FillDisk has nothing more fit on a member's disk. A process that gives up is started again
// when there is room.
func (p platform) FillDisk(_ context.Context, member string) (engine.Active, error) {
	machine := p.s.fleet.Machine(member)
	disk := machine.Common().Disk
	p.s.expectDown(member)
	said, err := disk.Fill()
	return engine.Active{
		Heal: func(context.Context) error {
			defer p.s.expectUp(member)
			// What was freed meanwhile is taken first, so that the disk was full to the end.
			_, err := disk.Fill()
			err = errors.Join(err, disk.Empty())
			if p.s.onlyDown(member) {
				err = errors.Join(err, p.s.startMachine(machine))
			}
			return err
		},
		Evidence: func() (uint64, string) {
			if said == nil {
				return 0, ""
			}
			return 1, fmt.Sprintf("%s: %v", member, said)
		},
	}, err
}

// SlowDisk has a member's disk take nothing for a while, again and again.
func (p platform) SlowDisk(ctx context.Context, member string, wait time.Duration) (engine.Active, error) {
	ctx, cancel := context.WithCancel(ctx)
	var over sync.WaitGroup
	var times int
	var failed error
	over.Go(func() {
		times, failed = p.s.fleet.Machine(member).Common().Disk.Stutter(ctx, wait, wait/4+10*time.Millisecond)
	})
	return engine.Active{
		Heal: func(context.Context) error { cancel(); over.Wait(); return failed },
		Evidence: func() (uint64, string) {
			return uint64(times), fmt.Sprintf("%s: stalled %d times for %s", member, times, wait)
		},
	}, nil
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
