package reconcile

import (
	"cmp"
	"fmt"
	"time"

	"skerry/fleet"
)

// markAllocUnknown makes an allocation unknown, with an evaluation for the end of its
// window.
func (d *decision) markAllocUnknown(m *member) {
	d.out.Unknown = append(d.out.Unknown, Change{
		Alloc: m.a, ClientStatus: fleet.ClientUnknown, Record: d.unknownRecord(m), Reason: m.reason,
	})
	if m.rules.LostAfter > 0 {
		d.requestTimeoutEval(m, d.in.Now.Add(m.rules.LostAfter), &d.out.Unknown)
	}
}

// keepUnknown leaves an unknown allocation alone, and sees that its window ends.
func (d *decision) keepUnknown(m *member) {
	d.keepUnchanged(m, "its node is still away: "+m.rules.String())
	if m.rules.LostAfter > 0 {
		d.requestTimeoutEval(m, awaySince(m.a).Add(m.rules.LostAfter), &d.out.Kept)
	}
}

// requestTimeoutEval wishes for an evaluation at the end of a window, for the change that
// was just added to list.
func (d *decision) requestTimeoutEval(m *member, at time.Time, list *[]Change) {
	d.evalRequests = append(d.evalRequests, evalRequest{
		at: at, trigger: fleet.TriggerDisconnectTimeout, list: list, i: len(*list) - 1,
		why: "give up what is still unknown after " + m.rules.LostAfter.String(),
	})
}

// markAllocLost makes an allocation lost.
func (d *decision) markAllocLost(m *member) {
	d.out.Lost = append(d.out.Lost, Change{
		Alloc: m.a, DesiredStatus: fleet.DesiredStop, ClientStatus: fleet.ClientLost,
		Record: d.statusRecord(fleet.ClientLost), Reason: m.reason,
	})
}

// keepReplaying leaves an allocation alone that is not to be touched.
func (d *decision) keepReplaying(m *member) {
	d.keepUnchanged(m, cmp.Or(m.reason, "its node's history is still coming in"))
}

// locateChange is where the change of an allocation stands that was decided on just now.
func (d *decision) locateChange(m *member) (list *[]Change, i int) {
	for _, list := range []*[]Change{&d.out.Kept, &d.out.Unknown, &d.out.Lost} {
		for i := len(*list) - 1; i >= 0 && (*list)[i].Alloc.Name == m.a.Name; i-- {
			if (*list)[i].Alloc == m.a {
				return list, i
			}
		}
	}
	panic(fmt.Sprintf("no decision on allocation %s of slot %s", m.a.ID, m.a.Name))
}

// stopOrRetire has an allocation count for nothing any more: it is stopped, or retired where its edge
// says that it has ended. One that is lost may run on, unseen, and is stopped.
func (d *decision) stopOrRetire(m *member, c Change) {
	if !m.endedOnEdge() {
		d.stopAllocation(m, c)
		return
	}
	c.Alloc, c.Retires, c.Record = m.a, true, d.reconnectRecord(m)
	if m.reconnecting && m.a.ClientStatus == fleet.ClientUnknown {
		c.ClientStatus = m.statusOnEdge()
	}
	d.out.Retired = append(d.out.Retired, c)
}

// stopOrRetireReplaced ends an allocation that another one takes the place of. As in Nomad one that failed
// is told to stop by that: its reschedule policy does not look at it again.
func (d *decision) stopOrRetireReplaced(m *member, c Change) {
	if m.kind == kindFailed {
		d.stopAllocation(m, c)
		return
	}
	d.stopOrRetire(m, c)
}

// stopAllocation tells an allocation to stop: one that is not in sight becomes unknown as well, but under
// Nomad's rules, where its edge or the loss of its node says what became of it.
func (d *decision) stopAllocation(m *member, c Change) {
	c.Alloc, c.DesiredStatus, c.Record = m.a, fleet.DesiredStop, d.reconnectRecord(m)
	switch unknown := m.a.ClientStatus == fleet.ClientUnknown; {
	case m.reconnecting && unknown:
		c.ClientStatus = m.statusOnEdge()
	case m.absent && !unknown && !m.a.ClientTerminal() && !m.rules.Nomad:
		c.ClientStatus, c.Record = fleet.ClientUnknown, d.unknownRecord(m)
	}
	d.out.Stops = append(d.out.Stops, c)
}

// reconnectAlloc settles an allocation that stays.
func (d *decision) reconnectAlloc(m *member, c Change) {
	c.Alloc, c.ClientStatus, c.Record = m.a, m.statusOnEdge(), d.reconnectRecord(m)
	d.out.Reconnects = append(d.out.Reconnects, c)
}

// keepOrReconnect leaves a holder as it is, settling it where that is due, and says where
// the change stands.
func (d *decision) keepOrReconnect(m *member, reason string) (list *[]Change, i int) {
	if m.reconnecting {
		d.reconnectAlloc(m, Change{Reason: reason})
		return &d.out.Reconnects, len(d.out.Reconnects) - 1
	}
	d.keepUnchanged(m, reason)
	return &d.out.Kept, len(d.out.Kept) - 1
}

func (d *decision) keepUnchanged(m *member, reason string) {
	d.out.Kept = append(d.out.Kept, Change{Alloc: m.a, Reason: reason})
}

func (d *decision) addPlacement(p Placement) {
	p.Canary = p.Canary || d.placingCanary
	d.out.Place = append(d.out.Place, p)
}

// reconnectRecord is what to record of an allocation whose return is dealt with.
func (d *decision) reconnectRecord(m *member) []fleet.AllocState {
	if !m.reconnecting {
		return nil
	}
	return d.statusRecord(m.statusOnEdge())
}

// unknownRecord is what to record of an allocation that goes out of sight. One that
// was back in between, unsettled, was in sight in between.
func (d *decision) unknownRecord(m *member) []fleet.AllocState {
	if m.a.NeedsToReconnect() {
		return append(d.statusRecord(m.a.ClientStatus), d.statusRecord(fleet.ClientUnknown)...)
	}
	return d.statusRecord(fleet.ClientUnknown)
}

func (d *decision) statusRecord(status string) []fleet.AllocState {
	return []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: status, Time: d.in.Now}}
}

func (d *decision) nodeName(a *fleet.Alloc) string {
	if n := d.in.Nodes[a.NodeID]; n != nil {
		return nodeName(n)
	}
	return fleet.Short(a.NodeID)
}
