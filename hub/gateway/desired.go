package gateway

import (
	"fmt"
	"log/slog"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// Bounds of one Desired frame. The bytes of its entries and job bodies leave space within
// syncproto.MaxFrame for the other fields. A body larger than the rest of a frame gets its own.
const (
	desiredEntries = 2000
	desiredBytes   = syncproto.MaxFrame - 1<<10
)

// desiredProgress records which part of the desired state one session has sent to its edge. It
// computes the next frames from views of the state and does no I/O.
type desiredProgress struct {
	node fleet.NodeID
	log  *slog.Logger

	bare   bool        // the edge's journal has no desired state yet
	full   bool        // the complete desired state was sent
	sent   fleet.Index // newest AllocModifyIndex sent
	index  fleet.Index // of the last frame
	bodies map[string]bool
}

func newDesiredProgress(node fleet.NodeID, bare bool, log *slog.Logger) *desiredProgress {
	return &desiredProgress{node: node, bare: bare, log: log, bodies: make(map[string]bool)}
}

// nextFrames returns the frames that bring the edge from the state that was sent to view: first the
// complete desired state, later the changes. received is the newest desired index that the edge has
// journaled, in any session: job bodies of allocations up to it are not sent again.
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
			// The allocation may still run there, and the edge needs its job to stop it properly.
			b.addDesiredAlloc(a, true)
		}
		b.addAlloc(a, a.AllocModifyIndex > received)
	}
	for v := range view.VolumesOn(d.node) {
		if !d.full || v.ModifyIndex > d.sent {
			newest = max(newest, v.ModifyIndex)
			b.addVolume(v)
		}
	}
	for p := range view.PrefetchesOn(d.node) {
		if !d.full || p.RequestIndex > d.sent {
			newest = max(newest, p.RequestIndex)
			b.addPrefetch(p, p.RequestIndex > received)
		}
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

// answerHoldings returns frames about allocations that the edge holds and that no frame named, and
// the ids that the cluster does not know (orphans). No frame names an orphan, so the edge keeps it:
// an allocation stops only where a frame says so.
func (d *desiredProgress) answerHoldings(view *state.View, held []fleet.AllocID) (frames []syncproto.Desired, orphans []fleet.AllocID) {
	b := d.newFrameBuilder(view)
	for _, id := range held {
		a, ok := view.Alloc(id)
		switch {
		case !ok || a.NodeID != d.node:
			orphans = append(orphans, id)
		case a.DesiredStatus == fleet.DesiredRun && a.ClientTerminal():
			b.addDesiredStop(a, fmt.Sprintf("its client status in the cluster is %s", a.ClientStatus))
		default:
			b.addAlloc(a, true)
		}
	}
	if !b.hasEntries() {
		return nil, orphans
	}
	return b.finishFrames(), orphans
}

// missingBodyFrames returns frames with the job bodies that the edge asked for again.
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

// resetToFull marks nothing as sent: nextFrames then returns the complete desired state.
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
	return len(f.Run) > 0 || len(f.Stop) > 0 || len(f.Bodies) > 0 || len(f.Volumes) > 0 || len(f.Prefetches) > 0
}

// frameWithSpace returns the frame that the next entry of size bytes goes into: the last one, or a
// new one where that is full.
func (b *frameBuilder) frameWithSpace(size int) *syncproto.Desired {
	f := b.lastFrame()
	if len(f.Run)+len(f.Stop)+len(f.Volumes)+len(f.Prefetches) >= desiredEntries || b.size > 0 && b.size+size > desiredBytes {
		b.frames = append(b.frames, syncproto.Desired{})
		b.size = 0
	}
	b.size += size
	return b.lastFrame()
}

// addAlloc adds an allocation that is to run or to stop. withBody also adds its job, once for each
// session.
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

func (b *frameBuilder) addVolume(v *fleet.Volume) {
	want := syncproto.DesiredVolume{
		ID: v.ID, Namespace: v.Namespace, Name: v.Name, Plugin: v.PluginID, Parameters: v.Parameters,
		Delete: v.Deleting, Pending: v.State != fleet.VolumeReady, ModifyIndex: v.ModifyIndex,
	}
	if v.Registered {
		want.Path = v.HostPath
	}
	n := entryBytes + len(v.ID) + len(v.Namespace) + len(v.Name) + len(v.PluginID) + len(want.Path)
	for name, value := range v.Parameters {
		n += elementBytes + len(name) + len(value)
	}
	f := b.frameWithSpace(n)
	f.Volumes = append(f.Volumes, want)
}

// addPrefetch adds a prefetch, withJob with the specification of its job. One whose version is not kept any more is
// left out: the collector ends it.
func (b *frameBuilder) addPrefetch(p *fleet.Prefetch, withJob bool) {
	want := syncproto.DesiredPrefetch{
		ID: p.ID, Namespace: p.Namespace, JobID: p.JobID, JobVersion: p.JobVersion, JobHash: p.JobHash,
		Delete: p.Ending, RequestIndex: p.RequestIndex,
	}
	if withJob && !p.Ending {
		job, ok := b.view.JobBody(p.JobHash)
		if !ok {
			return
		}
		if want.Job = b.encodeSpec(job); want.Job == nil {
			return
		}
	}
	f := b.frameWithSpace(entryBytes + len(p.ID) + len(p.Namespace) + len(p.JobID) + len(p.JobHash) + len(want.Job))
	f.Prefetches = append(f.Prefetches, want)
}

// Upper bounds in bytes: of an entry's numbers and field heads, and of one element of a list in it.
const (
	entryBytes   = 256
	elementBytes = 64
)

// runBytes is an upper bound of the bytes that an allocation takes in a frame.
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

// stopBytes is an upper bound of the bytes that a stop takes in a frame.
func stopBytes(s *syncproto.DesiredStop) int {
	n := entryBytes + len(s.ID) + len(s.Reason)
	for _, w := range s.Windows {
		n += elementBytes + len(w.Cron) + len(w.TimeZone)
	}
	return n
}

// addJobBody adds the body of the job with a hash and marks it as sent. A body that is missing, cannot
// be encoded or is too large is logged and left out.
func (b *frameBuilder) addJobBody(hash string) {
	job, ok := b.view.JobBody(hash)
	if !ok {
		b.d.log.Error("a job's body is not in the state", "node", b.d.node, "hash", hash)
		return
	}
	raw := b.encodeSpec(job)
	if raw == nil {
		return
	}
	f := b.frameWithSpace(elementBytes + len(raw))
	f.Bodies = append(f.Bodies, syncproto.Body{Hash: hash, Job: raw})
	b.d.bodies[hash] = true
}

// encodeSpec encodes the specification of a job. One that cannot be encoded or is too large is logged, and nil.
func (b *frameBuilder) encodeSpec(job *fleet.Job) []byte {
	raw, err := state.EncodeSpec(job)
	if err == nil && len(raw) > state.MaxSpec {
		err = fleet.Errorf(fleet.CodeFrameTooLarge, "a body of %d bytes: at most %d are allowed", len(raw), state.MaxSpec)
	}
	if err != nil {
		b.d.log.Error("a job's body cannot be sent", "node", b.d.node, "job", job.ID, "error", err)
		return nil
	}
	return raw
}

// finishFrames numbers the frames and returns them. Each frame names the index that it follows, so
// that an edge notices a missing one. Only the last frame reaches the view's index, as the edge has
// the whole state of that index only then.
func (b *frameBuilder) finishFrames() []syncproto.Desired {
	for i := range b.frames {
		b.frames[i].From = b.d.index
		b.frames[i].Index = b.d.index
	}
	b.d.index = b.view.Index()
	b.lastFrame().Index = b.d.index
	return b.frames
}
