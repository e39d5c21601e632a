package edge

import (
	"context"
	"log/slog"
	"net"
	"time"

	"skerry/edge/contract"
	"skerry/fleet"
)

// Config of an Edge. Fields with a default may be left zero.
type Config struct {
	DataDir    string   // all that the edge keeps; made with mode 0700 where it is not there
	Hubs       []string // HOST:PORT to dial (QUIC); those that a hub told later come on top
	TokenFile  string   // join token, read only while the edge has no certificate
	Name       string   // default: the host's name
	Datacenter string   // default "dc1"
	Site       string   // where it stands; "": its datacenter
	TimeZone   string   // of the site, for windows of updates ("Europe/Berlin"); "": UTC
	NodePool   string   // default "default"
	NodeClass  string
	Meta       map[string]string
	Version    string // of the agent, as nodes show it

	// Runners is called once, by Open, and returns what makes the runner of each
	// allocation.
	Runners func(m Machine) (contract.New, error)
	// Describe is called once, by Open, with what is configured (id, name,
	// datacenter, pool, class, meta, version), and returns what describes the
	// machine: a *fingerprint.Fingerprinter, or a simulated one.
	Describe func(configured fleet.Node) (Describer, error)

	// ListenPacket opens the socket that the edge dials from; nil: a UDP socket.
	ListenPacket func(ctx context.Context) (net.PacketConn, error)
	// ListenLocal opens the local API's socket at a path; nil: local.Listen.
	ListenLocal func(path string) (net.Listener, error)
	// DialCheck opens the connections of checks of services; nil: the system's.
	DialCheck func(ctx context.Context, network, address string) (net.Conn, error)
	// BackoffCap is the longest pause between rounds of dialing, 0: 60 s.
	BackoffCap time.Duration
	// BootID takes the place of the kernel's boot id: tests and the demo reboot a
	// machine with it. "": the kernel's.
	BootID fleet.BootID
	// Mono is the time since the boot that BootID names; nil: it begins with Open.
	Mono func() time.Duration
	Now  func() time.Time // wall clock, nil: time.Now

	JournalMaxBytes int64 // bound of the journal's rows, 0: 64 MiB
	// Reserve is how many bytes of disk are kept for the day on which it is full, at most
	// a twentieth of the disk; 0: 8 MiB, less than 0: none.
	Reserve int64
	// FreeSpace returns how much of a path's disk is free, and its size; nil: asks the system.
	FreeSpace    func(path string) (free, total int64, err error)
	KeepTerminal int // ended allocations whose logs are kept, 0: 50
	// Step is called before each write of the journal and to the data directory: see
	// journal.Config and datadir.Kind.
	Step func(label string) error

	Log *slog.Logger // nil: discards
}

// Machine is what a factory of runners is told of the edge that it works for.
type Machine struct {
	DataDir string // runners keep their folders in DATA/allocs and DATA/tasks
	BootID  fleet.BootID
	Mono    func() time.Duration // since boot, as journal rows have it
	Now     func() time.Time     // wall clock: shown, never decided on
	Node    func() fleet.Node    // the machine as described last
	Log     *slog.Logger
}

// Describer says what a machine is and has.
type Describer interface {
	// Read describes the machine now.
	Read(ctx context.Context) (fleet.Node, error)
	// Run keeps the description up to date until ctx ends.
	Run(ctx context.Context) error
	// Node is the newest description, with DescriptionHash set.
	Node() fleet.Node
	// Changed is closed when the description next changes.
	Changed() <-chan struct{}
}

// Gauge is a Describer that can also say what the machine uses.
type Gauge interface {
	// Usage measures for a moment.
	Usage(ctx context.Context) (*fleet.HostUsage, error)
	// MHz is the rate of a core.
	MHz() float64
}
