package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/drivers/docker"
	"skerry/fleet"
)

// newTaskConfig makes the configuration and the folders of a task that runs a script.
func newTaskConfig(tb testing.TB, name string, lines ...string) drivers.TaskConfig {
	tb.Helper()
	root := tb.TempDir()
	cfg := drivers.TaskConfig{
		ID: "alloc-1/" + name + "/1", AllocID: "alloc-1", Task: name, Env: map[string]string{"GREETING": "hello"},
		Resources: fleet.Resources{CPU: 100, MemoryMB: 64},
		Dir:       filepath.Join(root, name), AllocDir: filepath.Join(root, "alloc"), LocalDir: filepath.Join(root, name, "local"),
		SecretsDir: filepath.Join(root, name, "secrets"), LogDir: filepath.Join(root, "alloc", "logs"),
		StateDir: filepath.Join(root, "tasks", "alloc-1", name, "1"), KillTimeout: 5 * time.Second,
	}
	for _, dir := range []string{cfg.LocalDir, cfg.SecretsDir, cfg.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	cfg.Config = shell(cfg, lines...)
	delete(cfg.Config, "volumes")
	return cfg
}

// mustStart starts a task, which is removed at the end of the test.
func mustStart(tb testing.TB, d *docker.Driver, cfg drivers.TaskConfig) (drivers.Handle, drivers.Task) {
	tb.Helper()
	h, err := d.Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("Start: %v", err)
	}
	task, err := d.Recover(tb.Context(), cfg, h)
	if err != nil {
		tb.Fatalf("Recover: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(task.Stop(ctx, "SIGKILL", 0), task.Forget(ctx)); err != nil {
			tb.Errorf("remove the task: %v", err)
		}
	})
	return h, task
}

// mustWait waits for the end of a task.
func mustWait(tb testing.TB, task drivers.Task) drivers.Exit {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	exit, err := task.Wait(ctx)
	if err != nil {
		tb.Fatalf("Wait: %v", err)
	}
	return exit
}

// pollUntil calls ok until it returns true, and fails with the last state otherwise.
func pollUntil(tb testing.TB, ok func() (bool, string)) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		done, state := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("did not happen within %v: %s", patience, state)
		}
	}
}

// readLogs returns a task's output on stdout.
func readLogs(cfg drivers.TaskConfig) string {
	paths, _ := filepath.Glob(filepath.Join(cfg.LogDir, cfg.Task+".stdout.*"))
	var all strings.Builder
	for _, p := range paths {
		b, _ := os.ReadFile(p)
		all.Write(b)
	}
	return all.String()
}

// waiting waits for a task in the background, as the runner does.
func waiting(tb testing.TB, task drivers.Task) <-chan drivers.Exit {
	tb.Helper()
	exits := make(chan drivers.Exit, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if exit, err := task.Wait(ctx); err == nil {
			exits <- exit
		}
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
	})
	return exits
}

// mustExit returns the exit of a task that is waited for.
func mustExit(tb testing.TB, exits <-chan drivers.Exit) drivers.Exit {
	tb.Helper()
	select {
	case exit := <-exits:
		return exit
	case <-time.After(patience):
		tb.Fatal("the task's end was not seen")
	}
	return drivers.Exit{}
}

// A daemon that hangs makes no task lost, and the driver unhealthy; when it goes on, all is as it was.
func TestDaemonHangs(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		driver := d.mustDriver(t, "boot")
		cfg := newTaskConfig(t, "web", "trap 'exit 7' TERM", "echo begun", "while :; do sleep 100 & wait $!; done")
		h, task := mustStart(t, driver, cfg)
		exits := waiting(t, task)
		pollUntil(t, func() (bool, string) { return readLogs(cfg) == "begun\n", readLogs(cfg) })
		if err := d.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		goOn := func() { _ = d.Signal(syscall.SIGCONT) }
		defer goOn()
		again := d.mustDriver(t, "boot")
		pollUntil(t, func() (bool, string) { // its threads stop one after the other
			info := again.Fingerprint(t.Context())
			return info.Detected && !info.Healthy && strings.Contains(info.HealthDescription, "systemctl status "+d.name), info.HealthDescription
		})
		if _, err := again.Recover(t.Context(), cfg, h); err == nil || errors.Is(err, drivers.ErrTaskGone) || !drivers.IsRecoverable(err) {
			t.Errorf("Recover: %v, want an error that may not occur again", err)
		}
		if task.Ended() {
			t.Error("ended, but nobody can know")
		}
		goOn()
		pollUntil(t, func() (bool, string) {
			info := again.Fingerprint(t.Context())
			return info.Healthy, info.HealthDescription
		})
		if _, err := again.Recover(t.Context(), cfg, h); err != nil {
			t.Errorf("Recover: %v", err)
		}
		select {
		case exit := <-exits:
			t.Fatalf("%+v, but the task runs", exit)
		default:
		}
		if err := task.Stop(t.Context(), "SIGTERM", 20*time.Second); err != nil {
			t.Error(err)
		}
		if exit := mustExit(t, exits); exit.Code != 7 {
			t.Errorf("%+v, want exit code 7", exit)
		}
	})
}

// A daemon that is killed makes no task lost. When it is back, the driver finds what became of the container:
// Docker ends it, Podman leaves it running.
func TestDaemonIsKilled(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		driver := d.mustDriver(t, "boot")
		cfg := newTaskConfig(t, "web", "while :; do sleep 100 & wait $!; done")
		h, task := mustStart(t, driver, cfg)
		exits := waiting(t, task)
		d.Stop(syscall.SIGKILL)
		if info := driver.Fingerprint(t.Context()); info.Healthy || !strings.Contains(info.HealthDescription, d.name) {
			t.Errorf("%+v of a daemon that was killed", info)
		}
		if _, err := d.mustDriver(t, "boot").Recover(t.Context(), cfg, h); err == nil || errors.Is(err, drivers.ErrTaskGone) || !drivers.IsRecoverable(err) {
			t.Errorf("Recover: %v, want an error that may not occur again", err)
		}
		if task.Ended() {
			t.Error("ended, but nobody can know")
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d.name == docker.Podman {
			again, err := d.mustDriver(t, "boot").Recover(t.Context(), cfg, h)
			if err != nil || again.Ended() {
				t.Fatalf("Recover: %v, want the task running", err)
			}
			if err := again.Stop(t.Context(), "", 0); err != nil {
				t.Fatal(err)
			}
		}
		if exit := mustExit(t, exits); exit.Signal != 9 || exit.Code != 137 {
			t.Errorf("%+v, want it killed", exit)
		}
	})
}

// After a loss of power the daemon first starts the tasks again. The containers that ran before are removed later, those of tasks that do
// not start again with their allocation.
func TestARebootRemovesContainersLater(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		dir, c := t.TempDir(), d.mustClient(t)
		agentOf := func(boot string) *docker.Driver {
			return d.mustDriver(t, boot, func(c *docker.Config) { c.DataDir = dir })
		}
		containersOf := func(task string) []container.Summary {
			t.Helper()
			found, err := c.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", "io.skerry.task="+task)})
			if err != nil {
				t.Fatal(err)
			}
			return found.Items
		}
		expectContainers := func(when, task string, want int) {
			t.Helper()
			if found := containersOf(task); len(found) != want {
				t.Errorf("%s: %d containers of the task %s, want %d", when, len(found), task, want)
			}
		}
		const again, ended = "starts-again", "has-ended"
		configs := map[string]drivers.TaskConfig{}
		handles := map[string]drivers.Handle{}
		for _, name := range []string{again, ended} {
			configs[name] = newTaskConfig(t, name, "echo before the reboot", "while :; do sleep 100 & wait $!; done")
			handles[name], _ = mustStart(t, agentOf("boot-1"), configs[name])
			pollUntil(t, func() (bool, string) { // until the daemon has its output
				found := containersOf(name)
				if len(found) != 1 {
					return false, "no container"
				}
				inspected, err := c.ContainerInspect(t.Context(), found[0].ID, client.ContainerInspectOptions{})
				if err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(inspected.Container.LogPath)
				return err == nil && strings.Contains(string(text), "before the reboot"), string(text)
			})
		}
		if err := errors.Join(d.CutPower(), d.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
		driver := agentOf("boot-2")
		for name, cfg := range configs {
			if _, err := driver.Recover(t.Context(), cfg, handles[name]); !errors.Is(err, drivers.ErrTaskGone) {
				t.Errorf("Recover %s: %v, want %v", name, err, drivers.ErrTaskGone)
			}
			if out := readLogs(cfg); !strings.Contains(out, "before the reboot") {
				t.Errorf("the output of %s is %q", name, out)
			}
		}
		next := configs[again]
		next.ID, next.StateDir = "alloc-1/"+again+"/2", filepath.Join(filepath.Dir(next.StateDir), "2")
		_, task := mustStart(t, driver, next)
		expectContainers("after the start", again, 2)
		remove := func(known bool) []string {
			t.Helper()
			removed, err := driver.RemoveOrphans(t.Context(), func(fleet.AllocID) bool { return known })
			if err != nil {
				t.Error(err)
			}
			return removed
		}
		if removed := remove(true); len(removed) != 0 {
			t.Errorf("%q are called unknown", removed)
		}
		expectContainers("after the removal", again, 1)
		expectContainers("after the removal", ended, 1)
		if task.Ended() {
			t.Error("the task has ended")
		}
		if removed := remove(false); len(removed) != 2 {
			t.Errorf("removed %q of an unknown allocation, want two", removed)
		}
		expectContainers("once the allocation has ended", ended, 0)
	})
}

// A daemon that comes back without our containers has lost them: their exit is unknown.
func TestDaemonComesBackWithoutContainers(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		driver := d.mustDriver(t, "boot")
		cfg := newTaskConfig(t, "web", "while :; do sleep 100 & wait $!; done")
		_, task := mustStart(t, driver, cfg)
		exits := waiting(t, task)
		mustRemoveContainers(t, d)
		if exit := mustExit(t, exits); exit.Success() || exit.Code != -1 && exit.Code != 137 {
			t.Errorf("%+v, want it lost or killed", exit)
		}
		other := newTaskConfig(t, "other", "while :; do sleep 100 & wait $!; done")
		h, _ := mustStart(t, driver, other)
		mustRemoveContainers(t, d)
		if _, err := d.mustDriver(t, "boot").Recover(t.Context(), other, h); !errors.Is(err, drivers.ErrTaskGone) {
			t.Errorf("Recover: %v, want %v", err, drivers.ErrTaskGone)
		}
	})
}

// A daemon that dies between a container's start and its own record of the start comes back without knowing that the
// container runs, as does one whose records are lost. The container's processes do not run on beside the next attempt.
func TestDaemonForgetsARunningContainer(t *testing.T) {
	for _, d := range daemons {
		if d.name != docker.Docker { // Podman has no daemon that could forget
			continue
		}
		t.Run("never started", func(t *testing.T) { testForgottenContainer(t, d, mustMarkAsCreated, true) })
		t.Run("no record", func(t *testing.T) { testForgottenContainer(t, d, mustRemoveRecords, false) })
	}
}

// testForgottenContainer checks that containers end whose records forget has changed. isListed says whether the daemon
// still lists them.
func testForgottenContainer(t *testing.T, d *daemon, forget func(tb testing.TB, records string), isListed bool) {
	d.mustRun(t)
	dir := t.TempDir()
	driver := d.mustDriver(t, "boot", func(c *docker.Config) { c.DataDir = dir })
	newRun := func(name string) (drivers.TaskConfig, drivers.Handle, drivers.Task, int) {
		before, err := d.FirstProcesses()
		if err != nil {
			t.Fatal(err)
		}
		cfg := newTaskConfig(t, name, "while :; do sleep 100 & wait $!; done")
		h, task := mustStart(t, driver, cfg)
		after, err := d.FirstProcesses()
		after = slices.DeleteFunc(after, func(pid int) bool { return slices.Contains(before, pid) })
		if err != nil || len(after) != 1 {
			t.Fatalf("%d new containers run, %v", len(after), err)
		}
		return cfg, h, task, after[0]
	}
	_, _, task, pidOfWaited := newRun("waited")
	recovered, h, _, pidOfRecovered := newRun("recovered")
	retried, _, _, pidOfRetried := newRun("retried")
	ids, err := filepath.Glob(filepath.Join(d.Dir, "data", "containers", "*"))
	if err != nil || len(ids) < 3 {
		t.Fatalf("the records of %d containers, %v", len(ids), err)
	}
	d.Stop(syscall.SIGKILL)
	for _, records := range ids {
		forget(t, records)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectRun := func(what string, pid int, want bool) {
		t.Helper()
		if pids, err := d.FirstProcesses(); err != nil || slices.Contains(pids, pid) != want {
			t.Errorf("%s: the container's process runs: %v, want %v (%v)", what, !want, want, err)
		}
	}
	expectRun("before", pidOfRetried, true)
	expectRun("before", pidOfRecovered, true)
	expectRun("before", pidOfWaited, true)

	if _, err := driver.Recover(t.Context(), recovered, h); !errors.Is(err, drivers.ErrTaskGone) {
		t.Errorf("Recover: %v, want %v", err, drivers.ErrTaskGone)
	}
	expectRun("after Recover", pidOfRecovered, false)
	expectRun("after Recover of another", pidOfWaited, true)

	if exit := mustExit(t, waiting(t, task)); exit.Success() {
		t.Errorf("%+v, want it lost", exit)
	}
	expectRun("after Wait", pidOfWaited, false)
	expectRun("after Wait for another", pidOfRetried, true)

	if isListed { // else nothing leads from the task to its container
		next := retried
		next.ID, next.StateDir = "alloc-1/retried/2", filepath.Join(filepath.Dir(retried.StateDir), "2")
		mustStart(t, driver, next)
		expectRun("after the next attempt's start", pidOfRetried, false)
	}
}

// A container that an agent created before it died is started by the next agent, which makes no second one, unless the task has another
// configuration now.
func TestCreatedContainerIsStarted(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		driver := d.mustDriver(t, "boot")
		mustStart(t, driver, newTaskConfig(t, "first", "true")) // Podman's driver learns the limits of this machine
		for name, same := range map[string]bool{"same": true, "other": false} {
			cfg := newTaskConfig(t, name, "while :; do sleep 100 & wait $!; done")
			cfg.Env = map[string]string{"A": "1", "B": "2", "C": "3"}
			created, err := driver.CreateContainer(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if !same {
				cfg.Env = map[string]string{"A": "1", "B": "2", "C": "4"}
			}
			h, task := mustStart(t, driver, cfg)
			if got := strings.Contains(string(h.State), created); got != same || task.Ended() {
				t.Errorf("%s: the container that was created runs: %v, want %v; ended: %v", name, got, same, task.Ended())
			}
		}
	})
}

// mustRemoveRecords removes a container's records.
func mustRemoveRecords(tb testing.TB, records string) {
	tb.Helper()
	if err := os.RemoveAll(records); err != nil {
		tb.Fatal(err)
	}
}

// mustMarkAsCreated changes a container's record to that of a container that was never started.
func mustMarkAsCreated(tb testing.TB, records string) {
	tb.Helper()
	path := filepath.Join(records, "config.v2.json")
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(content, &record); err != nil {
		tb.Fatal(err)
	}
	state, is := record["State"].(map[string]any)
	if !is {
		tb.Fatalf("%s has no state", path)
	}
	state["Running"], state["Pid"], state["StartedAt"] = false, 0, "0001-01-01T00:00:00Z"
	if content, err = json.Marshal(record); err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// mustRemoveContainers removes all containers behind the driver's back.
func mustRemoveContainers(tb testing.TB, d *daemon) {
	tb.Helper()
	if _, err := d.RemoveContainers(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// Output is copied once, although the agent is killed in between: the next agent counts the output that was copied
// after the last recorded position, and reads the rest from the daemon's log.
func TestOutputAcrossAgents(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		cfg := newTaskConfig(t, "web", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done", "while [ ! -e /local/more ]; do sleep 0.05; done",
			"while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done")
		cfg.Logs = fleet.LogConfig{MaxFiles: 50, MaxFileSizeMB: 1}
		h, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
		ctx, kill := context.WithCancel(t.Context())
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = task.Wait(ctx)
		}()
		pollUntil(t, func() (bool, string) { return strings.Count(readLogs(cfg), "\n") == 2000, readLogs(cfg) })
		position, err := os.ReadFile(filepath.Join(cfg.StateDir, "logs.json"))
		if err != nil {
			t.Fatal(err)
		}
		kill()
		<-copied
		// An agent that is killed does not record its last position.
		if err := os.WriteFile(filepath.Join(cfg.StateDir, "logs.json"), position, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cfg.LocalDir, "more"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := d.mustDriver(t, "boot").Recover(t.Context(), cfg, h)
		if err != nil {
			t.Fatal(err)
		}
		if exit := mustWait(t, again); !exit.Success() {
			t.Errorf("%+v", exit)
		}
		lines := strings.Split(strings.TrimSuffix(readLogs(cfg), "\n"), "\n")
		for i, line := range lines {
			if want := "line " + itoa(i); line != want {
				t.Fatalf("line %d of %d is %q, want %q", i, len(lines), line, want)
			}
		}
		if len(lines) != 4000 {
			t.Errorf("%d lines, want 4000", len(lines))
		}
	})
}

// A task that uses more memory than it may is killed, and the exit says so.
func TestOutOfMemory(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		cfg := newTaskConfig(t, "web", "x=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; while :; do x=$x$x; done")
		cfg.Resources.MemoryMB = 20
		_, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
		exit := mustWait(t, task)
		if exit.Signal != 9 || exit.Success() {
			t.Errorf("%+v, want it killed", exit)
		}
		if !exit.OOM {
			t.Errorf("%+v, want it out of memory", exit)
		}
	})
}

// An image that is not there and cannot be fetched is an error that may not occur again, with a hint. One that is
// there is not asked for.
func TestWithoutARegistry(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		cfg := newTaskConfig(t, "web", "true")
		cfg.Config["image"] = "127.0.0.1:1/absent:1"
		_, err := d.mustDriver(t, "boot").Start(t.Context(), cfg)
		if err == nil || !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "load the image beforehand") {
			t.Errorf("Start: %v, want a recoverable error with a hint", err)
		}
		cfg.Config["image"] = testImage // of no registry
		_, task := mustStart(t, d.mustDriver(t, "boot"), cfg)
		if exit := mustWait(t, task); !exit.Success() {
			t.Errorf("%+v", exit)
		}
	})
}

// A program that the image does not have is a permanent error, and leaves no container.
func TestMissingCommand(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		cfg := newTaskConfig(t, "missing-command") // no other test's containers have its label
		cfg.Config["command"], cfg.Config["args"] = "/no/such/program", []any{}
		_, err := d.mustDriver(t, "boot").Start(t.Context(), cfg)
		if err == nil || drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "/no/such/program") {
			t.Errorf("Start: %v, want a permanent error that names the program", err)
		}
		list, err := d.mustClient(t).ContainerList(t.Context(), client.ContainerListOptions{
			All: true, Filters: make(client.Filters).Add("label", "io.skerry.task=missing-command"),
		})
		if err != nil || len(list.Items) != 0 {
			t.Errorf("%d containers, %v", len(list.Items), err)
		}
	})
}
