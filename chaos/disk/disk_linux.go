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

// ErrRemembers is the error of a power cut that did not lose data which was never synced. Runs on
// such a disk prove nothing.
var ErrRemembers = errors.New("the disk kept data that was not synced")

// ErrLost is the error of a power cut that lost synced data.
var ErrLost = errors.New("the disk lost synced data")

// Files by which PowerCut checks the loss of data, and the file with which Fill fills the disk.
const (
	syncedFile   = ".synced"
	unsyncedFile = ".unsynced"
	ballastFile  = ".ballast"
	syncedText   = "written and synced\n"
)

// Disk is a file system on an image file, mounted at a directory.
type Disk struct {
	image, dir string

	mu     sync.Mutex
	frozen bool // guarded by mu

	powerMu sync.Mutex // held during a power cut, by WithPower, and by Stutter while the disk is frozen
}

// Make makes an image file of that size in bytes, of which only written blocks take space, and mounts
// a new file system from it at dir. It needs root.
func Make(image, dir string, size int64) (*Disk, error) {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	// No block is reserved for root: root could write even to a full disk.
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

// wrapError adds the action and the name of the disk to an error; nil stays nil.
func (d *Disk) wrapError(done string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s disk %s: %w", done, filepath.Base(d.dir), err)
}

// Try makes a small disk below dir, cuts its power, and removes it. An error means that disks cannot
// be mounted here, or do not lose data that was not synced.
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

// mountImage mounts the image, and writes and syncs the file that a power cut has to keep.
func (d *Disk) mountImage() error {
	if err := runCommand("mount", "-o", "loop,noatime", d.image, d.dir); err != nil {
		return d.wrapError("mount", err)
	}
	if err := d.writeMarkerFile(syncedFile, true); err != nil {
		return errors.Join(err, d.Close())
	}
	return nil
}

// writeMarkerFile writes a file for the check after a power cut, and syncs it if sync is set. On a full
// disk it keeps the older file and returns nil.
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

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// PowerCut calls kill, which has to end every process with open files on the disk, discards data
// that was not synced, and mounts the disk again. The error is ErrRemembers or ErrLost if the disk
// kept or lost the wrong data.
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
	if err := d.mountAgain(); err != nil {
		return d.wrapError("mount, after a power cut,", err)
	}
	return d.checkPowerCutLoss()
}

// WithPower calls do when the disk has power: no power cut begins or goes on meanwhile.
func (d *Disk) WithPower(do func() error) error {
	d.powerMu.Lock()
	defer d.powerMu.Unlock()
	return do()
}

// heldTimeout bounds the time for which other mount namespaces may hold a disk, on a loaded machine.
const heldTimeout = time.Minute

// mountAgain unmounts a file system that was shut down, and mounts it again from the image. A container that is being
// made has a copy of all mounts: until nobody has it mounted any more, a mount brings the old file system back.
func (d *Disk) mountAgain() error {
	for end := time.Now().Add(heldTimeout); ; time.Sleep(50 * time.Millisecond) {
		if err := d.unmountWithRetries(); err != nil {
			return err
		}
		if err := runCommand("mount", "-o", "loop,noatime", d.image, d.dir); err != nil {
			return err
		}
		if _, err := os.ReadFile(filepath.Join(d.dir, syncedFile)); !errors.Is(err, unix.EIO) || time.Now().After(end) {
			return nil // checkPowerCutLoss reads the file again
		}
		if err := d.unmountInOtherNamespaces(); err != nil {
			return err
		}
	}
}

// unmountInOtherNamespaces unmounts the disk in each mount namespace of other processes that has a copy of its mount. It
// ignores processes that end meanwhile.
func (d *Disk) unmountInOtherNamespaces() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return d.wrapError("find who has mounted", err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return d.wrapError("find who has mounted", err)
	}
	seen := map[string]bool{own: true}
	for _, process := range processes {
		namespace, err := os.Readlink(filepath.Join(process, "ns/mnt"))
		if err != nil || seen[namespace] {
			continue
		}
		seen[namespace] = true
		mounts, err := os.ReadFile(filepath.Join(process, "mountinfo"))
		if err == nil && bytes.Contains(mounts, []byte(" "+d.dir+" ")) {
			_ = runCommand("nsenter", "--target", filepath.Base(process), "--mount", "umount", "--lazy", d.dir)
		}
	}
	return nil
}

// checkPowerCutLoss returns ErrRemembers if the unsynced marker file survived the power cut, and
// ErrLost if the synced one did not.
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

// shutDownFilesystem stops all writes to the image at once, also those of the file system's journal.
func (d *Disk) shutDownFilesystem() error {
	err := d.withRootFD(func(fd int) error { return unix.IoctlSetPointerInt(fd, ext4Shutdown, noLogFlush) })
	return d.wrapError("cut the power of", err)
}

// withRootFD calls f with a descriptor of the file system's root directory.
func (d *Disk) withRootFD(f func(fd int) error) error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(f(int(dir.Fd())), dir.Close())
}

// unmountTimeout is the maximum time for which killed processes may keep files open.
const unmountTimeout = 10 * time.Second

// unmountWithRetries unmounts the disk. While it is busy, it retries for up to unmountTimeout.
func (d *Disk) unmountWithRetries() error {
	var err error
	for end := time.Now().Add(unmountTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = unix.Unmount(d.dir, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return d.wrapError("unmount", err)
}

// Sync makes all data on the disk durable.
func (d *Disk) Sync() error {
	return d.wrapError("sync", d.withRootFD(unix.Syncfs))
}

// Fill fills the disk with a file until nothing more fits. full is the error of the last write; err
// is any other error.
func (d *Disk) Fill() (full error, err error) {
	d.powerMu.Lock()
	defer d.powerMu.Unlock()
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

// allocateFreeSpace allocates all but 2 MiB of the free space for the file.
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
	if errors.Is(err, syscall.ENOSPC) { // another process may have used the space
		return nil
	}
	return d.wrapError("fill", err)
}

// Empty removes the file that Fill wrote.
func (d *Disk) Empty() error {
	d.powerMu.Lock()
	defer d.powerMu.Unlock()
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

// Freeze syncs the disk and blocks all writes until Thaw. A second call does nothing.
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

// Thaw ends Freeze; blocked writes continue. It does nothing if the disk is not frozen.
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

// Stutter freezes and thaws the disk for the given times until ctx is done, and returns the number of
// freezes. The disk is thawed when it returns, unless thawing failed.
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

// freezeFor freezes the disk for a time, or until ctx is done. It excludes a power cut meanwhile.
func (d *Disk) freezeFor(ctx context.Context, frozen time.Duration) error {
	d.powerMu.Lock()
	defer d.powerMu.Unlock()
	if err := d.Freeze(); err != nil {
		return err
	}
	sleepOrDone(ctx, frozen)
	return d.Thaw()
}

// sleepOrDone sleeps for a time, or until ctx is done.
func sleepOrDone(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Close thaws and unmounts the disk; its image stays. No process may use the disk any more.
func (d *Disk) Close() error {
	if err := d.Thaw(); err != nil {
		return err
	}
	return d.unmountWithRetries()
}

// ThawAll thaws every ext4 file system on a loop device that this process sees, so that processes
// which wait for a frozen disk can end.
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
		// A file system that is not frozen returns EINVAL.
		_ = d.withRootFD(func(fd int) error { return unix.IoctlSetInt(fd, fiThaw, 0) })
	}
	return nil
}

// runCommand runs a program and returns its output as part of the error.
func runCommand(name string, args ...string) error {
	text, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(text))
	}
	return nil
}
