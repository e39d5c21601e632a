package reconcile

import (
	"time"

	"skerry/fleet"
)

// Window is the state of a group's update windows on a node.
type Window struct {
	Closed bool
	Opens  time.Time // if Closed: when the next one opens; zero: never
}

// updateWindows returns the update windows of a group; nil: none. g may be nil.
func updateWindows(g *fleet.TaskGroup) []fleet.UpdateWindow {
	if g == nil || g.Update == nil {
		return nil
	}
	return g.Update.Windows
}

// windowForAlloc returns the state of the group's update windows on an allocation's node.
func (r *rollout) windowForAlloc(m *member) Window {
	node := r.d.in.Nodes[m.a.NodeID]
	if r.d.in.Window == nil || node == nil || len(updateWindows(r.g)) == 0 {
		return Window{}
	}
	return r.d.in.Window(node, r.g.Name)
}

// outsideWindowReason returns why a running allocation must not be replaced by the newest version now: the
// update windows of its node are closed; "": it may be. An allocation that does not run may always be
// replaced.
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

// awaitWindowOpening records that an allocation waits for a window, and returns the reason for people.
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

// isHeldOnEdge reports whether an allocation of the newest version is pending because its edge waits for a
// window before it stops the version that runs.
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

// heldChain is how many earlier versions isHeldOnEdge follows back to the one that the edge still runs.
const heldChain = 100

// recordWindowState records whether the windows of an outdated allocation are open, or when they open
// next.
func (r *rollout) recordWindowState(m *member) {
	switch w := r.windowForAlloc(m); {
	case !w.Closed:
		r.windowOpen = true
	case r.nextWindow.Opens.IsZero() || !w.Opens.IsZero() && w.Opens.Before(r.nextWindow.Opens):
		r.nextWindow = w
	}
}

// canaryWaitReason returns why no canary may be placed now: the windows of all outdated allocations are
// closed; "": canaries may be placed.
func (r *rollout) canaryWaitReason() string {
	if r.outdated == 0 || r.windowOpen {
		return ""
	}
	return r.awaitWindowOpening(r.nextWindow)
}

// requestWindowEval requests an evaluation for the time when the first window opens that an allocation
// waits for.
func (d *decision) requestWindowEval() {
	if !d.nextWindowOpens.IsZero() {
		d.evalRequests = append(d.evalRequests, evalRequest{at: d.nextWindowOpens, trigger: fleet.TriggerUpdateWindow, why: "update what waits for its window"})
	}
}

// skipWindowForStop makes the edge stop an allocation at once that waits for a window, and reports whether
// it waited.
func (d *decision) skipWindowForStop(m *member, reason string) bool {
	if !m.a.AwaitsWindow() {
		return false
	}
	d.out.Stops = append(d.out.Stops, Change{Alloc: m.a, DesiredStatus: fleet.DesiredStop, Reason: reason})
	return true
}

// urgentStopReason returns why a stop must not wait for a window any longer; "": it may.
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
