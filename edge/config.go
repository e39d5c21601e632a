package edge

import (
	"context"
	"log/slog"
	"net"
	"time"

	"skerry/edge/consul"
	"skerry/edge/contract"
	"skerry/edge/diskspace"
	"skerry/edge/identities"
	"skerry/edge/machinekey"
	"skerry/edge/prefetch"
	"skerry/edge/store"
	"skerry/edge/vault"
	"skerry/fleet"
	"skerry/fleet/usage"
	"skerry/syncproto"
)

// Config of an Edge. Fields with a default may be left zero.
type Config struct {
	DataDir    string   // the edge's data directory; made with mode 0700
	Hubs       []string // HOST:PORT to dial (QUIC); the addresses that a hub names are added
	TokenFile  string   // join token; read only while the edge has no certificate
	Name       string   // default: the host's name
	Datacenter string   // default "dc1"
	Site       string   // place of the edge; "": its datacenter
	TimeZone   string   // of the site, for update windows ("Europe/Berlin"); "": UTC
	NodePool   string   // default "default"
	NodeClass  string
	Meta       map[string]string
	Version    string // of the agent

	// Runners is called once, by Open, and returns the function that makes the runner of an allocation.
	Runners func(m Machine) (contract.New, error)
	// Contents is called once, by Open, and returns what fetches for jobs before a rollout begins; nil: nothing does.
	Contents func(m Machine) prefetch.Contents
	// KeptTemplates lists the rendered templates of a group that runners keep in an allocation's folder of DATA/tasks; nil: there
	// are none.
	KeptTemplates func(dir string, g *fleet.TaskGroup) []fleet.KeptTemplate
	// Describe is called once, by Open, with the configured fields of the node (id, name, datacenter, pool,
	// class, meta, version). It returns the Describer: a *fingerprint.Fingerprinter, or a simulated one.
	Describe func(configured fleet.Node) (Describer, error)

	// RemoveOrphans removes tasks of drivers, such as containers, whose allocation the edge does not know. It is
	// called a minute after the start and every ten minutes. nil removes nothing.
	RemoveOrphans func(ctx context.Context, known func(fleet.AllocID) bool)

	// CollectImages removes images of tasks that the edge fetched and does not need. It is called every minute. nil removes
	// nothing.
	CollectImages func(ctx context.Context, c ImageCollection)

	// ListenPacket opens the socket that the edge dials from; nil: a UDP socket.
	ListenPacket func(ctx context.Context) (net.PacketConn, error)
	// ListenLocal opens the local API's socket at a path; nil: local.Listen.
	ListenLocal func(path string) (net.Listener, error)
	// LocalGroup is a unix group whose members may use the local API; "": the agent's user alone.
	LocalGroup string
	// RequireSiteCode has everybody but root give a site code with each request of the local API.
	RequireSiteCode bool
	// DNS is the address, HOST:PORT, at which DNS queries for services are answered; "": none.
	DNS string
	// Consul is the Consul agent beside this edge, which gets the services of jobs with provider = "consul"; nil: none.
	Consul *consul.Client
	// Vault is the Vault in which tasks with a vault block log in; nil: none.
	Vault *vault.Client
	// DialCheck opens the connections of service checks, and those that find out whether services of neighbours answer; nil: with the system's dialer.
	DialCheck func(ctx context.Context, network, address string) (net.Conn, error)
	// BackoffCap is the longest pause between dialing rounds; 0: 60 s.
	BackoffCap time.Duration
	// BootID replaces the kernel's boot id, so that tests and the demo can reboot a machine. "": the kernel's.
	BootID fleet.BootID
	// Mono is the time since the boot BootID; nil: since Open.
	Mono func() time.Duration
	Now  func() time.Time // wall clock; nil: time.Now

	// KeyKeepers may seal the key that encrypts secrets on the disk, the preferred one first; nil: the key is in a file.
	KeyKeepers []machinekey.Keeper
	// KeyPlace is where that key has to be; "": where it is, or at the first of KeyKeepers that works.
	KeyPlace machinekey.Place

	// StoreBytes bounds the store for artifacts, which also gets at most a quarter of the disk; 0: no store.
	StoreBytes      int64
	JournalMaxBytes int64 // bound of the journal's rows, in bytes; 0: 64 MiB
	// Reserve is the disk space in bytes that is reserved for a full disk, at most a twentieth of the
	// disk; 0: 8 MiB; negative: none.
	Reserve int64
	// FreeSpace returns the free space and the size of the disk of a path; nil: asks the system.
	FreeSpace func(path string) (free, total int64, err error)
	// FreeInodes returns the free and all inodes of the disk of a path; nil: asks the system.
	FreeInodes   func(path string) (free, total int64, err error)
	KeepTerminal int // ended allocations whose logs are kept; 0: 50
	// Collect says when ended allocations and stored contents are removed, and when no new allocation starts. The
	// defaults stand for zeros; a negative MinFree is none.
	Collect diskspace.Limits
	// Step is called before each write of the journal and to the data directory: see journal.Config and
	// datadir.Kind. For tests.
	Step func(label string) error
	// Received is called with each message of a hub before it is handled, by any goroutine; nil: no call. For tests.
	Received func(m syncproto.Message)

	Log *slog.Logger // nil: discards
}

// Machine is the part of an edge that the factory of its runners gets.
type Machine struct {
	DataDir string // runners keep their folders in DATA/allocs and DATA/tasks
	BootID  fleet.BootID
	Mono    func() time.Duration // since boot, as rows have it
	Away    func() time.Duration // since a hub answered, at most, over boots
	Now     func() time.Time     // wall clock: shown, never used for a decision
	Node    func() fleet.Node    // this machine's node, as last read
	Store   *store.Store         // nil without Config.StoreBytes
	// Ended reports whether an allocation has ended, or was never here.
	Ended func(fleet.AllocID) bool
	// Services returns the services that the edge knows of, as Edge.Services does, once Open has returned.
	Services func(ctx context.Context, namespace, name string) ([]fleet.ServiceRegistration, error)
	// Key encrypts what may not be on the disk in clear, and Variable returns the items of a variable that the edge has.
	Key      *machinekey.Key
	Variable func(namespace, path string) (items map[string]string, ok bool)
	// Identities has the tokens of tasks.
	Identities *identities.Keeper
	// Vault has the Vault tokens and the secrets of tasks; nil: none is configured.
	Vault *vault.Keeper
	// Consul has the Consul tokens of tasks, and the keys that they read; nil: none is configured in which they can log in.
	Consul *consul.Keeper
	// Devices is told of missing devices of running tasks, once Open has returned.
	Devices DeviceReporter
	Log     *slog.Logger
}

// DeviceReporter makes allocations unhealthy while devices of their running tasks are missing.
type DeviceReporter interface {
	// ReportDevices records the missing devices of a task; "" means that none is missing.
	ReportDevices(a fleet.Alloc, task, missing string)
	// ForgetDevices drops that record, because the task has ended.
	ForgetDevices(id fleet.AllocID, task string)
}

// Describer supplies the fleet.Node of this machine: its attributes, resources, drivers and devices.
type Describer interface {
	// Read reads the node from the machine now, stores it and returns it.
	Read(ctx context.Context) (fleet.Node, error)
	// Run keeps the node up to date until ctx ends.
	Run(ctx context.Context) error
	// Node returns the newest stored node, with DescriptionHash set.
	Node() fleet.Node
	// Changed returns a channel that is closed when the node next changes.
	Changed() <-chan struct{}
}

// Gauge is a Describer that can measure what the machine uses.
type Gauge interface {
	// Usage measures for a moment what the machine uses.
	Usage(ctx context.Context) (*usage.Host, error)
	// MHz returns the clock rate of a processor core.
	MHz() float64
}
