// Package oci runs tasks in containers of an OCI runtime on the machine (crun or runc), without a daemon. It makes
// the bundle of a task from host folders; the supervisor of package supervised creates, starts and deletes the
// container. The drivers exec and java call it.
//
// A task with an image has, in place of host folders, the root of that image, below a layer of its own that ends with
// the attempt. An image is unpacked once, into a folder named by its digest, and stays while the state folder of an
// allocation that has used it exists. It can be unpacked again without a network: the task's folder has its layout.
//
// It starts no goroutine. It persists a task's bundle (config.json, resolv.conf, hosts) in the task's state folder, or in
// memory if its environment has secrets, and unpacked images in Config.Images.
package oci

import (
	"cmp"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/programs"
)

// Modes of a task's PID and IPC namespaces.
const (
	ModePrivate = "private"
	ModeHost    = "host"
)

// maxImageBytes and maxImageFiles bound what an image unpacks to.
const (
	maxImageBytes = 32 << 30
	maxImageFiles = 1 << 18
)

// DefaultUser is the user of tasks that name none.
const DefaultUser = "nobody"

// runtimes are the programs of OCI runtimes, in order of preference.
var runtimes = []string{"crun", "runc"}

// DefaultChroot returns the folders of the machine that a task sees, read-only. Missing ones are left out.
func DefaultChroot() map[string]string {
	folders := make(map[string]string)
	for _, dir := range []string{"/bin", "/etc", "/lib", "/lib32", "/lib64", "/sbin", "/usr"} {
		folders[dir] = dir
	}
	return folders
}

// DriverConfig is the configuration of a driver whose tasks run in an Isolation.
type DriverConfig struct {
	// BootID is the kernel's boot id; "": read from the kernel.
	BootID string
	Log    *slog.Logger
	// Isolation makes the containers.
	Isolation Config
}

// Config of an Isolation.
type Config struct {
	// Runtime is the program of the OCI runtime; "": crun, otherwise runc.
	Runtime string
	// Chroot are the folders and files of the machine that tasks see, read-only: path on the machine -> path in the
	// task. Empty: those of DefaultChroot that the machine has.
	Chroot map[string]string
	// Images is the folder for unpacked images; "": tasks have none.
	Images string
	// Programs keeps the versions of programs; nil: in memory.
	Programs *programs.Answers
}

// Isolation makes containers of tasks.
type Isolation struct {
	runtime string
	chroot  map[string]string
	// mayLack says that the machine may lack folders of chroot, which are then left out.
	mayLack bool
	images  string
	// maxBytes and maxFiles bound what an image unpacks to.
	maxBytes int64
	maxFiles int
	programs *programs.Answers

	unpacking sync.Mutex // held while an image is unpacked, or unused ones are removed
}

// New makes an Isolation. It starts nothing.
func New(cfg Config) (*Isolation, error) {
	if cfg.Runtime != "" && !filepath.IsAbs(cfg.Runtime) {
		return nil, fleet.Errorf(fleet.CodeInvalid, "OCI runtime %q: not an absolute path", cfg.Runtime)
	}
	mayLack := len(cfg.Chroot) == 0
	if mayLack {
		cfg.Chroot = DefaultChroot()
	}
	if err := checkChroot(cfg.Chroot); err != nil {
		return nil, err
	}
	return &Isolation{
		runtime: cfg.Runtime, chroot: maps.Clone(cfg.Chroot), mayLack: mayLack, images: cfg.Images, maxBytes: maxImageBytes, maxFiles: maxImageFiles,
		programs: cmp.Or(cfg.Programs, programs.Open("")),
	}, nil
}

// checkChroot returns an error for folders of the machine that tasks cannot see at their paths.
func checkChroot(chroot map[string]string) error {
	at := make(map[string]string)
	for _, from := range slices.Sorted(maps.Keys(chroot)) {
		to, why := filepath.Clean(chroot[from]), ""
		if !filepath.IsAbs(from) || !filepath.IsAbs(to) || to == "/" {
			why = "both must be absolute paths, and not the root"
		}
		for _, own := range []string{drivers.AllocPath, drivers.LocalPath, drivers.SecretsPath} {
			if to == own || strings.HasPrefix(to, own+"/") {
				why = "a task has a folder of its own there"
			}
		}
		if other, taken := at[to]; taken {
			why = "it would hide " + other
		}
		if why != "" {
			return fleet.Errorf(fleet.CodeInvalid, "let tasks see %q of this machine at %q: %s", from, chroot[from], why).WithHint("change --exec-chroot of the edge")
		}
		at[to] = from
	}
	return nil
}

// CheckFolders returns an error if this machine lacks a folder that its operator lets tasks see: tasks that miss a part of
// their programs would fail without a reason. It may be a disk that is mounted later.
func (i *Isolation) CheckFolders() error {
	if i.mayLack {
		return nil
	}
	for _, from := range slices.Sorted(maps.Keys(i.chroot)) {
		if _, err := os.Stat(from); err != nil {
			return drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "let tasks see %s of this machine at %s: %w", from, i.chroot[from], err).
				WithHint("make it, or change --exec-chroot of the edge"))
		}
	}
	return nil
}

// findRuntime returns the path of the runtime's program.
func (i *Isolation) findRuntime() (string, error) {
	names := runtimes
	if i.runtime != "" {
		names = []string{i.runtime}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fleet.Errorf(fleet.CodeUnsupported, "no OCI runtime is installed (%s)", strings.Join(names, ", ")).
		WithHint("install crun or runc")
}

// Program is the program that runs in a container.
type Program struct {
	Command string // name or path in the container
	Args    []string
	Env     []string // NAME=value
	WorkDir string   // absolute path in the container; "": its root
	User    string   // "": DefaultUser
	CapAdd  []string
	CapDrop []string
	PIDMode string // ModePrivate (also for "") or ModeHost
	IPCMode string // ModePrivate (also for "") or ModeHost
	PIDs    int64  // most processes and threads; 0: no limit
	Image   string // folder of an OCI layout, as the task sees it or relative to its own folder; "": the machine's folders
}

// defaultCapabilities are the capabilities that a task may have, as in Nomad.
var defaultCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// capabilityName returns the kernel's name of a capability: CAP_NET_RAW for NET_RAW, net_raw and cap_net_raw.
func capabilityName(name string) string {
	name = strings.ToUpper(name)
	if name == "ALL" || strings.HasPrefix(name, "CAP_") {
		return name
	}
	return "CAP_" + name
}

// CheckCapabilities returns an error for capabilities that tasks may not have.
func CheckCapabilities(add, drop []string) error {
	for _, name := range add {
		if n := capabilityName(name); n != "ALL" && !slices.Contains(defaultCapabilities, n) {
			return fleet.Errorf(fleet.CodeInvalid, "cap_add: the capability %q is not allowed", name).
				WithHint("tasks may have %s", strings.ToLower(strings.ReplaceAll(strings.Join(defaultCapabilities, ", "), "CAP_", "")))
		}
	}
	for _, name := range drop {
		if n := capabilityName(name); n != "ALL" && !slices.Contains(knownCapabilities, n) {
			return fleet.Errorf(fleet.CodeInvalid, "cap_drop: there is no capability %q", name)
		}
	}
	return nil
}

// taskCapabilities returns the capabilities that a task may have, and among them those that it adds by name.
func taskCapabilities(add, drop []string) (bounding, added []string) {
	for _, name := range defaultCapabilities {
		wanted := func(list []string) bool {
			return slices.ContainsFunc(list, func(s string) bool { n := capabilityName(s); return n == name || n == "ALL" })
		}
		if wanted(add) {
			added = append(added, name)
		} else if wanted(drop) {
			continue
		}
		bounding = append(bounding, name)
	}
	return bounding, added
}

// knownCapabilities are all capabilities of Linux.
var knownCapabilities = strings.Fields(`
CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_AUDIT_WRITE CAP_BLOCK_SUSPEND CAP_BPF CAP_CHECKPOINT_RESTORE CAP_CHOWN
CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_IPC_LOCK CAP_IPC_OWNER CAP_KILL CAP_LEASE
CAP_LINUX_IMMUTABLE CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_MKNOD CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_BROADCAST
CAP_NET_RAW CAP_PERFMON CAP_SETFCAP CAP_SETGID CAP_SETPCAP CAP_SETUID CAP_SYSLOG CAP_SYS_ADMIN CAP_SYS_BOOT
CAP_SYS_CHROOT CAP_SYS_MODULE CAP_SYS_NICE CAP_SYS_PACCT CAP_SYS_PTRACE CAP_SYS_RAWIO CAP_SYS_RESOURCE CAP_SYS_TIME
CAP_SYS_TTY_CONFIG CAP_WAKE_ALARM`)
