// Package qemu is the driver "qemu": a task is a virtual machine that QEMU runs from a disk image. Edges run it; hubs
// check config blocks with it. Package supervised runs the emulator's process; this package starts no goroutine.
//
// The state folder of a task has the socket of the emulator's monitor, by which the machine is asked to shut down.
// Package supervised stores everything else.
package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"skerry/drivers"
	"skerry/drivers/options"
	"skerry/drivers/supervised"
	"skerry/fleet"
	"skerry/internal/programs"
)

// Name is the driver's name in job files.
const Name = "qemu"

// Bounds of the memory of a machine in MiB, as in Nomad.
const (
	minMemoryMB = 128
	maxMemoryMB = 4_000_000
)

// hint lists the keys of a config block.
const hint = "it takes image_path, drive_interface, accelerator, graceful_shutdown, port_map and args"

// Config of the driver. Log is required.
type Config struct {
	// BootID is the kernel's boot id; "": read from the kernel.
	BootID string
	// Emulator is the program, by its name in PATH or its path; "": the one of this processor's architecture.
	Emulator string
	Permissions
	// Programs keeps what the emulator answered; nil: in memory.
	Programs *programs.Answers
	Log      *slog.Logger
}

// Permissions are the files and flags that an edge lets tasks use.
type Permissions struct {
	// ImagePaths are folders outside of allocations whose images a task may use.
	ImagePaths []string
	// AllowedArgs are the flags that args may hold, such as "-device"; none: all.
	AllowedArgs []string
}

// Driver runs virtual machines. It implements drivers.Driver.
type Driver struct {
	*supervised.Driver
	cfg Config
	log *slog.Logger

	kvm *programs.Answers // why it does not work, in memory only
}

// program is the emulator.
type program struct {
	path       string
	version    string
	withoutKVM string // why kvm does not work, or ""
}

// New makes the driver. It starts nothing.
func New(cfg Config) (*Driver, error) {
	if cfg.Log == nil {
		return nil, errors.New("make qemu driver: no logger")
	}
	for _, dir := range cfg.ImagePaths {
		if !filepath.IsAbs(dir) {
			return nil, fleet.Errorf(fleet.CodeInvalid, "image path %q of the driver %s is not absolute", dir, Name)
		}
	}
	cfg.Programs = cmp.Or(cfg.Programs, programs.Open(""))
	if cfg.Emulator == "" {
		cfg.Emulator = "qemu-system-" + architecture()
	}
	d := &Driver{cfg: cfg, log: cfg.Log.With("driver", Name), kvm: programs.Open("")}
	var err error
	d.Driver, err = supervised.New(supervised.Config{
		Name: Name, BootID: cfg.BootID, Log: cfg.Log, Check: Check, Build: d.buildProcess, Fingerprint: d.fingerprintEmulator,
		Capabilities: drivers.Capabilities{FSIsolation: drivers.FSImage, Networks: []string{fleet.NetworkHost}, HidesEnv: true},
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// architecture returns QEMU's name of this processor's architecture.
func architecture() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// Recover finds a machine by its Handle. The task offers neither Exec nor signals: both would reach the emulator.
func (d *Driver) Recover(ctx context.Context, cfg drivers.TaskConfig, h drivers.Handle) (drivers.Task, error) {
	t, err := d.Driver.Recover(ctx, cfg, h)
	if err != nil {
		return nil, err
	}
	meter, ok := t.(drivers.Meter)
	if !ok {
		return nil, errors.New("recover task: it cannot be measured")
	}
	s, err := parseSettings(cfg.Config)
	return &machineTask{Task: t, Meter: meter, id: h.TaskID, stateDir: cfg.StateDir, graceful: err == nil && s.graceful, log: d.log}, nil
}

// settings are the values of a task's config block.
type settings struct {
	image, driveInterface, accelerator string
	graceful                           bool
	portMap                            map[string]string // guest ports by label
	args                               []string
}

// Interfaces of a drive and accelerators that a task may name.
var (
	driveInterfaces = []string{"ide", "scsi", "sd", "mtd", "floppy", "pflash", "virtio", "none"}
	accelerators    = []string{"", "kvm", "tcg"}
)

var portPattern = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)

// parseSettings reads a task's config block. The error names all its problems.
func parseSettings(config map[string]any) (settings, error) {
	r := options.Read(config)
	s := settings{
		image: r.RequiredText("image_path"), driveInterface: r.Text("drive_interface"), accelerator: r.Text("accelerator"),
		graceful: r.Bool("graceful_shutdown", false), portMap: r.Map("port_map"), args: r.Texts("args"),
	}
	if s.driveInterface == "" {
		s.driveInterface = "ide"
	}
	if !slices.Contains(driveInterfaces, s.driveInterface) {
		r.Refuse("drive_interface must be one of %s, not %q", strings.Join(driveInterfaces, ", "), s.driveInterface)
	}
	if !slices.Contains(accelerators, s.accelerator) {
		r.Refuse("accelerator must be kvm or tcg, not %q", s.accelerator)
	}
	if r.Bool("guest_agent", false) {
		r.Refuse("guest_agent is not supported")
	}
	for _, label := range slices.Sorted(maps.Keys(s.portMap)) {
		if !portPattern.MatchString(s.portMap[label]) {
			r.Refuse("port_map of %q must be a port of the machine, not %q", label, s.portMap[label])
		}
	}
	return s, r.Err(Name, hint)
}

// Check returns an error for a config block that works on no machine. Hubs check a job with it when it is
// registered.
func Check(config map[string]any) error {
	_, err := parseSettings(config)
	return err
}

// buildProcess returns the emulator's process for a task.
func (d *Driver) buildProcess(_ context.Context, cfg drivers.TaskConfig) (supervised.Process, error) {
	s, err := parseSettings(cfg.Config)
	if err != nil {
		return supervised.Process{}, err
	}
	if len(cfg.Devices) > 0 {
		return supervised.Process{}, fleet.Errorf(fleet.CodeInvalid, "a %s task gets no devices", Name).
			WithHint("leave out device, and pass the hardware to the machine with args")
	}
	if mb := cfg.Resources.MemoryMB; mb < minMemoryMB || mb > maxMemoryMB {
		return supervised.Process{}, fleet.Errorf(fleet.CodeInvalid, "a %s task has from %d to %d MiB of memory, not %d", Name, minMemoryMB, maxMemoryMB, mb).
			WithHint("set memory in the task's resources")
	}
	if err := d.checkArgs(s.args); err != nil {
		return supervised.Process{}, err
	}
	image, format, err := d.findImage(s.image, cfg)
	if err != nil {
		return supervised.Process{}, err
	}
	p, err := d.findEmulator()
	if err != nil {
		return supervised.Process{}, err
	}
	accelerator, err := chooseAccelerator(s.accelerator, p)
	if err != nil {
		return supervised.Process{}, err
	}
	argv := []string{p.path}
	argv = append(argv, machineArgs(accelerator, cfg.Resources)...)
	argv = append(argv, "-name", escape(filepath.Base(image)),
		"-drive", "file="+escape(image)+",format="+format+",if="+s.driveInterface, "-nographic")
	if s.graceful {
		socket, err := makeMonitorPath(cfg.StateDir)
		if err != nil {
			return supervised.Process{}, drivers.Recoverable(err)
		}
		argv = append(argv, "-monitor", "unix:"+escape(socket)+",server=on,wait=off")
	}
	argv = append(argv, s.args...)
	forwards, err := forwardPorts(s.portMap, cfg.Network.Ports)
	if err != nil {
		return supervised.Process{}, err
	}
	argv = append(argv, forwards...)
	process := supervised.Process{Path: p.path, Argv: argv, Env: supervised.Environment(os.Environ(), cfg.Env), Dir: cfg.Dir}
	if cfg.Resources.MemoryMaxMB == 0 {
		cfg.Resources.MemoryMaxMB = -1 // the machine's memory is bounded by -m, and the emulator needs some more
	}
	return process, process.UseCgroup(cfg)
}

// machineArgs returns the flags of the machine's kind, its processors and its memory.
func machineArgs(accelerator string, r fleet.Resources) []string {
	kind, cpu := "pc", ""
	if runtime.GOARCH != "amd64" {
		kind, cpu = "virt", "max"
	}
	if accelerator == "kvm" {
		cpu = "host"
	}
	args := []string{"-machine", "type=" + kind + ",accel=" + accelerator, "-m", fmt.Sprintf("%dM", r.MemoryMB)}
	if cpu != "" {
		args = append(args, "-cpu", cpu)
	}
	if r.Cores > 0 {
		args = append(args, "-smp", fmt.Sprint(r.Cores))
	}
	return args
}

// escape doubles commas, which separate the options of a flag.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// checkArgs returns an error for a flag that this edge does not allow.
func (d *Driver) checkArgs(args []string) error {
	if len(d.cfg.AllowedArgs) == 0 {
		return nil
	}
	for i, a := range args {
		if strings.HasPrefix(a, "-") && !slices.Contains(d.cfg.AllowedArgs, "-"+strings.TrimLeft(a, "-")) {
			// Its text may be a secret.
			return fleet.Errorf(fleet.CodeForbidden, "this edge does not allow the flag at args[%d] of a %s task", i, Name).
				WithHint("it allows %s; its operator sets them with --qemu-allow-args", strings.Join(d.cfg.AllowedArgs, ", "))
		}
	}
	return nil
}

// forwardPorts returns the flags that forward the ports of labels to ports of the machine, as in Nomad: TCP and UDP.
func forwardPorts(portMap map[string]string, ports []fleet.AssignedPort) ([]string, error) {
	var forwards []string
	for _, label := range slices.Sorted(maps.Keys(portMap)) {
		i := slices.IndexFunc(ports, func(p fleet.AssignedPort) bool { return p.Label == label })
		if i < 0 {
			return nil, fleet.Errorf(fleet.CodeInvalid, "port_map names %q, which is no port of the group", label).
				WithHint("add port %q { } to the group's network block", label)
		}
		host := ports[i].HostIP
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		for _, protocol := range []string{"udp", "tcp"} {
			forwards = append(forwards, fmt.Sprintf("hostfwd=%s:%s:%d-:%s", protocol, host, ports[i].Value, portMap[label]))
		}
	}
	if len(forwards) == 0 {
		return nil, nil
	}
	return []string{"-netdev", "user,id=user.0," + strings.Join(forwards, ","), "-device", "virtio-net,netdev=user.0"}, nil
}
