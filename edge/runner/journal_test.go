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

	"skerry/edge/runner"
	"skerry/fleet"
)

var errDisk = errors.New("the disk does not take it")

// journal is what an edge's journal is to a runner: rows, the state that they add
// up to, and handles. With a file behind it, it outlives its process. It can fail,
// and it can die: all that is written after that is lost, as when the process was
// killed.
type journal struct {
	mu      sync.Mutex
	rows    []fleet.Transition
	states  map[string]fleet.TaskState
	status  string
	bootID  string // of the newest row
	handles map[string][]byte
	file    io.Writer

	writes  int
	slow    time.Duration // that each write takes
	failing int           // that many writes fail
	dieAt   int           // with that write, from 1; 0: never
	applied bool          // the write that it dies with is on disk
	dead    chan struct{} // closed when it died
	changed chan struct{} // closed and replaced by every write
	boot    string        // the machine's
}

// entry is a line of the journal's file.
type entry struct {
	BootID string             `json:",omitempty"`
	Rows   []fleet.Transition `json:",omitempty"`
	Key    string             `json:",omitempty"`
	Handle []byte             `json:",omitempty"`
}

func newJournal() *journal {
	return &journal{
		states: map[string]fleet.TaskState{}, handles: map[string][]byte{},
		dead: make(chan struct{}), changed: make(chan struct{}), boot: "boot-1",
	}
}

// mustOpenJournal opens a journal with a file behind it.
func mustOpenJournal(path string) *journal {
	j := newJournal()
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
		j.apply(e)
	}
	j.file = f
	return j
}

func (j *journal) Record(ctx context.Context, ts ...fleet.Transition) error {
	return j.write(ctx, entry{BootID: j.boot, Rows: ts})
}

func (j *journal) PutHandle(ctx context.Context, _ fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	return j.write(ctx, entry{BootID: j.boot, Rows: ts, Key: key, Handle: handle})
}

func (j *journal) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.handles), nil
}

func (j *journal) write(ctx context.Context, e entry) error {
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
		j.apply(e)
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
	j.apply(e)
	return nil
}

func (j *journal) apply(e entry) {
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

// dieWith has the journal die with the nth write from now on; 0: never.
func (j *journal) dieWith(n int, applied bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes, j.dieAt, j.applied = 0, n, applied
}

// written counts the writes since dieWith.
func (j *journal) written() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writes
}

// told are the rows.
func (j *journal) told() []fleet.Transition {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.rows)
}

// revive lets a journal that died go on with what is on disk, as it is when the
// next life of the agent opens it.
func (j *journal) revive() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dieAt, j.writes = 0, 0
	j.dead = make(chan struct{})
}

func (j *journal) last() runner.LastState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return runner.LastState{
		Known: len(j.rows) > 0, Rebooted: j.bootID != "" && j.bootID != j.boot,
		ClientStatus: j.status, TaskStates: maps.Clone(j.states),
	}
}

// until waits until ok, which sees the journal, and returns false where ctx ends
// first.
func (j *journal) until(ctx context.Context, ok func() bool) bool {
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

func (j *journal) clientStatus() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status
}

func (j *journal) state(task string) fleet.TaskState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.states[task]
}

// story is the rows as lines: task, event, task state, and the client status
// where it changed.
func (j *journal) story() []string {
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

func wantStory(tb testing.TB, j *journal, want ...string) {
	tb.Helper()
	got := j.story()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		tb.Errorf("journal:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
