package virtual

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/history"
	"skerry/chaos/observe"
	"skerry/fleet"
)

const (
	// lookEvery is how often hubs and edges are looked at, at a time when nothing else
	// falls due.
	lookEvery = time.Second + 7*time.Millisecond
	// rowsEvery is how often the rows of journals are read, in looks.
	rowsEvery = 5
	// seldom is how often they are looked at, in looks, where no expectation has to be
	// judged to the second: the taps tell of everything that is decided or happens.
	seldom = 10
	// looks is how many looks there are at most at a time when no hub runs.
	looks = 10_000
	// snapshotEvery is how often the state of a hub is written as a snapshot and read again.
	snapshotEvery = 2 * time.Minute
)

// memberSeen is what was seen of a member last.
type memberSeen struct {
	index fleet.Index
	leads bool
	last  fleet.Seq
}

// watchFleet looks at hubs and edges until the run is over.
func (r *run) watchFleet(ctx context.Context) {
	every, rows := lookEvery, rowsEvery
	if !r.Strict {
		every, rows = seldom*lookEvery, 1
	}
	for n := 0; engine.Pause(ctx, r.timeToNextLook(every)); n++ {
		r.observeHub(r.c.Hubs[n%len(r.c.Hubs)])
		if n%int(snapshotEvery/every) == 0 {
			r.compareHubSnapshot(r.c.Hubs[n/int(snapshotEvery/every)%len(r.c.Hubs)])
		}
		r.updateExpectations()
		if r.expect.AwaitsQuiet() && r.firstUnsettled() == "" {
			r.expect.RecordSettled(r.elapsedTime())
		}
		for _, e := range r.c.Edges {
			r.observeEdge(ctx, e, n%rows == 0)
		}
	}
}

// timeToNextLook is longer in a long run in which nobody but the edges is there.
func (r *run) timeToNextLook(usual time.Duration) time.Duration {
	if slices.ContainsFunc(r.c.Hubs, (*Hub).Running) {
		return usual
	}
	return max(usual, r.s.Length/looks)
}

// observeHub tells of a hub's state where it changed.
func (r *run) observeHub(h *Hub) {
	d := h.runningDaemon()
	if d == nil {
		return
	}
	v := d.State().View()
	now := memberSeen{index: v.Index(), leads: d.Leads()}
	if !r.recordIfChanged(h.Name, now) {
		return
	}
	seen := observe.Hub(h.Name, v, false)
	seen.Leads = now.leads
	r.judgeAndRecord(check.Observation{Hub: seen})
}

// compareHubSnapshot compares a hub's state with what its snapshot says.
func (r *run) compareHubSnapshot(h *Hub) {
	if d := h.runningDaemon(); d != nil {
		r.judgeAndRecord(check.Observation{Snapshot: observe.Snapshot(h.Name, d.State().View())})
	}
}

func (r *run) recordIfChanged(name string, now memberSeen) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastSeen[name] == now {
		return false
	}
	r.lastSeen[name] = now
	return true
}

// observeEdge tells where an edge stands, and which rows its journal has that it had not.
func (r *run) observeEdge(ctx context.Context, e *Edge, rows bool) {
	a := e.Agent()
	if a == nil {
		return
	}
	var news []fleet.Transition
	if rows {
		news = r.readNewRows(ctx, e) // which a slow disk keeps waiting: where it stands is asked afterwards
	}
	link, journal := a.SyncStatus()
	r.judgeAndRecord(check.Observation{Edge: observe.Edge(e.Name, a.NodeID(), link, journal, news)})
}

// readNewRows are the rows that the edge's journal did not hold when it was looked at last. A
// journal that was damaged may have new rows under old numbers.
func (r *run) readNewRows(ctx context.Context, e *Edge) []fleet.Transition {
	a := e.Agent()
	if a == nil {
		return nil
	}
	_, journal := a.SyncStatus()
	r.mu.Lock()
	after := r.lastSeen[e.Name].last
	r.mu.Unlock()
	if journal.Last < after {
		after = 0
	}
	if journal.Last == after {
		return nil
	}
	rows, err := a.Rows(ctx, after)
	if err != nil || len(rows) == 0 {
		return nil // it is on its way down; the next look finds them
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastSeen[e.Name] = memberSeen{last: rows[len(rows)-1].Seq}
	r.rows[e.Name] = append(r.rows[e.Name], rows...)
	return rows
}

// settleAndFinish waits until the fleet is quiet, or the schedule's time for it is over, and has the
// last picture judged.
func (r *run) settleAndFinish(ctx context.Context) {
	r.mendAll(ctx)
	deadline := time.Now().Add(r.s.Settle)
	var picture check.FleetSnapshot
	every := lookEvery
	for why := "nobody looked"; ; {
		if why = r.firstUnsettled(); why == "" {
			if picture = r.takeSnapshot(ctx); len(check.Quiet(picture)) == 0 {
				r.expect.RecordSettled(r.elapsedTime())
				r.observeUsageRepeatedly(ctx)
				break
			}
			every = min(2*every, 20*lookEvery) // a picture is dear
		}
		if time.Now().After(deadline) {
			r.recordNote("not quiet after %s: %s", r.s.Settle, why)
			picture = r.takeSnapshot(ctx)
			break
		}
		if !engine.Pause(ctx, every) {
			return
		}
	}
	r.judgeFinalSnapshot(picture)
}

// firstUnsettled names the first thing that is unsettled, "" where nothing is.
func (r *run) firstUnsettled() string {
	for _, h := range r.c.Hubs {
		d := h.runningDaemon()
		if d == nil {
			return h.Name + " is down"
		}
		v, ready := d.State().View(), 0
		for n := range v.Nodes("") {
			if n.Status != fleet.NodeReady {
				return fmt.Sprintf("%s: node %s is %s (%s)", h.Name, n.Name, n.Status, n.StatusDescription)
			}
			ready++
		}
		if ready < len(r.c.Edges) {
			return fmt.Sprintf("%s: %d of %d nodes are known", h.Name, ready, len(r.c.Edges))
		}
		for e := range v.Evals("*", "") {
			if e.Status == fleet.EvalPending && e.WaitUntil.IsZero() {
				return fmt.Sprintf("%s: evaluation %s (%s) is pending", h.Name, fleet.Short(e.ID), e.TriggeredBy)
			}
		}
	}
	for _, e := range r.c.Edges {
		a := e.Agent()
		if a == nil {
			return e.Name + " is down"
		}
		if _, j := a.SyncStatus(); j.Unacknowledged > 0 {
			return fmt.Sprintf("%s: %d rows are not acknowledged", e.Name, j.Unacknowledged)
		}
	}
	return ""
}

// takeSnapshot is the fleet as it is now.
func (r *run) takeSnapshot(ctx context.Context) check.FleetSnapshot {
	p := check.FleetSnapshot{Wanted: r.users.WantedCounts(), Starts: map[fleet.AllocID]int{}}
	for h, v := range r.c.runningViews() {
		p.Hubs = append(p.Hubs, *observe.Hub(h.Name, v, true))
	}
	for _, e := range r.c.Edges {
		p.Edges = append(p.Edges, r.edgePicture(ctx, e))
		starts := map[check.TaskKey]int{} // of each task, all its attempts together
		for id, n := range e.world.Starts() {
			if t, ok := taskOf(id); ok {
				starts[t] += n
			}
		}
		for task, n := range starts {
			p.Starts[task.Alloc] = max(p.Starts[task.Alloc], n) // an allocation is started with all its tasks
		}
	}
	return p
}

func (r *run) edgePicture(ctx context.Context, e *Edge) check.Edge {
	r.observeEdge(ctx, e, true)
	seen := check.Edge{Name: e.Name, Processes: map[check.TaskKey]int{}}
	if a := e.Agent(); a != nil {
		seen.NodeID = a.NodeID()
		rows, err := a.Rows(ctx, 0)
		if err != nil {
			r.recordNote("%s: %v", e.Name, err)
		}
		seen.Rows = rows
	}
	r.mu.Lock()
	seen.Before, seen.Replaced = slices.Clone(r.rows[e.Name]), r.replaced[e.Name]
	r.mu.Unlock()
	orphans := r.orphansOfNode(seen.NodeID)
	for _, id := range e.world.Running() {
		if t, ok := taskOf(id); ok && !slices.Contains(orphans, t.Alloc) {
			seen.Processes[t]++
		}
	}
	return seen
}

// orphansOfNode are allocations of the edge that a cluster which was put back does not know:
// they run on, and are shown.
func (r *run) orphansOfNode(node fleet.NodeID) []fleet.AllocID {
	for _, v := range r.c.runningViews() {
		if n, ok := v.Node(node); ok {
			return n.Orphans
		}
	}
	return nil
}

// mendAll starts what is still down, once all faults are over.
func (r *run) mendAll(ctx context.Context) {
	for _, h := range r.c.Hubs {
		h.Disk.Fill(false)
		h.Disk.Slow(0)
		if err := r.StartHub(ctx, h.Name); err != nil {
			r.recordHarnessFailure("start %s again: %v", h.Name, err)
		}
	}
	for _, e := range r.c.Edges {
		e.Disk.Fill(false)
		e.Disk.Slow(0)
		e.Clock.Right()
		e.driver.dead.Store(false)
		if e.currentLife() != nil {
			continue
		}
		if err := r.BootEdge(ctx, e.Name); err != nil {
			r.recordHarnessFailure("start %s again: %v", e.Name, err)
		}
	}
}

// judgeFinalSnapshot has the run judged to its end.
func (r *run) judgeFinalSnapshot(p check.FleetSnapshot) {
	for _, h := range r.c.Hubs {
		r.compareHubSnapshot(h)
	}
	r.recorder.JudgeEnd(p)
	r.recorder.Write(history.Record{Picture: &history.FleetSnapshot{FleetSnapshot: p, Final: true}})
}

func (r *run) recordNote(format string, args ...any) {
	r.recorder.Note("", fmt.Sprintf(format, args...))
}

// quietLooks is how many looks at what is in use make a judgement: as many as check's.
const quietLooks = 3

// observeUsageRepeatedly looks several times at what is in use, while nothing goes on.
func (r *run) observeUsageRepeatedly(ctx context.Context) {
	for range quietLooks {
		r.observeUsage()
		engine.Pause(ctx, lookEvery)
	}
}

// observeUsage tells what the whole process takes, at a time when nothing is going on.
func (r *run) observeUsage() {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := check.Usage{Who: "the process", Quiet: true, Goroutines: runtime.NumGoroutine(), HeapBytes: int64(m.HeapAlloc)}
	u.Files = openFiles("/proc/self/fd")
	r.judgeAndRecord(check.Observation{Usage: &u})
}

// openFiles counts the files that a folder of descriptors names. Segments of a hub's Raft
// log do not count: as long as they are part of it their number follows the size of its
// entries. A segment that was deleted and is still open counts.
func openFiles(folder string) int {
	descriptors, err := os.ReadDir(folder)
	if err != nil {
		return 0 // this system does not tell
	}
	n := 0
	for _, d := range descriptors {
		file, err := os.Readlink(filepath.Join(folder, d.Name()))
		if err == nil && !(strings.Contains(file, "/raft/log/") && filepath.Ext(file) == ".wal") {
			n++
		}
	}
	return n
}
