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
	"skerry/chaos/observe"
	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

const (
	// lookEvery is the interval at which hubs and edges are observed, at times when no other
	// timer fires.
	lookEvery = time.Second + 7*time.Millisecond
	// rowsEvery: the rows of journals are read in one of that many observations.
	rowsEvery = 5
	// seldom multiplies lookEvery in runs without strict expectations: callbacks report all
	// decisions and events in any case.
	seldom = 10
	// looks is the maximum number of observations in a run in which no hub is running.
	looks = 10_000
	// snapshotEvery is the interval at which a hub's state is written as a snapshot and read back.
	snapshotEvery = 2 * time.Minute
)

// memberSeen is the last observation of a member: of a hub its index and leadership, of an edge
// the number of the last row read from its journal.
type memberSeen struct {
	index fleet.Index
	leads bool
	last  fleet.Seq
}

// watchFleet observes one hub in turn and all edges at regular intervals, and updates the
// expectations, until ctx is done.
func (r *run) watchFleet(ctx context.Context) {
	every, rows := lookEvery, rowsEvery
	if !r.Strict {
		every, rows = seldom*lookEvery, 1
	}
	searched := time.Duration(0)
	for n := 0; engine.Pause(ctx, r.timeToNextLook(every)); n++ {
		r.observeHub(r.c.Hubs[n%len(r.c.Hubs)])
		if n%int(snapshotEvery/every) == 0 {
			r.compareHubSnapshot(r.c.Hubs[n/int(snapshotEvery/every)%len(r.c.Hubs)])
		}
		if r.elapsedTime() >= searched+max(searchEvery, r.s.Length/searches) {
			searched = r.elapsedTime()
			r.searchFiles()
		}
		r.updateExpectations()
		if r.expect.AwaitsQuiet() && r.firstUnsettled() == "" {
			r.expect.RecordSettled(r.elapsedTime())
		}
		for _, e := range r.c.Edges {
			r.observeEdge(ctx, e, n%rows == 0)
			r.observeVariables(e)
			r.observeIdentities(e)
		}
	}
}

// timeToNextLook returns usual while a hub runs. In a long run without running hubs it returns a
// longer interval, for at most `looks` observations.
func (r *run) timeToNextLook(usual time.Duration) time.Duration {
	if slices.ContainsFunc(r.c.Hubs, (*Hub).Running) {
		return usual
	}
	return max(usual, r.s.Length/looks)
}

// observeHub records a hub's state if its index or its leadership changed since the last time.
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

// compareHubSnapshot records a running hub's state together with the state read back from a
// snapshot of it; the monitor compares them.
func (r *run) compareHubSnapshot(h *Hub) {
	if d := h.runningDaemon(); d != nil {
		r.judgeAndRecord(check.Observation{Snapshot: observe.Snapshot(h.Name, d.State().View())})
	}
}

// recordIfChanged stores the observation of a member and reports whether it differs from the last one.
func (r *run) recordIfChanged(name string, now memberSeen) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastSeen[name] == now {
		return false
	}
	r.lastSeen[name] = now
	return true
}

// observeEdge records the state of an edge's agent and, if rows is set, the new rows of its journal.
// It does nothing if the agent is down.
func (r *run) observeEdge(ctx context.Context, e *Edge, rows bool) {
	a := e.Agent()
	if a == nil {
		return
	}
	var news []fleet.Transition
	if rows {
		news = r.readNewRows(ctx, e) // read first: on a slow disk this waits, and the status has to be newer
	}
	link, journal := a.SyncStatus()
	r.judgeAndRecord(check.Observation{Edge: observe.Edge(e.Name, a.NodeID(), link, journal, news)})
}

// readNewRows returns the rows that were added to the edge's journal since the last call. If the
// journal has become shorter (damage), it returns all rows: old numbers may have new rows.
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
		return nil // the agent is stopping; the next call returns them
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastSeen[e.Name] = memberSeen{last: rows[len(rows)-1].Seq}
	r.rows[e.Name] = append(r.rows[e.Name], rows...)
	return rows
}

// settleAndFinish ends all faults, waits up to the schedule's Settle until the fleet is quiet, longer where an edge of a revoked node
// still has to stop an allocation, and has its final state judged.
func (r *run) settleAndFinish(ctx context.Context) {
	r.mendAll(ctx)
	begun := time.Now()
	deadline := begun.Add(r.s.Settle)
	latest := deadline.Add(longestStop)
	var picture check.FleetSnapshot
	every := lookEvery
	for why := "nobody looked"; ; {
		if why = r.firstUnsettled(); why == "" {
			if picture = r.takeSnapshot(ctx); len(check.Quiet(picture)) == 0 {
				r.expect.RecordSettled(r.elapsedTime())
				r.observeUsageRepeatedly(ctx)
				break
			}
			every = min(2*every, 20*lookEvery) // a snapshot is expensive
		}
		if stopped := r.awaitedStop(latest).Add(settleRepair); stopped.After(deadline) {
			deadline = stopped
		}
		if time.Now().After(deadline) {
			r.recordNote("not quiet after %s: %s", time.Since(begun), why)
			picture = r.takeSnapshot(ctx)
			break
		}
		if !engine.Pause(ctx, every) {
			return
		}
	}
	r.judgeFinalSnapshot(picture)
}

const (
	// settleRepair bounds the placement and the start of a replacement.
	settleRepair = 30 * time.Second
	// longestStop bounds stop_on_client_after and a kill_timeout in drawn schedules.
	longestStop = 15 * time.Minute
)

// awaitedStop returns when, before latest, hubs replace the last allocation whose edge has surely stopped it by then: that of a revoked
// node never says so.
func (r *run) awaitedStop(latest time.Time) (last time.Time) {
	for _, h := range r.c.Hubs {
		d := h.runningDaemon()
		if d == nil {
			continue
		}
		for e := range d.State().View().Evals("*", "") {
			if e.Status == fleet.EvalPending && e.TriggeredBy == fleet.TriggerDisconnectTimeout && e.WaitUntil.After(last) && e.WaitUntil.Before(latest) {
				last = e.WaitUntil
			}
		}
	}
	return last
}

// firstUnsettled describes the first thing that is not settled: a member that is down, a node that is not ready or lacks
// the newest CA, a rotation of the CA, a pending evaluation, or unacknowledged rows. "": everything is settled.
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
		for _, why := range []string{unsettledCA(v), unsettledStateKey(v)} {
			if why != "" {
				return h.Name + ": " + why
			}
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

// unsettledCA describes a rotation of the CA that is under way, or a node whose edge does not accept hubs of the newest
// CA yet. "": there is neither.
func unsettledCA(v *state.View) string {
	cas := v.CAs()
	if len(cas) == 0 {
		return "the hub does not know its cluster"
	}
	newest := cas.Newest()
	if newest.SettledAt == 0 {
		return fmt.Sprintf("the rotation to CA %d is under way", newest.Number)
	}
	for n := range v.Nodes("") {
		if held := n.Attributes[fleet.AttributeCAs]; newest.Number > 1 && !strings.Contains(held, identity.CAID(newest.Cert)) {
			return fmt.Sprintf("node %s has the CAs %q, and CA %d is another one", n.Name, held, newest.Number)
		}
	}
	return ""
}

// unsettledStateKey describes a rotation of the state key that is not over: a hub does not have the newest key, or a secret is
// not encrypted with it. "": there is none.
func unsettledStateKey(v *state.View) string {
	keys := v.StateKeys()
	if len(keys) == 0 {
		return ""
	}
	newest := keys[len(keys)-1]
	if newest.ActiveSince == 0 {
		return fmt.Sprintf("the rotation to state key %d is under way", newest.Number)
	}
	for _, h := range v.Hubs() {
		if !slices.Contains(newest.Held, h.ID) {
			return fmt.Sprintf("hub %s does not have state key %d", h.ID, newest.Number)
		}
	}
	for secret, by := range v.WrappedSecrets() {
		if by != newest.ID {
			return fmt.Sprintf("the %s %s is not encrypted with state key %d", secret.Kind, secret.Name, newest.Number)
		}
	}
	return ""
}

// takeSnapshot returns the state of all hubs and edges, with the journals and the running tasks.
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

// edgePicture returns the state of an edge: its journal's rows, those observed earlier, and the
// running processes of its tasks, without those of orphaned allocations.
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

// orphansOfNode returns the allocations that run on a node and that the cluster does not know, since
// it was restored from an older copy.
func (r *run) orphansOfNode(node fleet.NodeID) []fleet.AllocID {
	for _, v := range r.c.runningViews() {
		if n, ok := v.Node(node); ok {
			return n.Orphans
		}
	}
	return nil
}

// mendAll ends all faults of disks, clocks and drivers, and starts the hubs and edges that are down.
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
		if err := r.BootEdge(ctx, e.Name); err != nil {
			r.recordHarnessFailure("start %s again: %v", e.Name, err)
		}
	}
}

// judgeFinalSnapshot passes the final state of the fleet to the monitor and writes it to the history.
func (r *run) judgeFinalSnapshot(p check.FleetSnapshot) {
	for _, h := range r.c.Hubs {
		r.compareHubSnapshot(h)
	}
	r.searchFiles()
	r.observeAudits()
	r.observeIntruders()
	r.recorder.JudgeEnd(p)
}

// recordNote writes a note to the run's history.
func (r *run) recordNote(format string, args ...any) {
	r.recorder.Note("", fmt.Sprintf(format, args...))
}

// quietLooks is the number of observations of resource usage that a judgement needs, as in package check.
const quietLooks = 3

// observeUsageRepeatedly calls observeUsage quietLooks times, while the fleet is quiet.
func (r *run) observeUsageRepeatedly(ctx context.Context) {
	for range quietLooks {
		r.observeUsage()
		engine.Pause(ctx, lookEvery)
	}
}

// observeUsage collects garbage and records the goroutines, heap and open files of the process.
func (r *run) observeUsage() {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := check.Usage{Who: "the process", Quiet: true, Goroutines: runtime.NumGoroutine(), HeapBytes: int64(m.HeapAlloc)}
	u.Files = openFiles("/proc/self/fd")
	r.judgeAndRecord(check.Observation{Usage: &u})
}

// openFiles counts the open files in a directory such as /proc/self/fd; 0 if it cannot be read.
// Segments of a Raft log do not count, since their number follows the size of the entries.
// A deleted segment that is still open counts.
func openFiles(folder string) int {
	descriptors, err := os.ReadDir(folder)
	if err != nil {
		return 0 // this system has no such directory
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
