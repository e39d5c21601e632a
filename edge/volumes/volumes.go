// Package volumes gives tasks the host volumes of their edge: a Hook of edge/runner, put together in cmd/edged.
//
// It starts no goroutine and stores nothing. The folders of volumes belong to whoever runs the edge: they are
// neither made nor removed here.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
)

// Hook mounts the volumes of a group into its tasks. It implements runner.Hook.
type Hook struct {
	drivers map[string]drivers.Driver
}

// New makes the hook. It needs the drivers, by name, to know which of them mount.
func New(known map[string]drivers.Driver) *Hook { return &Hook{drivers: known} }

// Name returns "volumes".
func (h *Hook) Name() string { return "volumes" }

// Prepare adds the mounts of the task's volume_mount blocks. An error about a folder is recoverable: somebody
// may plug the disk in again.
func (h *Hook) Prepare(_ context.Context, p *runner.Preparation) error {
	if len(p.Task.VolumeMounts) == 0 {
		return nil
	}
	d, ok := h.drivers[p.Task.Driver]
	if ok && !d.Capabilities().Mounts {
		return fleet.Errorf(fleet.CodeInvalid, "the task driver %q does not support host volumes", p.Task.Driver).
			WithHint("such a task sees the files of the edge: use the volume's path there, and leave out volume_mount")
	}
	index, _ := p.Alloc.NameIndex()
	for i := range p.Task.VolumeMounts {
		m, err := hostMount(p, &p.Task.VolumeMounts[i], index)
		if err != nil {
			return err
		}
		p.Config.Mounts = append(p.Config.Mounts, m)
	}
	return nil
}

// Release does nothing: drivers undo their mounts themselves.
func (h *Hook) Release(context.Context, fleet.Alloc) error { return nil }

// hostMount returns the mount of one volume_mount block.
func hostMount(p *runner.Preparation, m *fleet.VolumeMount, index int) (drivers.Mount, error) {
	request, ok := p.Alloc.Group().Volumes[m.Volume]
	if !ok || request.Type != fleet.VolumeHost {
		return drivers.Mount{}, fleet.Errorf(fleet.CodeInvalid, "mount a volume: the group has no volume block %q of type host", m.Volume)
	}
	source := request.VolumeSource(index)
	volume, ok := p.Node.HostVolumes[source]
	if !ok {
		return drivers.Mount{}, drivers.Recoverable(fleet.Errorf(fleet.CodeNotFound, "this edge has no host volume %q", source).
			WithHint("start its agent with --host-volume %s=PATH", source))
	}
	if !request.MayMount(volume) {
		return drivers.Mount{}, fleet.Errorf(fleet.CodeInvalid, "the host volume %q is read-only on this edge", source).
			WithHint("write read_only = true in the volume block")
	}
	switch info, err := os.Stat(volume.Path); {
	case errors.Is(err, os.ErrNotExist):
		return drivers.Mount{}, drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "the folder %s of the host volume %q does not exist", volume.Path, source).
			WithHint("make the folder, or mount its disk"))
	case err != nil:
		return drivers.Mount{}, drivers.Recoverable(fmt.Errorf("look at the folder of the host volume %q: %w", source, err))
	case !info.IsDir():
		return drivers.Mount{}, drivers.Recoverable(fleet.Errorf(fleet.CodeInvalid, "%s, of the host volume %q, is not a folder", volume.Path, source))
	}
	return drivers.Mount{
		Source: volume.Path, Target: path.Join("/", p.Replace(m.Destination)),
		ReadOnly: m.ReadOnly || request.ReadOnly || volume.ReadOnly, Propagation: m.PropagationMode,
	}, nil
}
