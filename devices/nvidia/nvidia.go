// Package nvidia finds NVIDIA GPUs and their MIG instances with the program nvidia-smi, which every NVIDIA
// driver brings, and gives tasks their device nodes. It starts no goroutine and stores nothing; each call runs
// nvidia-smi, which ends within ten seconds or is killed.
//
// The attributes have the names of Nomad's nvidia plugin, with units: memory = "16384 MiB". A GPU in MIG mode
// is not a device itself: each of its instances is one.
package nvidia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/devices"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

const (
	// Kind is the kind of the devices found here.
	Kind = "nvidia"
	// Vendor and Type are the names in job files: device "nvidia/gpu".
	Vendor = "nvidia"
	// Type is the type of each device.
	Type = "gpu"
)

const (
	programTimeout = 10 * time.Second
	maxOutput      = 8 << 20 // bytes that are read of nvidia-smi's output
)

// cdiKind is the kind that nvidia-ctk gives GPUs and MIG instances in the Container Device Interface.
const cdiKind = "nvidia.com/gpu"

// Config of a Finder. Empty fields have defaults.
type Config struct {
	Program string // nvidia-smi; "": found in PATH
	Roots   sysfs.Roots
	Proc    string // "": /proc
}

// Finder finds the NVIDIA GPUs of a machine. It implements devices.Finder and devices.Meter.
type Finder struct{ cfg Config }

// New makes a Finder. It runs nothing.
func New(cfg Config) *Finder {
	cfg.Program, cfg.Proc = cmp.Or(cfg.Program, "nvidia-smi"), cmp.Or(cfg.Proc, "/proc")
	return &Finder{cfg: cfg}
}

// Kind returns "nvidia".
func (f *Finder) Kind() string { return Kind }

// Find returns the GPUs and MIG instances, ordered by ID. A machine without nvidia-smi has none. The error names
// GPUs that need a reset, which are left out.
func (f *Finder) Find(ctx context.Context) ([]fleet.Device, error) {
	found, err := f.scanNvidiaDevices(ctx)
	return devices.SortFound(found), err
}

// Reserve returns the nodes of the devices and those that all GPUs need (nvidiactl, nvidia-uvm …). It also returns the
// variable NVIDIA_VISIBLE_DEVICES, for which NVIDIA's container runtime adds the driver's libraries, and the names by
// which nvidia-ctk describes the devices to container runtimes.
func (f *Finder) Reserve(ctx context.Context, ids []string) (devices.Reservation, error) {
	found, err := f.scanNvidiaDevices(ctx)
	if ctx.Err() != nil {
		return devices.Reservation{}, err
	}
	r, err := devices.ReserveFound(Kind, found, ids, err)
	if err != nil || len(ids) == 0 {
		return r, err
	}
	for _, id := range ids {
		r.CDI = append(r.CDI, cdiKind+"="+id)
	}
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"} {
		node, err := f.cfg.Roots.Node(name)
		if err == nil { // which of them exist depends on the modules that are loaded
			r.Nodes = append(r.Nodes, node)
		}
	}
	return r, nil
}

// Measure returns the present values of each GPU. Values that a GPU does not have are left out.
func (f *Finder) Measure(ctx context.Context) (map[string][]devices.Measurement, error) {
	report, err := f.queryReport(ctx)
	if err != nil || report == nil {
		return nil, err
	}
	all := map[string][]devices.Measurement{}
	for i := range report.GPUs {
		g := &report.GPUs[i]
		all[g.UUID] = g.currentMeasurements()
	}
	return all, nil
}

// scanNvidiaDevices runs nvidia-smi and returns the devices that work.
func (f *Finder) scanNvidiaDevices(ctx context.Context) ([]devices.Found, error) {
	report, err := f.queryReport(ctx)
	if err != nil || report == nil {
		return nil, err
	}
	var found []devices.Found
	var errs []error
	var names []migName
	for i := range report.GPUs {
		g := &report.GPUs[i]
		if why := g.healthProblem(); why != "" {
			errs = append(errs, fmt.Errorf("gpu %s (%s) does not work: %s", g.UUID, g.Name, why))
			continue
		}
		if g.MIGMode != "Enabled" {
			found = append(found, f.toFound(g, report.DriverVersion))
			continue
		}
		if names == nil && len(g.MIG) > 0 {
			if names, err = f.listMIG(ctx); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		for k := range g.MIG {
			one, err := f.toFoundInstance(g, &g.MIG[k], names, report.DriverVersion)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			found = append(found, one)
		}
	}
	return found, errors.Join(errs...)
}

// queryReport runs nvidia-smi -q -x and decodes its report. Without that program there are no GPUs, and it returns
// nil.
func (f *Finder) queryReport(ctx context.Context) (*report, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find nvidia gpus: %w", err)
	}
	out, err := f.runProgram(ctx, "-q", "-x")
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeReport(out)
}

// runProgram runs nvidia-smi and returns its output.
func (f *Finder) runProgram(ctx context.Context, args ...string) ([]byte, error) {
	path, err := exec.LookPath(f.cfg.Program)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", f.cfg.Program, errors.Join(exec.ErrNotFound, err))
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // a program that waits in the kernel may not die at once
	var out boundedBuffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		said := sysfs.Printable(strings.TrimSpace(out.text.String()))
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("run %s %s: %w: %s", f.cfg.Program, strings.Join(args, " "), err, said)
	}
	return []byte(out.text.String()), nil
}

// boundedBuffer keeps the first maxOutput bytes that are written to it.
type boundedBuffer struct{ text strings.Builder }

// Write keeps the bytes that fit, and never fails.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.text.Write(p[:min(len(p), maxOutput-b.text.Len())])
	return len(p), nil
}

// toFound converts a GPU.
func (f *Finder) toFound(g *gpu, driver string) devices.Found {
	one := devices.Found{Device: fleet.Device{
		Kind: Kind, Vendor: Vendor, Type: Type, Name: g.Name, ID: g.UUID, Attributes: g.attributeMap(driver),
	}}
	node, err := f.cfg.Roots.Node("nvidia" + g.Minor)
	one.Err = err
	if err == nil {
		one.Nodes = []fleet.DeviceNode{node}
	}
	return one
}

// toFoundInstance converts a MIG instance. Its nodes are the GPU's, and those that give access to the instance.
func (f *Finder) toFoundInstance(g *gpu, m *mig, names []migName, driver string) (devices.Found, error) {
	i := slices.IndexFunc(names, func(n migName) bool { return n.gpu == g.UUID && n.index == m.Index })
	if i < 0 {
		return devices.Found{}, fmt.Errorf("MIG instance %s of gpu %s has no name in the list of %s", m.Index, g.UUID, f.cfg.Program)
	}
	one := f.toFound(g, driver)
	one.ID, one.Name = names[i].id, g.Name+" MIG "+names[i].profile
	delete(one.Attributes, "bar1")
	one.Attributes["mig_profile"] = names[i].profile
	one.Attributes["memory"] = sysfs.Printable(m.Memory.Total)
	sysfs.WithoutEmpty(one.Attributes)
	for _, capability := range []string{
		fmt.Sprintf("gpu%s/gi%s/access", g.Minor, m.GPUInstance),
		fmt.Sprintf("gpu%s/gi%s/ci%s/access", g.Minor, m.GPUInstance, m.ComputeInstance),
	} {
		node, err := f.capabilityNode(capability)
		if err != nil {
			one.Err = errors.Join(one.Err, err)
			continue
		}
		one.Nodes = append(one.Nodes, node)
	}
	return one, nil
}

// capabilityNode returns the node below /dev/nvidia-caps of a MIG capability. The driver lists the minors of all
// capabilities in one file.
func (f *Finder) capabilityNode(capability string) (fleet.DeviceNode, error) {
	minors, err := readLines(filepath.Join(f.cfg.Proc, "driver", "nvidia-caps", "mig-minors"))
	if err != nil {
		return fleet.DeviceNode{}, fmt.Errorf("read MIG capabilities: %w", err)
	}
	for _, line := range minors {
		if name, minor, _ := strings.Cut(line, " "); name == capability {
			return f.cfg.Roots.Node("nvidia-caps", "nvidia-cap"+minor)
		}
	}
	return fleet.DeviceNode{}, fmt.Errorf("MIG capability %s: %w", capability, devices.ErrUnplugged)
}

// migName is a MIG instance as nvidia-smi -L names it.
type migName struct{ gpu, index, profile, id string }

// listedGPU and listedMIG are lines of nvidia-smi -L.
var (
	listedGPU = regexp.MustCompile(`^GPU \d+: .*\(UUID: ([^)]+)\)`)
	listedMIG = regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: ([^)]+)\)`)
)

// listMIG runs nvidia-smi -L, the only source of the UUIDs of MIG instances.
func (f *Finder) listMIG(ctx context.Context) ([]migName, error) {
	out, err := f.runProgram(ctx, "-L")
	if err != nil {
		return nil, err
	}
	return parseList(string(out)), nil
}

// parseList returns the MIG instances of a list. It leaves out lines that it cannot read.
func parseList(text string) []migName {
	names, gpu := []migName{}, ""
	for line := range strings.Lines(text) {
		if m := listedGPU.FindStringSubmatch(line); m != nil {
			gpu = sysfs.Printable(m[1])
		} else if m := listedMIG.FindStringSubmatch(line); m != nil {
			index, err := strconv.Atoi(m[2])
			if err == nil {
				names = append(names, migName{gpu: gpu, profile: sysfs.Printable(m[1]), index: strconv.Itoa(index), id: sysfs.Printable(m[3])})
			}
		}
	}
	return names
}
