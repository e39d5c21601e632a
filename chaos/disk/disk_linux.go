package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRemembers is returned where a power cut left what was never synced: runs on
// such a disk prove nothing.
var ErrRemembers = errors.New("the disk remembers what was not synced")

// ErrLost is returned where what was synced before a power cut is gone.
var ErrLost = errors.New("the disk lost what was synced")

// What is written to see whether the disk forgets.
const (
	syncedFile   = ".synced"
	unsyncedFile = ".unsynced"
	ballastFile  = ".ballast"
	syncedText   = "written and synced\n"
)

// Disk is a mounted file system.
type Disk struct {
	image, dir string

	mu     sync.Mutex
	frozen bool

	powerMu sync.Mutex // held while the power is cut, and by Stutter while it has the disk stand still
}

// Make makes an image file of so many bytes (it takes only what is written), and
// mounts a new file system from it at dir.
func Make(image, dir string, size int64) (*Disk, error) {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	// No block is reserved for root, who would else never see a full disk.
	if err := runCommand("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,nodiscard", image); err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	d := &Disk{image: image, dir: dir}
	if err := d.mountImage(); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("make disk: %w", err), d.Close())
	}
	return d, nil
}

// wrapError says in an error what was done to the disk; nil stays nil.
func (d *Disk) wrapError(done string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s disk %s: %w", done, filepath.Base(d.dir), err)
}

// Try makes a small disk below dir, cuts its power, and takes it away again: an error
// says that disks cannot be had here, or do not forget.
func Try(dir string) error {
	const small = 16 << 20
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	at := filepath.Join(dir, "try-disk")
	d, err := Make(at+".img", at, small)
	if err == nil {
		err = d.PowerCut(func() error { return nil })
		err = errors.Join(err, d.Close())
	}
	return errors.Join(err, os.RemoveAll(at), os.RemoveAll(at+".img"))
}

// mountImage mounts the image, and syncs what a power cut has to leave.
func (d *Disk) mountImage() error {
	if err := runCommand("mount", "-o", "loop,noatime", d.image, d.dir); err != nil {
		return d.wrapError("mount", err)
	}
	if err := d.writeMarkerFile(syncedFile, true); err != nil {
		return errors.Join(err, d.Close())
	}
	return nil
}

func (d *Disk) writeMarkerFile(name string, sync bool) error {
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.WriteString(syncedText)
		if err == nil && sync {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil && sync {
		err = syncDir(d.dir)
	}
	if errors.Is(err, syscall.ENOSPC) { // a full disk has an older one
		return nil
	}
	return d.wrapError("write "+name+" on", err)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// PowerCut cuts the power: kill ends every process that has something open on
// the disk, what was not synced is forgotten, and the disk is mounted again as
// the next boot finds it. It checks that the disk forgot what it had to forget,
// and nothing else.
func (d *Disk) PowerCut(kill func() error) error {
	d.powerMu.Lock()
	defer d.powerMu.Unlock()
	if err := d.Thaw(); err != nil {
		return err
	}
	if err := d.writeMarkerFile(unsyncedFile, false); err != nil {
		return err
	}
	if err := kill(); err != nil {
		return err
	}
	if err := d.shutDownFilesystem(); err != nil {
		return err
	}
	if err := d.unmountWithRetries(); err != nil {
		return err
	}
	if err := runCommand("mount", "-o", "loop,noatime", d.image, d.dir); err != nil {
		return d.wrapError("mount, after a power cut,", err)
	}
	return d.checkPowerCutLoss()
}

// checkPowerCutLoss checks what a power cut left.
func (d *Disk) checkPowerCutLoss() error {
	name := filepath.Base(d.dir)
	if b, err := os.ReadFile(filepath.Join(d.dir, unsyncedFile)); err == nil && bytes.Contains(b, []byte(syncedText)) {
		return fmt.Errorf("%w: disk %s", ErrRemembers, name)
	}
	if b, err := os.ReadFile(filepath.Join(d.dir, syncedFile)); err != nil || string(b) != syncedText {
		return errors.Join(fmt.Errorf("%w: disk %s: %q", ErrLost, name, b), err)
	}
	if err := os.Remove(filepath.Join(d.dir, unsyncedFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Shutting a file system down, from the kernel's fs/ext4/ext4.h.
const (
	ext4Shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	noLogFlush   = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH: forgets the journal's tail, too
)

func (d *Disk) shutDownFilesystem() error {
	err := d.withRootFD(func(fd int) error { return unix.IoctlSetPointerInt(fd, ext4Shutdown, noLogFlush) })
	return d.wrapError("cut the power of", err)
}

// withRootFD calls f with the file system's root.
func (d *Disk) withRootFD(f func(fd int) error) error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(f(int(dir.Fd())), dir.Close())
}

// unmountTimeout is how long what was killed may hold on to its files.
const unmountTimeout = 10 * time.Second

func (d *Disk) unmountWithRetries() error {
	var err error
	for end := time.Now().Add(unmountTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = unix.Unmount(d.dir, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return d.wrapError("unmount", err)
}

// Sync makes everything durable that was written so far.
func (d *Disk) Sync() error {
	return d.wrapError("sync", d.withRootFD(unix.Syncfs))
}

// Fill writes until nothing more fits, and returns the error that said so.
func (d *Disk) Fill() (full error, err error) {
	f, err := os.OpenFile(filepath.Join(d.dir, ballastFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, d.wrapError("fill", err)
	}
	defer f.Close()
	if err := d.allocateFreeSpace(f); err != nil {
		return nil, err
	}
	// Ever smaller pieces, so that at last not a block is left.
	for size := 1 << 20; size >= 4096; size /= 4 {
		piece := make([]byte, size)
		for {
			_, err := f.Write(piece)
			if err == nil {
				err = f.Sync()
			}
			if errors.Is(err, syscall.ENOSPC) {
				full = err
				break
			}
			if err != nil {
				return nil, d.wrapError("fill", err)
			}
		}
	}
	return full, nil
}

// allocateFreeSpace takes most of what is free at once.
func (d *Disk) allocateFreeSpace(f *os.File) error {
	const rest = 2 << 20
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return d.wrapError("fill", err)
	}
	info, err := f.Stat()
	if err != nil {
		return d.wrapError("fill", err)
	}
	free := int64(st.Bavail)*st.Bsize - rest
	if free <= 0 {
		return nil
	}
	err = unix.Fallocate(int(f.Fd()), 0, info.Size(), free)
	if errors.Is(err, syscall.ENOSPC) { // somebody else may have taken it
		return nil
	}
	return d.wrapError("fill", err)
}

// Empty takes away what Fill wrote.
func (d *Disk) Empty() error {
	if err := os.Remove(filepath.Join(d.dir, ballastFile)); !errors.Is(err, os.ErrNotExist) {
		return d.wrapError("empty", err)
	}
	return nil
}

// The kernel's FIFREEZE and FITHAW.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// Freeze stalls everything that is written, until Thaw. What was written before
// is synced.
func (d *Disk) Freeze() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frozen {
		return nil
	}
	if err := d.withRootFD(func(fd int) error { return unix.IoctlSetInt(fd, fiFreeze, 0) }); err != nil {
		return d.wrapError("freeze", err)
	}
	d.frozen = true
	return nil
}

// Thaw lets writes go on.
func (d *Disk) Thaw() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.frozen {
		return nil
	}
	if err := d.withRootFD(func(fd int) error { return unix.IoctlSetInt(fd, fiThaw, 0) }); err != nil {
		return d.wrapError("thaw", err)
	}
	d.frozen = false
	return nil
}

// Stutter freezes and thaws until ctx ends, and returns how often. It never leaves
// the disk frozen.
func (d *Disk) Stutter(ctx context.Context, frozen, thawed time.Duration) (times int, err error) {
	for ctx.Err() == nil {
		if err := d.freezeFor(ctx, frozen); err != nil {
			return times, err
		}
		times++
		sleepOrDone(ctx, thawed)
	}
	return times, nil
}

// freezeFor freezes the disk for a while. A power cut comes before or after it.
func (d *Disk) freezeFor(ctx context.Context, frozen time.Duration) error {
	d.powerMu.Lock()
	defer d.powerMu.Unlock()
	if err := d.Freeze(); err != nil {
		return err
	}
	sleepOrDone(ctx, frozen)
	return d.Thaw()
}

func sleepOrDone(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Close unmounts the disk; its image stays. What works on it has to be gone.
func (d *Disk) Close() error {
	if err := d.Thaw(); err != nil {
		return err
	}
	return d.unmountWithRetries()
}

// ThawAll thaws every file system on a loop device that this process sees: the
// last thing that somebody who ends a run can do for processes that wait.
func ThawAll() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasPrefix(f[0], "/dev/loop") || f[2] != "ext4" {
			continue
		}
		d := &Disk{dir: f[1]}
		// One that is not frozen says EINVAL.
		_ = d.withRootFD(func(fd int) error { return unix.IoctlSetInt(fd, fiThaw, 0) })
	}
	return nil
}

func runCommand(name string, args ...string) error {
	text, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(text))
	}
	return nil
}
