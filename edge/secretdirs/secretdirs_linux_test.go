package secretdirs_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry/edge/runner"
	"skerry/edge/secretdirs"
	"skerry/fleet"
	"skerry/internal/tmpfs"
)

// machine is the allocations' folder of an edge.
type machine struct {
	testing.TB
	allocs string
}

// newMachine skips the test where nothing can be mounted.
func newMachine(tb testing.TB) *machine {
	tb.Helper()
	m := &machine{tb, filepath.Join(tb.TempDir(), "allocs")}
	tb.Cleanup(func() {
		if err := tmpfs.DetachBelow(filepath.Dir(m.allocs), ""); err != nil {
			tb.Error(err)
		}
	})
	if os.Geteuid() != 0 {
		tb.Skip("mounting needs root")
	}
	if why, err := tmpfs.WhyUnseen(filepath.Dir(m.allocs)); os.Getenv(insideVariable) == "" && (why != "" || err != nil) {
		tb.Skipf("the tests have mounts of their own: %s%v", why, err)
	}
	return m
}

// memory returns the agent's own folder.
func (m *machine) memory() string { return filepath.Join(filepath.Dir(m.allocs), "memory") }

// agent starts an agent in a boot.
func (m *machine) agent(boot fleet.BootID) *secretdirs.Hook {
	m.Helper()
	h, err := secretdirs.New(secretdirs.Config{Allocs: m.allocs, Memory: m.memory(), BootID: boot, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.Fatal(err)
	}
	return h
}

// dir returns the secrets folder of the task "web" of an allocation.
func (m *machine) dir(id fleet.AllocID) string {
	return filepath.Join(m.allocs, string(id), "web", "secrets")
}

// prepare prepares an attempt of the task "web": the runner makes the folder, and then the hook is called.
func (m *machine) prepare(h *secretdirs.Hook, id fleet.AllocID, sizeMB int) {
	m.Helper()
	if err := os.MkdirAll(m.dir(id), 0o700); err != nil {
		m.Fatal(err)
	}
	task := fleet.Task{Name: "web", Resources: fleet.TaskResources{SecretsMB: sizeMB}}
	if err := h.Prepare(m.Context(), &runner.Preparation{Alloc: fleet.Alloc{ID: id}, Task: &task}); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) write(path string) {
	m.Helper()
	if err := os.WriteFile(path, []byte("s3cret"), 0o600); err != nil {
		m.Fatal(err)
	}
}

// mustHave checks which files the secrets folder of an allocation has, and whether it is in memory.
func (m *machine) mustHave(id fleet.AllocID, inMemory bool, names ...string) {
	m.Helper()
	entries, err := os.ReadDir(m.dir(id))
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(names) {
		m.Errorf("allocation %s has the secrets %v, want %v: %v", id, got, names, err)
	}
	var own, parent unix.Stat_t
	if err := errors.Join(unix.Stat(m.dir(id), &own), unix.Stat(filepath.Dir(m.dir(id)), &parent)); err != nil {
		m.Fatal(err)
	}
	if got := own.Dev != parent.Dev; got != inMemory {
		m.Errorf("the secrets of allocation %s are in memory: %v, want %v", id, got, inMemory)
	}
	if own.Mode&0o777 != 0o700 {
		m.Errorf("the secrets folder of allocation %s has mode %o", id, own.Mode&0o777)
	}
}

// TestSecretsFolder lives through restarts of the task and the agent, a reboot, and the end of the allocation.
func TestSecretsFolder(t *testing.T) {
	m := newMachine(t)
	h := m.agent("boot-1")
	if got := h.Attributes()[fleet.AttributeSecretsInMemory]; got != "1" {
		t.Fatalf("the attribute is %q", got)
	}
	if left, err := os.ReadDir(m.allocs); err != nil || len(left) > 0 {
		t.Errorf("the first look left %v, %v", left, err)
	}
	m.prepare(h, "a", 0)
	m.prepare(h, "b", 3)
	m.write(filepath.Join(m.dir("a"), "key"))
	m.write(filepath.Join(m.dir("b"), "key"))
	for id, mb := range map[fleet.AllocID]uint64{"a": 1, "b": 3} {
		var st unix.Statfs_t
		if err := unix.Statfs(m.dir(id), &st); err != nil || st.Blocks*uint64(st.Bsize) != mb<<20 {
			t.Errorf("allocation %s has %d blocks, want %d MiB: %v", id, st.Blocks, mb, err)
		}
	}

	m.prepare(h, "a", 0) // the task starts again
	m.mustHave("a", true, "key")
	h = m.agent("boot-1") // the agent starts again
	m.prepare(h, "a", 0)
	m.mustHave("a", true, "key")

	h = m.agent("boot-2") // the machine has booted
	m.prepare(h, "a", 0)
	m.mustHave("a", true)
	m.write(filepath.Join(m.dir("a"), "key"))

	for range 2 {
		if err := h.Release(t.Context(), fleet.Alloc{ID: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	m.mustHave("a", false)
	m.mustHave("b", true, "key")
	if err := os.RemoveAll(filepath.Join(m.allocs, "a")); err != nil {
		t.Errorf("the folder of the ended allocation cannot be removed: %v", err)
	}
}

// TestFilesOnDiskAreRemoved removes the files that an earlier release left in the folder: below a mount nobody would
// remove them.
func TestFilesOnDiskAreRemoved(t *testing.T) {
	m := newMachine(t)
	if err := os.MkdirAll(filepath.Join(m.dir("a"), "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.write(filepath.Join(m.dir("a"), "sub", "old"))
	h := m.agent("")
	m.prepare(h, "a", 0)
	m.mustHave("a", true)
	if err := h.Release(t.Context(), fleet.Alloc{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	m.mustHave("a", false)
}

// TestLinkInPlaceOfFolder replaces a link that a task made in place of its folder, and leaves the folder that it leads
// to as it is, also when that is the secrets folder of another allocation.
func TestLinkInPlaceOfFolder(t *testing.T) {
	m := newMachine(t)
	h := m.agent("")
	m.prepare(h, "other", 0)
	m.write(filepath.Join(m.dir("other"), "key"))
	if err := errors.Join(os.MkdirAll(filepath.Dir(m.dir("a")), 0o700), os.Symlink(m.dir("other"), m.dir("a"))); err != nil {
		t.Fatal(err)
	}
	m.prepare(h, "a", 0)
	m.mustHave("a", true)
	m.mustHave("other", true, "key")
}

// TestOrphans removes what a killed agent left of ended allocations.
func TestOrphans(t *testing.T) {
	m := newMachine(t)
	if err := m.agent("").RemoveOrphans(func(fleet.AllocID) bool { return true }); err != nil {
		t.Errorf("without a folder of allocations: %v", err)
	}
	m.prepare(m.agent(""), "ended", 0)
	m.prepare(m.agent(""), "runs", 0)
	for _, id := range []fleet.AllocID{"ended", "runs"} {
		m.write(filepath.Join(m.dir(id), "key"))
	}
	if err := m.agent("").RemoveOrphans(func(id fleet.AllocID) bool { return id == "ended" }); err != nil {
		t.Fatal(err)
	}
	m.mustHave("ended", false)
	m.mustHave("runs", true, "key")
}

// TestMemoryDir: what is in memory of a task lives through restarts of the agent, and ends with the attempt, the boot and the
// allocation.
func TestMemoryDir(t *testing.T) {
	m := newMachine(t)
	make := func(h *secretdirs.Hook, id fleet.AllocID, attempt int) string {
		t.Helper()
		dir, err := h.MemoryDir(id, "web", attempt)
		var own, parent unix.Stat_t
		if err == nil {
			err = errors.Join(unix.Stat(dir, &own), unix.Stat(filepath.Dir(m.memory()), &parent))
		}
		if err != nil || own.Dev == parent.Dev || own.Mode&0o777 != 0o700 {
			t.Fatalf("the folder %s has mode %o: %v", dir, own.Mode, err)
		}
		return dir
	}
	has := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "env"))
		return err == nil
	}
	first := make(m.agent("boot-1"), "a", 1)
	m.write(filepath.Join(first, "env"))
	h := m.agent("boot-1") // the agent starts again
	if make(h, "a", 1); !has(first) {
		t.Error("lost with the agent")
	}
	second, other := make(h, "a", 2), make(h, "b", 1)
	if has(first) {
		t.Error("not removed with its attempt")
	}
	m.write(filepath.Join(second, "env"))
	m.write(filepath.Join(other, "env"))
	if err := h.Release(t.Context(), fleet.Alloc{ID: "a"}); err != nil || has(second) || !has(other) {
		t.Errorf("after the end of its allocation: %v, %v, %v", has(second), has(other), err)
	}
	if err := m.agent("boot-1").RemoveOrphans(func(id fleet.AllocID) bool { return id == "b" }); err != nil || has(other) {
		t.Errorf("after the end of its allocation while no agent ran: %v, %v", has(other), err)
	}
	if mounts, err := tmpfs.Below(filepath.Dir(m.allocs), ""); err != nil || len(mounts) > 0 {
		t.Errorf("with nothing in it, it is mounted: %v, %v", mounts, err)
	}
	m.write(filepath.Join(make(h, "c", 1), "env"))
	if has(make(m.agent("boot-2"), "c", 1)) {
		t.Error("there after a boot")
	}
}

// insideVariable is set in a process with mounts of its own.
const insideVariable = "SKERRY_TEST_OWN_MOUNTS"

// TestOwnMounts keeps the folder on the disk if the machine does not see what the agent mounts: a container daemon
// would give its containers an empty folder.
func TestOwnMounts(t *testing.T) {
	m := newMachine(t)
	if _, err := os.Readlink("/proc/1/ns/mnt"); err != nil {
		t.Skipf("this machine does not tell which mounts its first process has: %v", err)
	}
	if os.Getenv(insideVariable) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestOwnMounts$", "-test.v")
		cmd.Env = append(os.Environ(), insideVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestOwnMounts") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	h := m.agent("")
	if got := h.Attributes(); len(got) > 0 {
		t.Errorf("the attributes are %v", got)
	}
	m.prepare(h, "a", 0)
	m.write(filepath.Join(m.dir("a"), "key"))
	m.prepare(h, "a", 0)
	m.mustHave("a", false, "key")
	if _, err := h.MemoryDir("a", "web", 1); fleet.CodeOf(err) != fleet.CodeUnsupported || !strings.Contains(err.Error(), "mounts of its own") {
		t.Errorf("a folder in memory: %v", err)
	}
}

// TestNoFolder says why nothing can be mounted.
func TestNoFolder(t *testing.T) {
	m := newMachine(t)
	m.write(m.allocs)
	if got := m.agent("").Attributes(); len(got) > 0 {
		t.Errorf("the attributes are %v", got)
	}
}

func TestConfig(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	for _, c := range []secretdirs.Config{
		{}, {Allocs: "relative", Memory: dir, Log: log}, {Allocs: dir, Log: log}, {Allocs: dir, Memory: dir},
	} {
		if _, err := secretdirs.New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}
