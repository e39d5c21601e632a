package schedule

import (
	"slices"
	"time"
)

// Kind names a kind of fault, as people write it in scenarios. The set is closed.
type Kind string

const (
	LinkCut       Kind = "cut"            // an edge's link is cut
	Flapping      Kind = "flapping"       // an edge's link is cut and healed in turns of random length
	OfflineOn     Kind = "offline-on"     // an edge's link is cut and healed in turns of fixed length
	NATRebind     Kind = "nat-rebind"     // the edge's packets arrive from another port
	AddressChange Kind = "address-change" // the edge gets another address; the old one no longer works
	LinkProfile   Kind = "profile"        // the link is slow, lossy, reordering, duplicating

	HubKill     Kind = "hub-kill"      // a hub gets SIGKILL
	LeaderKill  Kind = "leader-kill"   // the current leader gets SIGKILL
	HubPause    Kind = "hub-pause"     // a hub is stopped (SIGSTOP) and continued
	HubDiskFull Kind = "hub-disk-full" // a hub cannot write
	MinorityCut Kind = "minority-cut"  // fewer than half of the hubs are cut off from everyone
	HubPart     Kind = "hub-part"      // fewer than half of the hubs are cut off from the other hubs; edges reach all hubs
	MajorityCut Kind = "majority-cut"  // no hub reaches a majority of hubs
	Restore     Kind = "restore"       // all hubs get an older copy of their data

	EdgeKill    Kind = "edge-kill"    // an edge's agent gets SIGKILL; its tasks live on
	EdgePause   Kind = "edge-pause"   // an edge's agent is stopped (SIGSTOP) and continued
	EdgeRestart Kind = "edge-restart" // an edge's agent is stopped gracefully and started; its tasks live on
	EdgeReboot  Kind = "edge-reboot"  // an edge's machine shuts down gracefully and boots
	PowerCut    Kind = "power-cut"    // an edge's machine loses power: data that was not synced is lost
	TornPage    Kind = "torn-page"    // as PowerCut, and a page of the journal is half written
	BitFlip     Kind = "bit-flip"     // bits of the journal flip while the agent is down
	DiskFull    Kind = "disk-full"    // an edge cannot write
	SlowDisk    Kind = "slow-disk"    // each sync of a hub or an edge is slow
	ClockJump   Kind = "clock-jump"   // an edge's wall clock jumps, and is right again at the fault's end
	Clock1970   Kind = "clock-1970"   // as EdgeReboot, and the wall clock starts in 1970
	Clone       Kind = "clone"        // a second machine starts with a copy of an edge's data directory
	CertExpired Kind = "cert-expired" // an edge is cut off until after its certificate has expired
	MassRejoin  Kind = "mass-rejoin"  // all edges are cut off and reconnect at once; then the leader is killed
	CrashLoop   Kind = "crash-loop"   // tasks end soon after each start
	DriverDead  Kind = "driver-dead"  // every call of a driver fails

	DaemonKill      Kind = "daemon-kill"      // the container daemon of an edge gets SIGKILL
	DaemonPause     Kind = "daemon-pause"     // the container daemon is stopped (SIGSTOP) and continued
	DaemonRestart   Kind = "daemon-restart"   // the container daemon is stopped gracefully and started
	ContainersLost  Kind = "containers-lost"  // the container daemon comes back without containers and images
	ContainerKill   Kind = "container-kill"   // the containers of an edge get SIGKILL
	ContainerRemove Kind = "container-remove" // the containers of an edge are removed

	Drain Kind = "drain" // a user drains an edge, and makes it eligible again afterwards

	KeyRotate   Kind = "key-rotate"   // a user makes a new root key, and has all variables encrypted with it
	CARotate    Kind = "ca-rotate"    // a user replaces the CA of the cluster
	TokenRevoke Kind = "token-revoke" // a user revokes the token that users have
	NodeRevoke  Kind = "node-revoke"  // a user revokes an edge, whose machine comes back as another node at the fault's end

	SiteCode     Kind = "site-code"     // a person on site gets a code, which a user revokes at the fault's end
	LocalStop    Kind = "local-stop"    // a person on site stops allocations, and starts them again at the fault's end
	LocalRestart Kind = "local-restart" // a person on site restarts tasks
)

// Place is the set of members that a kind of fault can hit.
type Place int

const (
	AtEdge    Place = iota // one edge, several, or a site
	AtHub                  // one hub, several, or the leader
	AtMember               // edges or hubs
	AtLeader               // the current leader; the fault names no target
	AtHubs                 // all hubs; the fault names no target
	AtEdges                // all edges; the fault names no target
	AtCluster              // what the hubs keep together; the fault names no target
)

// String returns the place in words: "edges", "the leader".
func (p Place) String() string {
	return [...]string{"edges", "hubs", "edges or hubs", "the leader", "all hubs", "all edges", "the cluster"}[p]
}

// Named reports whether a fault of a kind with this place has to name its targets.
func (p Place) Named() bool { return p == AtEdge || p == AtHub || p == AtMember }

// Lasting states whether faults of a kind have a duration (`for`).
type Lasting int

const (
	Instant Lasting = iota // it takes no `for`
	MayLast                // `for` is how long the target stays down; without a `for` it is back at once
	MayStay                // without a `for` the fault lasts to the end of the run
	Lasts                  // it needs a `for`
)

// Clock is a set of run types: in virtual time, in real time, or both.
type Clock int

// The run types.
const (
	Virtual Clock = 1 << iota // one process under testing/synctest
	Real                      // real binaries
	Both    = Virtual | Real
)

// String lists the run types: "virtual", "real", "virtual, real" or "none".
func (c Clock) String() string {
	switch c {
	case Virtual:
		return "virtual"
	case Real:
		return "real"
	case Both:
		return "virtual, real"
	}
	return "none"
}

// Claim is a resource of a member that a fault uses exclusively: two faults with the same
// claim on the same member do not overlap.
type Claim string

// The claims.
const (
	ClaimLink   Claim = "link"    // whether the link works
	ClaimShape  Claim = "profile" // the quality of the link
	ClaimAgent  Claim = "agent"   // the edge's process
	ClaimDisk   Claim = "disk"
	ClaimDriver Claim = "driver"
	ClaimDaemon Claim = "daemon" // the container daemon
	ClaimClock  Claim = "clock"
	ClaimSite   Claim = "site" // the person who is on site
	ClaimWork   Claim = "work" // the node's eligibility for new allocations
	// ClaimHub is a whole hub: every fault of a hub claims it. At any time fewer than
	// half of the hubs are claimed; the leader counts as one more hub.
	ClaimHub Claim = "hub"
	// ClaimHubs is all hubs: no other fault hits a hub at the same time.
	ClaimHubs Claim = "hubs"
)

// Info has the properties of a kind of fault.
type Info struct {
	Kind     Kind
	At       Place
	Lasting  Lasting
	Shortest time.Duration // bounds of a fault's duration
	Longest  time.Duration
	Params   []Param // the parameters; one that is not Needed has a default or may be absent
	Clock    Clock   // the run types that support the kind
	// Takes are the claims on the targets for the whole fault; Begins are the claims on
	// the targets for its beginning only. Of hubs only Takes is used.
	Takes, Begins []Claim
	// Apart are kinds that must not happen anywhere in the fleet at the same time.
	Apart []Kind
	// After is the time after a fault's end for which its claims and Apart still hold,
	// so that the target can recover.
	After time.Duration
	// Most is the maximum number of edges that a fault hits; 0: no limit.
	Most int
	// Shown are kinds whose faults make the effect of this one visible. Draw often adds
	// one of them while this fault lasts.
	Shown []Kind
	// Weight is the relative frequency of the kind in Draw; 0: Draw does not draw it with the
	// other faults. Drawn is the range of durations that Draw uses.
	Weight int
	Drawn  Span
	Doc    string // one line, for people
}

// Kinds returns all kinds, in the order of the table.
func Kinds() []Kind {
	kinds := make([]Kind, len(kindTable))
	for i := range kinds {
		kinds[i] = kindTable[i].Kind
	}
	return kinds
}

// Info returns the properties of a kind; ok is false if the kind does not exist.
func (k Kind) Info() (info Info, ok bool) {
	i := slices.IndexFunc(kindTable, func(i Info) bool { return i.Kind == k })
	if i < 0 {
		return Info{}, false
	}
	return kindTable[i], true
}
