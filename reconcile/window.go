package reconcile

import (
	"time"

	"skerry/fleet"
)

// Window is how the windows of a group's updates stand on a node.
type Window struct {
	Closed bool
	Opens  time.Time // where Closed: when the next one opens; zero: never
}

// windows are those of a group's updates.
func windows(g *fleet.TaskGroup) []fleet.UpdateWindow {
	if g == nil || g.Update == nil {
		return nil
	}
	return g.Update.Windows
}

// window is how the group's windows stand where an allocation is.
func (r *rollout) window(m *member) Window {
	node := r.d.in.Nodes[m.a.NodeID]
	if r.d.in.Window == nil || node == nil || len(windows(r.g)) == 0 {
		return Window{}
	}
	return r.d.in.Window(node, r.g.Name)
}

// shut says why an allocation that runs is not to be replaced by the newest version
// now: the windows of its node are closed. "": it may be. What does not run, or does
// not yet, is replaced at any time: nothing is disturbed by that.
func (r *rollout) shut(m *member) string {
	if m.kind != present || m.status() == fleet.ClientPending {
		return ""
	}
	w := r.window(m)
	if !w.Closed {
		return ""
	}
	return r.await(w)
}

// await notes that something waits for a window, and says for which.
func (r *rollout) await(w Window) string {
	r.waiting++
	r.changes = true
	if w.Opens.IsZero() {
		return "no window of its node opens again"
	}
	if r.d.opens.IsZero() || w.Opens.Before(r.d.opens) {
		r.d.opens = w.Opens
	}
	return "the window of its node opens at " + w.Opens.UTC().Format(time.RFC3339)
}

// onItsWay reports whether an edge has the newest version of an allocation and holds it
// back, because its window has closed: until it opens that is out of everybody's hands.
func (r *rollout) onItsWay(m *member) bool {
	if m.kind != present || m.status() != fleet.ClientPending || !r.window(m).Closed {
		return false
	}
	for a, n := m.a, 0; n < heldChain; n++ {
		if a = r.d.byID[a.PreviousAllocation]; a == nil || a.NodeID != m.a.NodeID {
			return false
		}
		if len(a.StopWindows) > 0 && a.ClientStatus != fleet.ClientPending && !a.ClientTerminal() {
			return true
		}
	}
	return false
}

// heldChain bounds how many versions are looked back at that came and went while an edge
// held the first of them back.
const heldChain = 100

// see notes of an allocation that runs an older version whether its windows let it be
// replaced.
func (r *rollout) see(m *member) {
	switch w := r.window(m); {
	case !w.Closed:
		r.ajar = true
	case r.next.Opens.IsZero() || !w.Opens.IsZero() && w.Opens.Before(r.next.Opens):
		r.next = w
	}
}

// canariesWait says why no canary is placed now: none of what they are to stand for has
// a window that is open. "": they may be.
func (r *rollout) canariesWait() string {
	if r.stale == 0 || r.ajar {
		return ""
	}
	return r.await(r.next)
}

// wakeForWindow wishes for one evaluation when the next window opens that something of
// the job waits for.
func (d *decision) wakeForWindow() {
	if !d.opens.IsZero() {
		d.wishes = append(d.wishes, wish{at: d.opens, trigger: fleet.TriggerUpdateWindow, why: "update what waits for its window"})
	}
}

// release lets a stop take place at once that waits on its edge for a window to open.
func (d *decision) release(m *member, reason string) bool {
	if !m.a.AwaitsWindow() {
		return false
	}
	d.out.Stops = append(d.out.Stops, Change{Alloc: m.a, DesiredStatus: fleet.DesiredStop, Reason: reason})
	return true
}

// urgent says why a stop that waits for a window is not to wait for it any longer; "".
func (d *decision) urgent(m *member) string {
	node := d.in.Nodes[m.a.NodeID]
	switch {
	case m.a.DesiredTransition.Migrate:
		return "an operator wants it stopped"
	case node != nil && node.DrainStrategy != nil:
		return "its node is drained"
	}
	return ""
}
