package edge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/chaos/disk"
	"skerry/edge/local"
	"skerry/fleet"
)

// mustHaveDisk mounts a small file system at a folder. Without root, it skips the test.
func mustHaveDisk(t *testing.T) (d *disk.Disk, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	dir = filepath.Join(t.TempDir(), "disk")
	d, err := disk.Make(dir+".img", dir, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, dir
}

// killEverything kills the tasks of a data directory and their supervisors, as a power cut does.
func killEverything(dir string) error {
	var errs []error
	records, err := filepath.Glob(filepath.Join(dir, "tasks", "*", "*", "*", "task.json"))
	if err != nil {
		return err
	}
	for _, name := range records {
		b, err := os.ReadFile(name)
		var task struct {
			PID int `json:"pid"`
		}
		if err := errors.Join(err, json.Unmarshal(b, &task)); err != nil {
			return err
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", task.PID))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		var super int
		if _, err := fmt.Sscan(fields[1], &super); err != nil {
			return err
		}
		errs = append(errs, syscall.Kill(super, syscall.SIGKILL), syscall.Kill(task.PID, syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

// After a power cut on a full disk, the agent starts and its tasks run again, also after a kill. The
// reserve is filled once there is space.
func TestStartsOnAFullDisk(t *testing.T) {
	d, mount := mustHaveDisk(t)
	from, starts := mustCounting(t, shop, batch) // the tasks count on another disk
	dir := filepath.Join(mount, "data")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envBoot, string(boot1))
	p := mustSpawn(t, dir, "", 0)
	if !<-p.up {
		t.Fatal("the first life does not bring its tasks up")
	}
	mustCount(t, starts, 1)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if full, err := d.Fill(); err != nil || full == nil {
		t.Fatalf("fill the disk: %v, %v", full, err)
	}
	err := d.PowerCut(func() error {
		err := errors.Join(p.cmd.Process.Kill(), killEverything(dir))
		_ = p.closeAndWait()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Fill(); err != nil {
		t.Fatal(err)
	}

	t.Setenv(envBoot, string(boot2))
	p = mustSpawn(t, dir, "", 0)
	if !<-p.up {
		t.Fatal("the tasks do not run after a power cut on a full disk")
	}
	mustCount(t, starts, 2)
	if _, err := d.Fill(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.closeAndWait()
	p = mustSpawn(t, dir, "", 0)
	if !<-p.up {
		t.Fatal("an agent that was killed does not find its tasks on a full disk")
	}
	c := local.NewClient(filepath.Join(dir, "local.sock"))
	if s, err := c.Status(t.Context()); err != nil || !s.Disk.Full {
		t.Errorf("status says %+v of the disk (%v), want that it is full", s.Disk, err)
	}
	if err := d.Empty(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (bool, string) {
		s, err := c.Status(t.Context())
		return err == nil && !s.Disk.Full && s.Disk.Reserve > 0, fmt.Sprintf("%+v, %v", s.Disk, err)
	})
	mustStopAll(t, c)
	if err := p.closeAndWait(); err != nil {
		t.Fatalf("the last life ended with %v", err)
	}
	mustRecordTwoStarts(t, dir)
}

// On a full disk a new allocation waits, and says so, while the one that ran starts again after a reboot. It starts when
// there is space.
func TestNewAllocationsWaitOnAFullDisk(t *testing.T) {
	d, mount := mustHaveDisk(t)
	dir := filepath.Join(mount, "data")
	if err := os.CopyFS(dir, os.DirFS(mustEnrolled(t, shop))); err != nil {
		t.Fatal(err)
	}
	m, logs := &runnerRecorder{}, &logBuffer{}
	cfg := config(dir, m, logs)
	l := mustStart(t, cfg)
	mustRecover(t, l)
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	j := mustJournal(t, dir)
	if _, err := j.PutDesired(t.Context(), delivery(t, []fleet.AllocID{shop, batch})); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if full, err := d.Fill(); err != nil || full == nil {
		t.Fatalf("fill the disk: %v, %v", full, err)
	}

	cfg.BootID = boot2
	l = mustStart(t, cfg)
	mustReachStatus(t, l, "one runs and one waits", func(s local.Status) bool {
		return s.Disk.NoNewAllocs != "" && len(s.Allocs) == 2 && s.Allocs[0].ClientStatus == fleet.ClientRunning &&
			s.Allocs[1].ClientStatus == fleet.ClientPending && s.Allocs[1].Note == s.Disk.NoNewAllocs && s.Allocs[1].LastSeq > 0
	})
	if len(m.lastStatesOf(shop)) != 2 || len(m.lastStatesOf(batch)) != 0 {
		t.Errorf("%d runners of the old allocation and %d of the new one, want 2 and 0", len(m.lastStatesOf(shop)), len(m.lastStatesOf(batch)))
	}
	if err := d.Empty(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (bool, string) {
		s, err := l.Status(t.Context())
		return err == nil && s.Disk.NoNewAllocs == "" && s.Allocs[1].ClientStatus == fleet.ClientRunning, fmt.Sprintf("%+v, %v", s, err)
	})
	rows, err := l.History(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, r := range rows {
		if r.Kind == fleet.TransitionAgent && strings.HasPrefix(r.Message, "new allocations ") {
			said++
		}
	}
	if said != 2 {
		t.Errorf("the node's history says %d times that new allocations wait, or start again; want 2", said)
	}
}

// mustCount waits until both tasks have started so often.
func mustCount(t *testing.T, starts string, times int) {
	t.Helper()
	eventually(t, func() (bool, string) {
		b, err := os.ReadFile(starts)
		return err == nil && strings.Count(string(b), string(shop)) == times && strings.Count(string(b), string(batch)) == times,
			fmt.Sprintf("started: %q", b)
	})
}

// mustRecordTwoStarts checks that the journal has both starts.
func mustRecordTwoStarts(t *testing.T, dir string) {
	t.Helper()
	j := mustJournal(t, dir)
	defer j.Close()
	ts, err := j.History(t.Context(), shop, 0)
	if err != nil {
		t.Fatal(err)
	}
	started := 0
	for _, tr := range ts {
		if tr.Event != nil && tr.Event.Type == fleet.TaskStarted {
			started++
		}
	}
	if started != 2 {
		t.Errorf("the journal tells of %d starts, want 2", started)
	}
}

// The files of an edge are private, whatever the mode of its directory and the umask, also if an
// earlier release left them open.
func TestDataIsPrivate(t *testing.T) {
	dir, _ := mustCounting(t, shop)
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	for _, name := range []string{dir, filepath.Join(dir, "journal.db")} {
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old := filepath.Join(dir, "allocs", "old", "alloc", "logs")
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "t.stdout.0"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := mustSpawn(t, dir, "", 0)
	if !<-p.up {
		t.Fatal("its task does not run")
	}
	c := local.NewClient(filepath.Join(dir, "local.sock"))
	defer func() {
		if err := c.Stop(t.Context(), local.StopRequest{Alloc: shop, MayReturn: true}); err != nil {
			t.Error(err)
		}
		mustReachStatus(t, &runningEdge{Client: c}, "stopped", func(s local.Status) bool { return s.Allocs[0].ClientStatus == fleet.ClientComplete })
		if err := p.closeAndWait(); err != nil {
			t.Error(err)
		}
	}()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir || filepath.Base(path) == "starts" { // files of the task
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", strings.TrimPrefix(path, dir), info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, done func() (bool, string)) {
	t.Helper()
	end := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := done()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited in vain: %s", state)
		}
	}
}
