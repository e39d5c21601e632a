package schedule

import (
	"fmt"
	"slices"
	"time"
)

// occupancy has the claims of the faults in a schedule, with their times. It decides which
// other faults may happen at the same time. Faults can be added in any order.
type occupancy struct {
	topology Topology
	length   time.Duration
	taken    []reservation
}

// reservation has the claims of one fault.
type reservation struct {
	fault    Fault
	info     Info
	from, to time.Duration
	claims   []edgeClaim
	until    map[edgeClaim]time.Duration // end of each claim
	hubs     []string                    // the hubs of ClaimHub
	all      bool                        // the fault has ClaimHubs
}

// edgeClaim is a claim on one edge.
type edgeClaim struct {
	claim Claim
	edge  string
}

func newOccupancy(t Topology, length time.Duration) *occupancy {
	return &occupancy{topology: t, length: length}
}

// reservationOf returns the claims of a fault with their ends. It reserves nothing.
func (o *occupancy) reservationOf(f Fault) reservation {
	info, _ := f.Kind.Info()
	r := reservation{
		fault: f, info: info, from: f.At, to: f.End(o.length) + info.After, until: map[edgeClaim]time.Duration{},
		all: slices.Contains(info.Takes, ClaimHubs),
	}
	add := func(c edgeClaim, until time.Duration) { r.claims, r.until[c] = append(r.claims, c), until }
	for _, edge := range o.topology.EdgesOf(f) {
		for _, c := range info.Takes {
			if c != ClaimHub && c != ClaimHubs {
				add(edgeClaim{c, edge}, r.to)
			}
		}
		for _, c := range info.Begins {
			add(edgeClaim{c, edge}, f.At+info.After)
		}
	}
	if !r.all {
		r.hubs = o.topology.HubsOf(f)
	}
	return r
}

// clash is the reason why two faults may not overlap: "both take the link of edge-3". If a
// fault is too much by itself, other is that fault.
type clash struct {
	why   string
	other Fault
}

// reserveFault reserves the claims of the fault and returns nil. If they are not free, it
// reserves nothing and returns the clash.
func (o *occupancy) reserveFault(f Fault) *clash {
	r := o.reservationOf(f)
	var meanwhile []reservation
	for _, other := range o.taken {
		if other.from < r.to && r.from < other.to {
			meanwhile = append(meanwhile, other)
		}
	}
	for _, why := range []func(other reservation) string{r.kindClash, r.edgeClash, r.hubClash} {
		for _, other := range meanwhile {
			if text := why(other); text != "" {
				return &clash{text, other.fault}
			}
		}
	}
	if c := o.minorityClash(r, meanwhile); c != nil {
		return c
	}
	o.taken = append(o.taken, r)
	return nil
}

// kindClash returns a reason if the kinds of the two faults must not overlap; "": they may.
func (r reservation) kindClash(other reservation) string {
	if slices.Contains(r.info.Apart, other.fault.Kind) || slices.Contains(other.info.Apart, r.fault.Kind) {
		return fmt.Sprintf("%s and %s stay apart", r.fault.Kind, other.fault.Kind)
	}
	return ""
}

// edgeClash returns a reason if both faults have the same claim on an edge at one time; "": none.
func (r reservation) edgeClash(other reservation) string {
	for _, c := range r.claims {
		if until, taken := other.until[c]; taken && other.from < r.until[c] && r.from < until {
			return fmt.Sprintf("both take the %s of %s", c.claim, c.edge)
		}
	}
	return ""
}

// hubClash returns a reason if both faults hit the same hub, or one of them hits all hubs; "": none.
func (r reservation) hubClash(other reservation) string {
	if r.all && (other.all || len(other.hubs) > 0) || other.all && len(r.hubs) > 0 {
		return "one of them is on all hubs"
	}
	for _, hub := range r.hubs {
		if hub != TargetLeader && slices.Contains(other.hubs, hub) {
			return "both are on " + hub
		}
	}
	return ""
}

// minorityClash returns a clash if the fault and those that overlap it would hit more hubs at
// the same time than Topology.Minority allows; nil: they would not.
func (o *occupancy) minorityClash(r reservation, meanwhile []reservation) *clash {
	if len(r.hubs) == 0 {
		return nil
	}
	meanwhile = slices.DeleteFunc(meanwhile, func(other reservation) bool { return len(other.hubs) == 0 })
	most := o.topology.Minority()
	if len(r.hubs)+maxConcurrent(meanwhile, r.from) <= most {
		return nil
	}
	c := &clash{fmt.Sprintf("at most %d of %d hubs may be taken at a time", most, len(o.topology.Hubs)), r.fault}
	if len(meanwhile) > 0 {
		c.other = meanwhile[0].fault
	}
	return c
}

// maxConcurrent returns the largest number of hubs that are claimed at one time, at or after from.
func maxConcurrent(taken []reservation, from time.Duration) int {
	most := 0
	for _, r := range taken {
		at, n := max(r.from, from), 0
		for _, other := range taken {
			if other.from <= at && at < other.to {
				n += len(other.hubs)
			}
		}
		most = max(most, n)
	}
	return most
}
