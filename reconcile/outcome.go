package reconcile

import (
	"cmp"
	"fmt"
	"time"

	"skerry/fleet"
)

// leave makes an allocation unknown, with an evaluation for the end of its
// window.
func (d *decision) leave(m *member) {
	d.out.Unknown = append(d.out.Unknown, Change{
		Alloc: m.a, ClientStatus: fleet.ClientUnknown, Record: d.unknown(m), Reason: m.reason,
	})
	if m.rules.LostAfter > 0 {
		d.timeout(m, d.in.Now.Add(m.rules.LostAfter), &d.out.Unknown)
	}
}

// stayAway leaves an unknown allocation alone, and sees that its window ends.
func (d *decision) stayAway(m *member) {
	d.keep(m, "its node is still away: "+m.rules.String())
	if m.rules.LostAfter > 0 {
		d.timeout(m, awaySince(m.a).Add(m.rules.LostAfter), &d.out.Kept)
	}
}

// timeout wishes for an evaluation at the end of a window, for the change that
// was just added to list.
func (d *decision) timeout(m *member, at time.Time, list *[]Change) {
	d.wishes = append(d.wishes, wish{
		at: at, trigger: fleet.TriggerDisconnectTimeout, list: list, i: len(*list) - 1,
		why: "give up what is still unknown after " + m.rules.LostAfter.String(),
	})
}

// giveUp makes an allocation lost.
func (d *decision) giveUp(m *member) {
	d.out.Lost = append(d.out.Lost, Change{
		Alloc: m.a, DesiredStatus: fleet.DesiredStop, ClientStatus: fleet.ClientLost,
		Record: d.record(fleet.ClientLost), Reason: m.reason,
	})
}

// leaveFrozen leaves an allocation alone that is not to be touched.
func (d *decision) leaveFrozen(m *member) {
	d.keep(m, cmp.Or(m.reason, "its node's history is still coming in"))
}

// entry is where the change of an allocation stands that was decided on just now.
func (d *decision) entry(m *member) (list *[]Change, i int) {
	for _, list := range []*[]Change{&d.out.Kept, &d.out.Unknown, &d.out.Lost} {
		for i := len(*list) - 1; i >= 0 && (*list)[i].Alloc.Name == m.a.Name; i-- {
			if (*list)[i].Alloc == m.a {
				return list, i
			}
		}
	}
	panic(fmt.Sprintf("no decision on allocation %s of slot %s", m.a.ID, m.a.Name))
}

// end has an allocation count for nothing any more: it is stopped, or retired where its edge
// says that it has ended. One that is lost may run on, unseen, and is stopped.
func (d *decision) end(m *member, c Change) {
	if !m.endedOnEdge() {
		d.stop(m, c)
		return
	}
	c.Alloc, c.Retires, c.Record = m.a, true, d.settled(m)
	if m.due && m.a.ClientStatus == fleet.ClientUnknown {
		c.ClientStatus = m.status()
	}
	d.out.Retired = append(d.out.Retired, c)
}

// replace ends an allocation that another one takes the place of. As in Nomad one that failed
// is told to stop by that: its reschedule policy does not look at it again.
func (d *decision) replace(m *member, c Change) {
	if m.kind == failed {
		d.stop(m, c)
		return
	}
	d.end(m, c)
}

// stop tells an allocation to stop: one that is not in sight becomes unknown as well, but under
// Nomad's rules, where its edge or the loss of its node says what became of it.
func (d *decision) stop(m *member, c Change) {
	c.Alloc, c.DesiredStatus, c.Record = m.a, fleet.DesiredStop, d.settled(m)
	switch unknown := m.a.ClientStatus == fleet.ClientUnknown; {
	case m.due && unknown:
		c.ClientStatus = m.status()
	case m.absent && !unknown && !m.a.ClientTerminal() && !m.rules.Nomad:
		c.ClientStatus, c.Record = fleet.ClientUnknown, d.unknown(m)
	}
	d.out.Stops = append(d.out.Stops, c)
}

// reconnect settles an allocation that stays.
func (d *decision) reconnect(m *member, c Change) {
	c.Alloc, c.ClientStatus, c.Record = m.a, m.status(), d.settled(m)
	d.out.Reconnects = append(d.out.Reconnects, c)
}

// remain leaves a holder as it is, settling it where that is due, and says where
// the change stands.
func (d *decision) remain(m *member, reason string) (list *[]Change, i int) {
	if m.due {
		d.reconnect(m, Change{Reason: reason})
		return &d.out.Reconnects, len(d.out.Reconnects) - 1
	}
	d.keep(m, reason)
	return &d.out.Kept, len(d.out.Kept) - 1
}

func (d *decision) keep(m *member, reason string) {
	d.out.Kept = append(d.out.Kept, Change{Alloc: m.a, Reason: reason})
}

func (d *decision) place(p Placement) {
	p.Canary = p.Canary || d.canary
	d.out.Place = append(d.out.Place, p)
}

// settled is what to record of an allocation whose return is dealt with.
func (d *decision) settled(m *member) []fleet.AllocState {
	if !m.due {
		return nil
	}
	return d.record(m.status())
}

// unknown is what to record of an allocation that goes out of sight. One that
// was back in between, unsettled, was in sight in between.
func (d *decision) unknown(m *member) []fleet.AllocState {
	if m.a.NeedsToReconnect() {
		return append(d.record(m.a.ClientStatus), d.record(fleet.ClientUnknown)...)
	}
	return d.record(fleet.ClientUnknown)
}

func (d *decision) record(status string) []fleet.AllocState {
	return []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: status, Time: d.in.Now}}
}

func (d *decision) nodeName(a *fleet.Alloc) string {
	if n := d.in.Nodes[a.NodeID]; n != nil {
		return nodeName(n)
	}
	return fleet.Short(a.NodeID)
}
