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

// updateWindows are those of a group's updates.
func updateWindows(g *fleet.TaskGroup) []fleet.UpdateWindow {
	if g == nil || g.Update == nil {
		return nil
	}
	return g.Update.Windows
}

// windowForAlloc is how the group's windows stand where an allocation is.
func (r *rollout) windowForAlloc(m *member) Window {
	node := r.d.in.Nodes[m.a.NodeID]
	if r.d.in.Window == nil || node == nil || len(updateWindows(r.g)) == 0 {
		return Window{}
	}
	return r.d.in.Window(node, r.g.Name)
}

// outsideWindowReason says why an allocation that runs is not to be replaced by the newest version
// now: the windows of its node are closed. "": it may be. What does not run, or does
// not yet, is replaced at any time: nothing is disturbed by that.
func (r *rollout) outsideWindowReason(m *member) string {
	if m.kind != kindRunning || m.statusOnEdge() == fleet.ClientPending {
		return ""
	}
	w := r.windowForAlloc(m)
	if !w.Closed {
		return ""
	}
	return r.awaitWindowOpening(w)
}

// awaitWindowOpening notes that something waits for a window, and says for which.
func (r *rollout) awaitWindowOpening(w Window) string {
	r.waiting++
	r.changes = true
	if w.Opens.IsZero() {
		return "no window of its node opens again"
	}
	if r.d.nextWindowOpens.IsZero() || w.Opens.Before(r.d.nextWindowOpens) {
		r.d.nextWindowOpens = w.Opens
	}
	return "the window of its node opens at " + w.Opens.UTC().Format(time.RFC3339)
}

// isHeldOnEdge reports whether an edge has the newest version of an allocation and holds it
// back, because its window has closed: until it opens that is out of everybody's hands.
func (r *rollout) isHeldOnEdge(m *member) bool {
	if m.kind != kindRunning || m.statusOnEdge() != fleet.ClientPending || !r.windowForAlloc(m).Closed {
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

// recordWindowState notes of an allocation that runs an older version whether its windows let it be
// replaced.
func (r *rollout) recordWindowState(m *member) {
	switch w := r.windowForAlloc(m); {
	case !w.Closed:
		r.windowOpen = true
	case r.nextWindow.Opens.IsZero() || !w.Opens.IsZero() && w.Opens.Before(r.nextWindow.Opens):
		r.nextWindow = w
	}
}

// canaryWaitReason says why no canary is placed now: none of what they are to stand for has
// a window that is open. "": they may be.
func (r *rollout) canaryWaitReason() string {
	if r.outdated == 0 || r.windowOpen {
		return ""
	}
	return r.awaitWindowOpening(r.nextWindow)
}

// requestWindowEval wishes for one evaluation when the next window opens that something of
// the job waits for.
func (d *decision) requestWindowEval() {
	if !d.nextWindowOpens.IsZero() {
		d.evalRequests = append(d.evalRequests, evalRequest{at: d.nextWindowOpens, trigger: fleet.TriggerUpdateWindow, why: "update what waits for its window"})
	}
}

// skipWindowForStop lets a stop take place at once that waits on its edge for a window to open.
func (d *decision) skipWindowForStop(m *member, reason string) bool {
	if !m.a.AwaitsWindow() {
		return false
	}
	d.out.Stops = append(d.out.Stops, Change{Alloc: m.a, DesiredStatus: fleet.DesiredStop, Reason: reason})
	return true
}

// urgentStopReason says why a stop that waits for a window is not to wait for it any longer; "".
func (d *decision) urgentStopReason(m *member) string {
	node := d.in.Nodes[m.a.NodeID]
	switch {
	case m.a.DesiredTransition.Migrate:
		return "an operator wants it stopped"
	case node != nil && node.DrainStrategy != nil:
		return "its node is drained"
	}
	return ""
}
