package supervised

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skerry/internal/ownthread"
)

// WithMount calls do, on a thread in a mount namespace of its own, with the layers mounted at their root. The processes
// that do starts keep the namespace; this process does not see the mount.
func (l *Layers) WithMount(do func() error) error {
	return ownthread.Run(func() error {
		if err := l.mountLayers(); err != nil {
			return err
		}
		return do()
	})
}

// mountLayers moves the thread into a new mount namespace, which still sees new mounts of the machine, and mounts the layers.
func (l *Layers) mountLayers() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	for _, dir := range []string{l.Upper, l.Work, l.Root} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the folders of the task's root: %w", err)
		}
	}
	if l.Upper == "" {
		if err := unix.Mount(l.Lower, l.Root, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the image: %w", err)
		}
		return nil
	}
	for _, dir := range []string{l.Lower, l.Upper, l.Work} {
		if strings.ContainsAny(dir, `:,\`) || !filepath.IsAbs(dir) {
			return fmt.Errorf("mount the image: the path %s has a character that overlayfs does not take", dir)
		}
	}
	if err := unix.Mount("overlay", l.Root, "overlay", 0, "lowerdir="+l.Lower+",upperdir="+l.Upper+",workdir="+l.Work); err != nil {
		return fmt.Errorf("mount the image: %w", err)
	}
	return nil
}
