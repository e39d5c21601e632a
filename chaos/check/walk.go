package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// walk checks that each row of a node may follow the rows before it. It keeps only the last state of each allocation
// and task.
type walk struct {
	violationList // violations of the newest row
	// away says that the last disconnect or reconnect row is a disconnect; known is false
	// before the first one.
	away, known bool
	boots       []fleet.BootID // the newest last
	mono        time.Duration  // of the last row, since its boot
	allocs      map[fleet.AllocID]*steps
	steps       []string // the newest rows, for people
}

// steps is the last state of an allocation and its tasks.
type steps struct {
	status string            // "": not known
	boot   fleet.BootID      // the boot in which it was last pending or running
	tasks  map[string]string // states, by task
	seq    fleet.Seq         // of its newest row
	ended  bool
	held   bool // it was stopped on site after it began to run
}

// keptBoots bounds the boots of a machine that are remembered, and keptWalks the
// allocations that have ended.
const (
	keptBoots = 8
	keptWalks = 2000
)

// newWalk returns a walk that has seen no row: every first state is legal.
func newWalk() *walk { return &walk{allocs: map[fleet.AllocID]*steps{}} }

// keptSteps is the number of newest rows that a violation shows.
const keptSteps = 8

// formatRow shows a row with its number, boot and time on one line.
func formatRow(row *fleet.Transition) string {
	return fmt.Sprintf("row %d, boot %s, %s: %s", row.Seq, fleet.Short(row.BootID), row.Mono.Round(time.Millisecond), describeRow(*row))
}

// checkNextRow checks the next row, updates the states with it, and returns the violations that it shows. After
// a gap row of a damaged journal all states are unknown.
func (w *walk) checkNextRow(row *fleet.Transition) []Violation {
	w.found = nil
	w.checkRowTime(row)
	switch row.Kind {
	case fleet.TransitionDisconnect, fleet.TransitionReconnect:
		loses := row.Kind == fleet.TransitionDisconnect
		if w.known && loses == w.away {
			w.addViolation(LegalHistory, "row %d: a %s follows a %s", row.Seq, row.Kind, row.Kind)
		}
		w.away, w.known = loses, true
	case fleet.TransitionGap:
		if row.Message != "" { // the journal was damaged: the rows in this place are lost
			w.known, w.boots, w.mono = false, nil, 0
			clear(w.allocs)
		}
	}
	if row.Alloc != "" {
		w.checkAllocRow(row)
	}
	return w.found
}

// checkRowTime checks that the time since the boot does not go back within a boot, and that no boot comes again
// after another one.
func (w *walk) checkRowTime(row *fleet.Transition) {
	if row.BootID == "" || row.Kind == fleet.TransitionGap && row.Message != "" {
		return // it stands for lost rows, and has another time
	}
	if last := len(w.boots) - 1; last >= 0 && w.boots[last] == row.BootID {
		if row.Mono < w.mono {
			w.addViolation(TrustedTime, "row %d: %s since the boot, the row before it %s", row.Seq, row.Mono, w.mono)
		}
	} else {
		if slices.Contains(w.boots, row.BootID) {
			w.addViolation(LegalHistory, "row %d: boot %s comes again", row.Seq, fleet.Short(row.BootID))
		}
		w.boots = append(w.boots, row.BootID)
		if len(w.boots) > keptBoots {
			w.boots = slices.Delete(w.boots, 0, 1)
		}
	}
	w.mono = row.Mono
}

// successors are the client statuses that may follow one that an edge reported, besides the same one. Statuses that
// end an allocation have none.
var successors = map[string][]string{
	fleet.ClientPending: {fleet.ClientRunning, fleet.ClientFailed, fleet.ClientComplete},
	fleet.ClientRunning: {fleet.ClientFailed, fleet.ClientComplete},
}

// checkAllocRow checks the client status and the task state of an allocation's row against the last ones. After
// a reboot or a stop on site a running allocation may be pending again.
func (w *walk) checkAllocRow(row *fleet.Transition) {
	a := w.allocs[row.Alloc]
	if a == nil {
		a = &steps{tasks: map[string]string{}}
		w.allocs[row.Alloc] = a
		w.forgetEndedAllocs()
	}
	if strings.HasPrefix(row.Message, launchEndRow) {
		clear(a.tasks) // those of the next launch begin again
	}
	rebooted := a.boot != "" && a.boot != row.BootID
	a.held = a.held || row.Hold != nil
	if next := row.ClientStatus; next != "" {
		legal := a.status == "" || a.status == next || slices.Contains(successors[a.status], next) ||
			(rebooted || a.held || lostAtBoot(row)) && a.status == fleet.ClientRunning && next == fleet.ClientPending
		if !legal {
			w.addViolation(LegalHistory, "row %d: allocation %s goes from %s to %s", row.Seq, fleet.Short(row.Alloc), a.status, next)
		}
		if a.status == "" && next != fleet.ClientPending && next != fleet.ClientFailed && next != fleet.ClientRunning && next != fleet.ClientComplete {
			w.addViolation(LegalHistory, "row %d: no edge may report allocation %s %s", row.Seq, fleet.Short(row.Alloc), next)
		}
		a.held = a.held && !(a.status == fleet.ClientPending && next == fleet.ClientRunning)
		a.status = next
		if next == fleet.ClientRunning || next == fleet.ClientPending {
			a.boot = row.BootID
		}
	}
	w.checkTaskState(a, row)
	a.ended = a.status == fleet.ClientComplete || a.status == fleet.ClientFailed
	a.seq = row.Seq
	if a.boot == "" {
		a.boot = row.BootID
	}
}

// lostAtBoot reports whether a row records that a reboot ended the task. If the journal was damaged as well, rows of
// the new boot may come before it.
func lostAtBoot(row *fleet.Transition) bool {
	return row.Event != nil && row.Event.Type == fleet.TaskLostAtReboot
}

// taskSuccessors are the task states that may follow a task state, besides itself.
var taskSuccessors = map[string][]string{
	fleet.TaskPending: {fleet.TaskRunning, fleet.TaskDead},
	fleet.TaskRunning: {fleet.TaskPending, fleet.TaskDead},
}

// checkTaskState checks that a row's task state may follow the task's last one, and records it.
func (w *walk) checkTaskState(a *steps, row *fleet.Transition) {
	if row.Task == "" || row.TaskState == nil {
		return
	}
	before, next := a.tasks[row.Task], row.TaskState.State
	a.tasks[row.Task] = next
	if before != "" && before != next && !slices.Contains(taskSuccessors[before], next) {
		w.addViolation(LegalHistory, "row %d: task %s of %s goes from %s to %s", row.Seq, row.Task, fleet.Short(row.Alloc), before, next)
	}
}

// forgetEndedAllocs drops the allocations that ended first, down to keptWalks, if more than twice as many are known.
func (w *walk) forgetEndedAllocs() {
	if len(w.allocs) <= 2*keptWalks {
		return
	}
	var ended []fleet.AllocID
	for id, a := range w.allocs {
		if a.ended {
			ended = append(ended, id)
		}
	}
	slices.SortFunc(ended, func(x, y fleet.AllocID) int { return int(w.allocs[x].seq) - int(w.allocs[y].seq) })
	for _, id := range ended[:max(0, len(ended)-keptWalks)] {
		delete(w.allocs, id)
	}
}

// histories has a walk for each node, fed with the rows that entries apply. If entries are not observed, it has one
// for each edge, fed with the journal.
type histories struct {
	nodes map[fleet.NodeID]*walk
	edges map[string]*walk
	last  map[string]fleet.Seq // the newest row of each journal
}

// newHistories returns the checker of the order of rows.
func newHistories() checker {
	t := &histories{nodes: map[fleet.NodeID]*walk{}, edges: map[string]*walk{}, last: map[string]fleet.Seq{}}
	return checker{state: t, entry: t.judgeNewRows, edge: t.judgeEdgeJournal, fault: t.resetAfterFault}
}

// judgeNewRows checks the rows that an entry applies for the first time.
func (t *histories) judgeNewRows(s *runContext, _ *Applied) {
	for _, k := range s.newRows {
		if t.nodes[k.node] == nil {
			t.nodes[k.node] = newWalk()
		}
		t.judgeJournalRows(s, s.registry.edgeNameOf(k.node), t.nodes[k.node], k.rows)
	}
}

// resetAfterFault starts new walks where sequence numbers may repeat: for all nodes after a rewind, and for edges that
// a fault damages or clones.
func (t *histories) resetAfterFault(s *runContext, f *Fault) {
	if f.hasRewindEffect() {
		clear(t.nodes) // rewound hubs apply rows again
		return
	}
	for id := range t.nodes {
		if f.hasEffectOn(s.registry.edgeNameOf(id), []Effect{Damages, Clones}) {
			delete(t.nodes, id)
		}
	}
	for name := range t.edges {
		if f.hasEffectOn(name, []Effect{Damages, Clones}) {
			delete(t.edges, name)
			delete(t.last, name)
		}
	}
}

// judgeEdgeJournal checks the new rows of an edge's journal if entries are not observed. A journal that lost rows
// starts a new walk.
func (t *histories) judgeEdgeJournal(s *runContext, e *Edge) {
	switch {
	case e.Journal != nil && e.Journal.Lost != "":
		delete(t.edges, e.Name) // its rows get other numbers when it has a session again
		return
	case s.entries:
		return
	}
	if t.edges[e.Name] == nil {
		t.edges[e.Name] = newWalk()
	}
	for i := range e.Rows {
		if e.Rows[i].Seq > t.last[e.Name] {
			t.last[e.Name] = e.Rows[i].Seq
			t.judgeJournalRows(s, e.Name, t.edges[e.Name], e.Rows[i:i+1])
		}
	}
}

// judgeJournalRows checks rows in their order and records violations, with the last keptSteps rows as evidence.
func (t *histories) judgeJournalRows(s *runContext, name string, w *walk, rows []fleet.Transition) {
	for i := range rows {
		s.countJudgement(LegalHistory)
		wrong := w.checkNextRow(&rows[i])
		w.steps = append(w.steps, formatRow(&rows[i]))
		if len(w.steps) > keptSteps {
			w.steps = w.steps[1:]
		}
		for _, m := range wrong {
			s.reportWithEvidence(m.Invariant, name, slices.Clone(w.steps), "%s", m.Message)
		}
	}
}
