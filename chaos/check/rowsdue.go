package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// rowsDue compares the starts and ends of tasks with the journals: each has a row within Limits.Runner, with or
// without a link. If later rows come, the row was dropped; if none come, the runner is blocked. Rows that a journal
// counts as dropped are excused.
type rowsDue struct{ by map[string]*expectedRows }

// expectedRows are the starts and ends of one edge's tasks that have no row yet.
type expectedRows struct {
	open    []taskEvent
	newest  time.Duration // when the newest row was observed
	looked  time.Duration // when a poll last found no row after the last one
	last    fleet.Seq     // the newest row that was observed
	dropped uint64        // rows that the journal counted as dropped at its bound
}

// taskEvent is a start or an end of a task's process.
type taskEvent struct {
	at   time.Duration
	key  TaskKey
	what string
}

// keptOwed bounds the events of one edge that wait for their row. Further ones are not judged.
const keptOwed = 1000

// newRowsDue returns the checker that compares tasks with journals.
func newRowsDue() checker {
	t := &rowsDue{by: map[string]*expectedRows{}}
	return checker{state: t, task: t.expectTaskRow, edge: t.recordJournalRows, agent: t.forgetEndedBoot, tick: t.judgeMissingRows}
}

// expectTaskRow adds a start or an end of a task to the events that need a row. It ignores events of a machine
// that is off: the next boot journals these.
func (t *rowsDue) expectTaskRow(s *runContext, o *Task) {
	if o.What == TaskVanished {
		return
	}
	e := ensure(t.by, o.Edge)
	if len(e.open) < keptOwed && !s.machines.ensureMachine(o.Edge).off {
		e.open = append(e.open, taskEvent{s.now, TaskKey{o.Alloc, o.Task}, o.What})
	}
}

// recordJournalRows removes the events that an edge's new rows record, and as many as the journal counts as
// dropped.
func (t *rowsDue) recordJournalRows(s *runContext, o *Edge) {
	e := ensure(t.by, o.Name)
	for i := range o.Rows {
		e.removeReportedEvents(&o.Rows[i])
	}
	if len(o.Rows) > 0 {
		e.newest = s.now
	}
	if j := o.Journal; j != nil {
		e.removeDroppedEvents(j.Dropped)
		if j.Last <= e.last {
			e.looked = s.now
		}
	}
}

// forgetEndedBoot drops the events of a machine that goes down, because the next boot journals its lost tasks.
func (t *rowsDue) forgetEndedBoot(_ *runContext, p *Process) {
	if p.What == ProcessReboot || p.What == ProcessPowerCut {
		ensure(t.by, p.Name).open = nil
	}
}

// removeDroppedEvents removes as many of the oldest events as the journal has dropped rows since the last call.
func (e *expectedRows) removeDroppedEvents(dropped uint64) {
	if dropped > e.dropped {
		e.open = e.open[min(dropped-e.dropped, uint64(len(e.open))):]
	}
	e.dropped = dropped
}

// removeReportedEvents removes the events that a row records.
func (e *expectedRows) removeReportedEvents(row *fleet.Transition) {
	e.last = max(e.last, row.Seq)
	if row.Event == nil {
		return
	}
	key := TaskKey{row.Alloc, row.Task}
	e.open = slices.DeleteFunc(e.open, func(h taskEvent) bool { return h.key == key && h.isReportedBy(row.Event.Type) })
}

// isReportedBy reports whether a row with an event of this type records h. A row of an end records the start
// before it, too.
func (h taskEvent) isReportedBy(event string) bool {
	switch event {
	case fleet.TaskStarted, fleet.TaskRestored:
		return h.what == TaskStarted
	case fleet.TaskTerminated, fleet.TaskLostAtReboot, fleet.TaskKilled, fleet.TaskNotRestarting:
		return true // it records the start before it, too
	}
	return false
}

// judgeMissingRows judges the oldest event of each edge that has waited for longer than Limits.Runner while the
// agent ran without faults. Events of clones, of damaged journals, and of tasks that are older than the damage are dropped.
func (t *rowsDue) judgeMissingRows(s *runContext) {
	for name, e := range t.by {
		// An agent that starts while a driver is dead learns of ends when the driver is back.
		m := s.machines.ensureMachine(name)
		if len(e.open) == 0 || m.agent < 0 || s.faults.hasFaultNow(name, Halts, Chokes, EndsTasks) {
			continue
		}
		h := e.open[0]
		if s.isClonedMachine(name) || m.hasDamageSince(h.at) {
			e.open = nil
			continue
		}
		if truth := m.tasks[h.key]; truth != nil && m.hasDamageSince(truth.begun) { // its agent may not know of it any more
			e.open = e.open[1:]
			continue
		}
		stood, _ := s.faults.lastFaultTime(s.now, name, Halts, Chokes, EndsTasks)
		since := max(h.at, m.agent, stood)
		if e.looked-since <= s.limits.Runner {
			continue
		}
		s.countJudgement(Bounded)
		s.countJudgement(ExactlyOnce)
		e.open = e.open[1:]
		if e.newest > since+s.limits.Slack {
			s.reportViolation(ExactlyOnce, name, "task %s really %s at %s: the journal has later rows, and none of that", h.key, h.what, h.at)
		} else {
			s.reportViolation(Bounded, name, "task %s really %s at %s, and the journal has no row since: its runner is blocked", h.key, h.what, h.at)
		}
	}
}
