package supervised_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"skerry/drivers"
	"skerry/fleet"
)

// written is the output of a command; it may be read while the command runs.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// execRun is a command that runs beside a task.
type execRun struct {
	in       *io.PipeWriter
	out, err written
	sizes    chan fleet.TerminalSize
	code     int
	failed   error
	done     chan struct{}
	cancel   context.CancelFunc
}

func mustExec(tb testing.TB, task drivers.Task, tty bool, command ...string) *execRun {
	tb.Helper()
	e, ok := task.(drivers.Execer)
	if !ok {
		tb.Fatal("raw_exec runs no commands beside its tasks")
	}
	ctx, cancel := context.WithCancel(tb.Context())
	r := &execRun{sizes: make(chan fleet.TerminalSize, 1), done: make(chan struct{}), cancel: cancel}
	stdin, in := io.Pipe()
	r.in = in
	go func() {
		defer close(r.done)
		r.code, r.failed = e.Exec(ctx, fleet.Exec{
			Command: command, TTY: tty, Stdin: stdin, Stdout: &r.out, Stderr: &r.err, Sizes: r.sizes,
		})
	}()
	tb.Cleanup(func() { cancel(); <-r.done })
	return r
}

func (r *execRun) waitForEnd(tb testing.TB) *execRun {
	tb.Helper()
	select {
	case <-r.done:
	case <-tb.Context().Done():
		tb.Fatal("the command does not end")
	}
	return r
}

func running(tb testing.TB) (drivers.TaskConfig, drivers.Task) {
	tb.Helper()
	cfg := newTaskConfig(tb, "exec sleep 86400")
	cfg.Env = map[string]string{"GREETING": "hello"}
	_, task := mustStart(tb, mustDriver(tb, ""), cfg)
	return cfg, task
}

func TestExec(t *testing.T) {
	cfg, task := running(t)
	r := mustExec(t, task, false, "sh", "-c", `echo "$GREETING from $PWD"; echo no >&2; exit 3`).waitForEnd(t)
	want := "hello from " + cfg.Dir + "\n"
	if r.failed != nil || r.code != 3 || r.out.String() != want || r.err.String() != "no\n" {
		t.Errorf("code %d, %v, stdout %q, stderr %q", r.code, r.failed, r.out.String(), r.err.String())
	}
	if r := mustExec(t, task, false, "sh", "-c", "kill -9 $$").waitForEnd(t); r.failed != nil || r.code != 137 {
		t.Errorf("one that was killed: code %d, %v", r.code, r.failed)
	}
	r = mustExec(t, task, false, "cat")
	if _, err := io.WriteString(r.in, strings.Repeat("typed\n", 50_000)); err != nil {
		t.Fatal(err)
	}
	if err := r.in.Close(); err != nil {
		t.Fatal(err)
	}
	if r.waitForEnd(t); r.failed != nil || r.code != 0 || len(r.out.String()) != 300_000 {
		t.Errorf("cat: code %d, %v, %d bytes", r.code, r.failed, len(r.out.String()))
	}
	if task.Ended() {
		t.Error("the task ended with a command beside it")
	}
}

func TestExecEndsWhatItLeaves(t *testing.T) {
	cfg, task := running(t)
	r := mustExec(t, task, false, "sh", "-c", `sleep 86400 & echo $$ $! >pids`).waitForEnd(t)
	if r.failed != nil || r.code != 0 {
		t.Fatalf("code %d, %v", r.code, r.failed)
	}
	for _, pid := range pids(t, cfg, 2) {
		mustBeGone(t, pid)
	}
}

func TestExecEndsWithItsContext(t *testing.T) {
	for _, tty := range []bool{false, true} {
		cfg, task := running(t)
		r := mustExec(t, task, tty, "sh", "-c", `trap "" HUP TERM; sleep 86400 & echo $$ $! >pids; wait`)
		left := pids(t, cfg, 2)
		r.cancel()
		if r.waitForEnd(t); !errors.Is(r.failed, context.Canceled) {
			t.Errorf("tty %t: code %d, %v", tty, r.code, r.failed)
		}
		for _, pid := range left {
			mustBeGone(t, pid)
		}
	}
}

func TestExecOnATerminal(t *testing.T) {
	_, task := running(t)
	r := mustExec(t, task, true, "sh", "-c", `test -t 0 && test -t 1 && test -t 2 && echo "terminal $TERM"; read go; stty size; cat; exit 5`)
	eventually(t, func() (bool, string) {
		return strings.Contains(r.out.String(), "terminal xterm\r\n"), r.out.String()
	})
	r.sizes <- fleet.TerminalSize{Width: 132, Height: 43}
	eventually(t, func() (bool, string) { return len(r.sizes) == 0, "its size is not looked at" })
	r.sizes <- fleet.TerminalSize{Width: 133, Height: 44} // the first size is set when this one is read
	eventually(t, func() (bool, string) { return len(r.sizes) == 0, "its size is not looked at" })
	r.sizes <- fleet.TerminalSize{Width: 133, Height: 44}
	eventually(t, func() (bool, string) { return len(r.sizes) == 0, "its size is not looked at" })
	if _, err := io.WriteString(r.in, "go\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (bool, string) { return strings.Contains(r.out.String(), "44 133"), r.out.String() })
	if err := r.in.Close(); err != nil { // ends cat
		t.Fatal(err)
	}
	if r.waitForEnd(t); r.failed != nil || r.code != 5 {
		t.Errorf("code %d, %v, wrote %q", r.code, r.failed, r.out.String())
	}
}

func TestExecRefusals(t *testing.T) {
	_, task := running(t)
	for _, tc := range []struct {
		command []string
		says    string
	}{
		{[]string{"no-such-program"}, "not found"},
		{[]string{"/etc/passwd"}, "permission denied"},
		{[]string{"echo", "a\x00b"}, "NUL"},
		{[]string{filepath.Join("..", "nothing")}, "no such file"},
	} {
		r := mustExec(t, task, false, tc.command...).waitForEnd(t)
		if fleet.CodeOf(r.failed) != fleet.CodeInvalid || !strings.Contains(r.failed.Error(), tc.says) {
			t.Errorf("%q: %v, want %q", tc.command, r.failed, tc.says)
		}
	}
}
