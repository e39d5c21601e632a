package gateway

import (
	"fmt"
	"log/slog"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// What one Desired frame holds at most: the bytes of its entries and its bodies leave
// room within syncproto.MaxFrame for the rest of it. A body goes with others or entries
// only where it fits.
const (
	desiredEntries = 2000
	desiredBytes   = syncproto.MaxFrame - 1<<10
)

// desiredProgress is what one session has told its edge of the desired state. It
// computes frames from views of the state and does no I/O.
type desiredProgress struct {
	node fleet.NodeID
	log  *slog.Logger

	bare   bool        // the edge holds nothing that it was ever told
	full   bool        // the full picture was sent
	sent   fleet.Index // newest AllocModifyIndex told
	index  fleet.Index // of the last frame
	bodies map[string]bool
}

func newDesiredProgress(node fleet.NodeID, bare bool, log *slog.Logger) *desiredProgress {
	return &desiredProgress{node: node, bare: bare, log: log, bodies: make(map[string]bool)}
}

// nextFrames returns the frames that bring the edge from what it was told to view: the
// full picture first, later what changed. received is the newest desired index
// that the edge is known to have journaled, in any session: bodies of what it
// has do not travel again.
func (d *desiredProgress) nextFrames(view *state.View, received fleet.Index) []syncproto.Desired {
	if d.full && view.DesiredIndex(d.node) <= d.sent {
		return nil
	}
	b := d.newFrameBuilder(view)
	newest := d.sent
	for a := range view.AllocsByNode(d.node) {
		if d.full && a.AllocModifyIndex <= d.sent {
			continue
		}
		newest = max(newest, a.AllocModifyIndex)
		switch {
		case a.EndedOnEdge():
			continue
		case d.bare && !d.full && a.DesiredStatus != fleet.DesiredRun:
			// It may run there all the same, and only what it is tells how to end it.
			b.addDesiredAlloc(a, true)
		}
		b.addAlloc(a, a.AllocModifyIndex > received)
	}
	d.sent = newest
	if d.full && !b.hasEntries() {
		return nil
	}
	frames := b.finishFrames()
	frames[0].Full = !d.full
	d.full = true
	return frames
}

// answerHoldings returns what the cluster says of allocations that the edge holds and
// was not told of, and those of them that the cluster does not know. Unknown ones
// are not mentioned, so the edge keeps them: absence stops nothing.
func (d *desiredProgress) answerHoldings(view *state.View, held []fleet.AllocID) (frames []syncproto.Desired, orphans []fleet.AllocID) {
	b := d.newFrameBuilder(view)
	for _, id := range held {
		a, ok := view.Alloc(id)
		switch {
		case !ok || a.NodeID != d.node:
			orphans = append(orphans, id)
		case a.DesiredStatus == fleet.DesiredRun && a.ClientTerminal():
			b.addDesiredStop(a, fmt.Sprintf("the cluster holds it for %s", a.ClientStatus))
		default:
			b.addAlloc(a, true)
		}
	}
	if !b.hasEntries() {
		return nil, orphans
	}
	return b.finishFrames(), orphans
}

// missingBodyFrames returns frames with bodies that the edge asked for again.
func (d *desiredProgress) missingBodyFrames(view *state.View, hashes []string) []syncproto.Desired {
	b := d.newFrameBuilder(view)
	for _, h := range hashes {
		delete(d.bodies, h)
		b.addJobBody(h)
	}
	if !b.hasEntries() {
		return nil
	}
	return b.finishFrames()
}

// resetToFull forgets what was told, so that next gives the full picture.
func (d *desiredProgress) resetToFull() { d.full, d.sent = false, 0 }

// frameBuilder collects entries into frames of bounded size.
type frameBuilder struct {
	d      *desiredProgress
	view   *state.View
	frames []syncproto.Desired
	size   int // of the last frame
}

func (d *desiredProgress) newFrameBuilder(view *state.View) *frameBuilder {
	return &frameBuilder{d: d, view: view, frames: make([]syncproto.Desired, 1)}
}

func (b *frameBuilder) lastFrame() *syncproto.Desired { return &b.frames[len(b.frames)-1] }

func (b *frameBuilder) hasEntries() bool {
	f := &b.frames[0]
	return len(f.Run) > 0 || len(f.Stop) > 0 || len(f.Bodies) > 0
}

func (b *frameBuilder) frameWithSpace(size int) *syncproto.Desired {
	f := b.lastFrame()
	if len(f.Run)+len(f.Stop) >= desiredEntries || b.size > 0 && b.size+size > desiredBytes {
		b.frames = append(b.frames, syncproto.Desired{})
		b.size = 0
	}
	b.size += size
	return b.lastFrame()
}

// addAlloc names an allocation to run or to stop; withBody also sends its job, once.
func (b *frameBuilder) addAlloc(a *fleet.Alloc, withBody bool) {
	if a.DesiredStatus != fleet.DesiredRun {
		b.addDesiredStop(a, a.DesiredDescription)
		return
	}
	b.addDesiredAlloc(a, withBody)
}

func (b *frameBuilder) addDesiredAlloc(a *fleet.Alloc, withBody bool) {
	if withBody && !b.d.bodies[a.JobHash] {
		b.addJobBody(a.JobHash)
	}
	run := syncproto.DesiredAlloc{
		ID: a.ID, Namespace: a.Namespace, JobID: a.JobID, JobVersion: a.JobVersion, JobHash: a.JobHash,
		TaskGroup: a.TaskGroup, Name: a.Name, NodeName: a.NodeName, Resources: a.AllocatedResources, Allotment: a.Allotment,
		Previous: a.PreviousAllocation, CreateIndex: a.CreateIndex, ModifyIndex: a.AllocModifyIndex, Deployment: a.DeploymentID,
	}
	f := b.frameWithSpace(runBytes(&run))
	f.Run = append(f.Run, run)
}

func (b *frameBuilder) addDesiredStop(a *fleet.Alloc, reason string) {
	stop := syncproto.DesiredStop{ID: a.ID, Reason: reason, ModifyIndex: a.AllocModifyIndex, NoDelay: a.DesiredTransition.NoShutdownDelay}
	if a.DesiredStatus != fleet.DesiredRun {
		for _, w := range a.StopWindows {
			stop.Windows = append(stop.Windows, syncproto.DesiredWindow(w))
		}
	}
	f := b.frameWithSpace(stopBytes(&stop))
	f.Stop = append(f.Stop, stop)
}

// Bytes of an entry's numbers and of the heads of its fields, and of one element of a
// list within it, at most.
const (
	entryBytes   = 256
	elementBytes = 64
)

// runBytes is an upper bound of what an allocation takes in a frame.
func runBytes(a *syncproto.DesiredAlloc) int {
	n := entryBytes + len(a.ID) + len(a.Namespace) + len(a.JobID) + len(a.JobHash) + len(a.TaskGroup) + len(a.Name) +
		len(a.NodeName) + len(a.Previous) + len(a.Deployment)
	if a.Allotment == nil {
		return n
	}
	for _, p := range a.Allotment.Ports {
		n += elementBytes + len(p.Label) + len(p.HostIP)
	}
	for task, t := range a.Allotment.Tasks {
		n += elementBytes + len(task) + elementBytes*len(t.Cores)
		for _, d := range t.Devices {
			n += elementBytes + len(d.Vendor) + len(d.Type) + len(d.Name)
			for _, id := range d.DeviceIDs {
				n += elementBytes + len(id)
			}
		}
	}
	return n
}

// stopBytes is runBytes of a stop.
func stopBytes(s *syncproto.DesiredStop) int {
	n := entryBytes + len(s.ID) + len(s.Reason)
	for _, w := range s.Windows {
		n += elementBytes + len(w.Cron) + len(w.TimeZone)
	}
	return n
}

func (b *frameBuilder) addJobBody(hash string) {
	job, ok := b.view.JobBody(hash)
	if !ok {
		b.d.log.Error("a job's body is not in the state", "node", b.d.node, "hash", hash)
		return
	}
	raw, err := state.EncodeSpec(job)
	if err == nil && len(raw) > state.MaxSpec {
		err = fleet.Errorf(fleet.CodeFrameTooLarge, "a body of %d bytes, at most %d", len(raw), state.MaxSpec)
	}
	if err != nil {
		b.d.log.Error("a job's body cannot be sent", "node", b.d.node, "job", job.ID, "error", err)
		return
	}
	f := b.frameWithSpace(elementBytes + len(raw))
	f.Bodies = append(f.Bodies, syncproto.Body{Hash: hash, Job: raw})
	b.d.bodies[hash] = true
}

// finishFrames numbers the frames: each says what it follows, so that an edge notices
// one that is missing. Only the last one reaches the view's index: until then the
// edge has not been told everything.
func (b *frameBuilder) finishFrames() []syncproto.Desired {
	for i := range b.frames {
		b.frames[i].From = b.d.index
		b.frames[i].Index = b.d.index
	}
	b.d.index = b.view.Index()
	b.lastFrame().Index = b.d.index
	return b.frames
}
