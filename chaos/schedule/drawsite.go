package schedule

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"skerry/fleet"
)

// siteStream separates the random numbers of addPeopleOnSite from the others, as windowStream does.
const siteStream = 0x517e

// onSitePerHour is the maximum number of actions of people on site in an hour.
const onSitePerHour = 6

// addPeopleOnSite adds faults of the kinds LocalStop and LocalRestart that clash with no other fault, half of them
// while another fault of the edge lasts. Most stops last over an end of the agent. In some jobs a newer version
// overrules a stop.
func (d *drawer) addPeopleOnSite() {
	d.rng = rand.New(rand.NewPCG(d.s.Seed, siteStream))
	if len(d.shape.onSite) == 0 || len(d.s.Jobs) == 0 || len(d.s.Topology.Edges) == 0 {
		return
	}
	for i := range d.s.Jobs {
		if j := &d.s.Jobs[i]; j.HCL == "" && d.drawBool(30) {
			j.HoldUntil = fleet.HoldUntilNextVersion
		}
	}
	taken := newOccupancy(d.s.Topology, d.s.Length)
	for _, f := range d.s.Faults {
		if taken.reserveFault(f) != nil {
			return
		}
	}
	others := slices.Clone(d.s.Faults)
	most := int(onSitePerHour * max(1, d.s.Length.Hours()))
	for range min(d.rng.IntN(most+1), (MaxFaults-1-len(d.s.Faults))/2) {
		f, ok := d.drawBeside(taken, pick(d.rng, d.shape.onSite...), others)
		if !ok {
			continue
		}
		d.s.Faults = append(d.s.Faults, f)
		d.s.Faults = append(d.s.Faults, d.drawRevealingFault(taken, f)...) // the stop has to survive it
	}
	slices.SortStableFunc(d.s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// drawBeside draws a fault of the kind, often while one of the given faults lasts, and reserves its claims in taken. ok is
// false if none fitted.
func (d *drawer) drawBeside(taken *occupancy, kind Kind, others []Fault) (Fault, bool) {
	if len(others) > 0 && d.drawBool(50) {
		if f, ok := d.drawOverlappingFault(taken, kind, others); ok {
			return f, true
		}
	}
	for range triesAnywhere {
		if f := d.drawFault(kind, 0, d.s.Length); d.tryReserveFault(taken, f) {
			return f, true
		}
	}
	return Fault{}, false
}
