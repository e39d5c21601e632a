// Package drivertest is the conformance suite of drivers.Driver. The tests of a driver call Run with a function
// that makes a Harness, which configures the driver for the suite's tasks. The suite's requirements are the
// contract.
//
// The suite never sleeps: it waits for a task's end, or polls a condition and fails with the last state.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// Harness is a machine with a driver, on which one test of the suite runs.
type Harness struct {
	Name string // of the driver, as in Handle.Driver
	// NewDriver makes a driver, as a restarted agent does. All drivers of a Harness share the machine:
	// the second finds the tasks of the first.
	NewDriver func() drivers.Driver
	// Reboot simulates a reboot of the machine for drivers that are made later.
	Reboot func()
	// Config returns the configuration of a task with the behaviour b.
	Config func(cfg drivers.TaskConfig, b Behaviour) map[string]any
	// Starts returns how often the task has started. A task counts once its signal handling is set up.
	Starts func(cfg drivers.TaskConfig) int
	// BadConfigs are rejected by Validate and Start, with an error that contains the key.
	BadConfigs map[string]map[string]any
	// NoLogs says why the output of a task is not in its log files; "": it is.
	NoLogs string
	// NoOOM says why the kernel does not kill a task with Behaviour.Hog for its memory; "": it does, and the exit says so.
	NoOOM string
	// NoChildren says why a task starts no other process; "": it can.
	NoChildren string
	// HogMemoryMaxMB is the memory_max of a task with Behaviour.Hog; 0: its memory is its limit.
	HogMemoryMaxMB int
	// KillSupervisor kills the process that supervises a task, and returns when it is gone; nil: NoSupervisor says why.
	KillSupervisor func(cfg drivers.TaskConfig) error
	NoSupervisor   string
	// CannotIgnore says why a task cannot ignore a signal; "": it can.
	CannotIgnore string
	// NoSignals says why Task.Signal is refused; "": it sends signals.
	NoSignals string
}

// Behaviour describes the actions of a suite's task.
type Behaviour struct {
	Print    string        // first line on stdout
	PrintErr string        // first line on stderr
	Ignore   string        // a signal that does not end the task
	RunFor   time.Duration // negative: until it is stopped
	ExitCode int
	Hog      bool // uses HogMB of memory, far more than the task may
	HogChild bool // another process of the task does that, before the task counts as started
}

// HogMB is the memory in MiB that a task with Behaviour.Hog uses.
const HogMB = 4 * fleet.DefaultMemoryMB

// Forever is a RunFor without end.
const Forever = -1 * time.Second

// testTimeout bounds the wait for each event that a test expects.
const testTimeout = 90 * time.Second

// Run runs the suite, each test with its own Harness.
func Run(t *testing.T, newHarness func(tb testing.TB) Harness) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) { tc.run(newSuite(t, newHarness(t))) })
	}
}

// RunVirtual runs the suite in virtual time, each test in a synctest bubble.
func RunVirtual(t *testing.T, newHarness func(tb testing.TB) Harness) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.run(newSuite(t, newHarness(t))) })
		})
	}
}

// suite is one test of the suite, with its driver and its folders.
type suite struct {
	testing.TB
	h      Harness
	driver drivers.Driver
	root   string // folder of the test
	ctx    context.Context
}

func newSuite(t *testing.T, h Harness) *suite {
	if (h.KillSupervisor == nil) == (h.NoSupervisor == "") {
		t.Fatal("the harness needs KillSupervisor, or else NoSupervisor with the reason")
	}
	return &suite{TB: t, h: h, driver: h.NewDriver(), root: t.TempDir(), ctx: t.Context()}
}

// skipUnlessIgnoring skips a test whose task must ignore a signal, if the driver's tasks cannot.
func (s *suite) skipUnlessIgnoring() {
	s.Helper()
	if s.h.CannotIgnore != "" {
		s.Skip(s.h.CannotIgnore)
	}
}

// newTaskConfig makes the TaskConfig of a task with a name and a behaviour, and its folders.
func (s *suite) newTaskConfig(name string, b Behaviour) drivers.TaskConfig {
	s.Helper()
	cfg := drivers.TaskConfig{
		ID:      "alloc/" + name + "/1",
		AllocID: "alloc",
		Task:    name,
		Env:     map[string]string{"GREETING": "hello"},
		Resources: fleet.Resources{
			CPU: fleet.DefaultCPU, MemoryMB: fleet.DefaultMemoryMB,
		},
		Dir:         filepath.Join(s.root, name),
		AllocDir:    filepath.Join(s.root, "alloc"),
		LocalDir:    filepath.Join(s.root, name, "local"),
		SecretsDir:  filepath.Join(s.root, name, "secrets"),
		LogDir:      filepath.Join(s.root, "logs"),
		StateDir:    filepath.Join(s.root, "state", name, "1"),
		Logs:        fleet.LogConfig{MaxFiles: 3, MaxFileSizeMB: 1},
		KillTimeout: 5 * time.Second,
	}
	for _, dir := range []string{cfg.Dir, cfg.AllocDir, cfg.LocalDir, cfg.SecretsDir, cfg.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			s.Fatal(err)
		}
	}
	if b.Hog {
		cfg.Resources.MemoryMaxMB = s.h.HogMemoryMaxMB
	}
	cfg.Config = s.h.Config(cfg, b)
	return cfg
}

// mustStart starts a task and waits until it runs or has ended. The task is stopped at the end of the test.
func (s *suite) mustStart(cfg drivers.TaskConfig) (drivers.Handle, drivers.Task) {
	s.Helper()
	h, err := s.driver.Start(s.ctx, cfg)
	if err != nil {
		s.Fatalf("Start: %v", err)
	}
	if h.TaskID != cfg.ID {
		s.Fatalf("Start: handle of %q, want %q", h.TaskID, cfg.ID)
	}
	task := s.mustRecover(s.driver, cfg, h)
	s.Cleanup(func() {
		// The test's context has ended by now.
		if err := task.Stop(context.WithoutCancel(s.ctx), "SIGKILL", 0); err != nil {
			s.Errorf("stop at the end: %v", err)
		}
	})
	s.pollUntil(func() (bool, string) {
		n := s.h.Starts(cfg)
		return n == 1 || task.Ended(), fmt.Sprintf("%d starts", n)
	})
	return h, task
}

// mustRecover returns the task of a handle. If d does not find it, it fails the test.
func (s *suite) mustRecover(d drivers.Driver, cfg drivers.TaskConfig, h drivers.Handle) drivers.Task {
	s.Helper()
	task, err := d.Recover(s.ctx, cfg, h)
	if err != nil {
		s.Fatalf("Recover: %v", err)
	}
	return task
}

// mustWait waits for the end of a task and returns its exit.
func (s *suite) mustWait(task drivers.Task) drivers.Exit {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, testTimeout)
	defer cancel()
	exit, err := task.Wait(ctx)
	if err != nil {
		s.Fatalf("Wait: %v", err)
	}
	if exit.FinishedAt.IsZero() {
		s.Error("Wait: FinishedAt is zero")
	}
	return exit
}

// mustStop stops a task, and fails the test if it has not ended then.
func (s *suite) mustStop(task drivers.Task, signal string, timeout time.Duration) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, timeout+testTimeout)
	defer cancel()
	if err := task.Stop(ctx, signal, timeout); err != nil {
		s.Fatalf("Stop: %v", err)
	}
	if !task.Ended() {
		s.Fatal("Stop returned, but the task has not ended")
	}
}

// pollUntil calls ok until it returns true. After testTimeout it fails the test with the state that ok returned
// last.
func (s *suite) pollUntil(ok func() (bool, string)) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(testTimeout)
	for {
		done, state := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("did not happen within %v: %s", testTimeout, state)
		}
		<-tick.C
	}
}

// mustReadLog returns the first file of a task's stdout or stderr, without surrounding blanks.
func (s *suite) mustReadLog(cfg drivers.TaskConfig, stream string) string {
	s.Helper()
	b, err := os.ReadFile(filepath.Join(cfg.LogDir, cfg.Task+"."+stream+".0"))
	if err != nil {
		s.Fatalf("read log: %v", err)
	}
	return strings.TrimSpace(string(b))
}

// mustCopy copies the regular files of a folder to a new one and returns that. A missing folder gives an empty
// one.
func (s *suite) mustCopy(dir string) string {
	s.Helper()
	to := s.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), b, 0o600)
		}
		if err != nil {
			s.Fatal(err)
		}
	}
	return to
}

// errorContains reports whether err is an error whose text contains want.
func errorContains(err error, want string) bool {
	return err != nil && strings.Contains(err.Error(), want)
}
