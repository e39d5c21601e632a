package exec_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"skerry/drivers"
)

// TestKeepOffCores: a running task leaves the cores that others have reserved, and gets them back.
func TestKeepOffCores(t *testing.T) {
	mustHaveRuntime(t)
	if runtime.NumCPU() < 2 {
		t.Skip("this machine has one core")
	}
	cfg := newTask(t, "echo x > /local/up; while :; do sleep 1; done")
	mustStart(t, cfg)
	waitForFile(t, filepath.Join(cfg.LocalDir, "up"))
	before := mustReadCores(t, cfg)
	first, _, _ := strings.Cut(strings.ReplaceAll(before, "-", ","), ",")
	id, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := mustDriver(t, "").KeepOffCores(t.Context(), cfg, []int{id}); err != nil {
		t.Fatal(err)
	}
	if now, _, _ := strings.Cut(strings.ReplaceAll(mustReadCores(t, cfg), "-", ","), ","); now == first {
		t.Errorf("it still has the core %d", id)
	}
	if err := mustDriver(t, "").KeepOffCores(t.Context(), cfg, nil); err != nil {
		t.Fatal(err)
	}
	if now := mustReadCores(t, cfg); now != before {
		t.Errorf("it has the cores %s, and not %s as before", now, before)
	}
}

// mustReadCores returns the cores on which the processes of a task may run.
func mustReadCores(tb testing.TB, cfg drivers.TaskConfig) string {
	tb.Helper()
	for _, pattern := range []string{"cpuset/skerry/", "skerry/"} {
		found, err := filepath.Glob("/sys/fs/cgroup/" + pattern + filepath.Dir(filepath.Dir(cfg.ID)) + "_*/cgroup.procs")
		if err != nil || len(found) != 1 {
			continue
		}
		pids, err := os.ReadFile(found[0])
		if err != nil {
			tb.Fatal(err)
		}
		pid, _, _ := strings.Cut(string(pids), "\n")
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			tb.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
		cores, _, _ := strings.Cut(rest, "\n")
		return cores
	}
	tb.Fatal("the task has no cgroup")
	return ""
}

// A task has the limits of its job: processor, cores, memory, memory_max and processes.
func TestLimits(t *testing.T) {
	mustHaveRuntime(t)
	cfg := newTask(t, "echo x > /local/up; while :; do sleep 1; done")
	cfg.Resources.CPU, cfg.Resources.MemoryMB, cfg.Resources.MemoryMaxMB, cfg.Resources.Cores = 200, 64, 96, 1
	cfg.Env = map[string]string{"NOMAD_CPU_CORES": "0"}
	cfg.Config["pids_limit"] = 20
	mustStart(t, cfg)
	waitForFile(t, filepath.Join(cfg.LocalDir, "up"))
	id := filepath.Dir(filepath.Dir(cfg.ID)) + "_*"
	for name, want := range map[string][2]string{ // of cgroup v1 and of v2
		"cpu/skerry/" + id + "/cpu.shares":                    {"200"},
		"cpuset/skerry/" + id + "/cpuset.cpus":                {"0"},
		"memory/skerry/" + id + "/memory.limit_in_bytes":      {"100663296"},
		"memory/skerry/" + id + "/memory.soft_limit_in_bytes": {"67108864"},
		"pids/skerry/" + id + "/pids.max":                     {"20"},
		"skerry/" + id + "/memory.max":                        {"", "100663296"},
		"skerry/" + id + "/memory.low":                        {"", "67108864"},
		"skerry/" + id + "/pids.max":                          {"", "20"},
		"skerry/" + id + "/cpuset.cpus":                       {"", "0"},
	} {
		found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", name))
		if err != nil {
			t.Fatal(err)
		}
		_, unified := os.Stat("/sys/fs/cgroup/cgroup.controllers")
		expected := want[0]
		if unified == nil {
			expected = want[1]
		}
		if expected == "" {
			continue
		}
		if len(found) != 1 {
			t.Errorf("%s: found %v", name, found)
			continue
		}
		if b, err := os.ReadFile(found[0]); err != nil || strings.TrimSpace(string(b)) != expected {
			t.Errorf("%s: %q, %v, want %s", name, b, err, expected)
		}
	}
}
