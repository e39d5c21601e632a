package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry/drivers"
	"skerry/drivers/cgroup"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

// Names in the state folder of a task.
const (
	bundleDir = "bundle"
	stateDir  = "oci"   // state of the runtime
	pidLink   = "pidns" // link to the PID namespace
)

// specVersion is the version of the bundles. Older runtimes refuse newer ones.
const specVersion = "1.0.2"

// Describe returns the runtime's name and version and the kind of cgroups, or an error that says why tasks cannot
// be isolated on this machine.
func (i *Isolation) Describe(ctx context.Context) (string, error) {
	if os.Geteuid() != 0 {
		return "", fleet.Errorf(fleet.CodeUnsupported, "the agent does not run as root")
	}
	mounts, err := cgroup.Find()
	if err == nil {
		err = mounts.Probe()
	}
	if err != nil {
		return "", err
	}
	path, err := i.findRuntime()
	if err != nil {
		return "", err
	}
	out, err := i.programs.Ask(path, "--version", func() (string, error) {
		b, err := exec.CommandContext(ctx, path, "--version").Output()
		return string(b), err
	})
	if err != nil {
		return "", fleet.Errorf(fleet.CodeUnsupported, "the OCI runtime %s does not work: %w", path, err)
	}
	version, _, _ := strings.Cut(out, "\n")
	return fmt.Sprintf("%s, cgroups %s", strings.TrimSpace(version), mounts.Version()), nil
}

// Process writes the bundle of a task and returns the process that the task's supervisor runs.
func (i *Isolation) Process(ctx context.Context, cfg drivers.TaskConfig, p Program) (supervised.Process, error) {
	mounts, err := cgroup.Find()
	if err != nil {
		return supervised.Process{}, err
	}
	path, err := i.findRuntime()
	if err != nil {
		return supervised.Process{}, err
	}
	var root string
	if p.Image != "" {
		if root, err = i.applyImage(ctx, cfg, &p); err != nil {
			return supervised.Process{}, err
		}
	} else if err := i.CheckFolders(); err != nil {
		return supervised.Process{}, err
	}
	user, err := findUser(root, cmp.Or(p.User, DefaultUser))
	if err != nil {
		return supervised.Process{}, err
	}
	if err := supervised.GiveFolders(cfg, user); err != nil {
		return supervised.Process{}, err
	}
	marker, err := supervised.Marker(cfg.StateDir)
	if err != nil {
		return supervised.Process{}, err
	}
	_, instance, _ := strings.Cut(marker, "=")
	id := cgroup.CleanName(cfg.ID + "." + instance)
	p.Env = append(setUser(p.Env, cfg.Env, user.Name), marker)
	if root == "" {
		p.Command = locateCommand(cfg, p.Command)
	}
	holder := cmp.Or(cfg.MemoryDir, cfg.StateDir) // the bundle has the environment, and the runtime copies it
	b := bundle{cfg: cfg, program: p, user: user, chroot: i.chroot, dir: filepath.Join(holder, bundleDir), limitsSwap: mounts.LimitsSwap()}
	c := &supervised.Container{Runtime: path, Root: filepath.Join(holder, stateDir), Bundle: b.dir, ID: id}
	if filepath.Base(path) == "crun" {
		c.Hidden = mounts.SecondMount()
	}
	if p.PIDMode != ModeHost {
		c.PIDNamespace = filepath.Join(cfg.StateDir, pidLink)
	}
	if root != "" {
		if c.Layers, err = b.layOver(root); err != nil {
			return supervised.Process{}, err
		}
	}
	if err := b.writeConfig(c, mounts.CgroupsPath(id)); err != nil {
		return supervised.Process{}, err
	}
	return supervised.Process{
		Path: p.Command, Argv: append([]string{p.Command}, p.Args...), Env: p.Env, Dir: "/", User: user,
		Cgroup: &supervised.Cgroup{Group: mounts.Group(id)}, Container: c,
	}, nil
}

// setUser sets the variables of a user in env, unless the task sets them. HOME is not the user's home on the machine,
// which the container lacks.
func setUser(env []string, own map[string]string, user string) []string {
	out := slices.Clone(env)
	for name, value := range map[string]string{"HOME": "/", "USER": user, "LOGNAME": user} {
		if _, set := own[name]; !set {
			out = slices.DeleteFunc(out, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
			out = append(out, name+"="+value)
		}
	}
	return out
}

// locateCommand returns the container path of a command in the task's folders. For any other command it returns the
// command, which the runtime looks for in PATH.
func locateCommand(cfg drivers.TaskConfig, command string) string {
	if filepath.IsAbs(command) {
		return command
	}
	for _, dir := range []struct{ host, inside string }{{cfg.LocalDir, drivers.LocalPath}, {cfg.Dir, "/"}} {
		info, err := os.Stat(filepath.Join(dir.host, command))
		if dir.host != "" && err == nil && info.Mode().IsRegular() {
			return filepath.Join(dir.inside, command)
		}
	}
	return command
}

// bundle is the bundle of one task under construction.
type bundle struct {
	cfg        drivers.TaskConfig
	program    Program
	user       *supervised.User
	chroot     map[string]string
	dir        string
	limitsSwap bool
}

// writeConfig makes the bundle's folder and writes its files.
func (b *bundle) writeConfig(c *supervised.Container, cgroupsPath string) error {
	for _, dir := range []string{b.dir, c.Root} { // its folder exists: one in memory that was lost is not made on the disk
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make bundle: %w", err)
		}
	}
	mounts, err := b.listMounts()
	if err != nil {
		return err
	}
	nodes, rules, err := b.listDevices()
	if err != nil {
		return err
	}
	spec := &specs.Spec{
		Version:  specVersion,
		Root:     b.rootOf(c),
		Hostname: b.cfg.Network.Hostname,
		Process:  b.makeProcess(),
		Mounts:   mounts,
		Linux: &specs.Linux{
			Namespaces:  b.listNamespaces(c.PIDNamespace),
			CgroupsPath: cgroupsPath,
			Resources:   b.makeResources(rules),
			Devices:     nodes,
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
				"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
			},
			ReadonlyPaths:     []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			RootfsPropagation: b.rootPropagation(),
		},
	}
	if spec.Linux.Seccomp, err = seccomp.GetDefaultProfile(spec); err != nil {
		return fmt.Errorf("make seccomp profile: %w", err)
	}
	encoded, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "config.json"), encoded, 0o600); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// makeProcess returns the process of the container. The user root has the default capabilities. Any other user has
// only those that the task adds.
func (b *bundle) makeProcess() *specs.Process {
	bounding, added := taskCapabilities(b.program.CapAdd, b.program.CapDrop)
	caps := &specs.LinuxCapabilities{Bounding: bounding, Permitted: bounding, Effective: bounding}
	if b.user.UID != 0 {
		caps.Permitted, caps.Effective, caps.Inheritable, caps.Ambient = added, added, added, added
	}
	dir := b.program.WorkDir
	if dir == "" {
		dir = "/"
	}
	return &specs.Process{
		Args: append([]string{b.program.Command}, b.program.Args...), Env: b.program.Env, Cwd: dir,
		User:         specs.User{UID: b.user.UID, GID: b.user.GID, AdditionalGids: b.user.Groups},
		Capabilities: caps, NoNewPrivileges: true,
	}
}

// listNamespaces returns the namespaces of the container.
func (b *bundle) listNamespaces(pid string) []specs.LinuxNamespace {
	all := []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.UTSNamespace}}
	if b.program.IPCMode != ModeHost {
		all = append(all, specs.LinuxNamespace{Type: specs.IPCNamespace})
	}
	if pid != "" {
		all = append(all, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: pid})
	}
	n := b.cfg.Network
	if n.Namespace != "" || n.Mode == fleet.NetworkNone {
		all = append(all, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: n.Namespace})
	}
	if _, err := os.Stat("/proc/self/ns/cgroup"); err == nil {
		all = append(all, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return all
}

// makeResources returns the limits of the container, with rules for devices.
func (b *bundle) makeResources(rules []specs.LinuxDeviceCgroup) *specs.LinuxResources {
	l := supervised.LimitsOf(b.cfg)
	r := &specs.LinuxResources{
		Devices: append([]specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, rules...),
		CPU:     &specs.LinuxCPU{Cpus: l.CPUs},
	}
	if l.CPUShares > 0 {
		shares := uint64(l.CPUShares)
		r.CPU.Shares = &shares
	}
	if l.Memory > 0 || l.SoftMemory > 0 {
		r.Memory = &specs.LinuxMemory{}
	}
	if l.Memory > 0 {
		r.Memory.Limit = &l.Memory
	}
	if l.Memory > 0 && b.limitsSwap {
		r.Memory.Swap = &l.Memory // the limit of memory plus swap: no swap is left
	}
	if l.SoftMemory > 0 {
		r.Memory.Reservation = &l.SoftMemory
	}
	if b.program.PIDs > 0 {
		r.Pids = &specs.LinuxPids{Limit: &b.program.PIDs}
	}
	return r
}
