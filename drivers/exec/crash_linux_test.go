package exec_test

import (
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/drivers/cgroup"
	"skerry/drivers/drivertest"
	"skerry/drivers/exec"
	"skerry/drivers/oci"
	"skerry/drivers/supervised"
)

// mustWrapRuntime writes a program that is the OCI runtime, but kills the supervisor once, before or after step.
func mustWrapRuntime(tb testing.TB, step, when string) string {
	tb.Helper()
	dir := tb.TempDir()
	real := ""
	for _, name := range []string{"runc", "crun"} {
		if path, err := osexec.LookPath(name); err == nil {
			real = path
			break
		}
	}
	run := ""
	if when == "after" {
		run = real + ` "$@"`
	}
	script := fmt.Sprintf(`#!/bin/sh
case " $* " in *" %s "*)
	if [ ! -e %s/killed ]; then
		touch %s/killed
		%s
		kill -9 $PPID
		exit 1
	fi
esac
exec %s "$@"
`, step, dir, dir, run, real)
	path := filepath.Join(dir, "runtime")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		tb.Fatal(err)
	}
	return path
}

// A supervisor that is killed at any step of a start leaves one running task, which is started once.
func TestSupervisorKilledDuringStart(t *testing.T) {
	mustHaveRuntime(t)
	for _, step := range []string{"create", "start"} {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+step, func(t *testing.T) {
				d, err := exec.New(oci.DriverConfig{
					Log: slog.New(slog.DiscardHandler), Isolation: oci.Config{Runtime: mustWrapRuntime(t, step, when)},
				})
				if err != nil {
					t.Fatal(err)
				}
				cfg := newTask(t, "echo started >> /local/starts; while :; do sleep 1; done")
				h, err := d.Start(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				task, err := d.Recover(t.Context(), cfg, h)
				if err != nil {
					t.Fatal(err)
				}
				waitForFile(t, filepath.Join(cfg.LocalDir, "starts"))
				if err := task.Stop(t.Context(), "SIGTERM", time.Minute); err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(filepath.Join(cfg.LocalDir, "starts"))
				if err != nil || strings.Count(string(b), "started") != 1 {
					t.Errorf("starts %q, %v", b, err)
				}
				mustBeClean(t, cfg)
			})
		}
	}
}

// After a reboot the container of the earlier boot is forgotten, and its task can be started again.
func TestStartAfterReboot(t *testing.T) {
	mustHaveRuntime(t)
	cfg := newTask(t, "echo started >> /local/starts; while :; do sleep 1; done")
	first := mustStart(t, cfg)
	waitForFile(t, filepath.Join(cfg.LocalDir, "starts"))
	if err := drivertest.KillSupervisor(cfg); err != nil {
		t.Fatal(err)
	}
	// The machine's end takes the processes and cgroups, but not the folder.
	saved := filepath.Join(t.TempDir(), "saved")
	if out, err := osexec.Command("cp", "-a", filepath.Join(cfg.StateDir, "oci"), saved).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := first.Stop(t.Context(), "SIGKILL", 0); err != nil {
		t.Fatal(err)
	}
	if out, err := osexec.Command("sh", "-c", "rm "+cfg.StateDir+"/exit.json && rm -r "+cfg.StateDir+"/oci && mv "+saved+" "+cfg.StateDir+"/oci").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// runc had made the file for the next container's pid, and makes it only once.
	if err := os.WriteFile(filepath.Join(cfg.StateDir, ".container.pid"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := mustDriver(t, "another-boot")
	h, err := d.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task, err := d.Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Stop(t.Context(), "SIGTERM", time.Minute); err != nil {
		t.Fatal(err)
	}
	mustBeClean(t, cfg)
}

// mustBeClean fails the test if a container, cgroup or process of a task is left.
func mustBeClean(tb testing.TB, cfg drivers.TaskConfig) {
	tb.Helper()
	if left, err := filepath.Glob(filepath.Join(cfg.StateDir, "oci", "*")); err != nil || len(left) > 0 {
		tb.Errorf("left state %v, %v", left, err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/skerry/", "/sys/fs/cgroup/skerry/"} {
		left, err := filepath.Glob(pattern + filepath.Dir(filepath.Dir(cfg.ID)) + "_*")
		if err != nil || len(left) > 0 {
			tb.Errorf("left cgroups %v, %v", left, err)
		}
	}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		tb.Fatal(err)
	}
	marker := mustMarker(tb, cfg.StateDir)
	for _, path := range environs {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), marker+"\x00") {
			tb.Errorf("left process %s", path)
		}
	}
}

// mustMarker returns the variable that the processes of a task have.
func mustMarker(tb testing.TB, dir string) string {
	tb.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		tb.Fatal(err)
	}
	return fmt.Sprintf("SKERRY_TASK=%d:%d", st.Dev, st.Ino)
}

// TestStateLostWithThePower: the machine lost its power while the runtime made the container of a task, and the record of that start was
// lost, too. The file with the container's state is empty: the task starts nevertheless.
func TestStateLostWithThePower(t *testing.T) {
	mustHaveRuntime(t)
	for _, runtime := range runtimesHere() {
		t.Run(filepath.Base(runtime), func(t *testing.T) {
			cfg := newTask(t, "echo started")
			if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
				t.Fatal(err)
			}
			marker, err := supervised.Marker(cfg.StateDir)
			if err != nil {
				t.Fatal(err)
			}
			_, instance, _ := strings.Cut(marker, "=")
			folder := filepath.Join(cfg.StateDir, "oci", cgroup.CleanName(cfg.ID+"."+instance))
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"state.json", "status"} { // of runc, and of crun
				if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if exit, out := mustRunWith(t, mustChrootDriver(t, runtime, nil), cfg); !exit.Success() || out != "started\n" {
				t.Errorf("%+v, output %q", exit, out)
			}
		})
	}
}
