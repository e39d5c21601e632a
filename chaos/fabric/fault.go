package fabric

import "slices"

// Selector chooses hosts by name.
type Selector func(host string) bool

// Everyone chooses all hosts. A fault between everyone and everyone leaves alone
// what a host sends to itself.
func Everyone(string) bool { return true }

// Hosts chooses the ones named.
func Hosts(names ...string) Selector {
	return func(host string) bool { return slices.Contains(names, host) }
}

// Except chooses all hosts but the ones named.
func Except(names ...string) Selector {
	return func(host string) bool { return !slices.Contains(names, host) }
}

// Direction of a Cut.
type Direction uint8

const (
	Both Direction = iota // packets of both sides
	AToB                  // packets from a to b alone
	BToA                  // packets from b to a alone
)

// String returns the direction as reports write it.
func (d Direction) String() string { return [...]string{"both", "a-to-b", "b-to-a"}[d] }

// Mode of a Cut.
type Mode uint8

const (
	// Silent: packets vanish, streams stall.
	Silent Mode = iota
	// Refused: the sender's system knows that there is no way (an unreachable
	// route, an interface that is down, a rejecting firewall). Writing a packet
	// fails with ECONNREFUSED, on which quic-go ends a connection at once, as it
	// does on any error that is not EMSGSIZE; streams are reset at the next write,
	// and dialing fails at once.
	Refused
)

// String returns the mode as reports write it.
func (m Mode) String() string { return [...]string{"silent", "refused"}[m] }

// Count says what a fault has done, in packets (of streams: in writes).
type Count struct {
	Dropped     int
	Delayed     int
	Duplicated  int
	Reordered   int // packets that were overtaken
	Refused     int
	Stalled     int // writes on streams that had to wait for the healing
	Held        int // packets that waited for Host.Resume, in either direction; writes on streams
	Killed      int // sockets, listeners and streams that died
	Readdressed int // packets that were the first ones from a new address
}

// Total is everything that was counted.
func (c Count) Total() int {
	return c.Dropped + c.Delayed + c.Duplicated + c.Reordered + c.Refused + c.Stalled + c.Held + c.Killed + c.Readdressed
}

// Fault is something that goes wrong, from the call that returns it to Heal.
type Fault struct {
	net *Net

	// Set once. A fault between hosts is a cut, or has a profile.
	a, b    Selector
	cut     bool
	dir     Direction
	mode    Mode
	profile Profile
	stop    func() // mu is held

	// Guarded by net.mu.
	healed bool
	count  Count
	queues map[queueKey]*queue // of a profile's bandwidth
}

// Heal ends the fault; a second call does nothing. A Rebind, Move or Crash has
// nothing to end.
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

// Count is what the fault has done so far.
func (f *Fault) Count() Count {
	f.net.mu.Lock()
	defer f.net.mu.Unlock()
	for _, h := range f.net.hosts { // what arrived meanwhile, and nobody has looked at
		h.deliverArrivals(f.net.currentInstant())
	}
	return f.count
}

// Hits is how often the fault really met something; 0: it proved nothing.
func (f *Fault) Hits() int { return f.Count().Total() }

// Cut breaks the links between the hosts that a and b choose. What is under way
// still arrives. Of several cuts that overlap the first one decides, and all
// count.
func (n *Net) Cut(a, b Selector, dir Direction, mode Mode) *Fault {
	return n.addFault(&Fault{net: n, a: a, b: b, cut: true, dir: dir, mode: mode})
}

// Shape gives the links between a and b a profile. Of several that overlap each
// adds its own; without any, a packet takes LANLatency.
func (n *Net) Shape(a, b Selector, p Profile) *Fault {
	return n.addFault(&Fault{net: n, a: a, b: b, profile: p, queues: map[queueKey]*queue{}})
}

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

// matchDirection reports whether the fault is about what from sends to to, and whether
// that is the way from a to b.
func (f *Fault) matchDirection(from, to string) (forward, applies bool) {
	if f.dir != BToA && f.a(from) && f.b(to) {
		return true, true
	}
	return false, f.dir != AToB && f.b(from) && f.a(to)
}
