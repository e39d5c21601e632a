package runner_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/edge/contract"
	"skerry/fleet"
)

var errDisk = errors.New("the disk does not take it")

// fakeJournal is a Recorder with rows, the resulting state, and handles. With a file it outlives its
// process. It can fail, and it can die: later writes are lost, as if the process was killed.
type fakeJournal struct {
	mu      sync.Mutex
	rows    []fleet.Transition
	states  map[string]fleet.TaskState
	status  string
	bootID  string // of the newest row
	handles map[string][]byte
	file    io.Writer

	writes  int
	slow    time.Duration // duration of each write
	failing int           // number of writes that fail
	dieAt   int           // dies at that write, from 1; 0: never
	applied bool          // the write at which it dies is on disk
	dead    chan struct{} // closed when it died
	changed chan struct{} // closed and replaced by every write
	boot    string        // of the machine
}

// entry is a line of the journal's file.
type entry struct {
	BootID string             `json:",omitempty"`
	Rows   []fleet.Transition `json:",omitempty"`
	Key    string             `json:",omitempty"`
	Handle []byte             `json:",omitempty"`
}

func newFakeJournal() *fakeJournal {
	return &fakeJournal{
		states: map[string]fleet.TaskState{}, handles: map[string][]byte{},
		dead: make(chan struct{}), changed: make(chan struct{}), boot: "boot-1",
	}
}

// mustOpenJournal opens a journal with a file behind it.
func mustOpenJournal(path string) *fakeJournal {
	j := newFakeJournal()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			panic(err)
		}
		j.applyEntry(e)
	}
	j.file = f
	return j
}

func (j *fakeJournal) Record(ctx context.Context, ts ...fleet.Transition) error {
	return j.writeEntry(ctx, entry{BootID: j.boot, Rows: ts})
}

func (j *fakeJournal) PutHandle(ctx context.Context, _ fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	return j.writeEntry(ctx, entry{BootID: j.boot, Rows: ts, Key: key, Handle: handle})
}

func (j *fakeJournal) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.handles), nil
}

func (j *fakeJournal) writeEntry(ctx context.Context, e entry) error {
	if j.slow > 0 {
		time.Sleep(j.slow)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	j.writes++
	switch {
	case j.dieAt > 0 && j.writes > j.dieAt:
		return errDisk
	case j.writes == j.dieAt:
		close(j.dead)
		if !j.applied {
			return errDisk
		}
		j.applyEntry(e)
		return errDisk
	case j.failing > 0:
		j.failing--
		return errDisk
	}
	if j.file != nil {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := j.file.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	j.applyEntry(e)
	return nil
}

func (j *fakeJournal) applyEntry(e entry) {
	if e.Key != "" {
		j.handles[e.Key] = e.Handle
	}
	for _, t := range e.Rows {
		j.rows = append(j.rows, t)
		j.bootID = e.BootID
		if t.ClientStatus != "" {
			j.status = t.ClientStatus
		}
		if t.TaskState != nil {
			j.states[t.Task] = *t.TaskState
		}
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

// dieWith makes the journal die at the nth write from now on; 0: never.
func (j *fakeJournal) dieWith(n int, applied bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes, j.dieAt, j.applied = 0, n, applied
}

// writeCount returns the number of writes since dieWith.
func (j *fakeJournal) writeCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writes
}

// recordedRows returns the rows.
func (j *fakeJournal) recordedRows() []fleet.Transition {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.rows)
}

// reviveJournal opens a dead journal again with the rows on disk, as the next agent does.
func (j *fakeJournal) reviveJournal() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dieAt, j.writes = 0, 0
	j.dead = make(chan struct{})
}

func (j *fakeJournal) lastState() contract.LastState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return contract.LastState{
		Known: len(j.rows) > 0, Rebooted: j.bootID != "" && j.bootID != j.boot,
		ClientStatus: j.status, TaskStates: maps.Clone(j.states),
	}
}

// waitForRows waits until ok returns true for the journal, and returns false if ctx ends first.
func (j *fakeJournal) waitForRows(ctx context.Context, ok func() bool) bool {
	for {
		j.mu.Lock()
		done, changed := ok(), j.changed
		j.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (j *fakeJournal) clientStatus() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status
}

func (j *fakeJournal) taskState(task string) fleet.TaskState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.states[task]
}

// rowLines returns the rows as lines: task, event, task state, and a changed client status.
func (j *fakeJournal) rowLines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []string
	for _, t := range j.rows {
		line := ""
		if t.Event != nil {
			line = fmt.Sprintf("%s %s (%s)", t.Task, t.Event.Type, t.TaskState.State)
			if t.TaskState.Failed {
				line += " failed"
			}
		}
		if t.Kind == fleet.TransitionAlloc {
			line += " -> " + t.ClientStatus
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func wantRowLines(tb testing.TB, j *fakeJournal, want ...string) {
	tb.Helper()
	got := j.rowLines()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		tb.Errorf("journal:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
