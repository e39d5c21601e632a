package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NodeStatus is the status of a node in the cluster.
type NodeStatus string

// The statuses of a node.
const (
	NodeInitializing NodeStatus = "initializing" // known, but its history is not in yet
	NodeReady        NodeStatus = "ready"
	NodeDisconnected NodeStatus = "disconnected" // missed its deadline; some allocation may live on
	NodeDown         NodeStatus = "down"         // missed its deadline, and nothing waits for it
)

// Scheduling eligibility of a node.
const (
	NodeEligible   = "eligible"
	NodeIneligible = "ineligible"
)

// DefaultDatacenter is that of an edge that names none. Hubs belong to none, and say this one
// where Nomad's clients want one.
const DefaultDatacenter = "dc1"

// NodeEventsKept is how many events a node's record holds.
const NodeEventsKept = 10

// Node is one edge as the cluster knows it.
type Node struct {
	ID         NodeID
	Name       string
	Datacenter string
	// Site is the place of the machine: a shop, a ship, a hall. Rollouts bound how much of a site
	// may be down. The site of an edge that names none is its datacenter.
	Site string
	// TimeZone is that of the site, for the windows of updates ("Europe/Berlin"); "" is UTC.
	TimeZone  string `json:",omitempty"`
	NodePool  string
	NodeClass string
	// ComputedClass is equal for nodes that no constraint distinguishes, except by properties
	// that are unique to a node. The cluster computes it; it is the key of ClassEligibility.
	ComputedClass         string
	Status                NodeStatus
	StatusDescription     string // why it stands there, for people
	SchedulingEligibility string
	DrainStrategy         *DrainStrategy // nil: it is not being emptied
	LastDrain             *DrainMetadata
	Attributes            map[string]string
	Meta                  map[string]string
	Resources             Resources // of the machine
	Reserved              Resources // not for tasks
	Drivers               map[string]DriverInfo
	Devices               []Device
	MissingDevices        []MissingDevice       `json:",omitempty"` // of allocations; edges leave it out
	HostNetworks          []HostNetwork         `json:",omitempty"` // none: one, DefaultHostNetwork
	HostVolumes           map[string]HostVolume // by name
	ReservedPorts         string                `json:",omitempty"` // of all addresses, never given out
	MinDynamicPort        int                   `json:",omitempty"` // 0: fleet.MinDynamicPort
	MaxDynamicPort        int                   `json:",omitempty"` // 0: fleet.MaxDynamicPort
	MaxAllocs             int                   `json:",omitempty"` // at once; 0: any number
	Address               string                // where its session was last seen from; never a place to dial
	HTTPAddr              string                `cbor:"-"` // where a request for its files and logs goes: the hub that answers sets it
	Version               string                // of the agent
	Events                []NodeEvent

	DescriptionHash string // of what the edge says of itself; see Heartbeat
	StatusUpdatedAt int64  // Unix seconds, hub's clock
	CreateIndex     Index
	ModifyIndex     Index

	// The session that the cluster committed last, and how far its journal is in.
	Epoch       Epoch
	Session     uint64     // the edge's own counter of sessions
	Instance    InstanceID // the agent process of that session
	BootID      BootID
	Hub         HubID  // the hub that terminates the session
	JournalHead Seq    // announced by that session's Hello: ready only when Applied reaches it
	Applied     Seq    // last journal row applied
	ChainHash   []byte // chain hash at Applied
	Received    Index  // newest desired index that the edge journaled
	// DisconnectedAt is when the node was last heard of before it missed its deadline
	// (UnixNano, hub's clock); zero while the node has a session.
	DisconnectedAt int64
	// Fenced counts and names what was refused for having this node's identity.
	Fenced []FencedSession
	// Newcomer is another agent process with this node's identity that waits until it is
	// known whether the session on Hub is over; nil: none did since that session began.
	Newcomer *FencedSession `json:",omitempty"`
	// SessionOver says that the newest session has surely ended: the hub that had it, and led,
	// decided that its deadline had passed.
	SessionOver bool `json:",omitempty"`
	// Readmit says that an operator lets the edge go on with a journal that is an older
	// copy, or a fork; it ends with the session that does, or with rows that follow.
	Readmit bool `json:",omitempty"`
	// Orphans are allocations that the edge keeps and the cluster has no record of:
	// it was restored from an older copy. They run until somebody stops them on
	// site. Of a node that is revoked: what it may still run, which nobody can stop.
	Orphans []AllocID
	// Revoked says why the node was expelled; nil: it was not.
	Revoked *Revocation `json:",omitempty"`
}

// DriverInfo is one driver's state on a node.
type DriverInfo struct {
	Detected          bool
	Healthy           bool
	HealthDescription string
	Attributes        map[string]string
	UpdateTime        time.Time `json:",omitzero"` // when the cluster heard of the last change; edges leave it out
}

// NodeEvent is a line in a node's record.
type NodeEvent struct {
	Message     string
	Subsystem   string
	Details     map[string]string
	Timestamp   time.Time
	CreateIndex Index
}

// FencedSession is a session that was refused because another machine has the
// same identity, or because its chain forked.
type FencedSession struct {
	Code     Code
	Instance InstanceID
	BootID   BootID
	Addr     string
	Head     Seq
	Time     int64 // UnixNano, hub's clock
}

// Pool is a node pool and its rules.
type Pool struct {
	Name              string
	Description       string
	DefaultDisconnect string        // DisconnectKeep (the default) or DisconnectNomad
	HeartbeatTTL      time.Duration // 0: by the size of the fleet
	// Meta is what people say of it; nothing is decided by it.
	Meta map[string]string `json:",omitempty"`
	// SchedulerConfiguration overrides what holds for all jobs; nil: nothing.
	SchedulerConfiguration *PoolScheduling `json:",omitempty"`
	CreateIndex            Index
	ModifyIndex            Index
}

// Bounds of a pool's heartbeat TTL.
const (
	MinPoolTTL = time.Second
	MaxPoolTTL = 24 * time.Hour
)

// What absence of a disconnect block means in a pool.
const (
	DisconnectKeep  = "keep"  // unknown, never replaced, the original is kept
	DisconnectNomad = "nomad" // lost and replaced at the missed deadline
)

// SiteName is the place that the node belongs to: its site, else its datacenter. It
// is "" for no node.
func (n *Node) SiteName() string {
	switch {
	case n == nil:
		return ""
	case n.Site != "":
		return n.Site
	}
	return n.Datacenter
}

// Free returns what tasks may use of the node.
func (n *Node) Free() Resources { return n.Resources.Sub(n.Reserved) }

// AtSite is the site where it stands: its datacenter, where it names none.
func (n *Node) AtSite() string { return cmp.Or(n.Site, n.Datacenter) }

// OwnSite is the site where it stands, or "" where that is only its datacenter: it then has no neighbours.
func (n *Node) OwnSite() string {
	if n.Site == n.Datacenter {
		return ""
	}
	return n.Site
}

// IsAway reports whether new work could be placed on the node if it were connected.
func (n *Node) IsAway() bool {
	return n.Status != NodeReady && n.SchedulingEligibility != NodeIneligible
}

// Eligible reports whether the node is ready, and nobody keeps new work from it.
func (n *Node) Eligible() bool {
	return n.Status == NodeReady && n.SchedulingEligibility != NodeIneligible
}

// Schedulable reports whether new work may be placed on the node.
func (n *Node) Schedulable() bool { return n.Eligible() && n.WhyFull() == "" }

// AttributeDiskFull is the attribute by which a node says why no new allocation starts on it. It belongs to no class of
// nodes.
const AttributeDiskFull = "unique.storage.full"

// AttributeCAs is the attribute by which a node says of which CAs it accepts hubs: their names (see
// identity.CAIDs). It belongs to no class of nodes.
const AttributeCAs = "unique.skerry.cas"

// AttributeSecretsInMemory is the attribute "1" of a node on which the secrets folders of tasks are in memory.
const AttributeSecretsInMemory = "secrets.tmpfs"

// AttributeEnvInMemory is the attribute "1" of a node that keeps the environment of a task in memory if it has secrets.
const AttributeEnvInMemory = "env.tmpfs"

// AttributeSecretsKey is the attribute by which a node says how it keeps the key that encrypts secrets on its disk: "tpm",
// "systemd", "file", or "memory" while the kept key cannot be had.
const AttributeSecretsKey = "secrets.key"

// WhyFull returns why no new allocation starts on the node, because its disk is almost full; "": they start.
func (n *Node) WhyFull() string { return n.Attributes[AttributeDiskFull] }

// HasAddress reports whether an address is one of the node's.
func (n *Node) HasAddress(ip string) bool {
	for _, h := range n.HostAddresses(DefaultHostNetwork) {
		if h.IP == ip {
			return true
		}
	}
	return slices.ContainsFunc(n.HostNetworks, func(h HostNetwork) bool { return h.IP == ip })
}

// CoreCount is how many cores a node has.
func (n *Node) CoreCount() int {
	if n.Resources.Cores > 0 {
		return n.Resources.Cores
	}
	cores, err := strconv.Atoi(n.Attributes["cpu.numcores"])
	if err != nil {
		return 0
	}
	return cores
}

// CoreMHz is what one core of a node computes.
func (n *Node) CoreMHz() int { return n.Resources.CPU / max(n.CoreCount(), 1) }

// Value resolves a target such as ${meta.rack} on the node; false: the node does not have it.
// A target that is no interpolation is its own value.
func (n *Node) Value(target string) (string, bool) {
	if !strings.HasPrefix(target, "${") {
		return target, true
	}
	return n.Property(strings.TrimSuffix(target[2:], "}"))
}

// Property looks up attr.…, meta.… and node.… on the node; false: the node does not have it.
func (n *Node) Property(name string) (string, bool) {
	if key, ok := strings.CutPrefix(name, "attr."); ok {
		v, ok := n.Attributes[key]
		return v, ok
	}
	if key, ok := strings.CutPrefix(name, "meta."); ok {
		v, ok := n.Meta[key]
		return v, ok
	}
	switch name {
	case "node.unique.id":
		return string(n.ID), true
	case "node.unique.name":
		return n.Name, true
	case "node.datacenter":
		return n.Datacenter, true
	case "node.site":
		return n.AtSite(), true
	case "node.class":
		return n.NodeClass, true
	case "node.pool":
		return n.NodePool, true
	}
	return "", false
}

// HasDriver reports whether the node has a driver that is healthy. If it does not report the driver, its attribute
// driver.NAME decides.
func (n *Node) HasDriver(driver string) bool {
	if d, ok := n.Drivers[driver]; ok {
		return d.Detected && d.Healthy
	}
	has, err := strconv.ParseBool(n.Attributes["driver."+driver])
	return err == nil && has
}
