package exec_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/drivertest"
	"skerry/drivers/exec"
	"skerry/drivers/oci"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

func TestMain(m *testing.M) {
	supervised.Supervise()
	os.Exit(m.Run())
}

// mustHaveRuntime skips a test where no task can be isolated.
func mustHaveRuntime(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: make test-drivers runs containers")
	}
	if info := mustDriver(tb, "").Fingerprint(tb.Context()); !info.Healthy {
		tb.Skipf("no containers on this machine: %s", info.HealthDescription)
	}
}

func mustDriver(tb testing.TB, bootID string) *supervised.Driver {
	tb.Helper()
	d, err := exec.New(oci.DriverConfig{BootID: bootID, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	mustHaveRuntime(t)
	drivertest.Run(t, func(tb testing.TB) drivertest.Harness {
		bootID := ""
		return drivertest.Harness{
			Name:           exec.Name,
			NewDriver:      func() drivers.Driver { return mustDriver(tb, bootID) },
			Reboot:         func() { bootID = "11111111-2222-3333-4444-555555555555" },
			Config:         drivertest.Shell,
			Starts:         drivertest.ShellStarts,
			KillSupervisor: drivertest.KillSupervisor,
			BadConfigs: map[string]map[string]any{
				"command is required":       {"args": []any{"a"}},
				`unknown key "imagge"`:      {"command": "/bin/true", "imagge": "x"},
				"work_dir must be":          {"command": "/bin/true", "work_dir": "x"},
				"pid_mode must be":          {"command": "/bin/true", "pid_mode": "x"},
				`the capability "net_admin`: {"command": "/bin/true", "cap_add": []any{"net_admin"}},
				`no capability "flying"`:    {"command": "/bin/true", "cap_drop": []any{"flying"}},
				"pids_limit must be":        {"command": "/bin/true", "pids_limit": 0},
			},
		}
	})
}

// tasks counts the tasks of this process, for their names.
var tasks atomic.Int64

// newTask makes the folders and the configuration of a task that runs a shell script.
func newTask(tb testing.TB, script string) drivers.TaskConfig {
	tb.Helper()
	root := tb.TempDir()
	cfg := drivers.TaskConfig{
		ID: fmt.Sprintf("alloc-%d-%d/web/1", os.Getpid(), tasks.Add(1)), AllocID: "alloc", Task: "web", Logs: fleet.LogConfig{MaxFiles: 2, MaxFileSizeMB: 1},
		Dir: filepath.Join(root, "web"), AllocDir: filepath.Join(root, "alloc"), LocalDir: filepath.Join(root, "web", "local"),
		SecretsDir: filepath.Join(root, "web", "secrets"), LogDir: filepath.Join(root, "alloc", "logs"), StateDir: filepath.Join(root, "state", "1"),
		Resources: fleet.Resources{CPU: 100, MemoryMB: 64},
		Config:    map[string]any{"command": "/bin/sh", "args": []any{"-c", script}},
	}
	for _, dir := range []string{cfg.LocalDir, cfg.SecretsDir, cfg.LogDir, filepath.Join(cfg.AllocDir, "data"), filepath.Join(cfg.Dir, "tmp")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	return cfg
}

func mustStart(tb testing.TB, cfg drivers.TaskConfig) drivers.Task {
	tb.Helper()
	return mustStartWith(tb, mustDriver(tb, ""), cfg)
}

func mustStartWith(tb testing.TB, d *supervised.Driver, cfg drivers.TaskConfig) drivers.Task {
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
	return task
}

// mustRun runs a task to its end and returns its exit and both outputs.
func mustRun(tb testing.TB, cfg drivers.TaskConfig) (drivers.Exit, string) {
	tb.Helper()
	return mustRunWith(tb, mustDriver(tb, ""), cfg)
}

func mustRunWith(tb testing.TB, d *supervised.Driver, cfg drivers.TaskConfig) (drivers.Exit, string) {
	tb.Helper()
	task := mustStartWith(tb, d, cfg)
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	exit, err := task.Wait(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	var all strings.Builder
	for _, stream := range []string{"stdout", "stderr"} {
		b, err := os.ReadFile(filepath.Join(cfg.LogDir, cfg.Task+"."+stream+".0"))
		if err == nil {
			all.Write(b)
		}
	}
	return exit, all.String()
}

// A task sees the machine's programs, its own folders and processes, and cannot change the machine.
func TestTaskIsIsolated(t *testing.T) {
	mustHaveRuntime(t)
	cfg := newTask(t, `
id -un; pwd; hostname; echo "$HOME $USER"
echo a > /local/a; echo b > /secrets/b; echo c > /alloc/data/c; echo d > /tmp/d; cat /local/a /secrets/b /alloc/data/c /tmp/d
cat /greeting/file
touch /greeting/x 2>/dev/null && echo wrote to a read-only mount
touch /usr/x 2>/dev/null && echo wrote to /usr
touch /alloc/logs/x 2>/dev/null && echo wrote to logs
mount -t tmpfs x /mnt 2>/dev/null && echo mounted
grep -c . /proc/mounts > /dev/null; ls /proc | grep -c '^[0-9]'
grep NoNewPrivs /proc/self/status; grep CapEff /proc/self/status; grep '^Seccomp:' /proc/self/status
cat /etc/resolv.conf; cat /etc/hosts; cat /proc/net/dev | grep -c :; [ -c /dev/fuse9 ] && echo device
`)
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "file"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg.Mounts = []drivers.Mount{{Source: shared, Target: "/greeting", ReadOnly: true}}
	cfg.Devices = []fleet.DeviceNode{{HostPath: "/dev/null", TaskPath: "/dev/fuse9", Permissions: "rw"}}
	cfg.Network = drivers.Network{
		Mode: fleet.NetworkNone, Hostname: "shop-7", Hosts: []string{"10.0.0.9 till"},
		DNS: &fleet.DNSConfig{Servers: []string{"10.0.0.53"}, Searches: []string{"shop"}},
	}
	exit, out := mustRun(t, cfg)
	want := "nobody\n/\nshop-7\n/ nobody\na\nb\nc\nd\nhello\n4\nNoNewPrivs:\t1\nCapEff:\t0000000000000000\nSeccomp:\t2\n" +
		"nameserver 10.0.0.53\nsearch shop\n127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 shop-7\n10.0.0.9 till\n1\ndevice\n"
	// The processes are the first one of the namespace, the shell, and the two of the pipe.
	for _, n := range []string{"3", "5"} {
		out = strings.Replace(out, "hello\n"+n+"\n", "hello\n4\n", 1)
	}
	if out != want {
		t.Errorf("exit %+v, it saw\n%s\nwant\n%s", exit, out, want)
	}
}

// A task that takes more memory than it has is killed, which its exit says; one that is killed is told apart.
func TestOOM(t *testing.T) {
	mustHaveRuntime(t)
	cfg := newTask(t, "exec dd if=/dev/zero of=/dev/null bs=200M count=1")
	cfg.Resources.MemoryMB = 20
	if exit, out := mustRun(t, cfg); !exit.OOM || exit.Signal != 9 {
		t.Errorf("exit %+v, want that it was killed for memory; it wrote %q", exit, out)
	}
	cfg = newTask(t, "kill -9 $$")
	if exit, _ := mustRun(t, cfg); exit.OOM || exit.Signal != 9 {
		t.Errorf("exit %+v, want signal 9 and enough memory", exit)
	}
}

// A command in a container has the task's file system, user and processes.
func TestExec(t *testing.T) {
	mustHaveRuntime(t)
	cfg := newTask(t, "echo $$ > /local/pid; while :; do sleep 1; done")
	task := mustStart(t, cfg)
	waitForFile(t, filepath.Join(cfg.LocalDir, "pid"))
	for name, tc := range map[string]struct {
		tty     bool
		command []string
		code    int
		out     string
	}{
		"output":      {false, []string{"sh", "-c", "id -un; pwd; kill -0 $(cat /local/pid) && echo sees it; exit 7"}, 7, "nobody\n/\nsees it\n"},
		"a terminal":  {true, []string{"sh", "-c", "tty; exit 3"}, 3, "/dev/pts/0\r\n"},
		"by a signal": {false, []string{"sh", "-c", "kill -9 $$"}, 137, ""},
	} {
		var out strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		code, err := task.(drivers.Execer).Exec(ctx, fleet.Exec{
			Command: tc.command, TTY: tc.tty, Stdin: mustOpenInput(t), Stdout: &out, Stderr: &out,
		})
		cancel()
		if err != nil || code != tc.code || out.String() != tc.out {
			t.Errorf("%s: code %d, %v, %q; want %d and %q", name, code, err, out.String(), tc.code, tc.out)
		}
	}
	_, err := task.(drivers.Execer).Exec(t.Context(), fleet.Exec{
		Command: []string{"/no/such"}, Stdin: mustOpenInput(t), Stdout: &strings.Builder{}, Stderr: &strings.Builder{},
	})
	if fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("a command that does not exist: %v", err)
	}
}

// A command ends with its caller, also with one that goes while the runtime starts the command.
func TestExecEndsWithItsCaller(t *testing.T) {
	mustHaveRuntime(t)
	for _, runtime := range runtimesHere() {
		t.Run(filepath.Base(runtime), func(t *testing.T) {
			d, err := exec.New(oci.DriverConfig{Log: slog.New(slog.DiscardHandler), Isolation: oci.Config{Runtime: runtime}})
			if err != nil {
				t.Fatal(err)
			}
			cfg := newTask(t, "echo $$ > /local/pid; while :; do sleep 1; done")
			task := mustStartWith(t, d, cfg)
			waitForFile(t, filepath.Join(cfg.LocalDir, "pid"))
			const marked = "86398"
			for patience := 5 * time.Millisecond; patience < 400*time.Millisecond; patience += patience/5 + time.Millisecond {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := task.(drivers.Execer).Exec(ctx, fleet.Exec{
					Command: []string{"sleep", marked}, Stdin: mustOpenInput(t), Stdout: &strings.Builder{}, Stderr: &strings.Builder{},
				})
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after %s: %v", patience, err)
				}
			}
			if left, _ := osexec.Command("pgrep", "-f", "sleep "+marked).Output(); len(left) > 0 {
				t.Errorf("left processes %s", left)
			}
		})
	}
}

// mustOpenInput returns an input without an end.
func mustOpenInput(tb testing.TB) *os.File {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.Close() })
	return r
}

func waitForFile(tb testing.TB, path string) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s was not written within a minute", path)
		}
	}
}

// Nothing of a task is left on the machine: no process, cgroup or mount, whether it ended by itself or was stopped.
func TestNothingIsLeft(t *testing.T) {
	mustHaveRuntime(t)
	cfg := newTask(t, "(setsid sleep 86399 &); touch /local/ready; echo $$ > /local/pid; while :; do sleep 1; done")
	task := mustStart(t, cfg)
	waitForFile(t, filepath.Join(cfg.LocalDir, "pid"))
	consumed, err := task.(drivers.Meter).Consumed(t.Context())
	if err != nil || len(consumed) < 2 {
		t.Errorf("measured %d processes, %v", len(consumed), err)
	}
	if err := task.Stop(t.Context(), "SIGTERM", time.Minute); err != nil {
		t.Fatal(err)
	}
	if out, _ := osexec.Command("pgrep", "-f", "sleep 86399").Output(); len(out) > 0 {
		t.Errorf("left processes %s", out)
	}
	mustBeClean(t, cfg)
	if b, err := os.ReadFile("/proc/mounts"); err != nil || strings.Contains(string(b), cfg.Dir) {
		t.Errorf("left mounts: %v", err)
	}
}

// A program that does not exist is an error of the start, with the runtime's words.
func TestStartErrors(t *testing.T) {
	mustHaveRuntime(t)
	for want, change := range map[string]func(cfg *drivers.TaskConfig){
		"no-such-program":  func(cfg *drivers.TaskConfig) { cfg.Config["command"] = "/local/no-such-program" },
		"no such user":     func(cfg *drivers.TaskConfig) { cfg.User = "somebody-else" },
		"open device":      func(cfg *drivers.TaskConfig) { cfg.Devices = []fleet.DeviceNode{{HostPath: "/dev/no-such"}} },
		"no-such-volume":   func(cfg *drivers.TaskConfig) { cfg.Mounts = []drivers.Mount{{Source: "/no-such-volume", Target: "/v"}} },
		"folder of the":    func(cfg *drivers.TaskConfig) { mustReplaceByLink(t, cfg.LocalDir) },
		"/no-such-network": func(cfg *drivers.TaskConfig) { cfg.Network.Namespace = "/no-such-network" },
	} {
		cfg := newTask(t, "exit 0")
		change(&cfg)
		_, err := mustDriver(t, "").Start(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) || drivers.IsRecoverable(err) {
			t.Errorf("%v, want an error with %q", err, want)
		}
		if left, err := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*/skerry/%s*", filepath.Dir(filepath.Dir(cfg.ID)))); err != nil || len(left) > 0 {
			t.Errorf("%s: left cgroups %v, %v", want, left, err)
		}
	}
}

func mustReplaceByLink(tb testing.TB, dir string) {
	tb.Helper()
	if err := os.Remove(dir); err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink("/etc", dir); err != nil {
		tb.Fatal(err)
	}
}
