package real

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/history"
	"skerry/chaos/observe"
	"skerry/chaos/proc"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// Intervals at which a campaign's members are observed, and the maximum wait for an answer:
// processes may be paused and disks may stall.
const (
	lookEvery       = time.Second
	hubsEvery       = 3 * time.Second // a hub's state is large
	lookBound       = 2 * time.Second
	aliveEvery      = 200 * time.Millisecond
	exportPollEvery = 100 * time.Millisecond // interval of reading the hubs' exported entries
)

// fleetWatcher observes the fleet of a campaign while it runs, passes the observations to the
// monitor, and writes them to the history.
type fleetWatcher struct {
	s *campaignRun
	*engine.Recorder

	mu    sync.Mutex
	dead  map[string]bool     // guarded by mu: members whose unexpected death was recorded
	last  check.FleetSnapshot // guarded by mu: snapshot of the last phase; empty if it did not become quiet
	names map[string]string   // guarded by mu: names of edges, by their nodes' short ids

	startsSeen map[fleet.AllocID]int // used under the expectations' lock: starts that were passed to them

	reading       sync.Mutex
	hubExports    []*observe.EntryReader // guarded by reading: one reader for each hub that exports entries
	exportsPaused bool                   // guarded by reading: see pauseAppliedEntries
	exportErr     error                  // guarded by reading: the first error of a reader
}

// campaignLimits fit the flags FastHub: edges send a heartbeat every second.
var campaignLimits = check.Limits{TTL: time.Second}

// newFleetWatcher returns the watcher of a campaign and begins its history. It observes nothing
// until startWatching.
func newFleetWatcher(s *campaignRun) (*fleetWatcher, error) {
	w := &fleetWatcher{s: s, dead: map[string]bool{}, names: map[string]string{}, startsSeen: map[fleet.AllocID]int{}, Recorder: &engine.Recorder{
		Monitor: check.NewMonitor(campaignLimits),
		Clock:   func() time.Duration { return time.Since(s.began) },
		Found:   func(v check.Violation) { s.printLine("    %s", v) },
	}}
	topology := s.topology
	h := history.Header{
		Name: cmp.Or(s.Name, fmt.Sprintf("campaign-%d", s.Seed)), Seed: s.Seed, Clock: history.Real, Start: s.began,
		Repeat: s.Repeat, Versions: s.Versions, Hubs: topology.Hubs, Limits: campaignLimits,
	}
	for _, e := range topology.Edges {
		h.Edges = append(h.Edges, e.Name)
	}
	var err error
	w.History, err = createHistory(s.Report, h)
	return w, err
}

// startWatching starts goroutines that observe all members until ctx is done or end is called. end
// waits for them.
func (w *fleetWatcher) startWatching(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var over sync.WaitGroup
	over.Go(func() {
		for engine.Pause(ctx, aliveEvery) {
			w.s.checkMachinesAlive()
		}
	})
	over.Go(func() { w.s.short.watchForStalls(ctx) })
	over.Go(func() { w.watchExpectations(ctx) })
	w.openHubExports()
	over.Go(func() {
		for engine.Pause(ctx, exportPollEvery) {
			w.judgeAppliedEntries()
		}
	})
	for _, h := range w.s.fleet.Hubs {
		over.Go(func() {
			told := refusals{hub: h.Name, log: observe.FileTail{Path: h.LogFile()}}
			for engine.Pause(ctx, hubsEvery) {
				for _, r := range told.readNewRefusals() {
					r.From = w.nameOf(r.From)
					w.judgeAndRecord(check.Observation{Refused: &r})
					if w.s.expect != nil {
						w.s.expect.Update(func(j *schedule.ExpectationChecker) { j.AddRefusal(w.s.elapsedTime(), r.Code) })
					}
				}
				w.observeHub(ctx, h)
			}
		})
	}
	for _, e := range w.s.fleet.Edges {
		over.Go(func() {
			var seen journalSeen
			for engine.Pause(ctx, lookEvery) {
				seen = w.observeEdge(ctx, e, seen)
			}
		})
	}
	return func() { cancel(); over.Wait() }
}

// observeHub records the current state of a hub, unless it is down or does not answer in time.
func (w *fleetWatcher) observeHub(ctx context.Context, h *cluster.Hub) {
	if !h.Running() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	if seen, err := pollHubState(ctx, h); err == nil { // one that does not answer shows nothing
		w.judgeAndRecord(check.Observation{Hub: &seen})
	}
}

// nameOf returns the name of the edge with a node's short id; node itself if it is unknown.
func (w *fleetWatcher) nameOf(node string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := w.names[node]; name != "" {
		return name
	}
	return node
}

// journalSeen is the part of an edge's journal that was observed: the last row's number, and the
// number of quarantined journals.
type journalSeen struct {
	last    fleet.Seq
	damages int
}

// observeEdge records the state of an edge and the rows that its journal has gained since before. It
// returns the new position; before, if the edge does not answer.
func (w *fleetWatcher) observeEdge(ctx context.Context, e *cluster.Edge, before journalSeen) journalSeen {
	if !e.Running() {
		return before
	}
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	st, err := e.Local().Status(ctx)
	if err != nil {
		return before
	}
	w.mu.Lock()
	w.names[fleet.Short(st.NodeID)] = e.Name
	w.mu.Unlock()
	show := func(rows []fleet.Transition) {
		seen := observe.Edge(e.Name, st.NodeID, st.Link, st.Journal, rows)
		seen.AgentSince = st.Started.UnixNano()
		w.judgeAndRecord(check.Observation{Edge: seen})
	}
	now := journalSeen{st.Journal.Last, len(st.Journal.Quarantined)}
	if st.Journal.Last < before.last || now.damages != before.damages {
		before.last = 0 // old numbers may have new rows: read all of them
	}
	if st.Journal.Lost != "" { // the agent has no row numbers until a hub has sent it the next one
		show(nil)
		return journalSeen{}
	}
	var rows []fleet.Transition
	if now.last != before.last {
		if rows, err = e.Local().History(ctx, ""); err != nil {
			return before
		}
	}
	fresh := rows[:0]
	for _, r := range rows {
		if r.Seq > before.last && r.Seq <= now.last { // newer rows are read at the next call
			fresh = append(fresh, r)
		}
	}
	show(fresh)
	return now
}

// judgeAndRecord passes an observation to the monitor and to the history. Entries that hubs have
// exported are judged first, since the observation may depend on them.
func (w *fleetWatcher) judgeAndRecord(o check.Observation) {
	w.judgeAppliedEntries()
	w.Observe(o)
}

// judgeQuietSnapshot passes a snapshot of a quiet fleet to the monitor, and keeps it for judgeAtEnd.
func (w *fleetWatcher) judgeQuietSnapshot(p check.FleetSnapshot) {
	w.mu.Lock()
	w.last = p
	w.mu.Unlock()
	w.JudgeQuiet(p)
}

// maxShown is the maximum number of violations that are recorded of one snapshot: one bug may show
// in every allocation.
const maxShown = 12

// recordUnsettled records the violation that the fleet did not become quiet, and the violations in
// its last snapshot. judgeAtEnd then has no snapshot.
func (w *fleetWatcher) recordUnsettled(why error, last check.FleetSnapshot) {
	w.mu.Lock()
	w.last = check.FleetSnapshot{}
	w.mu.Unlock()
	if len(last.Hubs) > 0 {
		found := check.Quiet(last)
		w.Violate(found[:min(len(found), maxShown)]...)
	}
	w.Violate(check.Violation{Invariant: check.Settled, Message: why.Error()})
}

// filesPerTask is the number of open files of an agent for each running task: the handle of its
// supervisor, and the one that reports that supervisor's end.
const filesPerTask = 2

// observeMemberUsage records the resident memory and the open files of all daemons in a quiet fleet.
// It subtracts the files of running tasks, since their number varies.
func (w *fleetWatcher) observeMemberUsage() {
	for _, h := range w.s.fleet.Hubs {
		w.observeProcessUsage(h.Name, h.Pid(), 0)
	}
	for _, e := range w.s.fleet.Edges {
		tasks, err := processes(e)
		if err != nil {
			continue // its processes cannot be listed
		}
		w.observeProcessUsage(e.Name, e.Pid(), filesPerTask*len(tasks))
	}
}

// observeProcessUsage records the memory and the open files of one process, less `without` files.
func (w *fleetWatcher) observeProcessUsage(who string, pid, without int) {
	bytes, err := proc.Resident(pid)
	if err != nil {
		return // it has just ended, which is recorded elsewhere
	}
	files, err := proc.Files(pid)
	if err != nil {
		return
	}
	w.judgeAndRecord(check.Observation{Usage: &check.Usage{Who: who, Quiet: true, HeapBytes: bytes, Files: files - without}})
}

// recordUnexpectedDeath records the violation that a member ended by itself, once for each member.
func (w *fleetWatcher) recordUnexpectedDeath(name, how string) {
	w.mu.Lock()
	told := w.dead[name]
	w.dead[name] = true
	w.mu.Unlock()
	if !told {
		w.Violate(check.Violation{Invariant: check.Bounded, Where: name, Message: how})
	}
}

// writeNote writes a note to the history, with paths relative to the run's directory.
func (w *fleetWatcher) writeNote(text string) {
	w.Note("", strings.ReplaceAll(text, w.s.Dir+string(filepath.Separator), ""))
}

// judgeAtEnd has the end of the campaign judged, and returns all violations.
func (w *fleetWatcher) judgeAtEnd() []check.Violation {
	w.judgeAppliedEntries()
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	w.JudgeEnd(last)
	return w.Violations()
}

// writeVerdictsAndClose writes the invariants' verdicts and the counts of faults, closes the history
// with the run's verdict, and returns that.
func (w *fleetWatcher) writeVerdictsAndClose(verdict error) error {
	w.WriteVerdicts()
	w.s.mu.Lock()
	for _, k := range w.s.possibleKinds() {
		w.Write(history.Record{Sometimes: &history.Sometimes{Name: "fault: " + string(k), Count: w.s.hits[k], Least: min(1, uint64(w.s.played[k]))}})
	}
	w.s.mu.Unlock()
	return w.s.finishReport(w.s.Report, w.Recorder, verdict)
}
