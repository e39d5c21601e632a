package virtual

import (
	"skerry/chaos/engine"

	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"skerry/drivers/sim"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/hub"
	"skerry/hub/state"
	"skerry/syncproto"
)

// AbsenceOutcome is what an Absence showed. Times are the run's own, but for walls.
type AbsenceOutcome struct {
	Outcome
	Left   time.Duration // when the link was cut
	Away   time.Duration // until it was there again
	Rejoin time.Duration // from then until everything was told and settled
	Alone  time.Duration // of Away, while no hub ran

	Boots    int // of the ship's machine, while it was alone
	Troubles []string
	Off      time.Duration // for how long the machine was off

	Rows         uint64 // journaled on the ship in all
	Dropped      uint64 // more that there was no room for
	JournalBytes int64  // held at most
	Written      uint64 // bytes written to files while alone; 0: not known
	Failures     int    // of the sensor

	// Up is for how much of its time alone each of the ship's tasks really ran.
	Up map[fleet.JobID]time.Duration

	Back               time.Time // when the link was there again
	CertificateAtFirst time.Time // the end of the one that the ship left with
	CertificateAtLast  time.Time // and of the one that it renewed

	AloneWall time.Duration // outside of the bubble
}

// groundTruth is what really happened, whatever journals and hubs say of it: how long the
// ship's tasks ran, and which rows of its journal the hubs applied.
type groundTruth struct {
	ship string

	mu    sync.Mutex
	tasks map[fleet.AllocID]*ran
	rows  map[fleet.NodeID][][]byte // applied, from the first on
	wrong error                     // the first row that came out of order
}

// ran is how a task ran.
type ran struct {
	since time.Time // zero: it does not run
	spans []span
	fails int
}

type span struct{ from, to time.Time }

func newGroundTruth(ship string) *groundTruth {
	return &groundTruth{ship: ship, tasks: map[fleet.AllocID]*ran{}, rows: map[fleet.NodeID][][]byte{}}
}

// taskEventObserver is the tap of tasks, which next has as well.
func (t *groundTruth) taskEventObserver(next func(string, sim.Event)) func(string, sim.Event) {
	return func(edge string, e sim.Event) {
		next(edge, e)
		id, ok := taskOf(e.ID)
		if !ok || edge != t.ship {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		task := t.tasks[id.Alloc]
		if task == nil {
			task = &ran{}
			t.tasks[id.Alloc] = task
		}
		if e.What == sim.Started {
			task.since = time.Now()
			return
		}
		if !task.since.IsZero() {
			task.spans = append(task.spans, span{task.since, time.Now()})
			task.since = time.Time{}
		}
		if e.What == sim.Exited && !e.Exit.Success() {
			task.fails++
		}
	}
}

// appliedRowsObserver is the tap of applied commands, which next has as well. It keeps each row when
// it is applied first.
func (t *groundTruth) appliedRowsObserver(next func(string, hub.Applied)) func(string, hub.Applied) {
	var newest fleet.Index
	return func(name string, a hub.Applied) {
		next(name, a)
		c, ok := a.Command.(state.AllocUpdates)
		t.mu.Lock()
		defer t.mu.Unlock()
		if !ok || a.Index <= newest {
			return
		}
		newest = a.Index
		for i, b := range c.Batches {
			if i < len(a.Result.Updates) && a.Result.Updates[i].Code == "" {
				t.applyNodeRows(b)
			}
		}
	}
}

func (t *groundTruth) applyNodeRows(b state.NodeRows) {
	for i, row := range b.Rows {
		switch seq, have := b.First+fleet.Seq(i), fleet.Seq(len(t.rows[b.NodeID])); {
		case seq <= have: // it was applied before, and is skipped
		case seq == have+1:
			t.rows[b.NodeID] = append(t.rows[b.NodeID], row)
		case t.wrong == nil:
			t.wrong = fmt.Errorf("row %d of node %s was applied behind row %d", seq, fleet.Short(b.NodeID), have)
		}
	}
}

// runTimeBetween is for how long an allocation's task ran between two times.
func (t *groundTruth) runTimeBetween(id fleet.AllocID, from, to time.Time) (up time.Duration, fails int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	task := t.tasks[id]
	if task == nil {
		return 0, 0
	}
	spans := task.spans
	if !task.since.IsZero() {
		spans = append(spans[:len(spans):len(spans)], span{task.since, to})
	}
	for _, s := range spans {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		up += max(0, s.to.Sub(s.from))
	}
	return up, task.fails
}

// compareRows holds the rows that were applied against those that a journal ever held.
func (t *groundTruth) compareRows(node fleet.NodeID, journal []fleet.Transition) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wrong != nil {
		return t.wrong
	}
	applied := t.rows[node]
	if len(journal) != len(applied) {
		return fmt.Errorf("%d rows were journaled, %d were applied", len(journal), len(applied))
	}
	for i, want := range journal {
		row, err := syncproto.EncodeRow(want)
		if err != nil {
			return err
		}
		if int(want.Seq) != i+1 || !bytes.Equal(row, applied[i]) {
			return fmt.Errorf("row %d was journaled as number %d, or was applied as something else", i+1, want.Seq)
		}
	}
	return nil
}

// readSettledJournal reads the ship's journal at a moment when the cluster has all of it: a row
// may have come since the last look.
func (t *absence) readSettledJournal(ctx context.Context) ([]fleet.Transition, local.Journal) {
	for range 60 {
		t.readNewRows(ctx, t.ship)
		t.mu.Lock()
		journal := t.rows[t.ship.Name]
		t.mu.Unlock()
		_, j := t.ship.Agent().SyncStatus()
		if j.Unacknowledged == 0 && len(journal) > 0 && journal[len(journal)-1].Seq == j.Last || !engine.Pause(ctx, lookEvery) {
			return journal, j
		}
	}
	_, j := t.ship.Agent().SyncStatus()
	return nil, j
}

// summarizeAbsence sums up what the ship was, and holds the hubs' history against its journal's.
func (t *absence) summarizeAbsence(ctx context.Context) error {
	journal, j := t.readSettledJournal(ctx)
	t.out.Rows, t.out.Dropped = uint64(j.Last), j.Dropped
	node := t.ship.Agent().NodeID()
	if err := t.truth.compareRows(node, journal); err != nil {
		return fmt.Errorf("compare the history with the journal: %w", err)
	}
	if why := t.unreportedDrops(); why != "" {
		return fmt.Errorf("compare the history with the journal: %s", why)
	}
	t.out.Up = map[fleet.JobID]time.Duration{}
	from := t.began.Add(t.out.Left + t.out.Away - t.out.Alone)
	for a := range t.c.Hubs[0].State().View().Allocs("*", "") {
		if a.NodeID != node {
			continue
		}
		up, fails := t.truth.runTimeBetween(a.ID, from, from.Add(t.out.Alone))
		t.out.Up[a.JobID] += up
		if a.JobID == jobSensor {
			t.out.Failures += fails
		}
	}
	return nil
}

// droppedBy is how many rows gap rows say were dropped.
func droppedBy(journal []fleet.Transition) (n uint64) {
	for _, row := range journal {
		if row.Kind == fleet.TransitionGap {
			n += row.Dropped
		}
	}
	return n
}

// writtenBytes is how many bytes this process has handed to the system to write; 0 where
// the system does not say.
func writtenBytes() uint64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var n uint64
		if _, err := fmt.Sscanf(line, "wchar: %d", &n); err == nil {
			return n
		}
	}
	return 0
}
