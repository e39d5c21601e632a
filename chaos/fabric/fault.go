package fabric

import "slices"

// Selector selects hosts by name.
type Selector func(host string) bool

// Everyone selects all hosts. No fault affects packets from a host to itself.
func Everyone(string) bool { return true }

// Hosts selects the named hosts.
func Hosts(names ...string) Selector {
	return func(host string) bool { return slices.Contains(names, host) }
}

// Except selects all hosts except the named ones.
func Except(names ...string) Selector {
	return func(host string) bool { return !slices.Contains(names, host) }
}

// Direction is the direction of a Cut.
type Direction uint8

const (
	Both Direction = iota // packets in both directions
	AToB                  // only packets from a to b
	BToA                  // only packets from b to a
)

// String returns the direction in the words of reports.
func (d Direction) String() string { return [...]string{"both", "a-to-b", "b-to-a"}[d] }

// Mode is the behaviour of a Cut towards senders.
type Mode uint8

const (
	// Silent: packets are lost and streams stall, without an error for the sender.
	Silent Mode = iota
	// Refused: the sender gets an error (as from an unreachable route, an interface
	// that is down, or a rejecting firewall). Writing a packet fails with
	// ECONNREFUSED, on which quic-go ends a connection at once, as on any error
	// except EMSGSIZE. Streams are reset at the next write, and dialing fails at once.
	Refused
)

// String returns the mode in the words of reports.
func (m Mode) String() string { return [...]string{"silent", "refused"}[m] }

// Count counts the effects of a fault, in packets (of streams: in writes).
type Count struct {
	Dropped     int
	Delayed     int
	Duplicated  int
	Reordered   int // packets that were overtaken
	Refused     int
	Stalled     int // writes on streams that waited until the fault was healed
	Held        int // packets from and to a paused host that waited until it was healed; writes on streams
	Killed      int // sockets, listeners and streams that a Crash ended
	Readdressed int // first packets of sockets from a new address
}

// Total returns the sum of all counts.
func (c Count) Total() int {
	return c.Dropped + c.Delayed + c.Duplicated + c.Reordered + c.Refused + c.Stalled + c.Held + c.Killed + c.Readdressed
}

// Fault is a fault of the network, active from the call that returns it until Heal.
type Fault struct {
	net *Net

	// Set once. A fault of links is a cut or has a profile; others use only stop.
	a, b    Selector
	cut     bool
	dir     Direction
	mode    Mode
	profile Profile
	stop    func() // ends the fault; called with net.mu held; nil: nothing to end

	// Guarded by net.mu.
	healed bool
	count  Count
	queues map[queueKey]*queue // lines of a profile with limited bandwidth
}

// Heal ends the fault; a second call does nothing. It has no effect on the fault of a Rebind, Move
// or Crash.
func (f *Fault) Heal() {
	f.net.mu.Lock()
	defer f.net.mu.Unlock()
	if f.healed {
		return
	}
	f.healed = true
	if f.stop != nil {
		f.stop()
	}
}

// Count returns the fault's effects so far.
func (f *Fault) Count() Count {
	f.net.mu.Lock()
	defer f.net.mu.Unlock()
	for _, h := range f.net.hosts { // count packets that have arrived and were not read yet
		h.deliverArrivals(f.net.currentInstant())
	}
	return f.count
}

// Hits returns the total number of the fault's effects; 0: the fault had no effect.
func (f *Fault) Hits() int { return f.Count().Total() }

// Cut cuts the links between the hosts that a and b select. Packets in flight still
// arrive. If several cuts overlap, the oldest decides the mode, and all count.
func (n *Net) Cut(a, b Selector, dir Direction, mode Mode) *Fault {
	return n.addFault(&Fault{net: n, a: a, b: b, cut: true, dir: dir, mode: mode})
}

// Shape gives the links between a and b a profile. If several overlap, their delays and losses
// add up. A link without any has LANLatency.
func (n *Net) Shape(a, b Selector, p Profile) *Fault {
	return n.addFault(&Fault{net: n, a: a, b: b, profile: p, queues: map[queueKey]*queue{}})
}

// addFault activates a fault of links, and sets f.stop to remove it.
func (n *Net) addFault(f *Fault) *Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, f)
	f.stop = func() {
		n.faults = slices.DeleteFunc(n.faults, func(o *Fault) bool { return o == f })
		n.faultVersion++
		n.refreshStreams()
	}
	n.faultVersion++
	n.refreshStreams()
	return f
}

// matchDirection reports whether the fault applies to packets between the two hosts in this
// direction, and whether that is the direction from a to b.
func (f *Fault) matchDirection(from, to string) (forward, applies bool) {
	if f.dir != BToA && f.a(from) && f.b(to) {
		return true, true
	}
	return false, f.dir != AToB && f.b(from) && f.a(to)
}
