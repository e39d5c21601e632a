package schedule

import (
	"slices"
	"time"
)

// Kind names a kind of fault, as people write it in scenarios. The set is closed.
type Kind string

const (
	LinkCut       Kind = "cut"            // an edge's link is gone
	Flapping      Kind = "flapping"       // an edge's link comes and goes, by chance
	OfflineOn     Kind = "offline-on"     // an edge's link comes and goes, by the clock
	NATRebind     Kind = "nat-rebind"     // the edge is seen from another port
	AddressChange Kind = "address-change" // the edge has another address, and its old one is dead
	LinkProfile   Kind = "profile"        // the link is slow, lossy, reordering, duplicating

	HubKill     Kind = "hub-kill"      // a hub, with SIGKILL
	LeaderKill  Kind = "leader-kill"   // the hub that leads at that time, with SIGKILL
	HubPause    Kind = "hub-pause"     // a hub stands still (SIGSTOP) and goes on
	HubDiskFull Kind = "hub-disk-full" // a hub cannot write
	MinorityCut Kind = "minority-cut"  // fewer than half of the hubs are cut off from everyone
	HubPart     Kind = "hub-part"      // fewer than half of the hubs lose the others; edges reach them all
	MajorityCut Kind = "majority-cut"  // no hub reaches a majority, then they do again
	Restore     Kind = "restore"       // all hubs are put back to an older copy of their data

	EdgeKill    Kind = "edge-kill"    // an agent, with SIGKILL; tasks live on
	EdgePause   Kind = "edge-pause"   // an agent stands still (SIGSTOP) and goes on
	EdgeRestart Kind = "edge-restart" // an agent is stopped in good order and started; tasks live on
	EdgeReboot  Kind = "edge-reboot"  // a machine goes down in good order and boots
	PowerCut    Kind = "power-cut"    // a machine loses power: what was not synced is gone
	TornPage    Kind = "torn-page"    // as PowerCut, and a page of the journal is half written
	BitFlip     Kind = "bit-flip"     // bits of the journal flip while the agent is down
	DiskFull    Kind = "disk-full"    // an edge cannot write
	SlowDisk    Kind = "slow-disk"    // each sync takes long
	ClockJump   Kind = "clock-jump"   // an edge's wall clock jumps and stays so
	Clock1970   Kind = "clock-1970"   // as EdgeReboot, and the wall clock wakes up in 1970
	Clone       Kind = "clone"        // a second machine starts with a copy of an edge's data directory
	CertExpired Kind = "cert-expired" // an edge is cut off until after its certificate has expired
	MassRejoin  Kind = "mass-rejoin"  // all edges are cut off and come back at once; the leader is killed meanwhile
	CrashLoop   Kind = "crash-loop"   // tasks end soon after each start
	DriverDead  Kind = "driver-dead"  // a driver answers nothing but errors

	Drain Kind = "drain" // somebody empties an edge, and gives it back afterwards
)

// Place is what a fault is aimed at.
type Place int

const (
	AtEdge   Place = iota // one edge, several, or a site
	AtHub                 // one hub, several, or the leader
	AtMember              // either
	AtLeader              // the hub that leads at that time; names nothing
	AtHubs                // all hubs; names nothing
	AtEdges               // all edges; names nothing
)

// String says where it is.
func (p Place) String() string {
	return [...]string{"edges", "hubs", "edges or hubs", "the leader", "all hubs", "all edges"}[p]
}

// Named reports whether a fault that is aimed there names its targets.
func (p Place) Named() bool { return p == AtEdge || p == AtHub || p == AtMember }

// Lasting says whether a kind has a duration.
type Lasting int

const (
	Instant Lasting = iota // it takes no `for`
	MayLast                // `for` is how long its target stays down; without it, it is back at once
	MayStay                // without a `for` it stays to the end of the run
	Lasts                  // it needs a `for`
)

// Clock is the time that a run passes in.
type Clock int

// The clocks of runs.
const (
	Virtual Clock = 1 << iota // one process under testing/synctest
	Real                      // real binaries
	Both    = Virtual | Real
)

// String names the clocks.
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

// Claim is something that a fault needs for itself: two faults that claim the same
// of the same member do not overlap.
type Claim string

// What a fault can claim.
const (
	ClaimLink   Claim = "link"    // whether packets pass
	ClaimShape  Claim = "profile" // how they pass
	ClaimAgent  Claim = "agent"   // the edge's process
	ClaimDisk   Claim = "disk"
	ClaimDriver Claim = "driver"
	ClaimClock  Claim = "clock"
	ClaimWork   Claim = "work" // whether the edge takes work
	// ClaimHub is a hub as a whole: whatever is aimed at a hub takes it. At any time
	// fewer than half of the hubs are taken, the leader counting as one more.
	ClaimHub Claim = "hub"
	// ClaimHubs is all of them: no other fault is on a hub meanwhile.
	ClaimHubs Claim = "hubs"
)

// Info is what is known of a kind.
type Info struct {
	Kind     Kind
	At       Place
	Lasting  Lasting
	Shortest time.Duration // bounds of its duration
	Longest  time.Duration
	Params   []Param // what it takes; those that are not needed have a default
	Clock    Clock   // what it works in
	// Takes is what it needs of its targets for itself while it lasts, and Begins
	// what it needs of them at its beginning alone. (Of a hub it takes all.)
	Takes, Begins []Claim
	// Apart are kinds that do not happen meanwhile anywhere in the fleet.
	Apart []Kind
	// After is how long after its end its claims and Apart still hold: what was
	// broken shall have a chance to recover.
	After time.Duration
	// Most is how many targets it may name; 0: any number.
	Most int
	// Shown are kinds that bring out its effect where nothing else would: one of them is
	// often drawn with it.
	Shown []Kind
	// Weight is how often it is drawn, compared with others, and Drawn for how long. 0: it
	// is no fault that is drawn among the others.
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

// Info returns what is known of a kind; ok is false where there is no such kind.
func (k Kind) Info() (info Info, ok bool) {
	i := slices.IndexFunc(kindTable, func(i Info) bool { return i.Kind == k })
	if i < 0 {
		return Info{}, false
	}
	return kindTable[i], true
}
