package java_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"skerry/drivers"
	"skerry/drivers/drivertest"
	"skerry/drivers/java"
	"skerry/drivers/oci"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

func TestMain(m *testing.M) {
	supervised.Supervise()
	os.Exit(m.Run())
}

// mustHaveJava skips a test where there is no Java runtime.
func mustHaveJava(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: make test-drivers runs Java programs")
	}
	if _, err := exec.LookPath("java"); err != nil {
		tb.Skip("no Java runtime is installed")
	}
}

func mustDriver(tb testing.TB, bootID string, isolation oci.Config) *supervised.Driver {
	tb.Helper()
	d, err := java.New(oci.DriverConfig{BootID: bootID, Log: slog.New(slog.DiscardHandler), Isolation: isolation})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// noRuntime makes a driver that cannot isolate its tasks.
var noRuntime = oci.Config{Runtime: "/no/such/runtime"}

func TestConformance(t *testing.T) {
	mustHaveJava(t)
	drivertest.Run(t, func(tb testing.TB) drivertest.Harness { return newHarness(tb, oci.Config{}) })
}

func TestConformanceWithoutIsolation(t *testing.T) {
	mustHaveJava(t)
	drivertest.Run(t, func(tb testing.TB) drivertest.Harness { return newHarness(tb, noRuntime) })
}

func newHarness(tb testing.TB, isolation oci.Config) drivertest.Harness {
	bootID := ""
	return drivertest.Harness{
		Name:           java.Name,
		NewDriver:      func() drivers.Driver { return mustDriver(tb, bootID, isolation) },
		Reboot:         func() { bootID = "11111111-2222-3333-4444-555555555555" },
		Config:         func(cfg drivers.TaskConfig, b drivertest.Behaviour) map[string]any { return taskConfig(tb, cfg, b) },
		Starts:         drivertest.ShellStarts,
		NoOOM:          drivertest.NoCgroups(),
		NoChildren:     "the program of the tests starts none; the tasks of exec and raw_exec do, with the same supervisor",
		KillSupervisor: drivertest.KillSupervisor,
		BadConfigs: map[string]map[string]any{
			"jar_path or class is required":       {"args": []any{"a"}},
			"jar_path and class exclude":          {"jar_path": "a.jar", "class": "A"},
			`unknown key "command"`:               {"class": "A", "command": "x"},
			"jvm_options must be a list":          {"class": "A", "jvm_options": "x"},
			`there is no capability "no_such_cap`: {"class": "A", "cap_drop": []any{"no_such_cap"}},
		},
	}
}

// taskConfig copies the class of testdata into the task's folder and returns the config block with the behaviour b.
func taskConfig(tb testing.TB, cfg drivers.TaskConfig, b drivertest.Behaviour) map[string]any {
	tb.Helper()
	class, err := os.ReadFile("testdata/Task.class")
	if err == nil {
		err = os.WriteFile(filepath.Join(cfg.Dir, "Task.class"), class, 0o644)
	}
	if err != nil {
		tb.Fatal(err)
	}
	jvm := []any{"-Xmx32m", "-XX:TieredStopAtLevel=1"}
	if b.Hog { // the runtime takes its whole heap at once, and without these options no more than the task may
		heap := strconv.Itoa(drivertest.HogMB) + "m"
		jvm = []any{"-Xms" + heap, "-Xmx" + heap, "-XX:+AlwaysPreTouch"}
	}
	args := []any{"exit=" + strconv.Itoa(b.ExitCode), "run=" + strconv.FormatInt(b.RunFor.Milliseconds(), 10)}
	if b.Ignore == "" {
		jvm = append(jvm, "-Xrs") // otherwise the runtime handles signals itself and exits with a code
	} else {
		args = append(args, "ignore="+strings.TrimPrefix(b.Ignore, "SIG"))
	}
	if b.Print != "" {
		args = append(args, "print="+b.Print)
	}
	if b.PrintErr != "" {
		args = append(args, "error="+b.PrintErr)
	}
	return map[string]any{"class": "Task", "class_path": ".", "jvm_options": jvm, "args": args}
}

// The fingerprint has the version of the runtime, and says whether tasks are isolated.
func TestFingerprint(t *testing.T) {
	mustHaveJava(t)
	info := mustDriver(t, "", noRuntime).Fingerprint(t.Context())
	if !info.Healthy || !strings.Contains(info.HealthDescription, "not isolated") || info.Attributes["driver.java.version"] == "" {
		t.Errorf("without an OCI runtime: %+v", info)
	}
}

func TestParseVersion(t *testing.T) {
	got := java.ParseVersion("Picked up JAVA_TOOL_OPTIONS: -X\nopenjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 1)\nOpenJDK 64-Bit Server VM (build 2)\n")
	for name, want := range map[string]string{
		"driver.java": "1", "driver.java.version": "17.0.15", "driver.java.runtime": "OpenJDK Runtime Environment (build 1)", "driver.java.vm": "OpenJDK 64-Bit Server VM (build 2)",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

// A key that needs a container is refused by name where there is none; a missing jar by its path.
func TestRefusals(t *testing.T) {
	mustHaveJava(t)
	root := t.TempDir()
	cfg := drivers.TaskConfig{
		ID: "alloc/web/1", Task: "web", Dir: filepath.Join(root, "web"), LogDir: filepath.Join(root, "logs"), StateDir: filepath.Join(root, "state"),
		Resources: fleet.Resources{CPU: 100, MemoryMB: 200}, Logs: fleet.LogConfig{MaxFiles: 1, MaxFileSizeMB: 1},
		Config: map[string]any{"jar_path": "missing.jar", "pid_mode": "host"},
	}
	for _, dir := range []string{cfg.Dir, cfg.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := mustDriver(t, "", noRuntime)
	if _, err := d.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "pid_mode needs a container") {
		t.Errorf("pid_mode without a container: %v", err)
	}
	delete(cfg.Config, "pid_mode")
	for name, isolation := range map[string]oci.Config{"alone": noRuntime, "isolated, if that works": {}} {
		if _, err := mustDriver(t, "", isolation).Start(t.Context(), cfg); !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "there is no jar /") {
			t.Errorf("a missing jar, %s: %v", name, err)
		}
	}
}

// A machine that lacks a folder of its operator's list does not run tasks without isolation in its place.
func TestMissingFolder(t *testing.T) {
	mustHaveJava(t)
	d := mustDriver(t, "", oci.Config{Chroot: map[string]string{"/no/such/folder": "/opt"}})
	info := d.Fingerprint(t.Context())
	if info.Attributes["driver.java.isolation"] == "" {
		t.Skip(info.HealthDescription)
	}
	if !info.Detected || info.Healthy || !strings.Contains(info.HealthDescription, "/no/such/folder") {
		t.Errorf("fingerprint: %+v", info)
	}
	cfg := mustTask(t, nil)
	cfg.ID, cfg.Task, cfg.StateDir, cfg.LogDir = "alloc/web/1", "web", filepath.Join(t.TempDir(), "state"), t.TempDir()
	cfg.Logs, cfg.Config = fleet.LogConfig{MaxFiles: 1, MaxFileSizeMB: 1}, map[string]any{"class": "Task"}
	if _, err := d.Start(t.Context(), cfg); !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "/no/such/folder") {
		t.Errorf("Start: %v, want a recoverable error that names the folder", err)
	}
}

// TestJarThatIsAFIFO: a task cannot hold up its next start with it.
func TestJarThatIsAFIFO(t *testing.T) {
	cfg := mustTask(t, nil)
	if err := syscall.Mkfifo(filepath.Join(cfg.LocalDir, "app.jar"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := java.CheckJar(cfg, "local/app.jar", "/", true); err == nil || !strings.Contains(err.Error(), "it is not a file") {
		t.Errorf("%v", err)
	}
}
