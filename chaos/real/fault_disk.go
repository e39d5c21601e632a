package real

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"skerry/chaos/engine"
	"skerry/chaos/schedule"
)

// FillDisk has nothing more fit on a member's disk. A process that gives up is started again
// when there is room.
func (p platform) FillDisk(_ context.Context, member string, _ schedule.Fault) (engine.Active, error) {
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
func (p platform) SlowDisk(ctx context.Context, member string, f schedule.Fault) (engine.Active, error) {
	wait := f.Params.Sync
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
	return changeFile(newest(journal), func(b []byte) []byte { return append(b, b[max(0, len(b)-page/2):]...) })
}

// flipBits flips bits in the journal, half of them in the part that was written last.
func flipBits(journal string, bits int) error {
	flip := func(n int) func(b []byte) []byte {
		return func(b []byte) []byte {
			for range n {
				b[rand.IntN(len(b))] ^= 1 << rand.IntN(8)
			}
			return b
		}
	}
	return errors.Join(changeFile(newest(journal), flip(bits-bits/2)), changeFile(journal, flip(bits/2)))
}

// newest is the part of the journal that was written last: its log, where it has one.
func newest(journal string) string {
	if info, err := os.Stat(journal + "-wal"); err == nil && info.Size() > 0 {
		return journal + "-wal"
	}
	return journal
}

// changeFile changes what a file holds, unless it is empty.
func changeFile(path string, change func(b []byte) []byte) error {
	b, err := os.ReadFile(path)
	if err == nil && len(b) > 0 {
		err = os.WriteFile(path, change(b), 0o600)
	}
	if err != nil {
		return fmt.Errorf("damage a file: %w", err)
	}
	return nil
}
