package wasm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry/drivers"
	"skerry/drivers/drivertest"
	"skerry/drivers/supervised"
	"skerry/drivers/wasm"
	"skerry/fleet"
)

func TestMain(m *testing.M) {
	supervised.Supervise()
	wasm.RunModule()
	os.Exit(m.Run())
}

// cache is the folder of machine code of all tests.
func cache(tb testing.TB) string {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("skerry-wasm-test-%d", os.Getpid()))
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func mustDriver(tb testing.TB, bootID string) *wasm.Driver {
	tb.Helper()
	d, err := wasm.New(wasm.Config{BootID: bootID, CacheDir: cache(tb), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) { drivertest.Run(t, newHarness) }

func newHarness(tb testing.TB) drivertest.Harness {
	bootID := ""
	return drivertest.Harness{
		Name:           wasm.Name,
		NewDriver:      func() drivers.Driver { return mustDriver(tb, bootID) },
		Reboot:         func() { bootID = "11111111-2222-3333-4444-555555555555" },
		Config:         func(cfg drivers.TaskConfig, b drivertest.Behaviour) map[string]any { return mustBehave(tb, cfg, b) },
		Starts:         starts,
		NoOOM:          "wazero refuses memory to a module that has all it may have: see TestMemoryLimit",
		KillSupervisor: drivertest.KillSupervisor,
		CannotIgnore:   "WASI has no signals: each of them ends the module",
		BadConfigs: map[string]map[string]any{
			"module is required":             {"args": []any{"a"}},
			"module must be a string":        {"module": []any{"a"}},
			`unknown key "modul"`:            {"module": "a.wasm", "modul": "x"},
			"args must be a list of strings": {"module": "a.wasm", "args": "a"},
			"compiler must be true or false": {"module": "a.wasm", "compiler": 3},
		},
	}
}

// mustBehave writes a module with the behaviour b, which records its start in the task's folder.
func mustBehave(tb testing.TB, cfg drivers.TaskConfig, b drivertest.Behaviour) map[string]any {
	tb.Helper()
	a := newAssembler()
	if b.Print != "" {
		a.print(1, b.Print+"\n")
	}
	if b.PrintErr != "" {
		a.print(2, b.PrintErr+"\n")
	}
	a.appendFile(3, "starts", "started\n")
	switch {
	case b.RunFor == drivertest.Forever:
		a.forever(func() { a.sleep(time.Second) })
	case b.RunFor > 0:
		a.sleep(b.RunFor)
	}
	a.exit(int64(b.ExitCode))
	return map[string]any{"module": mustModule(tb, cfg, a.module("_start"))}
}

// mustModule writes a module into the task's folder and returns its path there.
func mustModule(tb testing.TB, cfg drivers.TaskConfig, b []byte) string {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(cfg.Dir, "app.wasm"), b, 0o644); err != nil {
		tb.Fatal(err)
	}
	return "app.wasm"
}

func starts(cfg drivers.TaskConfig) int {
	b, err := os.ReadFile(filepath.Join(cfg.LocalDir, "starts"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "started")
}

// mustConfig makes the configuration of a task with its folders.
func mustConfig(tb testing.TB) drivers.TaskConfig {
	tb.Helper()
	root := tb.TempDir()
	cfg := drivers.TaskConfig{
		ID: "alloc/task/1", AllocID: "alloc", Task: "task", Env: map[string]string{"GREETING": "hello"},
		Resources: fleet.Resources{CPU: 100, MemoryMB: 16},
		Dir:       filepath.Join(root, "task"), AllocDir: filepath.Join(root, "alloc"), LocalDir: filepath.Join(root, "task", "local"),
		SecretsDir: filepath.Join(root, "task", "secrets"), LogDir: filepath.Join(root, "logs"), StateDir: filepath.Join(root, "state"),
		Logs: fleet.LogConfig{MaxFiles: 3, MaxFileSizeMB: 1}, KillTimeout: 5 * time.Second,
	}
	for _, dir := range []string{cfg.AllocDir, cfg.LocalDir, cfg.SecretsDir, cfg.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return cfg
}

// mustRun starts a task, waits for its end, and returns its exit and its output.
func mustRun(tb testing.TB, cfg drivers.TaskConfig) (drivers.Exit, string) {
	tb.Helper()
	d := mustDriver(tb, "")
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	h, err := d.Start(ctx, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	task, err := d.Recover(ctx, cfg, h)
	if err != nil {
		tb.Fatal(err)
	}
	exit, err := task.Wait(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	var said strings.Builder
	for _, stream := range []string{"stdout", "stderr"} {
		b, err := os.ReadFile(filepath.Join(cfg.LogDir, cfg.Task+"."+stream+".0"))
		if err == nil {
			said.Write(b)
		}
	}
	return exit, said.String()
}

// TestRefusedModules does not start a broken module, says why, and that no further try can mend it.
func TestRefusedModules(t *testing.T) {
	good := newAssembler()
	good.exit(0)
	module := good.module("_start")
	corrupt := append([]byte{}, module...)
	corrupt[len(corrupt)-len(good.data)-12] ^= 0xff
	foreign := []byte(strings.Replace(string(module), "wasi_snapshot_preview1", "wasi_snapshot_preview9", 1))
	large := newAssembler()
	large.pages = 4096
	large.exit(0)
	for _, tc := range []struct {
		name, want string
		content    []byte
		path       string
	}{
		{"missing", "there is no module", nil, "nothing.wasm"},
		{"outside", "leads out of the task's folder", nil, "../app.wasm"},
		{"a folder", "it is not a file", nil, "local"},
		{"a text", "it is no WebAssembly module", []byte("#!/bin/sh\n"), "app.wasm"},
		{"empty", "it is no WebAssembly module", []byte{}, "app.wasm"},
		{"a component", "components are not supported", append([]byte("\x00asm\x0d\x00\x01\x00"), module[8:]...), "app.wasm"},
		{"cut off", "it is cut off", module[:len(module)-3], "app.wasm"},
		{"corrupt", "compile module", corrupt, "app.wasm"},
		{"a library", "exports no function _start", good.module("other"), "app.wasm"},
		{"for another host", "there is only WASI preview 1", foreign, "app.wasm"},
		{"too large", "compile module", large.module("_start"), "app.wasm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := mustConfig(t)
			if tc.content != nil {
				mustModule(t, cfg, tc.content)
			}
			cfg.Config = map[string]any{"module": tc.path}
			_, err := mustDriver(t, "").Start(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) || drivers.IsRecoverable(err) || fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Errorf("%v, want an invalid one with %q", err, tc.want)
			}
		})
	}
}

// TestWithoutUserAndDevices refuses options that a module cannot have.
func TestWithoutUserAndDevices(t *testing.T) {
	for want, change := range map[string]func(cfg *drivers.TaskConfig){
		"have no user": func(cfg *drivers.TaskConfig) { cfg.User = "nobody" },
		"has no devices": func(cfg *drivers.TaskConfig) {
			cfg.Devices = []fleet.DeviceNode{{HostPath: "/dev/null", TaskPath: "/dev/null", Permissions: "r"}}
		},
	} {
		cfg := mustConfig(t)
		cfg.Config = map[string]any{"module": "app.wasm"}
		change(&cfg)
		if _, err := mustDriver(t, "").Start(t.Context(), cfg); fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
}

// A disk without room for the machine code is no fault of the module: a later start may succeed.
func TestNoRoomForMachineCode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: no small disk can be mounted")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("mount a small disk: %v", err)
	}
	defer func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := wasm.New(wasm.Config{CacheDir: filepath.Join(disk, "cache"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := mustConfig(t)
	a := newAssembler()
	a.print(1, "hello")
	cfg.Config = map[string]any{"module": mustModule(t, cfg, a.module("_start"))}
	if _, err := d.Start(t.Context(), cfg); !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("the error is %v, want a recoverable one", err)
	}
}

// TestMemoryLimit bounds a module's memory by that of its task.
func TestMemoryLimit(t *testing.T) {
	for _, compiler := range []bool{true, false} {
		cfg := mustConfig(t)
		a := newAssembler()
		a.growUntilRefused()
		a.exitWithSize()
		cfg.Config = map[string]any{"module": mustModule(t, cfg, a.module("_start")), "compiler": compiler}
		if exit, said := mustRun(t, cfg); exit.Code != 16 || exit.Signal != 0 {
			t.Errorf("compiler %v: exit %+v, %q: want 16 (MiB)", compiler, exit, said)
		}
	}
}

// TestTrap ends a module that does something forbidden, and says so in its log.
func TestTrap(t *testing.T) {
	cfg := mustConfig(t)
	a := newAssembler()
	a.trap()
	cfg.Config = map[string]any{"module": mustModule(t, cfg, a.module("_start"))}
	exit, said := mustRun(t, cfg)
	if exit.Code != 134 || !strings.Contains(said, "unreachable") {
		t.Errorf("exit %+v, %q", exit, said)
	}
}

// program is the task of TestProgram: it prints its environment and arguments, and tries to leave its folders.
const program = `package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println(os.Args[1:], os.Getenv("GREETING"), os.Getenv("PATH"))
	fmt.Println(os.WriteFile("/alloc/out", []byte("from a module"), 0o644))
	b, err := os.ReadFile("/local/in")
	fmt.Println(string(b), err)
	entries, err := os.ReadDir("/local")
	fmt.Println(len(entries), err)
	for _, path := range []string{"/local/out-of-here", "/local/../../../../../etc/passwd", "/etc/passwd", "/local/fifo"} {
		_, err := os.ReadFile(path)
		fmt.Println(err != nil)
	}
	fmt.Println(os.WriteFile("/volume/x", nil, 0o644) != nil)
	b, err = os.ReadFile("/volume/y")
	fmt.Println(string(b), err)
	fmt.Println(os.Rename("/local/in", "/local/moved"), os.Remove("/local/moved"), os.Mkdir("/local/folder", 0o755), os.Remove("/local/folder"))
	os.Exit(42)
}
`

// TestProgram runs a program of Go's compiler, which uses WASI as a real one does.
func TestProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles Go's library for wasip1: not with -short")
	}
	cfg := mustConfig(t)
	cfg.Resources.MemoryMB = 64
	source := filepath.Join(t.TempDir(), "main.go")
	for path, content := range map[string]string{source: program, filepath.Join(cfg.LocalDir, "in"): "for a module"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(cfg.LocalDir, "app.wasm"), source)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	volume := t.TempDir()
	for _, err := range []error{
		os.Symlink("/etc/passwd", filepath.Join(cfg.LocalDir, "out-of-here")),
		exec.Command("mkfifo", filepath.Join(cfg.LocalDir, "fifo")).Run(),
		os.WriteFile(filepath.Join(volume, "y"), []byte("of a volume"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg.Mounts = []drivers.Mount{{Source: volume, Target: "/volume", ReadOnly: true}}
	cfg.Config = map[string]any{"module": "/local/app.wasm", "args": []any{"a", 1}}
	exit, said := mustRun(t, cfg)
	want := "[a 1] hello \n<nil>\nfor a module <nil>\n4 <nil>\ntrue\ntrue\ntrue\ntrue\ntrue\nof a volume <nil>\n<nil> <nil> <nil> <nil>\n"
	if exit.Code != 42 || said != want {
		t.Errorf("exit %+v, said\n%s\nwant\n%s", exit, said, want)
	}
	if b, err := os.ReadFile(filepath.Join(cfg.AllocDir, "out")); string(b) != "from a module" {
		t.Errorf("the module wrote %q, %v", b, err)
	}
}

// TestNoCommands does not offer to run commands beside a module.
func TestNoCommands(t *testing.T) {
	cfg := mustConfig(t)
	a := newAssembler()
	a.exit(0)
	cfg.Config = map[string]any{"module": mustModule(t, cfg, a.module("_start"))}
	d := mustDriver(t, "")
	h, err := d.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task, err := d.Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := task.(drivers.Execer); ok {
		t.Error("a module runs commands")
	}
	if _, ok := task.(drivers.Meter); !ok {
		t.Error("a module cannot be measured")
	}
	if _, err := task.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTrimCache removes the machine code that was not used for the longest time.
func TestTrimCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if err := wasm.TrimCache(dir, 100); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"old", "middle", "new"} {
		path := filepath.Join(dir, name)
		at := time.Unix(int64(1000*i), 0)
		if err := os.WriteFile(path, make([]byte, 60), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := wasm.TrimCache(dir, 125); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 || filepath.Base(left[0]) != "middle" || filepath.Base(left[1]) != "new" {
		t.Errorf("left %q, %v", left, err)
	}
}

// FuzzConfig accepts a config block with a module, or refuses it as invalid.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"module": "local/app.wasm", "args": ["a", 1], "compiler": false}`))
	f.Add([]byte(`{"module": 7, "args": {}, "x": null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var config map[string]any
		if json.Unmarshal(b, &config) != nil {
			return
		}
		if err := wasm.Check(config); err != nil && fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Fatalf("refused with %v", err)
		}
	})
}

// FuzzModule reads the sections and the record of any file.
func FuzzModule(f *testing.F) {
	a := newAssembler()
	a.exit(0)
	f.Add(a.module("_start"))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x01\xff\xff\xff\xff\x0f"))
	f.Add([]byte(`{"version": 1, "module": "/x", "args": ["x"], "memory_pages": 1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := wasm.CheckSections(b); err == nil && (len(b) < 8 || string(b[:4]) != "\x00asm") {
			t.Fatalf("taken for a module: %q", b)
		}
		_ = wasm.DecodeSpec(b)
	})
}

// TestFootprint bounds the memory of a module that waits, and of its supervisor: a small board runs many of them.
func TestFootprint(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector needs memory of its own")
	}
	const most = 12 << 20
	cfg := mustConfig(t)
	a := newAssembler()
	a.appendFile(3, "starts", "started\n")
	a.forever(func() { a.sleep(time.Minute) })
	cfg.Config = map[string]any{"module": mustModule(t, cfg, a.module("_start"))}
	d := mustDriver(t, "")
	h, err := d.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task, err := d.Recover(t.Context(), cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := task.Stop(context.WithoutCancel(t.Context()), "SIGKILL", 0); err != nil {
			t.Error(err)
		}
	}()
	for deadline := time.Now().Add(time.Minute); starts(cfg) == 0; <-time.After(10 * time.Millisecond) {
		if task.Ended() || time.Now().After(deadline) {
			t.Fatal("the module did not start")
		}
	}
	used, err := task.(drivers.Meter).Consumed(t.Context())
	if err != nil || len(used) != 1 {
		t.Fatalf("processes %+v, %v: want one", used, err)
	}
	total := uint64(0)
	for _, pid := range []int{used[0].PID, mustParent(t, used[0].PID)} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var kb uint64
			if n, err := fmt.Sscanf(line, "Pss: %d kB", &kb); n == 1 && err == nil {
				t.Logf("process %d: %d KiB", pid, kb)
				total += kb << 10
			}
		}
	}
	if total == 0 || total > most {
		t.Errorf("%d bytes, want at most %d", total, most)
	}
}

// mustParent returns the parent of a process: the supervisor of a task.
func mustParent(tb testing.TB, pid int) int {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var parent int
		if n, err := fmt.Sscanf(line, "PPid: %d", &parent); n == 1 && err == nil {
			return parent
		}
	}
	tb.Fatalf("process %d has no parent: %s", pid, b)
	return 0
}
