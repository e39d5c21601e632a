// Package drivers is the contract between an edge and its task drivers: the Driver interface, its inputs and
// results. Each driver is a folder below; drivertest is the suite that all of them pass.
//
// The package starts no goroutine and stores nothing. A driver's tasks survive the agent that started them. The
// edge journals a task's Handle before the task counts as started, and the Handle is enough to find it again.
package drivers

import (
	"context"
	"fmt"
	"time"

	"skerry/fleet"
)

// Driver runs tasks of one kind. Its methods may be called concurrently, but for one task they are
// called one after another.
type Driver interface {
	// Fingerprint returns whether the driver works on this machine, why not, and its attributes.
	Fingerprint(ctx context.Context) fleet.DriverInfo
	// Capabilities returns the abilities of the driver's tasks on this machine. They are constant, and a subset of
	// fleet/validate.AbilitiesOf.
	Capabilities() Capabilities
	// Validate returns an error for an invalid config block of a task. It starts nothing.
	Validate(config map[string]any) error
	// Start starts a task and returns its Handle. It is idempotent by TaskConfig.ID: if the task runs
	// already, it returns its Handle. An error that may not occur again is wrapped with Recoverable.
	Start(ctx context.Context, cfg TaskConfig) (Handle, error)
	// Recover finds a task by its Handle, also after a restart of the agent. It does not start it.
	//
	// cfg is the one given to Start, with the folders of the present data directory: in a copy of a data
	// directory, the tasks of the original are not found. If the agent died before it journaled the Handle,
	// Version and State are empty, and the task is looked up by its ID.
	//
	// ErrTaskGone means that no task is there and its exit is unknown: the machine rebooted, or the task
	// belongs to another data directory. A task that ended is found with its exit, also one that ended by
	// itself before a reboot. An error that may not occur again is wrapped with Recoverable: the task then
	// never counts as lost.
	Recover(ctx context.Context, cfg TaskConfig, h Handle) (Task, error)
}

// Task is a task that a driver started or found. Its methods may be called concurrently.
type Task interface {
	// Ended reports whether the task has ended, without waiting. If it is true right after Recover, the
	// task ended while no agent ran.
	Ended() bool
	// Wait blocks until the task has ended or ctx is done. It may be called again and returns the same.
	Wait(ctx context.Context) (Exit, error)
	// Stop sends signal ("": SIGTERM), waits up to timeout, kills the task, and returns when it is gone. It
	// does nothing for an ended task. If ctx ends first or the agent dies, the task is stopped all the same.
	Stop(ctx context.Context, signal string, timeout time.Duration) error
	// Signal sends a signal to the running task. An unknown name and an ended task are errors.
	Signal(ctx context.Context, signal string) error
	// Forget removes the driver's data about an ended task, but not its logs. For a running task it is an error.
	Forget(ctx context.Context) error
}

// Execer is implemented by a Task that can run further commands: in its folder, with its environment and its
// isolation.
type Execer interface {
	// Exec runs a command and returns its exit code (128 plus the signal that ended it) when it has
	// ended and all its output was read. It ends the command with ctx, returns ctx's error then, and
	// always closes Stdin. A command that cannot start is a fleet.CodeInvalid.
	Exec(ctx context.Context, x fleet.Exec) (code int, err error)
}

// Meter is implemented by a Task that can measure its resource usage.
type Meter interface {
	// Consumed returns the usage of each process of the task since its start. An ended task is a fleet.CodeConflict.
	Consumed(ctx context.Context) ([]fleet.Consumed, error)
}

// Isolation of a task's file system, for Capabilities.FSIsolation.
const (
	FSNone  = "none"  // the task has the machine's file system, and the paths of its folders there
	FSImage = "image" // the task has a file system of its own, with its folders at AllocPath, LocalPath and SecretsPath
)

// Paths of a task's folders for a driver with FSImage, which mounts them there.
const (
	AllocPath   = "/alloc"
	LocalPath   = "/local"
	SecretsPath = "/secrets"
)

// NetworkCNI stands for every network mode cni/NAME in Capabilities.Networks.
const NetworkCNI = "cni"

// Capabilities are the abilities of a driver's tasks.
type Capabilities struct {
	FSIsolation string   // FSNone or FSImage
	Networks    []string // modes of networks: fleet.NetworkHost, NetworkBridge, NetworkNone, and NetworkCNI
	Mounts      bool     // TaskConfig.Mounts are mounted
	Names       bool     // the driver sets Network.Hostname, DNS and Hosts
	HidesEnv    bool     // the driver keeps the environment and the config block of a task in TaskConfig.MemoryDir
}

// Mount is a folder or file of the machine that a task sees at another path.
type Mount struct {
	Source      string // absolute path on the machine
	Target      string // absolute path in the task's file system
	ReadOnly    bool
	Propagation string // private (also for ""), host-to-task or bidirectional
}

// Network is the network of a task's allocation.
type Network struct {
	Mode      string // as in the job file; "": host
	Namespace string // path of the network namespace that the task joins; "": the machine's
	Hostname  string // "": the machine's, or the driver's choice
	IP        string // the allocation's address in Namespace
	DNS       *fleet.DNSConfig
	Hosts     []string // further lines of /etc/hosts: "IP NAME"
	Ports     []fleet.AssignedPort
	TaskPorts []string // labels of those Ports that are in a network block of the task itself
}

// TaskConfig describes a task to its driver. Variables in it are interpolated; folders are absolute.
type TaskConfig struct {
	ID         string // ALLOC/TASK/ATTEMPT; unique for each start
	AllocID    fleet.AllocID
	Task       string         // name of the task
	Config     map[string]any // config block of the job file
	Env        map[string]string
	Resources  fleet.Resources
	Dir        string // the task's own folder and working directory; it exists
	AllocDir   string // shared by the tasks of the allocation; it exists, as the next two do
	LocalDir   string // the task's own, for its files
	SecretsDir string // the task's own, for its secrets
	LogDir     string // folder for TASK.stdout.N and TASK.stderr.N; it exists
	StateDir   string // private to the driver, one for each start; the driver makes it; survives a reboot
	// MemoryDir is another folder private to the driver for this start, in memory. It exists, and a reboot ends it. It is set
	// if Env has secrets: nothing of Env and Config may be on the disk then. "": they may. Recover does not get it.
	MemoryDir  string
	Logs       fleet.LogConfig
	KillSignal string // "": SIGTERM
	// KillTimeout is the timeout that Stop will get.
	KillTimeout time.Duration
	User        string // name or id of a user; "": the driver's default
	Mounts      []Mount
	Devices     []fleet.DeviceNode
	CDI         []string // names of Devices in the Container Device Interface, for a runtime that knows them
	Network     Network
}

// Handle is the journaled data by which a driver finds a task again. State belongs to the driver and has the
// version Version.
type Handle struct {
	Driver  string
	Version int
	TaskID  string
	State   []byte
}

// CheckReader returns an error unless a driver that reads handles up to a version can read this one.
func (h Handle) CheckReader(driver string, newest int) error {
	switch {
	case h.Driver != driver:
		return fmt.Errorf("the handle is of driver %q, not of %q", h.Driver, driver)
	case h.Version > newest:
		return fmt.Errorf("a newer agent has written the handle: it has version %d, this agent reads up to version %d", h.Version, newest)
	}
	return nil
}

// Exit says how a task ended.
type Exit struct {
	Code       int
	Signal     int
	OOM        bool
	FinishedAt time.Time // by the edge's wall clock
	// Err says what else went wrong, for example that the supervisor died or that the exit is unknown. "" means
	// nothing.
	Err string
}

// Success reports whether the task ended by itself with the exit code 0, and nothing went wrong.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == 0 && e.Err == "" }

// ImageFetcher is implemented by a Driver that fetches the images of its tasks itself.
type ImageFetcher interface {
	// FetchImage makes sure that the image of a task with that config block is on this machine, and returns its name;
	// "": the task brings it along. ${…} may be left in config; in the image's name it is a fleet.CodeInvalid.
	FetchImage(ctx context.Context, config map[string]any) (image string, err error)
}

// ImageCollector is implemented by a Driver that fetches images, and removes those again that nothing needs.
type ImageCollector interface {
	// CollectImages removes images that this driver fetched for this data directory and that no task may need, and
	// returns their names. It never removes an image that somebody else put on the machine. One goroutine calls it.
	CollectImages(ctx context.Context, c ImageCollection) (removed []string, err error)
}

// ImageCollection says which images a driver removes.
type ImageCollection struct {
	// Needed returns the config blocks of the tasks whose images must stay. An error keeps all images.
	Needed func(ctx context.Context) ([]map[string]any, error)
	// Elapsed is the time since the last call. It comes from a monotonic clock.
	Elapsed time.Duration
	// Delay is how long an image must have been unneeded, while agents ran, to be removed; 0: no image gets too old.
	Delay time.Duration
	// IsShort reports whether the disk of a folder is short: then images are removed, the longest unneeded first, until
	// it is not. nil: it never is.
	IsShort func(dir string) bool
}

// OrphanRemover is implemented by a Driver whose tasks outlive the records of the edge, such as containers.
type OrphanRemover interface {
	// RemoveOrphans ends and removes the tasks of this data directory whose allocation the edge does not know,
	// and returns their names. It also removes what a reboot has ended and a later attempt has replaced.
	RemoveOrphans(ctx context.Context, known func(fleet.AllocID) bool) ([]string, error)
}

// CoreSharer is implemented by a Driver that can move its running tasks to other cores.
type CoreSharer interface {
	// KeepOffCores lets a running task use all cores apart from those that other tasks have reserved; all, if none
	// are left or none are reserved. On a machine without cgroups for tasks it does nothing.
	KeepOffCores(ctx context.Context, cfg TaskConfig, reserved []int) error
}

// NetworkCreator is implemented by a Driver whose tasks can only join network namespaces that the driver made.
type NetworkCreator interface {
	// CreateNetwork makes the network namespace of an allocation, with a loopback interface only, and returns its
	// path. It is idempotent.
	CreateNetwork(ctx context.Context, alloc fleet.AllocID, hostname string) (namespacePath string, err error)
	// DestroyNetwork removes the namespace. A missing one is no error.
	DestroyNetwork(ctx context.Context, alloc fleet.AllocID) error
}

// Addresser is implemented by a Driver whose tasks can have an address in a network that the driver makes.
type Addresser interface {
	// TaskAddress returns the address of a running task in such a network; "": it has none.
	TaskAddress(ctx context.Context, cfg TaskConfig) (string, error)
}

// Values of TaskHealth.Status.
const (
	HealthUnknown  = "" // the task has no health check of its own
	HealthStarting = "starting"
	HealthGood     = "healthy"
	HealthBad      = "unhealthy"
)

// TaskHealth is the result of the task's own health check, such as that of a container image.
type TaskHealth struct {
	Status string
	Output string // of the last check that failed
}

// HealthReporter is implemented by a Driver whose tasks may have health checks of their own.
type HealthReporter interface {
	// TaskHealth returns the health of a running task.
	TaskHealth(ctx context.Context, cfg TaskConfig) (TaskHealth, error)
}
