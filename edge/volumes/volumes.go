// Package volumes gives tasks the host volumes of their edge: a Hook of edge/runner, put together in cmd/edged. While
// a task runs, the Hook watches the folders that the task has.
//
// The folders of volumes belong to whoever runs the edge: they are neither made nor removed here. A folder that a task may
// write to is locked, so that no other edge of the machine gives it to tasks; see Locks for what is stored.
// The one goroutine is that of a look at folders, which a dead network file system can hold up.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
)

// defaultInterval is the time between two looks at the folders of a running task.
const defaultInterval = 10 * time.Second

// Config of a Hook. Drivers and Log are required.
type Config struct {
	Drivers  map[string]drivers.Driver // by name: some do not mount
	Locks    Locks
	Interval time.Duration // between two looks at the folders of a running task; 0: ten seconds
	Log      *slog.Logger
}

// Hook mounts the volumes of a group into its tasks. It implements runner.Hook and runner.Watcher.
type Hook struct {
	cfg   Config
	log   *slog.Logger
	locks *folderLocks

	mu      sync.Mutex
	mounted map[mountKey]folder // folders of the newest attempts
}

var (
	_ runner.Hook    = (*Hook)(nil)
	_ runner.Watcher = (*Hook)(nil)
)

// mountKey names a volume_mount block of a task.
type mountKey struct {
	user  lockUser
	block int
}

// New makes the hook. It takes the locks again that the agent had before it was restarted.
func New(cfg Config) (*Hook, error) {
	if cfg.Log == nil || cfg.Locks.Dir != "" && !filepath.IsAbs(cfg.Locks.DataDir) {
		return nil, errors.New("make volume hook: a logger, and an absolute data directory, are required")
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	h := &Hook{cfg: cfg, log: cfg.Log.With("component", "volumes"), mounted: map[mountKey]folder{}}
	h.locks = &folderLocks{cfg: cfg.Locks, log: h.log, held: map[string]*heldLock{}}
	h.locks.retakeLocks()
	return h, nil
}

// Name returns "volumes".
func (h *Hook) Name() string { return "volumes" }

// Prepare adds the mounts of the task's volume_mount blocks, and locks the folders that the task may write to. An error
// about a folder is recoverable: somebody may plug the disk in again, and tasks of another edge end.
func (h *Hook) Prepare(ctx context.Context, p *runner.Preparation) error {
	if len(p.Task.VolumeMounts) == 0 {
		return nil
	}
	d, ok := h.cfg.Drivers[p.Task.Driver]
	if ok && !d.Capabilities().Mounts {
		return fleet.Errorf(fleet.CodeInvalid, "the task driver %q does not support host volumes", p.Task.Driver).
			WithHint("such a task sees the files of the edge: use the volume's path there, and leave out volume_mount")
	}
	user := userOf(p)
	mounts, folders, err := h.prepareMounts(ctx, p, user)
	if err != nil {
		folders = nil // so that two edges that need the same folders do not wait for each other
	}
	h.locks.releaseFolders(func(u lockUser) bool { return u == user }, folders...)
	p.Config.Mounts = append(p.Config.Mounts, mounts...)
	return err
}

// Release ends the use of the allocation's folders. Drivers undo their mounts themselves.
func (h *Hook) Release(_ context.Context, a fleet.Alloc) error {
	h.locks.releaseFolders(func(u lockUser) bool { return u.Alloc == a.ID })
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.mounted {
		if key.user.Alloc == a.ID {
			delete(h.mounted, key)
		}
	}
	return nil
}

// prepareMounts returns the mounts of a task, and the folders that it may write to, which are locked.
func (h *Hook) prepareMounts(ctx context.Context, p *runner.Preparation, user lockUser) (mounts []drivers.Mount, writable []os.FileInfo, err error) {
	for i := range p.Task.VolumeMounts {
		m := &p.Task.VolumeMounts[i]
		v, err := findVolume(p, m)
		if err != nil {
			return nil, nil, err
		}
		key := mountKey{user, i}
		now, err := v.lookAtFolder()
		if err == nil {
			err = v.lostDisk(h.mountedFolder(key), now)
		}
		if err == nil && !v.readOnly {
			err = h.locks.lockFolder(ctx, user, v.source, v.path, now.info)
			writable = append(writable, now.info)
		}
		if err != nil {
			return nil, nil, drivers.Recoverable(err)
		}
		h.setMountedFolder(key, now)
		mounts = append(mounts, drivers.Mount{
			Source: v.path, Target: path.Join("/", p.Replace(m.Destination)), ReadOnly: v.readOnly, Propagation: m.PropagationMode,
		})
	}
	return mounts, writable, nil
}

// mountedFolder returns the folder that the newest attempt has by a block; the zero folder if it is not known.
func (h *Hook) mountedFolder(key mountKey) folder {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mounted[key]
}

func (h *Hook) setMountedFolder(key mountKey, f folder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mounted[key] = f
}

// userOf returns the task of an attempt as a user of folders.
func userOf(p *runner.Preparation) lockUser {
	return lockUser{Alloc: p.Alloc.ID, Task: p.Task.Name}
}

// hostVolume is the volume of one volume_mount block.
type hostVolume struct {
	source, path string
	readOnly     bool // for the task
	propagates   bool // what is mounted over the folder later appears in the task
}

// findVolume returns the volume of a volume_mount block.
func findVolume(p *runner.Preparation, m *fleet.VolumeMount) (hostVolume, error) {
	request, ok := p.Alloc.Group().Volumes[m.Volume]
	if !ok || request.Type != fleet.VolumeHost {
		return hostVolume{}, fleet.Errorf(fleet.CodeInvalid, "mount a volume: the group has no volume block %q of type host", m.Volume)
	}
	index, _ := p.Alloc.NameIndex()
	source := request.VolumeSource(index)
	volume, ok := p.Node.HostVolumes[source]
	if !ok {
		return hostVolume{}, drivers.Recoverable(fleet.Errorf(fleet.CodeNotFound, "this edge has no host volume %q", source).
			WithHint("start its agent with --host-volume %s=PATH", source))
	}
	if !request.MayMount(volume) {
		return hostVolume{}, fleet.Errorf(fleet.CodeInvalid, "the host volume %q is read-only on this edge", source).
			WithHint("write read_only = true in the volume block")
	}
	return hostVolume{
		source: source, path: volume.Path, readOnly: m.ReadOnly || request.ReadOnly || volume.ReadOnly,
		propagates: m.PropagationMode != "" && m.PropagationMode != "private",
	}, nil
}

// folder is the folder of a volume at one moment. The zero value is an unknown folder.
type folder struct {
	info    os.FileInfo
	hasDisk bool // a file system is mounted on it
}

// lookAtFolder looks at the folder of a volume, as the next mount would find it.
func (v hostVolume) lookAtFolder() (folder, error) {
	info, err := os.Stat(v.path)
	if err == nil && info.IsDir() {
		// With the dot, a disk that is mounted by its first use is mounted. The agent may not be allowed to enter the folder.
		if inside, err := os.Stat(v.path + "/."); err == nil {
			info = inside
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return folder{}, fleet.Errorf(fleet.CodeUnavailable, "the folder %s of the host volume %q does not exist", v.path, v.source).
			WithHint("make the folder, or mount its disk")
	case err != nil:
		return folder{}, fmt.Errorf("look at the folder of the host volume %q: %w", v.source, err)
	case !info.IsDir():
		return folder{}, fleet.Errorf(fleet.CodeInvalid, "%s, of the host volume %q, is not a folder", v.path, v.source).
			WithHint("make a folder in its place, or mount its disk")
	}
	f := folder{info: info}
	if parent, err := os.Stat(filepath.Dir(v.path)); err == nil {
		f.hasDisk = deviceOf(info) != deviceOf(parent)
	}
	return f, nil
}

// lostDisk returns an error if the disk that was mounted on the folder is gone: a task must not go on in the empty folder
// below it.
func (v hostVolume) lostDisk(before, now folder) error {
	if !before.hasDisk || now.hasDisk {
		return nil
	}
	return fleet.Errorf(fleet.CodeUnavailable, "no disk is mounted on the folder %s of the host volume %q any more", v.path, v.source).
		WithHint("mount the disk again; to go on without it, stop the allocation: skerry alloc stop")
}
