package supervised_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/supervised"
)

// escaped starts a process in its own session, which does not have the task's output and ignores
// SIGTERM; its parent ends at once.
const escaped = `(setsid sh -c 'echo $$ >> pids; trap "" TERM; exec >/dev/null 2>&1; while :; do sleep 1; done' &); `

// attached is the same, but its parent is the task.
const attached = `setsid sh -c 'echo $$ >> pids; trap "" TERM; exec >/dev/null 2>&1; while :; do sleep 1; done' & `

// A stop kills the processes that a task has started in other sessions, also if the supervisor that would have
// inherited them was killed.
func TestStopAfterTheSupervisorWasKilled(t *testing.T) {
	cfg := newTaskConfig(t, escaped+attached+forever)
	d := mustDriver(t, "")
	h, task := mustStart(t, d, cfg)
	all := pids(t, cfg, 3)
	main := mainOf(t, h.State)
	super := supervisorOf(t, main)
	mustKill(t, super, syscall.SIGKILL)
	mustBeGone(t, super)
	if err := task.Stop(t.Context(), "SIGTERM", 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, pid := range all {
		mustBeGone(t, pid)
	}
}

// Wait and Stop both notice that the supervisor was killed. One of them starts another one, and neither waits for
// the other's.
func TestStopWhileWaitNoticesThatTheSupervisorWasKilled(t *testing.T) {
	for range 10 {
		cfg := newTaskConfig(t, forever)
		h, task := mustStart(t, mustDriver(t, ""), cfg)
		super := supervisorOf(t, mainOf(t, h.State))
		waited := make(chan drivers.Exit, 1)
		go func() { waited <- mustWait(t, task) }()
		stopped := make(chan error, 2)
		mustKill(t, super, syscall.SIGKILL)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for range cap(stopped) {
			go func() { stopped <- task.Stop(ctx, "SIGTERM", 100*time.Millisecond) }()
		}
		for range cap(stopped) {
			if err := <-stopped; err != nil {
				t.Fatal(err)
			}
		}
		<-waited
	}
}

// A stopped supervisor does not delay a stop: after the kill timeout, all processes of the task are killed.
func TestStopWithAFrozenSupervisor(t *testing.T) {
	cfg := newTaskConfig(t, "trap '' TERM; "+escaped+attached+forever)
	d := mustDriver(t, "")
	h, task := mustStart(t, d, cfg)
	all := pids(t, cfg, 3)
	super := supervisorOf(t, mainOf(t, h.State))
	mustKill(t, super, syscall.SIGSTOP)
	defer func() { _ = syscall.Kill(super, syscall.SIGCONT) }() // it was killed
	eventually(t, func() (bool, string) {
		b := string(*mustRead(t, fmt.Sprintf("/proc/%d/stat", super)))
		return strings.Contains(b, ") T "), b
	})
	if err := task.Stop(t.Context(), "SIGTERM", 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(all, super) {
		mustBeGone(t, pid)
	}
	if !task.Ended() {
		t.Error("the task counts as running")
	}
}

// A task with a stopped supervisor still gets its signal.
func TestFrozenSupervisorAndTaskThatHeedsItsSignal(t *testing.T) {
	cfg := newTaskConfig(t, "trap 'echo ended >> done; exit 0' TERM; "+forever)
	h, task := mustStart(t, mustDriver(t, ""), cfg)
	pids(t, cfg, 1)
	super := supervisorOf(t, mainOf(t, h.State))
	mustKill(t, super, syscall.SIGSTOP)
	defer func() { _ = syscall.Kill(super, syscall.SIGCONT) }()
	eventually(t, func() (bool, string) {
		b := string(*mustRead(t, fmt.Sprintf("/proc/%d/stat", super)))
		return strings.Contains(b, ") T "), b
	})
	if err := task.Stop(t.Context(), "SIGTERM", time.Second); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(cfg.Dir + "/done"); err != nil || string(b) != "ended\n" {
		t.Errorf("it wrote %q at its end (%v)", b, err)
	}
}

// mainOf returns the pid of a task's main process.
func mainOf(tb testing.TB, handle []byte) int {
	tb.Helper()
	pid, err := supervised.Decode("handle", handle)
	if err != nil {
		tb.Fatal(err)
	}
	return pid
}

// A process is the task only if its pid, start and boot match.
func TestWhoIsTheTask(t *testing.T) {
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	pid := other.Process.Pid
	start := startOf(t, pid)
	for name, tc := range map[string]struct {
		pid   int
		start uint64
		want  bool
	}{
		"the very process":                 {pid, start, true},
		"one that was started before it":   {pid, start - 1, false},
		"one that was started after it":    {pid, start + 1, false},
		"one whose pid nobody has":         {1 << 30, start, false},
		"another process of the same tick": {os.Getpid(), start, false},
	} {
		if got := supervised.Alive(tc.pid, tc.start); got != tc.want {
			t.Errorf("%s: alive is %t, want %t", name, got, tc.want)
		}
		if err := supervised.SignalProcess(tc.pid, tc.start, syscall.Signal(0)); (err == nil) != tc.want {
			t.Errorf("%s: signal: %v, want success to be %t", name, err, tc.want)
		}
	}
}

// A stop sends no signal to a session whose leader has a reused pid, because that process started at
// another time.
func TestReusedPIDIsNotStopped(t *testing.T) {
	for name, shift := range map[string]int{"the task started before": -1, "the task started after": 1} {
		t.Run(name, func(t *testing.T) {
			cfg := newTaskConfig(t, "echo $$ >> pids; exec sleep 86400")
			h, _ := mustStart(t, mustDriver(t, ""), cfg)
			pid := pids(t, cfg, 1)[0]
			super, started := supervisorOf(t, pid), startOf(t, pid)
			mustKill(t, super, syscall.SIGKILL)
			mustKill(t, pid, syscall.SIGKILL)
			mustBeGone(t, super)
			mustBeGone(t, pid)

			other := exec.Command("sleep", "60")
			other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			gone := make(chan error, 1)
			go func() { gone <- other.Wait() }()
			defer func() { _ = other.Process.Kill() }()
			taken := other.Process.Pid
			from := fmt.Sprintf(`"pid":%d,"start":%d`, pid, started)
			to := fmt.Sprintf(`"pid":%d,"start":%d`, taken, int(startOf(t, taken))+shift)
			record := cfg.StateDir + "/task.json"
			text := strings.ReplaceAll(string(*mustRead(t, record)), from, to)
			if !strings.Contains(text, to) {
				t.Fatalf("the record is %s", text)
			}
			if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			h.State = []byte(strings.ReplaceAll(string(h.State), from, to))
			found, err := mustDriver(t, "").Recover(t.Context(), cfg, h)
			if err != nil {
				t.Fatal(err)
			}
			if !found.Ended() {
				t.Error("another process was taken for the task")
			}
			if err := found.Stop(t.Context(), "SIGKILL", 0); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-gone:
				t.Errorf("another process was ended: %v", err)
			default:
			}
		})
	}
}

// A record of another process than the handle's does not belong to the handle: the state folder was
// restored or reused.
func TestRecordOfAnotherProcess(t *testing.T) {
	cfg := newTaskConfig(t, forever)
	h, _ := mustStart(t, mustDriver(t, ""), cfg)
	pids(t, cfg, 1)
	for _, state := range []string{
		strings.Replace(string(h.State), `"start":`, `"start":1`, 1),
		strings.Replace(string(h.State), `"pid":`, `"pid":1`, 1),
		strings.Replace(string(h.State), `"boot_id":"`, `"boot_id":"x`, 1),
	} {
		other := h
		other.State = []byte(state)
		if _, err := mustDriver(t, "").Recover(t.Context(), cfg, other); err == nil {
			t.Errorf("the task was found by the handle %s", state)
		}
	}
}
