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

// How often a campaign's hubs and edges are looked at, and how long an answer is waited
// for: members stand still and disks stall.
const (
	lookEvery       = time.Second
	hubsEvery       = 3 * time.Second // a hub's state is large
	lookBound       = 2 * time.Second
	aliveEvery      = 200 * time.Millisecond
	exportPollEvery = 100 * time.Millisecond // what hubs tell of themselves
)

// fleetWatcher looks at a campaign while it goes on, has it judged, and writes it down.
type fleetWatcher struct {
	s *campaignRun
	*engine.Recorder

	mu    sync.Mutex
	dead  map[string]bool     // guarded by mu: members whose death was told
	last  check.FleetSnapshot // guarded by mu: of the newest quiet time, if everything was
	names map[string]string   // guarded by mu: of edges, by their nodes' short ids

	startsSeen map[fleet.AllocID]int // guarded by the expectations: starts that they know of

	reading       sync.Mutex
	hubExports    []*observe.EntryReader // guarded by reading: what hubs tell of themselves
	exportsPaused bool                   // guarded by reading: it waits
	exportErr     error                  // guarded by reading: why nobody reads it any more
}

// campaignLimits go by FastHub: its edges beat every second.
var campaignLimits = check.Limits{TTL: time.Second}

func newFleetWatcher(s *campaignRun) (*fleetWatcher, error) {
	w := &fleetWatcher{s: s, dead: map[string]bool{}, names: map[string]string{}, startsSeen: map[fleet.AllocID]int{}, Recorder: &engine.Recorder{
		Monitor: check.NewMonitor(campaignLimits),
		Clock:   func() time.Duration { return time.Since(s.began) },
		Found:   func(v check.Violation) { s.printLine("    %s", v) },
	}}
	topology := s.topology
	h := history.Header{
		Name: cmp.Or(s.Name, fmt.Sprintf("campaign-%d", s.Seed)), Seed: s.Seed, Clock: history.Real, Start: s.began,
		Repeat: s.Repeat, Versions: s.Versions, Hubs: topology.Hubs,
	}
	for _, e := range topology.Edges {
		h.Edges = append(h.Edges, e.Name)
	}
	var err error
	w.History, err = createHistory(s.Report, h)
	return w, err
}

// startWatching starts to look; the function it returns ends that.
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

// nameOf is an edge's name, as far as it is known.
func (w *fleetWatcher) nameOf(node string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := w.names[node]; name != "" {
		return name
	}
	return node
}

// journalSeen is how far an edge's journal was seen.
type journalSeen struct {
	last    fleet.Seq
	damages int
}

// observeEdge tells what is new at an edge since the last look.
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
		before.last = 0 // there may be new rows under old numbers
	}
	if st.Journal.Lost != "" { // numbers are told to nobody until a hub has said where to go on
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
		if r.Seq > before.last && r.Seq <= now.last { // newer ones come with the next look
			fresh = append(fresh, r)
		}
	}
	show(fresh)
	return now
}

// judgeAndRecord has something judged and written down. What hubs applied before it was seen is
// judged first: an edge may have been told of that.
func (w *fleetWatcher) judgeAndRecord(o check.Observation) {
	w.judgeAppliedEntries()
	w.Observe(o)
}

// judgeQuietSnapshot has a snapshot judged that was taken when nothing was left to do.
func (w *fleetWatcher) judgeQuietSnapshot(p check.FleetSnapshot) {
	w.mu.Lock()
	w.last = p
	w.mu.Unlock()
	w.JudgeQuiet(p)
}

// maxShown is how much is told of what a last picture shows to be wrong: one bug may
// show in every allocation.
const maxShown = 12

// recordUnsettled notes that quiet never came: there is no picture to end with. What a last
// one shows to be wrong is named for what it is.
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

// filesPerTask are what an agent has open for each task that runs: the handle of its
// supervisor, and what tells of that one's end.
const filesPerTask = 2

// observeMemberUsage has the checkers know what the daemons take while nothing is left to do:
// resident memory stands for their heap. What tasks that run take is not counted:
// there may be many of them at one time, and few at another.
func (w *fleetWatcher) observeMemberUsage() {
	for _, h := range w.s.fleet.Hubs {
		w.observeProcessUsage(h.Name, h.Pid(), 0)
	}
	for _, e := range w.s.fleet.Edges {
		tasks, err := processes(e)
		if err != nil {
			continue // nothing can be said of it
		}
		w.observeProcessUsage(e.Name, e.Pid(), filesPerTask*len(tasks))
	}
}

// observeProcessUsage tells what one process takes, but for some of its files.
func (w *fleetWatcher) observeProcessUsage(who string, pid, without int) {
	bytes, err := proc.Resident(pid)
	if err != nil {
		return // it has just ended, which is told elsewhere
	}
	files, err := proc.Files(pid)
	if err != nil {
		return
	}
	w.judgeAndRecord(check.Observation{Usage: &check.Usage{Who: who, Quiet: true, HeapBytes: bytes, Files: files - without}})
}

// recordUnexpectedDeath notes that a member ended by itself, once.
func (w *fleetWatcher) recordUnexpectedDeath(name, how string) {
	w.mu.Lock()
	told := w.dead[name]
	w.dead[name] = true
	w.mu.Unlock()
	if !told {
		w.Violate(check.Violation{Invariant: check.Bounded, Where: name, Message: how})
	}
}

// writeNote writes something down. What it says of files is said of the run's folder.
func (w *fleetWatcher) writeNote(text string) {
	w.Note("", strings.ReplaceAll(text, w.s.Dir+string(filepath.Separator), ""))
}

// judgeAtEnd judges what only the end shows, and returns all violations.
func (w *fleetWatcher) judgeAtEnd() []check.Violation {
	w.judgeAppliedEntries()
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	w.JudgeEnd(last)
	return w.Violations()
}

// writeVerdictsAndClose writes the verdicts down, and closes the history.
func (w *fleetWatcher) writeVerdictsAndClose(verdict error) error {
	w.WriteVerdicts()
	w.s.mu.Lock()
	for _, k := range w.s.possibleKinds() {
		w.Write(history.Record{Sometimes: &history.Sometimes{Name: "fault: " + string(k), Count: w.s.hits[k], Least: min(1, uint64(w.s.played[k]))}})
	}
	w.s.mu.Unlock()
	return w.s.finishReport(w.s.Report, w.Recorder, verdict)
}
