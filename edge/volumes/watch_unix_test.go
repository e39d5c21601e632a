//go:build unix

package volumes_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/edge/volumes"
	"skerry/fleet"
)

// control is a runner.TaskControl that keeps what is asked of the task.
type control struct {
	runner.TaskControl
	list []string
}

func (c *control) Event(_ context.Context, kind, message string) error {
	c.list = append(c.list, kind+": "+message)
	return nil
}

func (c *control) Restart(_ context.Context, reason string) error {
	c.list = append(c.list, "restart: "+reason)
	return nil
}

// watchTask prepares a task that mounts the folder at path, watches it while change runs, and returns what was asked of it. change
// gets a function that waits for some looks at the folder.
func watchTask(t *testing.T, h *volumes.Hook, request fleet.VolumeRequest, path string, change func(t *testing.T, p *runner.Preparation, looks func(n int))) []string {
	t.Helper()
	request.Source = "data"
	p := mustPreparation(t, request, map[string]fleet.HostVolume{"data": {Path: path}})
	if err := h.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	asked := &control{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { h.Watch(ctx, p, asked) })
		synctest.Wait()
		time.Sleep(time.Second)
		change(t, p, func(n int) {
			time.Sleep(time.Duration(n) * 10 * time.Second)
			synctest.Wait()
		})
		cancel()
		wg.Wait()
	})
	return asked.list
}

// replaceFolder puts another folder in the place of one that a task has.
func replaceFolder(path string) error {
	return errors.Join(os.Rename(path, path+".former"), os.Mkdir(path, 0o700))
}

// TestFolderIsLostWhileTheTaskRuns: the task gets an event with a hint, and restarts; each start fails until the folder is back.
func TestFolderIsLostWhileTheTaskRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		change     func(path string) error
		want, hint string
	}{
		"removed":  {os.Remove, `does not exist`, "make the folder, or mount its disk"},
		"a file":   {func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) }, "is not a folder", "make a folder in its place"},
		"replaced": {replaceFolder, `was replaced, and the task still writes to the former one`, "stop a job before you remove or replace the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			h := newHook(t)
			got := watchTask(t, h, fleet.VolumeRequest{}, path, func(t *testing.T, p *runner.Preparation, looks func(int)) {
				looks(6)
				if err := tc.change(path); err != nil {
					t.Fatal(err)
				}
				looks(6)
				if err := h.Prepare(t.Context(), p); (err == nil) != (name == "replaced") || err != nil && !drivers.IsRecoverable(err) {
					t.Errorf("the next start: %v", err)
				}
			})
			if len(got) != 2 || !strings.HasPrefix(got[0], volumes.EventUnusable+": The task restarts: ") || !strings.Contains(got[0], path) || !strings.Contains(got[0], tc.want) ||
				!strings.Contains(got[0], "("+tc.hint) || got[1] != "restart: The task lost the folder of a host volume" {
				t.Errorf("asked of the task: %q", got)
			}
		})
	}
}

// TestFolderIsBackSoon: one look without the folder changes nothing.
func TestFolderIsBackSoon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	got := watchTask(t, newHook(t), fleet.VolumeRequest{ReadOnly: true}, path, func(t *testing.T, _ *runner.Preparation, looks func(int)) {
		for range 3 {
			if err := os.Rename(path, path+".moved"); err != nil {
				t.Fatal(err)
			}
			looks(1)
			if err := os.Rename(path+".moved", path); err != nil {
				t.Fatal(err)
			}
			looks(1)
		}
	})
	if len(got) != 0 {
		t.Errorf("asked of the task: %q", got)
	}
}

// TestDiskIsUnmounted: a task does not go on in the empty folder below its disk, and starts again when a disk is there.
func TestDiskIsUnmounted(t *testing.T) {
	disk, folder := "/dev/shm", t.TempDir()
	path := filepath.Join(t.TempDir(), "data")
	if _, err := os.Stat(disk); err != nil {
		t.Skip("no file system to mount")
	}
	link := func(to string) error { return errors.Join(os.RemoveAll(path), os.Symlink(to, path)) }
	if err := link(disk); err != nil {
		t.Fatal(err)
	}
	h := newHook(t)
	got := watchTask(t, h, fleet.VolumeRequest{}, path, func(t *testing.T, p *runner.Preparation, looks func(int)) {
		if err := link(folder); err != nil {
			t.Fatal(err)
		}
		looks(3)
		if err := h.Prepare(t.Context(), p); !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "no disk is mounted on the folder "+path) {
			t.Errorf("a start without the disk: %v", err)
		}
		if err := link(disk); err != nil {
			t.Fatal(err)
		}
		if err := h.Prepare(t.Context(), p); err != nil {
			t.Errorf("a start with the disk: %v", err)
		}
	})
	if len(got) != 2 || !strings.Contains(got[0], "no disk is mounted") || !strings.Contains(got[0], "(mount the disk again; ") {
		t.Errorf("asked of the task: %q", got)
	}
}

// TestLockIsDeletedWhileTheTaskRuns: the next look takes it again, unless another edge was faster: then the task restarts.
func TestLockIsDeletedWhileTheTaskRuns(t *testing.T) {
	m := mustMachine(t)
	a, b := m.mustStart(t, t.TempDir()), m.mustStart(t, t.TempDir())
	got := watchTask(t, a, fleet.VolumeRequest{}, m.folder, func(t *testing.T, p *runner.Preparation, looks func(int)) {
		if err := os.RemoveAll(m.locks); err != nil {
			t.Fatal(err)
		}
		looks(1)
		m.mustRefuse(t, b, "the edge")
		if err := os.RemoveAll(m.locks); err != nil {
			t.Fatal(err)
		}
		m.mustPrepare(t, b, "y")
		looks(3)
	})
	if len(got) != 2 || !strings.Contains(got[0], "is in use by tasks of the edge") || !strings.HasPrefix(got[1], "restart: ") {
		t.Errorf("asked of the task: %q", got)
	}
}

// TestWatchOfAnEarlierAgentsTask: a restarted agent locks the folder of a task that it finds running, and knows it from then on.
func TestWatchOfAnEarlierAgentsTask(t *testing.T) {
	m := mustMachine(t)
	a, b := m.mustStart(t, t.TempDir()), m.mustStart(t, t.TempDir())
	prepared := mustHook(t, volumes.Config{Log: slog.New(slog.DiscardHandler)}) // of a release without locks
	var found []string
	got := watchTask(t, prepared, fleet.VolumeRequest{}, m.folder, func(t *testing.T, p *runner.Preparation, looks func(int)) {
		asked := &control{}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { a.Watch(ctx, p, asked) })
		looks(1)
		m.mustRefuse(t, b, "the edge")
		if err := replaceFolder(m.folder); err != nil {
			t.Fatal(err)
		}
		looks(3)
		cancel()
		wg.Wait()
		found = asked.list
	})
	if !slices.Equal(found, got) || len(found) != 2 {
		t.Errorf("asked of the task: %q and %q", found, got)
	}
}
