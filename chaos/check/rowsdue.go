package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// rowsDue compares what really happens to tasks with the journals: each start and each end has
// its row soon, with or without a link. If later rows come, the row was dropped; if none come,
// the runner is blocked. Rows that a journal dropped at its bound, and counts, are excused.
type rowsDue struct{ by map[string]*expectedRows }

// expectedRows are what an edge's journal has still to tell.
type expectedRows struct {
	open    []taskEvent
	newest  time.Duration // when the newest row was seen
	looked  time.Duration // when all rows that there were had been seen
	last    fleet.Seq     // newest row seen
	dropped uint64        // at the bound, as the journal said last
}

// taskEvent is a start or an end.
type taskEvent struct {
	at   time.Duration
	key  TaskKey
	what string
}

// keptOwed bounds how much of one edge waits for its row.
const keptOwed = 1000

func newRowsDue() checker {
	t := &rowsDue{by: map[string]*expectedRows{}}
	return checker{state: t, task: t.expectTaskRow, edge: t.recordJournalRows, agent: t.forgetEndedBoot, tick: t.judgeMissingRows}
}

func (t *rowsDue) expectTaskRow(s *runContext, o *Task) {
	if o.What == TaskVanished {
		return
	}
	e := ensure(t.by, o.Edge)
	if len(e.open) < keptOwed && !s.machines.ensureMachine(o.Edge).off { // what is seen of the moment in which it goes off, too, the next boot tells of
		e.open = append(e.open, taskEvent{s.now, TaskKey{o.Alloc, o.Task}, o.What})
	}
}

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

// forgetEndedBoot forgets what a machine that goes down has not told: the next boot tells of what was
// lost, in its own words.
func (t *rowsDue) forgetEndedBoot(_ *runContext, p *Process) {
	if p.What == ProcessReboot || p.What == ProcessPowerCut {
		ensure(t.by, p.Name).open = nil
	}
}

// removeDroppedEvents takes away as much as the journal says that it dropped since.
func (e *expectedRows) removeDroppedEvents(dropped uint64) {
	if dropped > e.dropped {
		e.open = e.open[min(dropped-e.dropped, uint64(len(e.open))):]
	}
	e.dropped = dropped
}

// removeReportedEvents takes away what a row tells of.
func (e *expectedRows) removeReportedEvents(row *fleet.Transition) {
	e.last = max(e.last, row.Seq)
	if row.Event == nil {
		return
	}
	key := TaskKey{row.Alloc, row.Task}
	e.open = slices.DeleteFunc(e.open, func(h taskEvent) bool { return h.key == key && h.isReportedBy(row.Event.Type) })
}

// isReportedBy reports whether an event of a row is about it.
func (h taskEvent) isReportedBy(event string) bool {
	switch event {
	case fleet.TaskStarted, fleet.TaskRestored:
		return h.what == TaskStarted
	case fleet.TaskTerminated, fleet.TaskLostAtReboot, fleet.TaskKilled, fleet.TaskNotRestarting:
		return true // also of the start before it
	}
	return false
}

func (t *rowsDue) judgeMissingRows(s *runContext) {
	for name, e := range t.by {
		// An agent that was started beside a dead driver hears of ends when that is back.
		m := s.machines.ensureMachine(name)
		if len(e.open) == 0 || m.agent < 0 || s.faults.hasFaultNow(name, Halts, Chokes, EndsTasks) {
			continue
		}
		h := e.open[0]
		if s.isClonedMachine(name) || m.hasDamageSince(h.at) {
			e.open = nil
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
