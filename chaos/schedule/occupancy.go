package schedule

import (
	"fmt"
	"slices"
	"time"
)

// occupancy is what the faults of a schedule take, and until when: it says which
// others may happen beside them. Faults are added in any order.
type occupancy struct {
	topology      Topology
	length        time.Duration
	edges         map[claimKey][]reservation
	hubs          []reservation          // of ClaimHub, one for each hub and fault
	allHubs       []reservation          // of ClaimHubs
	presentKinds  map[Kind][]reservation // of each fault
	excludedKinds map[Kind][]reservation // no fault of that kind meanwhile
}

// claimKey is something of a member.
type claimKey struct {
	claim  Claim
	member string
}

// reservation is a window in which a fault has something for itself.
type reservation struct {
	claimKey
	from, to time.Duration
	fault    *Fault
}

func (h reservation) overlapsWindow(from, to time.Duration) bool { return h.from < to && from < h.to }

func newOccupancy(t Topology, length time.Duration) *occupancy {
	return &occupancy{
		topology: t, length: length,
		edges: map[claimKey][]reservation{}, presentKinds: map[Kind][]reservation{}, excludedKinds: map[Kind][]reservation{},
	}
}

// requirements is what one fault takes.
type requirements struct {
	reservation // the window, of nothing in particular
	apart       []Kind
	edges       []reservation
	hubs        []reservation
	all         bool // ClaimHubs
}

func (o *occupancy) requirementsOf(f Fault) requirements {
	info, _ := f.Kind.Info()
	n := requirements{
		reservation: reservation{from: f.At, to: f.End(o.length) + info.After, fault: &f},
		apart:       info.Apart,
		all:         slices.Contains(info.Takes, ClaimHubs),
	}
	for _, edge := range o.topology.EdgesOf(f) {
		for _, c := range info.Takes {
			if c != ClaimHub && c != ClaimHubs {
				n.edges = append(n.edges, reservation{claimKey{c, edge}, n.from, n.to, &f})
			}
		}
		for _, c := range info.Begins {
			n.edges = append(n.edges, reservation{claimKey{c, edge}, n.from, f.At + info.After, &f})
		}
	}
	if !n.all {
		for _, hub := range o.topology.HubsOf(f) {
			n.hubs = append(n.hubs, reservation{claimKey{ClaimHub, hub}, n.from, n.to, &f})
		}
	}
	return n
}

// clash is why two faults may not be beside each other: "both take the link of
// edge-3". Of one that is too much by itself, other is itself.
type clash struct {
	why   string
	other Fault
}

// reserveFault takes what the fault needs. Where something is in the way nothing is taken.
func (o *occupancy) reserveFault(f Fault) *clash {
	n := o.requirementsOf(f)
	for _, find := range []func(requirements) *clash{o.findKindClash, o.findEdgeClash, o.findHubClash} {
		if c := find(n); c != nil {
			return c
		}
	}
	o.recordReservation(n)
	return nil
}

func (o *occupancy) findKindClash(n requirements) *clash {
	for _, kind := range n.apart {
		if h, met := firstOverlap(o.presentKinds[kind], n.reservation); met {
			return &clash{fmt.Sprintf("%s and %s stay apart", n.fault.Kind, kind), *h.fault}
		}
	}
	if h, met := firstOverlap(o.excludedKinds[n.fault.Kind], n.reservation); met {
		return &clash{fmt.Sprintf("%s and %s stay apart", n.fault.Kind, h.fault.Kind), *h.fault}
	}
	return nil
}

func (o *occupancy) findEdgeClash(n requirements) *clash {
	for _, want := range n.edges {
		if h, met := firstOverlap(o.edges[want.claimKey], want); met {
			return &clash{fmt.Sprintf("both take the %s of %s", want.claim, want.member), *h.fault}
		}
	}
	return nil
}

func (o *occupancy) findHubClash(n requirements) *clash {
	if !n.all && len(n.hubs) == 0 {
		return nil
	}
	if h, met := firstOverlap(o.allHubs, n.reservation); met {
		return &clash{"one of them is on all hubs", *h.fault}
	}
	if n.all {
		if at := o.hubsReservedDuring(n.reservation); len(at) > 0 {
			return &clash{"one of them is on all hubs", *at[0].fault}
		}
		return nil
	}
	meanwhile := o.hubsReservedDuring(n.reservation)
	for _, h := range meanwhile {
		if h.member != TargetLeader && slices.ContainsFunc(n.hubs, func(want reservation) bool { return want.member == h.member }) {
			return &clash{"both are on " + h.member, *h.fault}
		}
	}
	if most := o.topology.Minority(); len(n.hubs)+maxConcurrent(meanwhile, n.from) > most {
		other := *n.fault
		if len(meanwhile) > 0 {
			other = *meanwhile[0].fault
		}
		return &clash{fmt.Sprintf("at most %d of %d hubs may be taken at a time", most, len(o.topology.Hubs)), other}
	}
	return nil
}

// hubsReservedDuring are the holds of hubs that meet a window.
func (o *occupancy) hubsReservedDuring(window reservation) []reservation {
	return slices.DeleteFunc(slices.Clone(o.hubs), func(h reservation) bool { return !h.overlapsWindow(window.from, window.to) })
}

// maxConcurrent is the largest number of holds at one time, from a time on.
func maxConcurrent(holds []reservation, from time.Duration) int {
	most := 0
	for _, h := range holds {
		at, n := max(h.from, from), 0
		for _, other := range holds {
			if other.from <= at && at < other.to {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func (o *occupancy) recordReservation(n requirements) {
	for _, h := range n.edges {
		o.edges[h.claimKey] = append(o.edges[h.claimKey], h)
	}
	o.hubs = append(o.hubs, n.hubs...)
	if n.all {
		o.allHubs = append(o.allHubs, n.reservation)
	}
	for _, kind := range n.apart {
		o.excludedKinds[kind] = append(o.excludedKinds[kind], n.reservation)
	}
	o.presentKinds[n.fault.Kind] = append(o.presentKinds[n.fault.Kind], n.reservation)
}

func firstOverlap(holds []reservation, window reservation) (reservation, bool) {
	i := slices.IndexFunc(holds, func(h reservation) bool { return h.overlapsWindow(window.from, window.to) })
	if i < 0 {
		return reservation{}, false
	}
	return holds[i], true
}
