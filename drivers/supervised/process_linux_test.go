package supervised_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

// newTaskConfig makes the folders and the configuration of a task.
func newTaskConfig(tb testing.TB, script string) drivers.TaskConfig {
	tb.Helper()
	root := tb.TempDir()
	cfg := drivers.TaskConfig{
		ID: "alloc/web/1", AllocID: "alloc", Task: "web", Logs: fleet.LogConfig{MaxFiles: 2, MaxFileSizeMB: 1},
		Dir: filepath.Join(root, "web"), LogDir: filepath.Join(root, "logs"), StateDir: filepath.Join(root, "state", "1"),
		Config: map[string]any{"command": "sh", "args": []string{"-c", script}},
	}
	for _, dir := range []string{cfg.Dir, cfg.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return cfg
}

func mustStart(tb testing.TB, d *supervised.Driver, cfg drivers.TaskConfig) (drivers.Handle, drivers.Task) {
	tb.Helper()
	h, err := d.Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	task, err := d.Recover(tb.Context(), cfg, h)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := task.Stop(context.WithoutCancel(tb.Context()), "SIGKILL", 0); err != nil {
			tb.Errorf("stop at the end: %v", err)
		}
	})
	return h, task
}

func mustWait(tb testing.TB, task drivers.Task) drivers.Exit {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	exit, err := task.Wait(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return exit
}

// pids reads the pids that a script has written to a file, once there are n of them.
func pids(tb testing.TB, cfg drivers.TaskConfig, n int) []int {
	tb.Helper()
	var found []int
	eventually(tb, func() (bool, string) {
		b, _ := os.ReadFile(filepath.Join(cfg.Dir, "pids"))
		found = nil
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				tb.Fatal(err)
			}
			found = append(found, pid)
		}
		return len(found) == n, fmt.Sprintf("pids: %q", b)
	})
	return found
}

// mustBeGone waits until no thread of the process is left, because the last one closes its files.
func mustBeGone(tb testing.TB, pid int) {
	tb.Helper()
	eventually(tb, func() (bool, string) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return true, ""
		}
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		return err != nil || bytes.Contains(b, []byte(") Z ")) && len(threads) == 1, string(b)
	})
}

// supervisorOf returns the pid of the supervisor of a task's process.
func supervisorOf(tb testing.TB, pid int) int {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	parent, _, _, err := supervised.ParseStat(b)
	if err != nil {
		tb.Fatal(err)
	}
	return parent
}

// startOf returns the start of a process in ticks since boot.
func startOf(tb testing.TB, pid int) uint64 {
	tb.Helper()
	_, _, start, err := supervised.ParseStat(*mustRead(tb, fmt.Sprintf("/proc/%d/stat", pid)))
	if err != nil {
		tb.Fatal(err)
	}
	return start
}

func mustKill(tb testing.TB, pid int, sig syscall.Signal) {
	tb.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		tb.Fatal(err)
	}
}

const forever = "echo $$ >> pids; while :; do echo tick; sleep 0.05; done"

func TestStopEndsTheWholeGroup(t *testing.T) {
	cfg := newTaskConfig(t, "trap '' TERM; (trap '' TERM; echo $(exec sh -c 'echo $PPID') >> pids; while :; do sleep 1; done) & "+forever)
	_, task := mustStart(t, mustDriver(t, ""), cfg)
	all := pids(t, cfg, 2)
	if err := task.Stop(t.Context(), "SIGTERM", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, pid := range all {
		mustBeGone(t, pid)
	}
}

// Processes that a task leaves behind end with it, also in sessions of their own.
func TestEndLeavesNothingBehind(t *testing.T) {
	cfg := newTaskConfig(t, "setsid sh -c 'echo $$ >> pids; trap \"\" TERM; while :; do sleep 1; done' & while [ ! -s pids ]; do sleep 0.01; done; exit 3")
	_, task := mustStart(t, mustDriver(t, ""), cfg)
	left := pids(t, cfg, 1)[0]
	if exit := mustWait(t, task); exit.Code != 3 {
		t.Errorf("exit %+v, want code 3", exit)
	}
	mustBeGone(t, left)
}

// Killing a supervisor ends neither the task nor its output.
func TestSupervisorKilled(t *testing.T) {
	cfg := newTaskConfig(t, forever)
	d := mustDriver(t, "")
	h, task := mustStart(t, d, cfg)
	pid := pids(t, cfg, 1)[0]

	waited := make(chan drivers.Exit, 1)
	go func() { waited <- mustWait(t, task) }()
	first := supervisorOf(t, pid)
	mustKill(t, first, syscall.SIGKILL)
	log := filepath.Join(cfg.LogDir, "web.stdout.0")
	before := size(log)
	eventually(t, func() (bool, string) { // a new supervisor copies its output
		return size(log) > before+20, fmt.Sprintf("%d bytes", size(log))
	})
	if task.Ended() {
		t.Fatal("it counts as ended")
	}
	again, err := mustDriver(t, "").Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Stop(t.Context(), "SIGTERM", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, pid)
	if exit := <-waited; exit.Success() || !strings.Contains(exit.Err, "lost") {
		t.Errorf("exit %+v, want that it is lost", exit)
	}
	if n := len(pids(t, cfg, 1)); n != 1 {
		t.Errorf("%d starts", n)
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Both are killed while no agent runs: the exit is reported as lost.
func TestSupervisorAndTaskKilled(t *testing.T) {
	cfg := newTaskConfig(t, "echo $$ >> pids; exec sleep 86400") // without a child that would live on
	h, _ := mustStart(t, mustDriver(t, ""), cfg)
	pid := pids(t, cfg, 1)[0]
	super := supervisorOf(t, pid)
	mustKill(t, super, syscall.SIGKILL)
	mustKill(t, pid, syscall.SIGKILL)
	mustBeGone(t, super)
	mustBeGone(t, pid)
	task, err := mustDriver(t, "").Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	if !task.Ended() {
		t.Fatal("it counts as running")
	}
	if exit := mustWait(t, task); !strings.Contains(exit.Err, "lost") {
		t.Errorf("exit %+v, want that it is lost", exit)
	}
}

// A supervisor is killed after it started the task and before it recorded it: the next one finds the
// task by its output.
func TestSupervisorKilledInTheStart(t *testing.T) {
	cfg := newTaskConfig(t, forever)
	d := mustDriver(t, "")
	h, _ := mustStart(t, d, cfg)
	super := supervisorOf(t, pids(t, cfg, 1)[0])
	mustKill(t, super, syscall.SIGKILL)
	mustBeGone(t, super)
	if err := os.Remove(filepath.Join(cfg.StateDir, "task.json")); err != nil {
		t.Fatal(err)
	}
	again, err := mustDriver(t, "").Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if string(again.State) != string(h.State) {
		t.Errorf("found %s, want %s", again.State, h.State)
	}
	if n := len(pids(t, cfg, 1)); n != 1 {
		t.Errorf("%d starts", n)
	}
}

// A reused pid is not the task: here a process with another start time, in a folder without a supervisor.
func TestRecycledPID(t *testing.T) {
	cfg := newTaskConfig(t, forever)
	h, task := mustStart(t, mustDriver(t, ""), cfg)
	pid := pids(t, cfg, 1)[0]
	super, started := supervisorOf(t, pid), startOf(t, pid)
	mustKill(t, super, syscall.SIGKILL)
	mustKill(t, pid, syscall.SIGKILL)
	mustBeGone(t, super)
	mustBeGone(t, pid)

	var other *exec.Cmd
	eventually(t, func() (bool, string) { // a pid is not reused within one tick of the clock
		if other != nil {
			_ = other.Process.Kill()
			_ = other.Wait()
		}
		other = exec.Command("sleep", "60")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		return startOf(t, other.Process.Pid) > started, "started in the same tick"
	})
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	record := filepath.Join(cfg.StateDir, "task.json")
	for _, file := range []*[]byte{mustRead(t, record), &h.State} {
		*file = bytes.ReplaceAll(*file, fmt.Appendf(nil, `"pid":%d,`, pid), fmt.Appendf(nil, `"pid":%d,`, other.Process.Pid))
		if file != &h.State {
			if err := os.WriteFile(record, *file, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := mustDriver(t, "").Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(found.Stop(t.Context(), "SIGKILL", 0), task.Stop(t.Context(), "SIGKILL", 0)); err != nil {
		t.Fatal(err)
	}
	if !found.Ended() {
		t.Error("the other process was taken for the task")
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other process is gone: %v", err)
	}
}

func mustRead(tb testing.TB, path string) *[]byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return &b
}

// A copy of a data directory does not affect the tasks of the original, also without a supervisor.
func TestCopiedFolder(t *testing.T) {
	cfg := newTaskConfig(t, forever)
	h, task := mustStart(t, mustDriver(t, ""), cfg)
	pid := pids(t, cfg, 1)[0]
	copied := cfg
	copied.StateDir = cfg.StateDir + "-copy"
	if out, err := exec.Command("cp", "-a", cfg.StateDir, copied.StateDir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mustKill(t, supervisorOf(t, pid), syscall.SIGKILL)
	d := mustDriver(t, "")
	if _, err := d.Recover(t.Context(), copied, h); !errors.Is(err, drivers.ErrTaskGone) {
		t.Errorf("Recover in the copy: %v, want %v", err, drivers.ErrTaskGone)
	}
	_, second := mustStart(t, d, copied) // the copy has its own task
	if all := pids(t, cfg, 2); all[0] == all[1] {
		t.Errorf("pids %v", all)
	}
	if err := second.Stop(t.Context(), "SIGTERM", time.Second); err != nil {
		t.Fatal(err)
	}
	if task.Ended() {
		t.Error("the first one's task has ended with it")
	}
}

// A shutdown of the machine ends supervisors and tasks together. That is no exit of the task: after the
// boot it is gone.
func TestEndedByShutdown(t *testing.T) {
	cfg := newTaskConfig(t, "trap 'exit 0' TERM; "+forever)
	h, task := mustStart(t, mustDriver(t, ""), cfg)
	pid := pids(t, cfg, 1)[0]
	mustKill(t, supervisorOf(t, pid), syscall.SIGTERM)
	mustKill(t, pid, syscall.SIGTERM)
	if exit := mustWait(t, task); exit.Code != 0 {
		t.Errorf("in this boot: exit %+v, want code 0", exit)
	}
	if _, err := mustDriver(t, "another-boot").Recover(t.Context(), cfg, h); !errors.Is(err, drivers.ErrTaskGone) {
		t.Errorf("in the next boot: %v, want %v", err, drivers.ErrTaskGone)
	}
}

func TestStartErrors(t *testing.T) {
	d := mustDriver(t, "")
	for name, spoil := range map[string]func(cfg *drivers.TaskConfig){
		"no such command": func(cfg *drivers.TaskConfig) { cfg.Config["command"] = "/no/such/command" },
		"not executable":  func(cfg *drivers.TaskConfig) { cfg.Config["command"] = "/etc/passwd" },
		"no such folder":  func(cfg *drivers.TaskConfig) { cfg.Dir = "/no/such/folder" },
		"bad signal":      func(cfg *drivers.TaskConfig) { cfg.KillSignal = "SIGSOLDIER" },
		"no state folder": func(cfg *drivers.TaskConfig) { cfg.StateDir = "" },
		"relative folder": func(cfg *drivers.TaskConfig) { cfg.LogDir = "logs" },
		"no task":         func(cfg *drivers.TaskConfig) { cfg.Task = "" },
	} {
		cfg := newTaskConfig(t, "exit 0")
		spoil(&cfg)
		if _, err := d.Start(t.Context(), cfg); err == nil || drivers.IsRecoverable(err) {
			t.Errorf("%s: %v, want an error that no second try can mend", name, err)
		}
	}
	cfg := newTaskConfig(t, "exit 0")
	text := filepath.Join(cfg.Dir, "text")
	if err := os.WriteFile(text, []byte{0x7f, 'E', 'L', 'F', 0}, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Config = map[string]any{"command": "text"}
	if _, err := d.Start(t.Context(), cfg); !errors.Is(err, syscall.ENOEXEC) && (err == nil || !strings.Contains(err.Error(), "exec format")) {
		t.Errorf("not a program: %v", err)
	}
	if _, err := os.Stat(cfg.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state folder is left: %v", err)
	}
}

// A refused start leaves no supervisor process: an agent that runs for years would run out of processes.
func TestRefusedStartsLeaveNoZombie(t *testing.T) {
	d := mustDriver(t, "")
	before := childrenOf(t, os.Getpid()) // of other tests' agents
	for range 3 {
		cfg := newTaskConfig(t, "exit 0")
		if err := os.WriteFile(filepath.Join(cfg.Dir, "text"), []byte{0x7f, 'E', 'L', 'F', 0}, 0o755); err != nil {
			t.Fatal(err)
		}
		cfg.Config = map[string]any{"command": "text"}
		if _, err := d.Start(t.Context(), cfg); err == nil {
			t.Fatal("started what is no program")
		}
	}
	for pid, stat := range childrenOf(t, os.Getpid()) {
		if before[pid] == "" {
			t.Errorf("left behind: %s", stat)
		}
	}
}

// childrenOf returns the children of a process, zombies included, with their /proc/PID/stat.
func childrenOf(tb testing.TB, pid int) map[string]string {
	tb.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		tb.Fatal(err)
	}
	found := map[string]string{}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if parent, _, _, err := supervised.ParseStat(b); err == nil && parent == pid {
			found[path] = strings.TrimSpace(string(b))
		}
	}
	return found
}

// A supervisor whose state folder was removed ends with its task and stops retrying.
func TestSupervisorOfARemovedFolderEnds(t *testing.T) {
	cfg := newTaskConfig(t, forever)
	if _, err := mustDriver(t, "").Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	pid := pids(t, cfg, 1)[0]
	super := supervisorOf(t, pid)
	if err := os.RemoveAll(cfg.StateDir); err != nil {
		t.Fatal(err)
	}
	mustKill(t, pid, syscall.SIGKILL)
	mustBeGone(t, super)
}

// A task gets its folder, its environment and no input, and no open file of the supervisor, the agent or the agent's
// parent.
func TestTaskSees(t *testing.T) {
	t.Setenv("SKERRY_SECRET", "agent's")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := syscall.Dup(int(w.Fd())); err != nil { // not closed on exec
		t.Fatal(err)
	}
	cfg := newTaskConfig(t, `pwd; echo "$GREETING $SKERRY_SECRET|"; cat; ls -l /proc/self/fd >&2`)
	cfg.Env = map[string]string{"GREETING": "hello"}
	_, task := mustStart(t, mustDriver(t, ""), cfg)
	mustWait(t, task)
	if got, want := string(*mustRead(t, filepath.Join(cfg.LogDir, "web.stdout.0"))), cfg.Dir+"\nhello |\n"; got != want {
		t.Errorf("it saw %q, want %q", got, want)
	}
	for line := range strings.Lines(string(*mustRead(t, filepath.Join(cfg.LogDir, "web.stderr.0")))) {
		_, file, link := strings.Cut(strings.TrimSpace(line), " -> ")
		if link && file != "/dev/null" && !strings.HasPrefix(file, cfg.StateDir) && !strings.HasPrefix(file, "/proc/") {
			t.Errorf("it has %s open", file)
		}
	}
}

// All output of a task that ends at once is written.
func TestOutputIsWhole(t *testing.T) {
	cfg := newTaskConfig(t, "i=0; while [ $i -lt 3000 ]; do echo 'a line of output, rather long, so that it fills the pipe'; i=$((i+1)); done")
	_, task := mustStart(t, mustDriver(t, ""), cfg)
	mustWait(t, task)
	if b := *mustRead(t, filepath.Join(cfg.LogDir, "web.stdout.0")); bytes.Count(b, []byte("\n")) != 3000 {
		t.Errorf("%d lines, want 3000", bytes.Count(b, []byte("\n")))
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1234 (a) b) (c) S 1 1234 1234 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3"))
	f.Add([]byte("1234 (a) S"))
	f.Add([]byte(""))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, start, err := supervised.ParseStat(b)
		if err != nil && start != 0 {
			t.Errorf("%q: start %d with an error", b, start)
		}
	})
}

func TestParseStat(t *testing.T) {
	parent, session, start, err := supervised.ParseStat([]byte(
		"1234 (a) b) (c) S 17 1230 1229 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3"))
	if parent != 17 || session != 1229 || start != 987654 || err != nil {
		t.Errorf("parent %d, session %d, start %d, %v", parent, session, start, err)
	}
}

func FuzzParseOrder(f *testing.F) {
	for _, line := range []string{"stop 15 5000", "signal 1", "stop 15", "stop 99 1", "signal -9", "stop 15 -1", "", "stop 15 99999999999"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		once, err := supervised.ParseControlCommand(line)
		if err != nil {
			return
		}
		if twice, err := supervised.ParseControlCommand(strings.TrimSpace(once)); err != nil || twice != once {
			t.Errorf("%q became %q, then %q, %v", line, once, twice, err)
		}
	})
}

// TestDisabledLogsTakeAllOutput: a task whose logs are disabled is not held up by its output, and leaves no file.
func TestDisabledLogsTakeAllOutput(t *testing.T) {
	cfg := newTaskConfig(t, "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; exit 3")
	cfg.Logs.Disabled = true
	_, task := mustStart(t, mustDriver(t, ""), cfg)
	if exit := mustWait(t, task); exit.Code != 3 {
		t.Errorf("%+v, want the code 3", exit)
	}
	if files, err := os.ReadDir(cfg.LogDir); err != nil || len(files) > 0 {
		t.Errorf("files in the folder of logs: %v, %v", files, err)
	}
}
