// Package docker is the drivers "docker" and "podman": a task is a container of the daemon on this machine. Both
// speak Docker's API (1.40 and later); podman.go holds the differences of Podman.
//
// The driver learns about a container only by inspecting it, never by events. Name and labels of a container contain
// its task, its allocation and the identity of the task's state folder. So a restarted agent finds it again, and a
// copy of a data directory never affects the containers of the original.
// Containers have no restart policy: after a reboot the agent starts them.
//
// While the daemon does not answer, no task counts as lost: errors are recoverable, and Wait keeps asking. A
// container that the daemon no longer knows is lost, with an unknown exit.
//
// A state folder holds:
//
//	id           random number; with the folder's inode, it tells the folder from others
//	exit.json    how the container ended; written once the agent has seen it
//	logs.json    position in the daemon's log of the container
//	logs.lock    locked by the goroutine that copies the log
//	resolv.conf  of a container in the network namespace of its allocation, as hosts is
//
// The daemon writes a container's output to its own bounded log files. Task.Wait copies them to the log files of
// the allocation, from the recorded position, so that a restart of the agent loses nothing.
//
// DATA/images/NAME.json records the images that the driver fetched for its data directory. CollectImages removes no others,
// and none that a task may need: it asks for these each time, and counts no references.
//
// A Driver starts a goroutine for each Stop, which ends with the daemon's answer, for each Exec, which ends once the
// command runs, or is killed as its caller has gone, and no others. It makes no connection before its daemon's socket exists.
// The edge uses it through drivers/builtin; hubs call CheckDocker and CheckPodman.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/programs"
)

// Names of the drivers in job files.
const (
	Docker = "docker"
	Podman = "podman"
)

// Default sockets of the daemons.
const (
	DefaultDockerSocket = "/var/run/docker.sock"
	DefaultPodmanSocket = "/run/podman/podman.sock"
)

// DefaultCapabilities are the capabilities that a job may ask for unless an edge is configured otherwise. They
// are those of Docker's containers, without NET_RAW.
var DefaultCapabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// Config of a Driver. Name, Socket and Log are required.
type Config struct {
	Name    string // Docker or Podman
	Socket  string // path of the daemon's socket
	DataDir string // of the edge; containers are labelled with its identity
	BootID  string // kernel's boot id; "": read from the kernel
	Permissions
	// TotalMHz returns the machine's processor capacity, for cpu_hard_limit. nil or 0 means unknown.
	TotalMHz func() int
	// Programs keeps what the daemon says of itself; nil: in memory.
	Programs *programs.Answers
	Log      *slog.Logger
}

// Permissions are the rights that an edge gives its containers. The zero value is Nomad's default.
type Permissions struct {
	// AllowPrivileged permits privileged containers, and those that share process, IPC, UTS or user namespaces
	// with the host.
	AllowPrivileged bool
	// AllowVolumes permits mounts of folders outside of the allocation.
	AllowVolumes bool
	// AllowCaps are the capabilities that cap_add may name; "ALL" permits any. nil: DefaultCapabilities.
	AllowCaps []string
}

// Driver runs tasks as containers. It implements drivers.Driver.
type Driver struct {
	cfg    Config
	bootID string
	log    *slog.Logger
	client *client.Client
	quirks quirks

	connected    atomic.Bool                   // a ping has succeeded and the API version is agreed
	details      atomic.Pointer[daemonDetails] // the newest ones
	detailsTried atomic.Bool
	lowLimits    atomic.Bool // Podman's default limits are above those of this machine

	starting chan struct{} // full while as many starts go on as are to at once (see takeTurn)

	mu      sync.Mutex
	pulls   map[string]*pull // by image
	held    map[string]int   // starts under way, by the name of the image
	removal chan struct{}    // closed when the running removal of images ends; nil: none runs

	recording sync.Mutex    // held from reading the record of fetched images until its successor is on the disk
	pulled    *pulledRecord // nil: not read yet; guarded by recording
	unsaved   time.Duration // since Unneeded of the images was last written; owned by CollectImages
}

// New makes a Driver. It connects to nothing.
func New(cfg Config) (*Driver, error) {
	if cfg.Log == nil || cfg.Socket == "" || cfg.Name != Docker && cfg.Name != Podman {
		return nil, errors.New("make container driver: a name, a socket and a logger are required")
	}
	if cfg.AllowCaps == nil {
		cfg.AllowCaps = DefaultCapabilities
	}
	cfg.Programs = cmp.Or(cfg.Programs, programs.Open(""))
	cfg.AllowCaps = capabilityNames(slices.Clone(cfg.AllowCaps))
	c, err := client.New(client.WithHost("unix://" + cfg.Socket))
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", cfg.Socket, err)
	}
	bootID := cfg.BootID
	if bootID == "" {
		bootID = kernelBootID()
	}
	return &Driver{
		cfg: cfg, bootID: bootID, log: cfg.Log.With("driver", cfg.Name), client: c,
		quirks: quirksOf(cfg.Name), pulls: map[string]*pull{}, held: map[string]int{},
		starting: make(chan struct{}, max(2, processors())),
	}, nil
}

// Capabilities says that a task has its image's file system, with the task's folders mounted.
func (d *Driver) Capabilities() drivers.Capabilities {
	return drivers.Capabilities{
		FSIsolation: drivers.FSImage, Mounts: true, Names: true,
		Networks: []string{fleet.NetworkHost, fleet.NetworkBridge, fleet.NetworkNone, drivers.NetworkCNI},
	}
}

// Validate returns an error for a config block that is invalid, or that this edge does not permit.
func (d *Driver) Validate(config map[string]any) error {
	o, err := parseOptions(d.cfg.Name, config, false)
	if err != nil {
		return err
	}
	return d.checkPermitted(&o)
}

// CheckDocker returns an error for a config block of docker that works on no machine. Hubs check jobs with it.
func CheckDocker(config map[string]any) error { return checkConfig(Docker, config) }

// CheckPodman returns an error for a config block of podman that works on no machine. Hubs check jobs with it.
func CheckPodman(config map[string]any) error { return checkConfig(Podman, config) }

func checkConfig(driver string, config map[string]any) error {
	_, err := parseOptions(driver, config, true)
	return err
}

// checkPermitted returns an error for options that this edge does not permit.
func (d *Driver) checkPermitted(o *options) error {
	if !d.cfg.AllowPrivileged {
		h := &o.host
		for key, wanted := range map[string]bool{
			"privileged": h.Privileged, "pid_mode": h.PidMode == "host", "ipc_mode": h.IpcMode == "host",
			"uts_mode": h.UTSMode == "host", "userns_mode": h.UsernsMode == "host", "cgroupns": h.CgroupnsMode == "host",
		} {
			if wanted {
				return fleet.Errorf(fleet.CodeInvalid, "config of %s: %s: this edge does not permit privileged containers", d.cfg.Name, key).
					WithHint("start the edge with --docker-allow-privileged")
			}
		}
	}
	for _, c := range o.host.CapAdd {
		if !slices.Contains(d.cfg.AllowCaps, c) && !slices.Contains(d.cfg.AllowCaps, "ALL") {
			return fleet.Errorf(fleet.CodeInvalid, "config of %s: cap_add: this edge does not permit the capability %s", d.cfg.Name, c).
				WithHint("start the edge with --docker-allow-caps; it permits %s", strings.Join(d.cfg.AllowCaps, ","))
		}
	}
	return nil
}

// Fingerprint reports whether the daemon answers. If its socket does not exist, the driver is not detected; that costs
// one stat call.
func (d *Driver) Fingerprint(ctx context.Context) fleet.DriverInfo {
	if _, err := os.Stat(d.cfg.Socket); err != nil {
		return fleet.DriverInfo{HealthDescription: "there is no socket at " + d.cfg.Socket}
	}
	if d.bootID == "" {
		return fleet.DriverInfo{HealthDescription: "the kernel's boot id cannot be read: containers run on Linux only"}
	}
	if err := d.pingDaemon(ctx); err != nil {
		return fleet.DriverInfo{Detected: true, HealthDescription: err.Error(), Attributes: d.readAttributes(ctx, false)}
	}
	d.needsLowLimits() // what an earlier agent found out counts at its start alone
	return fleet.DriverInfo{Detected: true, Healthy: true, HealthDescription: "Healthy", Attributes: d.readAttributes(ctx, true)}
}
