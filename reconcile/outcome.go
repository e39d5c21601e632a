package reconcile

import (
	"cmp"
	"fmt"
	"time"

	"skerry/fleet"
)

// markAllocUnknown makes an allocation unknown, and requests an evaluation for the time when it becomes
// lost.
func (d *decision) markAllocUnknown(m *member) {
	d.out.Unknown = append(d.out.Unknown, Change{
		Alloc: m.a, ClientStatus: fleet.ClientUnknown, Record: d.unknownRecord(m), Reason: m.reason,
	})
	if m.rules.LostAfter > 0 {
		d.requestTimeoutEval(m, d.in.Now.Add(m.rules.LostAfter), &d.out.Unknown)
	}
}

// keepUnknown keeps an unknown allocation, and requests an evaluation for the time when it becomes lost.
func (d *decision) keepUnknown(m *member) {
	d.keepUnchanged(m, "its node is still away: "+m.rules.String())
	if m.rules.LostAfter > 0 {
		d.requestTimeoutEval(m, m.awaySince().Add(m.rules.LostAfter), &d.out.Kept)
	}
}

// requestTimeoutEval requests an evaluation at a time, for which the last change in list waits.
func (d *decision) requestTimeoutEval(m *member, at time.Time, list *[]Change) {
	d.evalRequests = append(d.evalRequests, evalRequest{
		at: at, trigger: fleet.TriggerDisconnectTimeout, list: list, i: len(*list) - 1,
		why: "give up what is still unknown after " + m.rules.LostAfter.String(),
	})
}

// markAllocLost gives an allocation the client status lost and the desired status stop.
func (d *decision) markAllocLost(m *member) {
	d.out.Lost = append(d.out.Lost, Change{
		Alloc: m.a, DesiredStatus: fleet.DesiredStop, ClientStatus: fleet.ClientLost,
		Record: d.statusRecord(fleet.ClientLost), Reason: m.reason,
	})
}

// keepReplaying keeps an allocation whose node's history is not applied yet.
func (d *decision) keepReplaying(m *member) {
	d.keepUnchanged(m, cmp.Or(m.reason, "its node's history is still coming in"))
}

// locateChange returns where the output has the change of an allocation that was decided before: an index
// in Kept, Unknown or Lost. It panics if there is none.
func (d *decision) locateChange(m *member) (list *[]Change, i int) {
	for _, list := range []*[]Change{&d.out.Kept, &d.out.Unknown, &d.out.Lost} {
		for i := len(*list) - 1; i >= 0 && (*list)[i].Alloc.Name == m.a.Name; i-- {
			if (*list)[i].Alloc == m.a {
				return list, i
			}
		}
	}
	panic(fmt.Sprintf("no decision on allocation %s of name %s", m.a.ID, m.a.Name))
}

// stopOrRetire retires an allocation if its edge reported its end, else stops it. A lost one may still
// run, and is stopped.
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

// stopOrRetireReplaced is stopOrRetire for an allocation that is replaced. As in Nomad, a failed one is
// stopped, so that its reschedule policy does not apply again.
func (d *decision) stopOrRetireReplaced(m *member, c Change) {
	if m.kind == kindFailed {
		d.stopAllocation(m, c)
		return
	}
	d.stopOrRetire(m, c)
}

// stopAllocation adds a stop to the decision. If the node is away, the allocation also becomes unknown, unless its node
// pool has Nomad's rules for absence: there only the edge, or the loss of the node, changes the client status.
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

// reconnectAlloc keeps an allocation after an absence, and records the end of the absence.
func (d *decision) reconnectAlloc(m *member, c Change) {
	c.Alloc, c.ClientStatus, c.Record = m.a, m.statusOnEdge(), d.reconnectRecord(m)
	d.out.Reconnects = append(d.out.Reconnects, c)
}

// keepOrReconnect keeps an allocation, and records the end of its absence if it is reconnecting. It
// returns where the output has the change.
func (d *decision) keepOrReconnect(m *member, reason string) (list *[]Change, i int) {
	if m.reconnecting {
		d.reconnectAlloc(m, Change{Reason: reason})
		return &d.out.Reconnects, len(d.out.Reconnects) - 1
	}
	d.keepUnchanged(m, reason)
	return &d.out.Kept, len(d.out.Kept) - 1
}

// keepUnchanged adds the allocation to Kept.
func (d *decision) keepUnchanged(m *member, reason string) {
	d.out.Kept = append(d.out.Kept, Change{Alloc: m.a, Reason: reason})
}

// addPlacement adds a placement to the output, as a canary while placingCanary is set.
func (d *decision) addPlacement(p Placement) {
	p.Canary = p.Canary || d.placingCanary
	d.out.Place = append(d.out.Place, p)
}

// reconnectRecord returns the AllocStates entry for the end of an absence; nil if the allocation is not
// reconnecting.
func (d *decision) reconnectRecord(m *member) []fleet.AllocState {
	if !m.reconnecting {
		return nil
	}
	return d.statusRecord(m.statusOnEdge())
}

// unknownRecord returns the AllocStates entries for an allocation that becomes unknown. If its last
// absence has ended without being recorded, they record that first.
func (d *decision) unknownRecord(m *member) []fleet.AllocState {
	if m.a.NeedsToReconnect() {
		return append(d.statusRecord(m.a.ClientStatus), d.statusRecord(fleet.ClientUnknown)...)
	}
	return d.statusRecord(fleet.ClientUnknown)
}

// statusRecord returns an AllocStates entry for a client status, at the time of the decision.
func (d *decision) statusRecord(status string) []fleet.AllocState {
	return []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: status, Time: d.in.Now}}
}

// nodeName returns the name of an allocation's node, or the short id if the node is not known.
func (d *decision) nodeName(a *fleet.Alloc) string {
	if n := d.in.Nodes[a.NodeID]; n != nil {
		return nodeName(n)
	}
	return fleet.Short(a.NodeID)
}
