package docker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/drivers/docker"
	"skerry/fleet"
)

// mustReadV1 returns a record as the first release wrote it.
func mustReadV1(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "v1", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// mustCreateV1 creates a container with the labels and the records of the first release, and returns its id and its handle.
func mustCreateV1(tb testing.TB, d *daemon, driver *docker.Driver, cfg drivers.TaskConfig) (string, drivers.Handle) {
	tb.Helper()
	id, err := driver.CreateContainer(tb.Context(), cfg, "io.skerry.config")
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.StateDir, "logs.json"), mustReadV1(tb, "logs.json"), 0o600); err != nil {
		tb.Fatal(err)
	}
	state := strings.Replace(string(mustReadV1(tb, "handle.json")), "CONTAINER", id, 1)
	return id, drivers.Handle{Driver: d.name, Version: 1, TaskID: cfg.ID, State: []byte(state)}
}

// TestContainersOfVersion1: an agent adopts a container that the first release has started, with all its output, starts no second one,
// and can stop and remove it. One that was only created then has no label that says whether it fits: it is replaced.
func TestContainersOfVersion1(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		dir := t.TempDir()
		driver := d.mustDriver(t, "boot", func(c *docker.Config) { c.DataDir = dir })
		mustStart(t, driver, newTaskConfig(t, "first", "true")) // Podman's driver learns the limits of this machine
		const script = "trap 'exit 7' TERM; echo before; while [ ! -e /local/upgraded ]; do sleep 0.05; done; echo after; while :; do sleep 100 & wait $!; done"

		cfg := newTaskConfig(t, "runs", script)
		id, h := mustCreateV1(t, d, driver, cfg)
		if _, err := d.mustClient(t).ContainerStart(t.Context(), id, client.ContainerStartOptions{}); err != nil {
			t.Fatal(err)
		}
		again, task := mustStart(t, driver, cfg)
		if !strings.Contains(string(again.State), id) {
			t.Errorf("Start: %s, want the container %s", again.State, id)
		}
		adopted, err := driver.Recover(t.Context(), cfg, h)
		if err != nil || adopted.Ended() {
			t.Fatalf("Recover: %v, want the task running", err)
		}
		exits := waiting(t, adopted)
		pollUntil(t, func() (bool, string) { return readLogs(cfg) == "before\n", readLogs(cfg) })
		if err := os.WriteFile(filepath.Join(cfg.LocalDir, "upgraded"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		pollUntil(t, func() (bool, string) { return readLogs(cfg) == "before\nafter\n", readLogs(cfg) })
		if removed, err := driver.RemoveOrphans(t.Context(), func(fleet.AllocID) bool { return true }); len(removed) > 0 || err != nil || task.Ended() {
			t.Errorf("orphans removed: %q, %v; the task has ended: %v", removed, err, task.Ended())
		}
		if err := adopted.Stop(t.Context(), "SIGTERM", 20*time.Second); err != nil {
			t.Fatal(err)
		}
		if exit := mustExit(t, exits); exit.Code != 7 {
			t.Errorf("%+v, want exit code 7", exit)
		}

		cfg = newTaskConfig(t, "created", "while :; do sleep 100 & wait $!; done")
		id, h = mustCreateV1(t, d, driver, cfg)
		if _, err := driver.Recover(t.Context(), cfg, drivers.Handle{Driver: d.name, TaskID: cfg.ID}); !errors.Is(err, drivers.ErrTaskGone) {
			t.Errorf("Recover of a container that was only created: %v, want %v", err, drivers.ErrTaskGone)
		}
		again, task = mustStart(t, driver, cfg)
		if strings.Contains(string(again.State), id) || task.Ended() {
			t.Errorf("the container that was only created was started: %s, ended: %v", again.State, task.Ended())
		}
		if _, err := driver.Recover(t.Context(), cfg, h); !errors.Is(err, drivers.ErrTaskGone) || task.Ended() {
			t.Errorf("Recover by the former handle: %v, want %v; the task has ended: %v", err, drivers.ErrTaskGone, task.Ended())
		}
	})
}

// TestExitOfVersion1: the exit that the first release has recorded is read, without a daemon.
func TestExitOfVersion1(t *testing.T) {
	d := &daemon{name: docker.Docker, socket: filepath.Join(t.TempDir(), "none")}
	cfg := drivers.TaskConfig{ID: "alloc-1/web/1", AllocID: "alloc-1", Task: "web", StateDir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(cfg.StateDir, "exit.json"), mustReadV1(t, "exit.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	task, err := d.mustDriver(t, "boot").Recover(t.Context(), cfg, drivers.Handle{
		Driver: d.name, Version: 1, TaskID: cfg.ID, State: mustReadV1(t, "handle.json"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := drivers.Exit{Code: 137, Signal: 9, OOM: true, FinishedAt: time.Unix(0, 1796000000000000000)}
	if exit := mustWait(t, task); exit != want {
		t.Errorf("%+v, want %+v", exit, want)
	}
}
