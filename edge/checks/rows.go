package checks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"skerry/fleet"
)

// Bounds of the rows of one check in the journal. A check that changes all the time has 6 rows an hour.
const (
	minRowPause = time.Minute // from a row to the next one, and from the start of a check that has never passed to its first
	maxRowPause = 10 * time.Minute
	maxRowText  = 512 // bytes of a row's output
)

// statusKey is the start of the journal's key of a check that does not pass by its newest row. No task can have this name.
const statusKey = "/check/"

// Journal is the part of the edge's journal that checks need. *journal.Journal implements it.
type Journal interface {
	// PutHandle stores a value under a key of an allocation, nil removes it, together with rows.
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	// Handles returns what PutHandle stored for an allocation, by key.
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// statusRow says which status of a check the journal has, and when it may have the next one. It survives restarts of the
// task, so that they do not lift the bound. Times are since boot.
type statusRow struct {
	written string        // by the newest row; Success if none was needed; "": no status yet
	next    time.Duration // the earliest time of the next row
	pause   time.Duration // between the newest row and next
	current string        // the newest status; "": none yet
	since   time.Duration // when current began
	changes int           // of the status since the newest row
}

// noteStatus notes the newest status and reports whether it needs a row now. The first passing of a check needs none.
func (s *statusRow) noteStatus(status string, now time.Duration) bool {
	if status == Pending {
		return false
	}
	if s.current != status {
		if s.current != "" {
			s.changes++
		}
		s.current, s.since = status, now
	}
	if s.written == "" && status == Success {
		s.written, s.next, s.changes = Success, 0, 0
	}
	return s.written != status && now >= s.next
}

// noteWritten notes that a row has the given status. The pause doubles while the status changes again before the next row
// may be written, or soon after that.
func (s *statusRow) noteWritten(status string, now time.Duration) {
	if s.pause = min(2*s.pause, maxRowPause); s.pause == 0 || s.since >= s.next+s.pause {
		s.pause = minRowPause
	}
	s.written, s.next, s.changes = status, now+s.pause, 0
}

// rowText returns the text of a row about the newest status.
func (s *statusRow) rowText(k *check, output string, now time.Duration) string {
	verb := map[string]string{Success: "passes again", Warning: "has a warning", Failure: "fails"}[s.current]
	var notes []string
	if late := (now - s.since).Truncate(time.Second); late > 0 {
		notes = append(notes, "for "+late.String())
	}
	if unwritten := s.changes - 1; unwritten > 0 {
		notes = append(notes, fmt.Sprintf("%d earlier changes without a row", unwritten))
	}
	text := fmt.Sprintf("check %q of service %q %s", k.Name, k.service, verb)
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, "; ") + ")"
	}
	if output, _, _ = strings.Cut(output, "\n"); output != "" {
		text += ": " + strings.ToValidUTF8(output[:min(len(output), maxRowText)], "")
	}
	return text
}

// restoreStatusRow reads which status of a check the journal has, if this agent does not know it yet.
func (c *Checks) restoreStatusRow(ctx context.Context, id fleet.AllocID, f *followedAlloc, k *check) {
	c.mu.Lock()
	known := c.rows[id][k.id] != nil
	c.mu.Unlock()
	if known || c.cfg.Journal == nil {
		return
	}
	s := &statusRow{next: c.cfg.Mono() + minRowPause}
	handles, err := c.cfg.Journal.Handles(ctx, id)
	if err != nil {
		c.cfg.Log.Warn("status of a check not read: its next row may repeat it", "alloc_id", string(id), "check", k.Name, "error", err)
	}
	if written := string(handles[statusKey+k.id]); written != "" {
		*s = statusRow{written: written, current: written, since: c.cfg.Mono()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed[id] != f || c.rows[id][k.id] != nil {
		return
	}
	if c.rows[id] == nil {
		c.rows[id] = map[string]*statusRow{}
	}
	c.rows[id][k.id] = s
}

// writeStatusRow journals the newest status of a check if its last row says another one, within the bounds. An error is
// logged, and the row is tried again after a pause.
func (c *Checks) writeStatusRow(ctx context.Context, id fleet.AllocID, f *followedAlloc, k *check, status, output string) {
	now := c.cfg.Mono()
	c.mu.Lock()
	s := c.rows[id][k.id]
	if s == nil || c.followed[id] != f || !s.noteStatus(status, now) {
		c.mu.Unlock()
		return
	}
	text := s.rowText(k, output, now)
	c.mu.Unlock()
	var handle []byte
	if status != Success {
		handle = []byte(status)
	}
	row := fleet.Transition{Kind: fleet.TransitionCheck, Alloc: id, Task: k.task, Message: text}
	err := c.cfg.Journal.PutHandle(ctx, id, statusKey+k.id, handle, row)
	if err != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("status of a check not journaled: trying again", "alloc_id", string(id), "check", k.Name, "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		s.next = now + minRowPause
		return
	}
	s.noteWritten(status, now)
}
