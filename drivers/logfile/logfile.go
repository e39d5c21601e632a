// Package logfile writes the output of tasks to the files TASK.stdout.N and TASK.stderr.N, which edge/tasklog
// reads: it begins a new file when one is full, and removes the oldest. Drivers use it.
//
// A Rotator belongs to one goroutine, and starts none.
package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/internal/durable"
)

// Bounds of log files if a job sets none.
const (
	DefaultFiles  = 10
	DefaultFileMB = 10
)

// Rotator writes one stream of a task to the files Prefix.0, Prefix.1, … in Dir, and begins a new file when one
// is full. It removes the oldest beyond MaxFiles. It belongs to one goroutine.
type Rotator struct {
	Dir      string
	Prefix   string // TASK.stdout
	MaxFiles int
	MaxBytes int64 // of each file

	file      *os.File
	index     int    // number of the newest file
	size      int64  // size of the newest file, in bytes
	lostBytes uint64 // bytes that were not written

	spaceCheckedAt time.Time // when free space was last checked
	scarce         bool      // little space was free at that check
}

const (
	// logFloor is the free space that logs leave on the disk for the agent's task starts and journal. It is more than
	// the limit at which the agent frees its reserve.
	logFloor = 2 << 20
	// floorShare bounds logFloor to a share of the disk's size, so that a small disk can have logs.
	floorShare = 10
	// spaceCheckInterval is how often a log checks the free space.
	spaceCheckInterval = 100 * time.Millisecond
)

// errScarce means that a log is not written because the disk is almost full: the rest is for the agent.
var errScarce = errors.New("the disk is almost full")

// Write writes p to the log files. It never returns an error: it counts the bytes that cannot be written, and
// writes a note with the count when there is space again.
func (r *Rotator) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if err := r.prepareFile(); err != nil {
			r.lostBytes += uint64(len(p))
			break
		}
		room := r.MaxBytes - r.size
		if room <= 0 {
			continue // the note about lost bytes filled the file
		}
		part := p[:min(int64(len(p)), room)]
		wrote, err := r.file.Write(part)
		r.size += int64(wrote)
		p = p[wrote:]
		if err != nil {
			r.lostBytes += uint64(len(p))
			break
		}
	}
	return n, nil
}

// Close closes the open file. A later Write opens it again.
func (r *Rotator) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// Position returns the number of the newest file and its size in bytes: where the next byte is written.
func (r *Rotator) Position() (number int, size int64) {
	if r.file != nil {
		return r.index, r.size
	}
	held := r.existingNumbers()
	if len(held) == 0 {
		return 0, 0
	}
	number = held[len(held)-1]
	if info, err := os.Stat(r.numberedPath(number)); err == nil {
		size = info.Size()
	}
	return number, size
}

// BytesSince returns how many bytes were written after the newest file had that number and size. Files that are
// removed already are not counted.
func (r *Rotator) BytesSince(number int, size int64) int64 {
	var sum int64
	for _, n := range r.existingNumbers() {
		if n < number {
			continue
		}
		if info, err := os.Stat(r.numberedPath(n)); err == nil {
			sum += info.Size()
		}
		if n == number {
			sum -= size
		}
	}
	return max(sum, 0)
}

// checkFreeSpace returns errScarce if the disk has less free space than logs must leave. It asks the system at
// most once per spaceCheckInterval.
func (r *Rotator) checkFreeSpace() error {
	if now := time.Now(); now.Sub(r.spaceCheckedAt) >= spaceCheckInterval {
		r.spaceCheckedAt = now
		free, total, err := durable.FreeSpace(r.Dir)
		r.scarce = err == nil && free < min(logFloor, total/floorShare)
	}
	if r.scarce {
		return errScarce
	}
	return nil
}

// prepareFile opens the newest file, or begins the next one if that is full. It writes the note about lost
// bytes if there are any.
func (r *Rotator) prepareFile() error {
	if err := r.checkFreeSpace(); err != nil {
		return err
	}
	if r.file == nil {
		if held := r.existingNumbers(); len(held) > 0 {
			r.index = held[len(held)-1]
		}
		if err := r.openCurrentFile(); err != nil {
			return err
		}
		r.removeOldFiles()
	}
	if r.size >= r.MaxBytes {
		if err := r.Close(); err != nil {
			return fmt.Errorf("close log: %w", err)
		}
		r.index++
		if err := r.openCurrentFile(); err != nil {
			r.index--
			return err
		}
		r.removeOldFiles()
	}
	if r.lostBytes == 0 {
		return nil
	}
	n, err := fmt.Fprintf(r.file, "[%d bytes of output were lost: the disk was full]\n", r.lostBytes)
	r.size += int64(n)
	if err != nil {
		return fmt.Errorf("write to log: %w", err)
	}
	r.lostBytes = 0
	return nil
}

// openCurrentFile opens the file with the number index, to append to it, and makes it if it is missing.
func (r *Rotator) openCurrentFile() error {
	f, err := os.OpenFile(r.numberedPath(r.index), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm() != 0o600 { // a file of an earlier release, which others can read
		err = f.Chmod(0o600)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("read size of log: %w", err), f.Close())
	}
	r.file, r.size = f, info.Size()
	return nil
}

// removeOldFiles removes all files but the newest MaxFiles. A file that cannot be removed stays until the next
// call.
func (r *Rotator) removeOldFiles() {
	for _, n := range r.existingNumbers() {
		if n <= r.index-r.MaxFiles {
			_ = os.Remove(r.numberedPath(n))
		}
	}
}

// existingNumbers returns the numbers of the existing files, in order.
func (r *Rotator) existingNumbers() []int {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return nil
	}
	var held []int
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), r.Prefix+".")
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(number, 10, 31); err == nil && n >= 0 {
			held = append(held, int(n))
		}
	}
	slices.Sort(held)
	return held
}

func (r *Rotator) numberedPath(i int) string {
	return filepath.Join(r.Dir, r.Prefix+"."+strconv.Itoa(i))
}
