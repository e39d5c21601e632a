package rawexec_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/drivertest"
	"skerry/drivers/rawexec"
	"skerry/fleet"
)

// newTask makes the folders and the configuration of a task that runs a shell script.
func newTask(tb testing.TB, script string) drivers.TaskConfig {
	tb.Helper()
	root, err := os.MkdirTemp("", "raw") // tb.TempDir is closed to other users
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			tb.Error(err)
		}
	})
	allocs := filepath.Join(root, "data", "allocs", "a")
	cfg := drivers.TaskConfig{
		ID: filepath.Base(root) + "/web/1", AllocID: "a", Task: "web", Logs: fleet.LogConfig{MaxFiles: 2, MaxFileSizeMB: 1},
		Dir: filepath.Join(allocs, "web"), LogDir: filepath.Join(allocs, "logs"), StateDir: filepath.Join(root, "data", "tasks", "1"),
		Resources: fleet.Resources{CPU: 100, MemoryMB: 64},
		Config:    map[string]any{"command": "sh", "args": []string{"-c", script}},
	}
	for _, dir := range []string{cfg.Dir, cfg.LogDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o711); err != nil {
		tb.Fatal(err)
	}
	return cfg
}

// mustRun runs a task to its end and returns its exit and its stdout.
func mustRun(tb testing.TB, cfg drivers.TaskConfig, denied ...string) (drivers.Exit, string) {
	tb.Helper()
	d, err := rawexec.New(rawexec.Config{Log: slog.New(slog.DiscardHandler), DeniedEnv: denied})
	if err != nil {
		tb.Fatal(err)
	}
	h, err := d.Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	task, err := d.Recover(tb.Context(), cfg, h)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = task.Stop(context.WithoutCancel(tb.Context()), "SIGKILL", 0) })
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	exit, err := task.Wait(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(cfg.LogDir, "web.stdout.0"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
	return exit, string(b)
}

func mustBeRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("it needs root")
	}
}

// A task runs as its user, who owns its folder, and in its working directory.
func TestUserAndWorkDir(t *testing.T) {
	mustBeRoot(t)
	cfg := newTask(t, `id -un; pwd; echo x > "$OWN/file" && echo writes; echo "$USER $LEFT$DENIED|"; echo direct > /dev/stdout`)
	cfg.User, cfg.Env = "nobody", map[string]string{"OWN": cfg.Dir}
	cfg.Config["work_dir"] = "/usr"
	t.Setenv("DENIED", "denied")
	t.Setenv("LEFT", "left")
	exit, out := mustRun(t, cfg, "DENIED")
	if want := "nobody\n/usr\nwrites\nnobody left|\ndirect\n"; out != want {
		t.Errorf("exit %+v, %q, want %q", exit, out, want)
	}
	cfg = newTask(t, "exit 0")
	cfg.User = "no-such-user"
	if _, err := mustDriver(t, "").Start(t.Context(), cfg); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("an unknown user: %v", err)
	}
}

// A task that takes more memory than it has is killed, which its exit says, and leaves no cgroup.
func TestOOM(t *testing.T) {
	mustBeRoot(t)
	if info := mustDriver(t, "").Fingerprint(t.Context()); info.Attributes["driver.raw_exec.cgroups"] == "" {
		t.Skipf("no cgroups: %s", info.HealthDescription)
	}
	cfg := newTask(t, "dd if=/dev/zero of=/dev/null bs=200M count=1")
	cfg.Resources.MemoryMB = 20
	if exit, out := mustRun(t, cfg); !exit.OOM {
		t.Errorf("exit %+v, %q, want that it was killed for memory", exit, out)
	}
	if exit, out := mustRun(t, newTask(t, "kill -9 $$")); exit.OOM || exit.Signal != 9 {
		t.Errorf("exit %+v, %q, want signal 9 alone", exit, out)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/skerry/", "/sys/fs/cgroup/skerry/"} {
		left, err := filepath.Glob(pattern + strings.TrimSuffix(cfg.ID, "/web/1") + "*")
		if err != nil || len(left) > 0 {
			t.Errorf("left cgroups %v, %v", left, err)
		}
	}
}

// A process that hides from its task (another session, no output, no environment, no parent) is in its cgroup, and ends
// with the task although the supervisor was killed.
func TestHiddenProcessEnds(t *testing.T) {
	mustBeRoot(t)
	if why := drivertest.NoCgroups(); why != "" {
		t.Skip(why)
	}
	cfg := newTask(t, `(env -i setsid sh -c 'exec </dev/null >/dev/null 2>&1; echo $$ > hidden; exec sleep 86398' &); while :; do sleep 1; done`)
	d := mustDriver(t, "")
	h, err := d.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task, err := d.Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var pid string
	for deadline := time.Now().Add(time.Minute); pid == ""; <-tick.C {
		if b, err := os.ReadFile(filepath.Join(cfg.Dir, "hidden")); err == nil {
			pid = strings.TrimSpace(string(b))
		}
		if time.Now().After(deadline) {
			t.Fatal("the hidden process did not start within a minute")
		}
	}
	if err := drivertest.KillSupervisor(cfg); err != nil {
		t.Fatal(err)
	}
	if err := task.Stop(t.Context(), "SIGTERM", time.Minute); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline")); err == nil && strings.Contains(string(b), "86398") {
		t.Errorf("process %s is left", pid)
	}
}

// A user cannot reach a data directory below a closed folder, which the error names.
func TestClosedFolderAboveTheData(t *testing.T) {
	mustBeRoot(t)
	cfg := newTask(t, "exit 0")
	cfg.User = "nobody"
	closed := filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(cfg.Dir))))
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := mustDriver(t, "").Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), closed+" above the data directory") {
		t.Errorf("started in a closed folder: %v", err)
	}
}

// A task runs in the network namespace of its allocation.
func TestNetworkNamespace(t *testing.T) {
	mustBeRoot(t)
	holder := exec.Command("unshare", "--net", "sh", "-c", "echo ready; exec sleep 600")
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Skipf("no network namespaces: %v", err)
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Skipf("no network namespaces: %v", err)
	}
	cfg := newTask(t, "readlink /proc/self/ns/net")
	cfg.Network.Namespace = filepath.Join("/proc", strconv.Itoa(holder.Process.Pid), "ns", "net")
	want, err := os.Readlink(cfg.Network.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	if exit, got := mustRun(t, cfg); strings.TrimSpace(got) != want {
		t.Errorf("exit %+v, in %s, want %s", exit, got, want)
	}
	if own, err := os.Readlink("/proc/self/ns/net"); err != nil || own == want {
		t.Errorf("this process is in %s too, %v", own, err)
	}
}
