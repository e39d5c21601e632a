package check

import (
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
)

// walk checks that a node's rows, in their order, are a walk that the states allow.
// It keeps the last step of each allocation and task alone.
type walk struct {
	violationList // what is wrong with the newest row
	// away is whether the last of the link's rows tells of its loss; known is false
	// before the first one.
	away, known bool
	boots       []fleet.BootID // the newest last
	mono        time.Duration
	allocs      map[fleet.AllocID]*steps
	steps       []string // the newest rows, for people
}

// steps are where an allocation stands.
type steps struct {
	status string // "": not known
	boot   fleet.BootID
	tasks  map[string]string // states
	seq    fleet.Seq
	ended  bool
}

// keptBoots is how many boots of a machine are remembered, and keptWalks how many
// allocations that have ended.
const (
	keptBoots = 8
	keptWalks = 2000
)

func newWalk() *walk { return &walk{allocs: map[fleet.AllocID]*steps{}} }

// keptSteps is how many rows are shown with one that does not follow from them.
const keptSteps = 8

// line is a row for people.
func line(row *fleet.Transition) string {
	return fmt.Sprintf("row %d, boot %s, %s: %s", row.Seq, fleet.Short(row.BootID), row.Mono.Round(time.Millisecond), describe(*row))
}

// checkNextRow takes the next row, and says what is wrong with it.
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
		if row.Message != "" { // the journal was damaged: what stood here is not known
			w.known, w.boots, w.mono = false, nil, 0
			clear(w.allocs)
		}
	}
	if row.Alloc != "" {
		w.checkAllocRow(row)
	}
	return w.found
}

// checkRowTime checks that time does not go back within a boot, nor a boot come again.
func (w *walk) checkRowTime(row *fleet.Transition) {
	if row.BootID == "" || row.Kind == fleet.TransitionGap && row.Message != "" {
		return // it stands for rows that are lost, in their place and not at their time
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

// successors are the client statuses that may follow one that an edge reported,
// beside itself. Those that end an allocation have none.
var successors = map[string][]string{
	fleet.ClientPending: {fleet.ClientRunning, fleet.ClientFailed, fleet.ClientComplete},
	fleet.ClientRunning: {fleet.ClientFailed, fleet.ClientComplete},
}

func (w *walk) checkAllocRow(row *fleet.Transition) {
	a := w.allocs[row.Alloc]
	if a == nil {
		a = &steps{tasks: map[string]string{}}
		w.allocs[row.Alloc] = a
		w.forgetEndedAllocs()
	}
	rebooted := a.boot != "" && a.boot != row.BootID
	if next := row.ClientStatus; next != "" {
		legal := a.status == "" || a.status == next || slices.Contains(successors[a.status], next) ||
			(rebooted || lostAtBoot(row)) && a.status == fleet.ClientRunning && next == fleet.ClientPending
		if !legal {
			w.addViolation(LegalHistory, "row %d: allocation %s goes from %s to %s", row.Seq, fleet.Short(row.Alloc), a.status, next)
		}
		if a.status == "" && next != fleet.ClientPending && next != fleet.ClientFailed && next != fleet.ClientRunning && next != fleet.ClientComplete {
			w.addViolation(LegalHistory, "row %d: no edge may report allocation %s %s", row.Seq, fleet.Short(row.Alloc), next)
		}
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

// lostAtBoot reports whether a row says that a boot ended the task. Where the journal was
// damaged as well, the boot's own rows may come before it, and say what was known.
func lostAtBoot(row *fleet.Transition) bool {
	return row.Event != nil && row.Event.Type == fleet.TaskLostAtReboot
}

// taskSuccessors are the states that may follow a task's, beside itself.
var taskSuccessors = map[string][]string{
	fleet.TaskPending: {fleet.TaskRunning, fleet.TaskDead},
	fleet.TaskRunning: {fleet.TaskPending, fleet.TaskDead},
}

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

// forgetEndedAllocs forgets allocations that ended first.
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

// histories has a walk for each node, by the rows that the log applied; where
// nobody tells of entries, for each journal.
type histories struct {
	nodes map[fleet.NodeID]*walk
	edges map[string]*walk
	last  map[string]fleet.Seq
}

func newHistories() checker {
	t := &histories{nodes: map[fleet.NodeID]*walk{}, edges: map[string]*walk{}, last: map[string]fleet.Seq{}}
	return checker{state: t, entry: t.judgeNewRows, edge: t.judgeEdgeJournal, fault: t.resetAfterFault}
}

func (t *histories) judgeNewRows(s *runContext, _ *Applied) {
	for _, k := range s.newRows {
		if t.nodes[k.node] == nil {
			t.nodes[k.node] = newWalk()
		}
		t.judgeJournalRows(s, s.registry.edgeNameOf(k.node), t.nodes[k.node], k.rows)
	}
}

// resetAfterFault begins anew where numbers may be given again.
func (t *histories) resetAfterFault(s *runContext, f *Fault) {
	if f.hasRewindEffect() {
		clear(t.nodes) // rows come again
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

func (t *histories) judgeEdgeJournal(s *runContext, e *Edge) {
	switch {
	case e.Journal != nil && e.Journal.Lost != "":
		delete(t.edges, e.Name) // its rows get other numbers when a hub has been told
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

func (t *histories) judgeJournalRows(s *runContext, name string, w *walk, rows []fleet.Transition) {
	for i := range rows {
		s.countJudgement(LegalHistory)
		wrong := w.checkNextRow(&rows[i])
		w.steps = append(w.steps, line(&rows[i]))
		if len(w.steps) > keptSteps {
			w.steps = w.steps[1:]
		}
		for _, m := range wrong {
			s.reportWithEvidence(m.Invariant, name, slices.Clone(w.steps), "%s", m.Message)
		}
	}
}
