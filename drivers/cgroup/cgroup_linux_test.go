package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestParseMounts(t *testing.T) {
	const hybrid = `30 24 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
35 30 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
36 24 0:27 / /run/cilium/cgroupv2 rw - cgroup2 cgroup2 rw
`
	h := parseMounts(hybrid)
	if h.Version() != "v1" || h.legacy["cpuacct"] != "/sys/fs/cgroup/cpu,cpuacct" || len(h.legacy) != 3 || h.beside != secondMount {
		t.Errorf("hybrid: %+v", h)
	}
	if g := h.Group("a/b"); g.Unified != "" || g.Legacy["memory"] != "/sys/fs/cgroup/memory/skerry/a_b" || len(g.listFolders()) != 2 {
		t.Errorf("group: %+v", g)
	}
	h = parseMounts("31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	if g := h.Group("x"); h.Version() != "v2" || h.SecondMount() != "" || g.Unified != "/sys/fs/cgroup/skerry/x" || g.Legacy != nil {
		t.Errorf("v2: %+v %+v", h, g)
	}
	if h := parseMounts("garbage\n - \n"); h.Version() != "none" || h.Probe() == nil {
		t.Errorf("none: %+v", h)
	}
}

func TestWeight(t *testing.T) {
	for shares, want := range map[int]int{0: 1, 2: 1, 1024: 39, 262144: 10000, 1 << 30: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("shares %d: weight %d, want %d", shares, got, want)
		}
	}
}

// A unified cgroup gets its controllers in its parents, and its limits.
func TestCreateUnified(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, parent, "x")
	mustMakeFiles(t, root, "cgroup.subtree_control")
	mustMakeFiles(t, filepath.Dir(dir), "cgroup.subtree_control")
	mustMakeFiles(t, dir, "cpu.weight", "memory.max", "memory.low", "memory.swap.max", "pids.max", "memory.events")
	g := Hierarchy{unified: root}.Group("x")
	if err := g.Create(Limits{CPUShares: 1024, Memory: 64 << 20, SoftMemory: 32 << 20, PIDs: 9}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"cpu.weight": "39", "memory.max": "67108864", "memory.low": "33554432", "memory.swap.max": "0", "pids.max": "9"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v, want %q", name, b, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte("low 0\noom 2\noom_kill 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := g.OOMKills(); n != 1 {
		t.Errorf("%d kills", n)
	}
}

// TestKeepOffCores: in both kinds of cgroups a task gets the cores of its parent that nobody has reserved.
func TestKeepOffCores(t *testing.T) {
	for _, c := range []struct {
		all      string
		reserved []int
		v1, v2   string
	}{
		{"0-3,6\n", []int{1, 6}, "0,2,3", "0,2,3"},
		{"0-3\n", []int{9}, "0,1,2,3", "0,1,2,3"},
		{"0-1\n", []int{0, 1}, "0-1", "0-1"},
		{"0-1\n", nil, "0,1", "\n"},
		{"no list\n", []int{0}, "no list", "no list"},
		{"0-99999999\n", []int{0}, "0-99999999", "0-99999999"},
	} {
		root := t.TempDir()
		groups := []Group{Hierarchy{legacy: map[string]string{"cpuset": filepath.Join(root, "v1")}}.Group("x"), Hierarchy{unified: filepath.Join(root, "v2")}.Group("x")}
		mustMakeFiles(t, filepath.Join(root, "v1", parent), "cpuset.cpus")
		mustMakeFiles(t, groups[0].Legacy["cpuset"], "cpuset.cpus")
		mustMakeFiles(t, filepath.Join(root, "v2"), "cgroup.subtree_control", "cpuset.cpus.effective")
		mustMakeFiles(t, filepath.Join(root, "v2", parent), "cgroup.subtree_control")
		mustMakeFiles(t, groups[1].Unified, "cpuset.cpus")
		for _, name := range []string{"v1/" + parent + "/cpuset.cpus", "v2/cpuset.cpus.effective"} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(c.all), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []string{c.v1, c.v2} {
			if err := groups[i].KeepOffCores(c.reserved); err != nil {
				t.Errorf("of %q without %v: %v", c.all, c.reserved, err)
			}
			name := filepath.Join(groups[i].listFolders()[0], "cpuset.cpus")
			if b, err := os.ReadFile(name); err != nil || string(b) != want {
				t.Errorf("of %q without %v: %s has %q, %v, want %q", c.all, c.reserved, name, b, err, want)
			}
		}
	}
	for _, g := range []Group{{}, {Legacy: map[string]string{"cpuset": t.TempDir() + "/x"}}, {Unified: t.TempDir() + "/x"}} {
		for _, reserved := range [][]int{nil, {0}} {
			if err := g.KeepOffCores(reserved); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%+v without %v: %v", g, reserved, err)
			}
		}
	}
}

func mustMakeFiles(tb testing.TB, dir string, names ...string) {
	tb.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// A cgroup of this machine takes a process, lists and kills it, and is removed.
func TestGroup(t *testing.T) {
	h, err := Find()
	if err == nil {
		err = h.Probe()
	}
	if err != nil {
		t.Skipf("this machine: %v", err)
	}
	g := h.Group(fmt.Sprintf("test-%d", os.Getpid()))
	if err := g.Create(Limits{CPUShares: 200, Memory: 32 << 20, PIDs: 50}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if pids := g.Processes(); !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("processes %v, want %d", pids, cmd.Process.Pid)
	}
	if in, err := g.Of(cmd.Process.Pid, h); err != nil || !slices.Equal(in.listFolders(), g.listFolders()) {
		t.Errorf("it is in %v, %v, want %v", in.listFolders(), err, g.listFolders())
	}
	g.Kill()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if err := g.Remove(); err != nil {
		t.Errorf("again: %v", err)
	}
}

// Several tasks that start at once find that cgroups can be made.
func TestProbeAtOnce(t *testing.T) {
	h, err := Find()
	if err == nil {
		err = h.Probe()
	}
	if err != nil {
		t.Skipf("this machine: %v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if err := h.Probe(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzParseMounts(f *testing.F) {
	f.Add("33 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
	f.Add(" - ")
	f.Fuzz(func(t *testing.T, s string) {
		for controller, dir := range parseMounts(s).legacy {
			if !slices.Contains(controllers, controller) || dir == "" {
				t.Errorf("%q: %s at %q", s, controller, dir)
			}
		}
	})
}
