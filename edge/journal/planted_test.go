//go:build planted

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/planted"
)

// Each planted bug does what it is there for: the same steps end in another way.
func TestPlantedBugsMisbehave(t *testing.T) {
	for _, c := range []struct {
		bug         planted.Bug
		do          func(t *testing.T) string
		sound, with string
	}{
		{planted.AcknowledgeBeforeFsync, failACommit, "told: no; held: 0", "told: yes; held: 0"},
		{planted.UnboundedBuffer, fill, "within the bound", "over the bound"},
		{planted.ResetStopDeadline, awayAcrossABoot, "away for 2m0s", "away for 1m0s"},
		{planted.ClockDecides, awayByAWrongClock, "away for 1m0s", "away for 1h1m0s"},
	} {
		t.Run(string(c.bug), func(t *testing.T) {
			if got := c.do(t); got != c.sound {
				t.Fatalf("without the bug: %s, want %s", got, c.sound)
			}
			defer planted.Plant(c.bug)()
			if got := c.do(t); got != c.with {
				t.Fatalf("with the bug: %s, want %s", got, c.with)
			}
		})
	}
}

// failACommit records while the disk takes no commit.
func failACommit(t *testing.T) string {
	cfg := newMachine().journalConfig(dbPath(t))
	cfg.Step = func(label string) error {
		if label == journal.StepCommit {
			return errors.New("the disk is full")
		}
		return nil
	}
	j := mustOpen(t, cfg)
	told := "no"
	if j.Record(context.Background(), status(1, fleet.ClientRunning)) == nil {
		told = "yes"
	}
	return fmt.Sprintf("told: %s; held: %d", told, j.Head().Last)
}

func fill(t *testing.T) string {
	cfg := newMachine().journalConfig(dbPath(t))
	cfg.Paranoid = false
	cfg.MaxBytes = 16 << 10
	j := mustOpen(t, cfg)
	for i := range 300 {
		mustRecord(t, j, taskEvent(1, "t", fleet.TaskRunning, fmt.Sprint(i)))
	}
	if j.Usage().Bytes > cfg.MaxBytes {
		return "over the bound"
	}
	return "within the bound"
}

func awayAcrossABoot(t *testing.T) string {
	m, path := newMachine(), dbPath(t)
	j := mustOpen(t, m.journalConfig(path))
	if err := j.NoteHeartbeat(context.Background(), m.wall.UnixNano()); err != nil {
		t.Fatal(err)
	}
	m.advanceClocks(time.Minute)
	mustClose(t, j)
	m.rebootMachine(boot2, m.wall)
	j = mustOpen(t, m.journalConfig(path))
	m.advanceClocks(time.Minute)
	return fmt.Sprintf("away for %s", j.Away())
}

func awayByAWrongClock(t *testing.T) string {
	m := newMachine()
	j := mustOpen(t, m.journalConfig(dbPath(t)))
	if err := j.NoteHeartbeat(context.Background(), m.wall.UnixNano()); err != nil {
		t.Fatal(err)
	}
	m.advanceClocks(time.Minute)
	m.mu.Lock()
	m.wall = m.wall.Add(time.Hour)
	m.mu.Unlock()
	return fmt.Sprintf("away for %s", j.Away())
}
