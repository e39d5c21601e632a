package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// occupancy is what the faults of a schedule take, and until when: it says which
// others may happen beside them. Faults are added in any order.
type occupancy struct {
	topology Topology
	length   time.Duration
	edges    map[claimed][]hold // each list in order of time; its windows do not overlap
	hubs     []hold             // of ClaimHub, one for each hub and fault, in order of time
	longest  time.Duration      // of these
	allHubs  []hold             // of ClaimHubs
	present  map[Kind][]hold    // of kinds that some other kind stays apart of
	barred   map[Kind][]hold    // no fault of that kind meanwhile
}

// claimed is something of a member.
type claimed struct {
	claim  Claim
	member string
}

// hold is a window in which a fault has something for itself.
type hold struct {
	claimed
	from, to time.Duration
	fault    *Fault
}

func (h hold) meets(from, to time.Duration) bool { return h.from < to && from < h.to }

func newOccupancy(t Topology, length time.Duration) *occupancy {
	return &occupancy{
		topology: t, length: length,
		edges: map[claimed][]hold{}, present: map[Kind][]hold{}, barred: map[Kind][]hold{},
	}
}

// needs is what one fault takes.
type needs struct {
	hold  // the window, of nothing in particular
	apart []Kind
	edges []hold
	hubs  []hold
	all   bool // ClaimHubs
}

func (o *occupancy) needs(f Fault) needs {
	info, _ := f.Kind.Info()
	n := needs{
		hold:  hold{from: f.At, to: f.End(o.length) + info.After, fault: &f},
		apart: info.Apart,
		all:   slices.Contains(info.Takes, ClaimHubs),
	}
	for _, edge := range o.topology.EdgesOf(f) {
		for _, c := range info.Takes {
			if c != ClaimHub && c != ClaimHubs {
				n.edges = append(n.edges, hold{claimed{c, edge}, n.from, n.to, &f})
			}
		}
		for _, c := range info.Begins {
			n.edges = append(n.edges, hold{claimed{c, edge}, n.from, f.At + info.After, &f})
		}
	}
	if !n.all {
		for _, hub := range o.topology.HubsOf(f) {
			n.hubs = append(n.hubs, hold{claimed{ClaimHub, hub}, n.from, n.to, &f})
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

// add takes what the fault needs. Where something is in the way nothing is taken.
func (o *occupancy) add(f Fault) *clash {
	n := o.needs(f)
	for _, find := range []func(needs) *clash{o.apart, o.atEdges, o.atHubs} {
		if c := find(n); c != nil {
			return c
		}
	}
	o.take(n)
	return nil
}

func (o *occupancy) apart(n needs) *clash {
	for _, kind := range n.apart {
		if h, met := first(o.present[kind], n.hold); met {
			return &clash{fmt.Sprintf("%s and %s stay apart", n.fault.Kind, kind), *h.fault}
		}
	}
	if h, met := first(o.barred[n.fault.Kind], n.hold); met {
		return &clash{fmt.Sprintf("%s and %s stay apart", n.fault.Kind, h.fault.Kind), *h.fault}
	}
	return nil
}

func (o *occupancy) atEdges(n needs) *clash {
	for _, want := range n.edges {
		if h, met := search(o.edges[want.claimed], want); met {
			return &clash{fmt.Sprintf("both take the %s of %s", want.claim, want.member), *h.fault}
		}
	}
	return nil
}

func (o *occupancy) atHubs(n needs) *clash {
	if !n.all && len(n.hubs) == 0 {
		return nil
	}
	if h, met := first(o.allHubs, n.hold); met {
		return &clash{"one of them is on all hubs", *h.fault}
	}
	if n.all {
		if at := o.hubsMeanwhile(n.hold); len(at) > 0 {
			return &clash{"one of them is on all hubs", *at[0].fault}
		}
		return nil
	}
	meanwhile := o.hubsMeanwhile(n.hold)
	for _, h := range meanwhile {
		if h.member != TargetLeader && slices.ContainsFunc(n.hubs, func(want hold) bool { return want.member == h.member }) {
			return &clash{"both are on " + h.member, *h.fault}
		}
	}
	if most := o.topology.Minority(); len(n.hubs)+atOnce(meanwhile, n.from) > most {
		other := *n.fault
		if len(meanwhile) > 0 {
			other = *meanwhile[0].fault
		}
		return &clash{fmt.Sprintf("at most %d of %d hubs may be taken at a time", most, len(o.topology.Hubs)), other}
	}
	return nil
}

// hubsMeanwhile are the holds of hubs that meet a window.
func (o *occupancy) hubsMeanwhile(window hold) []hold {
	var at []hold
	i, _ := slices.BinarySearchFunc(o.hubs, window.from-o.longest, byStart)
	for ; i < len(o.hubs) && o.hubs[i].from < window.to; i++ {
		if o.hubs[i].meets(window.from, window.to) {
			at = append(at, o.hubs[i])
		}
	}
	return at
}

// atOnce is the largest number of holds at one time, from a time on.
func atOnce(holds []hold, from time.Duration) int {
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

func (o *occupancy) take(n needs) {
	for _, h := range n.edges {
		o.edges[h.claimed] = insert(o.edges[h.claimed], h)
	}
	for _, h := range n.hubs {
		o.hubs = insert(o.hubs, h)
		o.longest = max(o.longest, h.to-h.from)
	}
	if n.all {
		o.allHubs = append(o.allHubs, n.hold)
	}
	for _, kind := range n.apart {
		o.barred[kind] = append(o.barred[kind], n.hold)
	}
	if staysApart(n.fault.Kind) {
		o.present[n.fault.Kind] = append(o.present[n.fault.Kind], n.hold)
	}
}

// staysApart reports whether some kind names this one in Apart.
func staysApart(kind Kind) bool {
	return slices.ContainsFunc(table, func(i Info) bool { return slices.Contains(i.Apart, kind) })
}

func first(holds []hold, window hold) (hold, bool) {
	i := slices.IndexFunc(holds, func(h hold) bool { return h.meets(window.from, window.to) })
	if i < 0 {
		return hold{}, false
	}
	return holds[i], true
}

func byStart(h hold, at time.Duration) int { return cmp.Compare(h.from, at) }

func insert(holds []hold, h hold) []hold {
	i, _ := slices.BinarySearchFunc(holds, h.from, byStart)
	return slices.Insert(holds, i, h)
}

// search finds a hold that meets the window, in a list in order without overlaps.
func search(holds []hold, window hold) (hold, bool) {
	i, _ := slices.BinarySearchFunc(holds, window.from, byStart)
	for _, k := range []int{i - 1, i} {
		if k >= 0 && k < len(holds) && holds[k].meets(window.from, window.to) {
			return holds[k], true
		}
	}
	return hold{}, false
}
