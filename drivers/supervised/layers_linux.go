package supervised

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skerry/internal/ownthread"
)

// withMounts calls do, which runs the container's runtime, on a thread in a mount namespace of its own: with layers (nil: none)
// mounted at their root, and without the hidden mount. The processes that do starts keep the namespace; this process does not
// see its mounts.
func (c *Container) withMounts(layers *Layers, do func() error) error {
	if layers == nil && c.Hidden == "" {
		return do()
	}
	return ownthread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		if err := hideMount(c.Hidden); err != nil {
			return fmt.Errorf("hide %s from the OCI runtime: %w", c.Hidden, err)
		}
		if layers != nil {
			if err := layers.mountLayers(); err != nil {
				return err
			}
		}
		return do()
	})
}

// hideMount puts an empty folder, in which crun makes folders, over a mount point ("": none) in the thread's own mount
// namespace. All other mounts remain as they are, so that those of a task's volumes still reach the machine.
func hideMount(path string) error {
	if path == "" {
		return nil
	}
	if err := unix.Mount("", path, "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("hidden", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=0700")
}

// TryMount mounts the layers in a mount namespace that ends at once. Its error says why this machine cannot mount them.
func (l *Layers) TryMount() error {
	return (&Container{}).withMounts(l, func() error { return nil })
}

// mountLayers mounts the layers in the thread's own mount namespace, which still sees new mounts of the machine.
func (l *Layers) mountLayers() error {
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
