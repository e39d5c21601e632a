// Package devices is the contract of device kinds. Each folder below it finds one kind of hardware and
// prepares it for tasks; devicetest is the suite that all of them pass. The package starts no goroutine
// and stores nothing.
package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"skerry/fleet"
)

// ErrUnplugged is wrapped by the error of Reserve for a device that is not on this machine, or does not work.
var ErrUnplugged = errors.New("device is not there")

// Finder finds the devices of one kind on this machine, and prepares them for tasks.
type Finder interface {
	// Kind returns the kind, for example "usb".
	Kind() string
	// Find returns the devices of that kind, ordered by ID. It starts nothing. The error names the devices that cannot
	// be read or do not work; the others are returned all the same.
	Find(ctx context.Context) ([]fleet.Device, error)
	// Reserve returns the nodes, mounts and variables for a task that uses the devices with these ids. It changes
	// nothing, and may be called again. A device that is not found is an ErrUnplugged that names it.
	Reserve(ctx context.Context, ids []string) (Reservation, error)
}

// Meter is implemented by a Finder that can measure its devices.
type Meter interface {
	// Measure returns the present values of the devices, by the id of the device.
	Measure(ctx context.Context) (map[string][]Measurement, error)
}

// Reservation is the set of nodes, mounts and variables for a task that uses devices.
type Reservation struct {
	Nodes  []fleet.DeviceNode
	Mounts []Mount
	Env    map[string]string
	// CDI are the devices' names in the Container Device Interface. A container runtime that knows them adds what their
	// vendor says they need, beside the above.
	CDI []string
}

// Mount is a file or folder of the machine that a task gets with a device.
type Mount struct {
	HostPath, TaskPath string
	ReadOnly           bool
}

// Measurement is one value of a device. Max is 0 without an upper bound. Text is set for a value that is no number.
type Measurement struct {
	Name       string // such as "GPU utilization"
	Unit       string
	Value, Max float64
	Text       string
	Summary    bool // the value that describes the device best
}

// Found is a device with its nodes. Finders return Find and Reserve from it.
type Found struct {
	fleet.Device
	Nodes []fleet.DeviceNode
	// Path is the path of the device in a task, or "" if no program would open one.
	Path string
	// Err says why a task cannot use the device, or is nil.
	Err error
}

// NewFinder makes the Finder of a kind whose devices the function scan reads. scan returns all devices, and an error
// that names the unreadable ones.
func NewFinder(kind string, scan func(ctx context.Context) ([]Found, error)) Finder {
	return finder{kind, scan}
}

// finder is a Finder that reads the devices at each call.
type finder struct {
	kind string
	scan func(ctx context.Context) ([]Found, error)
}

func (f finder) Kind() string { return f.kind }

func (f finder) Find(ctx context.Context) ([]fleet.Device, error) {
	found, err := f.scan(ctx)
	return SortFound(found), err
}

func (f finder) Reserve(ctx context.Context, ids []string) (Reservation, error) {
	found, err := f.scan(ctx)
	if ctx.Err() != nil {
		return Reservation{}, err
	}
	return ReserveFound(f.kind, found, ids, err)
}

// SortFound sorts devices by their ids and returns them as Find does.
func SortFound(found []Found) []fleet.Device {
	sort.Slice(found, func(i, j int) bool { return found[i].ID < found[j].ID }) // less code: see internal/sorting
	list := make([]fleet.Device, 0, len(found))
	for _, f := range found {
		list = append(list, f.Device)
	}
	return list
}

// ReserveFound returns the reservation of the devices with these ids: their nodes, and the variables
// KIND_VISIBLE_DEVICES (the ids) and KIND_DEVICE_PATHS (their paths). scanErr is the reason why devices may be
// missing.
func ReserveFound(kind string, found []Found, ids []string, scanErr error) (Reservation, error) {
	if len(ids) == 0 {
		return Reservation{}, nil
	}
	r := Reservation{Env: map[string]string{}}
	var missing, paths []string
	for _, id := range ids {
		i := slices.IndexFunc(found, func(f Found) bool { return f.ID == id })
		if i < 0 {
			missing = append(missing, id)
			continue
		}
		if err := found[i].Err; err != nil {
			return Reservation{}, fmt.Errorf("reserve %s device %s: %w", kind, id, err)
		}
		for _, n := range found[i].Nodes {
			if !slices.Contains(r.Nodes, n) {
				r.Nodes = append(r.Nodes, n)
			}
		}
		if found[i].Path != "" {
			paths = append(paths, found[i].Path)
		}
	}
	if len(missing) > 0 {
		return Reservation{}, errors.Join(fmt.Errorf("reserve %s device %s: %w", kind, strings.Join(missing, ", "), ErrUnplugged), scanErr)
	}
	prefix := strings.ToUpper(kind)
	r.Env[prefix+"_VISIBLE_DEVICES"] = strings.Join(ids, ",")
	if len(paths) > 0 {
		r.Env[prefix+"_DEVICE_PATHS"] = strings.Join(paths, ",")
	}
	return r, nil
}
