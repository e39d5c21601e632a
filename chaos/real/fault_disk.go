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

// FillDisk fills a member's disk. Healing empties it, and starts the process if it gave up. The
// evidence is the error of the first write that did not fit.
func (p platform) FillDisk(_ context.Context, member string, _ schedule.Fault) (engine.Active, error) {
	machine := p.s.fleet.Machine(member)
	disk := machine.Common().Disk
	p.s.expectDown(member)
	said, err := disk.Fill()
	return engine.Active{
		Heal: func(context.Context) error {
			defer p.s.expectUp(member)
			// Fill again first, so that the disk was full to the end even if space was freed.
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

// SlowDisk starts a goroutine that freezes a member's disk for f.Params.Sync, again and again, until
// healed. The evidence is the number of freezes.
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

// tearPage appends half a page of old data to the newest file of the journal, as an interrupted write does at a loss
// of power. Synced data stays: a disk that loses it is another fault.
func tearPage(journal string) error {
	const page = 4096
	return changeFile(newest(journal), func(b []byte) []byte { return append(b, b[max(0, len(b)-page/2):]...) })
}

// flipBits flips random bits in the journal: half of them in its newest file, half in the database.
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

// newest returns the path of the journal's write-ahead log, or of the database if the log is empty.
func newest(journal string) string {
	if info, err := os.Stat(journal + "-wal"); err == nil && info.Size() > 0 {
		return journal + "-wal"
	}
	return journal
}

// changeFile replaces the content of a file by the result of change, unless the file is empty.
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
