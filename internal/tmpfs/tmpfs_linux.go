package tmpfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// readMounts returns the mounts that this process sees.
func readMounts() ([]entry, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(b)), nil
}

// hasOwnMounts reports whether this process has another list of mounts than the first one of the machine. It cannot
// tell without the right to look at that process.
func hasOwnMounts() bool {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return false
	}
	first, err := os.Readlink("/proc/1/ns/mnt")
	return err == nil && own != first
}

// Attach mounts a file system in memory of at most so many MiB on dir, which must be a folder and no link. Its root has
// mode 0700. No file in it can be executed, be a device, or change the user. Nothing of it is swapped to a disk, if the
// kernel can do that (Linux 6.4).
func Attach(dir, source string, sizeMB int) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the folder %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(fd) }()
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	options, at := fmt.Sprintf("mode=0700,size=%dm", sizeMB), fmt.Sprintf("/proc/self/fd/%d", fd)
	err = unix.Mount(source, at, "tmpfs", flags, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount(source, at, "tmpfs", flags, options)
	}
	if err != nil {
		return fmt.Errorf("mount a file system in memory on %s: %w", dir, err)
	}
	return nil
}

// Detach removes the files of the file system, which other programs may still see, and unmounts it. A file system that
// is gone is no error.
func (m Mount) Detach() error {
	return errors.Join(m.removeFiles(), m.unmountFolder())
}

func (m Mount) removeFiles() (err error) {
	root, err := os.OpenRoot(m.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty %s: %w", m.Dir, err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("empty %s: %w", m.Dir, err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, root.RemoveAll(e.Name()))
	}
	return errors.Join(errs...)
}

func (m Mount) unmountFolder() error {
	err := unix.Unmount(m.Dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", m.Dir, err)
	}
	return nil
}
