// Package hardware gives tasks the devices that their allocation has: it is a hook of edge/runner. Before each
// attempt of a task it finds the devices, and adds their nodes, mounts and variables to the task's configuration. The
// variables replace those of the job file, because they say which devices the task may use.
// While the task runs it journals an event when one of them is gone, and when it is back, and tells the Reporter: the
// allocation is unhealthy meanwhile, as with a check that fails.
//
// A Hook starts no goroutine and stores nothing: the allocation says which devices it has.
package hardware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"skerry/devices"
	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
)

// Types of the events of a task whose devices go and come.
const (
	EventUnplugged = "Device Unplugged"
	EventFound     = "Device Found"
)

// defaultInterval is the time between two looks at the devices of a running task.
const defaultInterval = 10 * time.Second

// unpluggedHint says what to do after EventUnplugged.
const unpluggedHint = "plug it in again, or replace it; when it is found, skerry alloc restart gives the task its new device nodes"

// Config of a Hook. Log is required.
type Config struct {
	Finders  []devices.Finder
	Interval time.Duration // between looks at the devices of a running task; 0: ten seconds
	Reporter Reporter      // nil: missing devices are journaled only
	Log      *slog.Logger
}

// Reporter is told of the devices of running tasks. A task without one of its devices is unhealthy.
type Reporter interface {
	// ReportDevices is called when devices of a task are missing, and with "" when all are there again.
	ReportDevices(a fleet.Alloc, task, missing string)
	// ForgetDevices is called when the task has ended, or is not watched any more.
	ForgetDevices(id fleet.AllocID, task string)
}

// Hook prepares devices. It implements runner.Hook and runner.Watcher.
type Hook struct {
	cfg Config
	log *slog.Logger
}

var (
	_ runner.Hook    = (*Hook)(nil)
	_ runner.Watcher = (*Hook)(nil)
)

// New makes a Hook. It looks for nothing.
func New(cfg Config) (*Hook, error) {
	if cfg.Log == nil {
		return nil, errors.New("make device hook: no logger")
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	return &Hook{cfg: cfg, log: cfg.Log.With("component", "hardware")}, nil
}

// Name returns the name of the hook for errors.
func (h *Hook) Name() string { return "devices" }

// Prepare adds the devices of a task to its configuration. A device that is not there is an error after which
// another attempt may succeed: it may be plugged in again.
func (h *Hook) Prepare(ctx context.Context, p *runner.Preparation) error {
	env := map[string]string{}
	for _, assigned := range assignedDevices(p) {
		r, err := h.reserveDevices(ctx, assigned)
		if err != nil {
			return err
		}
		addNodes(p.Config, r)
		for name, value := range r.Env {
			if env[name] != "" {
				value = env[name] + "," + value // two requests for one kind
			}
			env[name] = value
		}
	}
	p.SetVars(env)
	return nil
}

// Release does nothing: devices are free again when their allocation has ended.
func (h *Hook) Release(context.Context, fleet.Alloc) error { return nil }

// Watch looks for the devices of a running task, and journals an event when one is gone at two looks in a row, and
// when it is back. The allocation is unhealthy meanwhile. The task goes on: it may not need the device at the moment, and
// only it knows.
func (h *Hook) Watch(ctx context.Context, p *runner.Preparation, control runner.TaskControl) {
	assigned := assignedDevices(p)
	if len(assigned) == 0 {
		return
	}
	if h.cfg.Reporter != nil {
		defer h.cfg.Reporter.ForgetDevices(p.Alloc.ID, p.Task.Name)
	}
	ticker := time.NewTicker(h.cfg.Interval)
	defer ticker.Stop()
	told, seen := "", "" // the missing devices of the last event, and of the last look
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := strings.Join(h.missingDevices(ctx, assigned), "; ")
		if ctx.Err() != nil {
			return
		}
		if now != seen || now == told {
			seen = now
			continue
		}
		kind, message := EventUnplugged, fmt.Sprintf("The task runs without a device that it was given: %s (%s)", now, unpluggedHint)
		if now == "" {
			kind, message = EventFound, "All devices of the task are there again; a restart of the task gives it their new device nodes"
		}
		if err := control.Event(ctx, kind, message); err != nil {
			return
		}
		if h.cfg.Reporter != nil {
			h.cfg.Reporter.ReportDevices(p.Alloc, p.Task.Name, now)
		}
		told = now
	}
}

// assignedDevices returns the devices that the allocation has for a task.
func assignedDevices(p *runner.Preparation) []fleet.AssignedDevice {
	if p.Alloc.Allotment == nil || p.Task == nil {
		return nil
	}
	return p.Alloc.Allotment.Tasks[p.Task.Name].Devices
}

// reserveDevices returns what a task needs to use the devices of one kind.
func (h *Hook) reserveDevices(ctx context.Context, assigned fleet.AssignedDevice) (devices.Reservation, error) {
	finder, missing, why := h.findKind(ctx, assigned)
	if err := ctx.Err(); err != nil {
		return devices.Reservation{}, fmt.Errorf("find devices: %w", err)
	}
	if finder == nil || len(missing) > 0 {
		err := fleet.Errorf(fleet.CodeNotFound, "%s is not there: it was unplugged, or does not work", describeDevice(assigned, missing)).
			WithHint("plug it in again; each try of the task's restart block looks for it")
		return devices.Reservation{}, drivers.Recoverable(errors.Join(err, why))
	}
	r, err := finder.Reserve(ctx, assigned.DeviceIDs)
	if err != nil {
		return devices.Reservation{}, drivers.Recoverable(err)
	}
	return r, nil
}

// findKind returns the finder that finds most of the devices, those that it does not find, and why some finders
// could not read all. nil: nobody finds one.
func (h *Hook) findKind(ctx context.Context, assigned fleet.AssignedDevice) (best devices.Finder, missing []string, why error) {
	missing = assigned.DeviceIDs
	for _, f := range h.cfg.Finders {
		found, err := f.Find(ctx)
		left := slices.DeleteFunc(slices.Clone(assigned.DeviceIDs), func(id string) bool {
			return slices.ContainsFunc(found, func(d fleet.Device) bool { return d.ID == id })
		})
		if err != nil {
			why = errors.Join(why, err)
		}
		if len(left) < len(missing) {
			best, missing = f, left
		}
		if len(missing) == 0 {
			return best, nil, nil
		}
	}
	return best, missing, why
}

// missingDevices describes the devices that are not there.
func (h *Hook) missingDevices(ctx context.Context, assigned []fleet.AssignedDevice) []string {
	var gone []string
	for _, a := range assigned {
		_, missing, why := h.findKind(ctx, a)
		if len(missing) == 0 || ctx.Err() != nil {
			continue
		}
		if why != nil {
			h.log.Warn("devices of a task cannot be read", "device", describeDevice(a, missing), "error", why)
		}
		gone = append(gone, describeDevice(a, missing))
	}
	return gone
}

// describeDevice names devices for people.
func describeDevice(a fleet.AssignedDevice, ids []string) string {
	return fmt.Sprintf("device %s/%s/%s (%s)", a.Vendor, a.Type, a.Name, strings.Join(ids, ", "))
}

// addNodes adds the nodes, mounts and names of a reservation to a task's configuration.
func addNodes(cfg *drivers.TaskConfig, r devices.Reservation) {
	for _, node := range r.Nodes {
		if !slices.Contains(cfg.Devices, node) {
			cfg.Devices = append(cfg.Devices, node)
		}
	}
	cfg.CDI = append(cfg.CDI, r.CDI...)
	for _, m := range r.Mounts {
		cfg.Mounts = append(cfg.Mounts, drivers.Mount{Source: m.HostPath, Target: m.TaskPath, ReadOnly: m.ReadOnly})
	}
}
