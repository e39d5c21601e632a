//go:build unix

package volumes_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/edge/volumes"
	"skerry/fleet"
)

// machine has edges that share a folder for locks, and a folder that is a host volume of all.
type machine struct {
	locks, folder string
	boot          fleet.BootID
	ended         map[fleet.AllocID]bool
	log           bytes.Buffer
}

func mustMachine(tb testing.TB) *machine {
	tb.Helper()
	return &machine{locks: filepath.Join(tb.TempDir(), "run", "locks"), folder: tb.TempDir(), boot: "boot-1", ended: map[fleet.AllocID]bool{}}
}

// mustStart starts an agent with a data directory.
func (m *machine) mustStart(tb testing.TB, dataDir string) *volumes.Hook {
	tb.Helper()
	return mustHook(tb, volumes.Config{
		Log: slog.New(slog.NewTextHandler(&m.log, nil)),
		Locks: volumes.Locks{
			Dir: m.locks, DataDir: dataDir, BootID: m.boot, Ended: func(id fleet.AllocID) bool { return m.ended[id] },
		},
	})
}

// prepare lets a hook prepare a task of an allocation that mounts the folder, or another path of it.
func (m *machine) prepare(tb testing.TB, h *volumes.Hook, alloc fleet.AllocID, path string, readOnly bool) error {
	tb.Helper()
	p := mustPreparation(tb, fleet.VolumeRequest{Source: "data", ReadOnly: readOnly}, map[string]fleet.HostVolume{"data": {Path: path}})
	p.Alloc.ID = alloc
	err := h.Prepare(tb.Context(), p)
	if mounted := len(p.Config.Mounts) == 1; mounted != (err == nil) {
		tb.Errorf("%v, mounts %+v", err, p.Config.Mounts)
	}
	return err
}

func (m *machine) mustPrepare(tb testing.TB, h *volumes.Hook, alloc fleet.AllocID) {
	tb.Helper()
	if err := m.prepare(tb, h, alloc, m.folder, false); err != nil {
		tb.Fatal(err)
	}
}

// mustRefuse fails unless a hook refuses to let another task write to the folder, because holder has it.
func (m *machine) mustRefuse(tb testing.TB, h *volumes.Hook, holder string) {
	tb.Helper()
	err := m.prepare(tb, h, "refused", m.folder, false)
	if fleet.CodeOf(err) != fleet.CodeConflict || !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), m.folder+` of the host volume "data" is in use by tasks of `+holder) ||
		!strings.Contains(err.Error(), "give each edge a folder of its own, or make the volume read_only") {
		tb.Fatalf("refused with %v", err)
	}
}

func mustRelease(tb testing.TB, h *volumes.Hook, alloc fleet.AllocID) {
	tb.Helper()
	if err := h.Release(tb.Context(), fleet.Alloc{ID: alloc}); err != nil {
		tb.Fatal(err)
	}
}

// onlyLock returns the path of the one lock.
func (m *machine) onlyLock(tb testing.TB) string {
	tb.Helper()
	files, err := os.ReadDir(m.locks)
	if err != nil || len(files) != 1 {
		tb.Fatalf("locks %v, %v", files, err)
	}
	return filepath.Join(m.locks, files[0].Name())
}

// TestFolderOfTwoEdges: while tasks of one edge may write to a folder, those of another edge start only if they read it.
func TestFolderOfTwoEdges(t *testing.T) {
	m := mustMachine(t)
	one, two := t.TempDir(), t.TempDir()
	a, b := m.mustStart(t, one), m.mustStart(t, two)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(m.folder, link); err != nil {
		t.Fatal(err)
	}
	if err := m.prepare(t, a, "reader", m.folder, true); err != nil {
		t.Fatal(err)
	}
	m.mustPrepare(t, b, "x")
	m.mustRefuse(t, a, `the edge with the data directory "`+two+`"`)
	if err := m.prepare(t, a, "linked", link, false); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Errorf("by another path: %v", err)
	}
	if err := m.prepare(t, a, "reader", m.folder, true); err != nil {
		t.Errorf("a task that only reads: %v", err)
	}
	m.mustPrepare(t, b, "y") // of the same edge
	mustRelease(t, b, "x")
	m.mustRefuse(t, a, "the edge")
	mustRelease(t, b, "y")
	m.mustPrepare(t, a, "x")
	m.mustRefuse(t, b, `the edge with the data directory "`+one+`"`)
}

// TestTaskThatDoesNotStartLocksNothing: else two edges could wait for each other for ever.
func TestTaskThatDoesNotStartLocksNothing(t *testing.T) {
	m := mustMachine(t)
	a, b := m.mustStart(t, t.TempDir()), m.mustStart(t, t.TempDir())
	p := mustPreparation(t, fleet.VolumeRequest{Source: "data"}, map[string]fleet.HostVolume{"data": {Path: m.folder}, "gone": {Path: filepath.Join(m.folder, "gone")}})
	p.Alloc.Group().Volumes["w"] = fleet.VolumeRequest{Type: fleet.VolumeHost, Source: "gone"}
	p.Task.VolumeMounts = append(p.Task.VolumeMounts, fleet.VolumeMount{Volume: "w", Destination: "/w"})
	if err := a.Prepare(t.Context(), p); err == nil {
		t.Fatal("a task without one of its folders was prepared")
	}
	m.mustPrepare(t, b, "x")
}

// TestLockWhileTheAgentIsAway: tasks go on without their agent, so its folders stay locked until it is back.
func TestLockWhileTheAgentIsAway(t *testing.T) {
	m := mustMachine(t)
	one, two := t.TempDir(), t.TempDir()
	a, b := m.mustStart(t, one), m.mustStart(t, two)
	m.mustPrepare(t, a, "x")
	m.mustPrepare(t, a, "y")
	a.Die()
	m.mustRefuse(t, b, `the edge with the data directory "`+one+`"`)
	m.ended["y"] = true // and its agent died before it released anything
	a = m.mustStart(t, one)
	m.mustRefuse(t, b, "the edge")
	if err := os.Truncate(m.onlyLock(t), 0); err != nil { // the lock itself holds, not only its record
		t.Fatal(err)
	}
	m.mustRefuse(t, b, "another edge of this machine")
	mustRelease(t, a, "x")
	m.mustPrepare(t, b, "z")
}

// TestLocksThatDoNotHold: nothing of a dead agent can write any more.
func TestLocksThatDoNotHold(t *testing.T) {
	for name, change := range map[string]func(m *machine, dataDir string) error{
		"the machine has booted":      func(m *machine, _ string) error { m.boot = "boot-2"; return nil },
		"its data directory is gone":  func(_ *machine, dataDir string) error { return os.RemoveAll(dataDir) },
		"somebody deleted the lock":   func(m *machine, _ string) error { return os.RemoveAll(m.locks) },
		"its allocations have ended":  func(m *machine, dataDir string) error { m.ended["x"] = true; m.mustStart(t, dataDir).Die(); return nil },
		"it is the same edge's agent": nil,
	} {
		t.Run(name, func(t *testing.T) {
			m := mustMachine(t)
			one, two := t.TempDir(), t.TempDir()
			a := m.mustStart(t, one)
			m.mustPrepare(t, a, "x")
			a.Die()
			if change == nil {
				two = one
			} else if err := change(m, one); err != nil {
				t.Fatal(err)
			}
			m.mustPrepare(t, m.mustStart(t, two), "y")
		})
	}
}

// TestDamagedLock: whatever is in its file, a lock holds while its agent runs, and no longer.
func TestDamagedLock(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "no JSON": "\x00\xff{", "another type": `[1]`, "null": "null", "no path": `{"boot_id":"boot-1","data_dir":"x","users":[{}]}`,
		"large": strings.Repeat(" ", 3<<20) + "{}", "deep": strings.Repeat("[", 1<<19),
	} {
		t.Run(name, func(t *testing.T) {
			m := mustMachine(t)
			a, b := m.mustStart(t, t.TempDir()), m.mustStart(t, t.TempDir())
			m.mustPrepare(t, a, "x")
			if err := os.WriteFile(m.onlyLock(t), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			m.mustRefuse(t, b, "another edge of this machine")
			a.Die()
			m.mustPrepare(t, b, "y")
		})
	}
}

// TestNoLockCanBeMade: the log says so once, and tasks start.
func TestNoLockCanBeMade(t *testing.T) {
	for name, block := range map[string]func(locks string) error{
		"a file is in the way": func(locks string) error { return os.WriteFile(locks, nil, 0o600) },
		"others can write":     func(locks string) error { return errors.Join(os.Mkdir(locks, 0o700), os.Chmod(locks, 0o777)) },
		"a link is in the way": func(locks string) error { return os.Symlink(filepath.Dir(locks), locks) },
	} {
		t.Run(name, func(t *testing.T) {
			m := mustMachine(t)
			if err := errors.Join(os.Mkdir(filepath.Dir(m.locks), 0o700), block(m.locks)); err != nil {
				t.Fatal(err)
			}
			a, b := m.mustStart(t, t.TempDir()), m.mustStart(t, t.TempDir())
			m.mustPrepare(t, a, "x")
			m.mustPrepare(t, a, "y")
			m.mustPrepare(t, b, "z")
			mustRelease(t, a, "x")
			if n := strings.Count(m.log.String(), "level=WARN"); n != 2 {
				t.Errorf("%d warnings of two agents:\n%s", n, m.log.String())
			}
		})
	}
}
