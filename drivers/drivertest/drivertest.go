// Package drivertest is the conformance suite of drivers.Driver. A driver's own
// tests call Run with a function that makes a Harness, which says how that driver
// is told to do each of the suite's few things; what the suite then demands is
// the contract.
//
// The suite never sleeps: it waits for a task's end, or polls a condition and
// fails with the state that it saw.
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

// Harness is a machine of one test, and how a driver is spoken to there.
type Harness struct {
	Name string // of the driver, as in Handle.Driver
	// NewDriver makes a driver as a freshly started agent does. All drivers of a
	// Harness share the machine: a second one finds what the first one started.
	NewDriver func() drivers.Driver
	// Reboot makes the drivers that are made after it believe, or see, that the
	// machine has booted again.
	Reboot func()
	// Config is the configuration of a task that does what b says.
	Config func(cfg drivers.TaskConfig, b Behaviour) map[string]any
	// Starts counts how often the task has come to life. A task is counted when it
	// heeds, or ignores, signals.
	Starts func(cfg drivers.TaskConfig) int
	// BadConfigs are refused, by Validate and by Start, with an error that holds
	// the string of the same key.
	BadConfigs map[string]map[string]any
	// Logs is set where the driver writes what a task prints to files.
	Logs bool
}

// Behaviour is what a task of the suite does.
type Behaviour struct {
	Print    string        // a line on stdout, first
	PrintErr string        // a line on stderr, first
	Ignore   string        // a signal that does not end it
	RunFor   time.Duration // negative: until it is stopped
	ExitCode int
}

// Forever is a RunFor without an end.
const Forever = -1 * time.Second

// testTimeout is how long the suite waits for what must happen.
const testTimeout = 30 * time.Second

// Run runs the suite; each test has a Harness of its own.
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

// suite is one test's driver, folders and helpers.
type suite struct {
	testing.TB
	h      Harness
	driver drivers.Driver
	root   string
	ctx    context.Context
}

func newSuite(t *testing.T, h Harness) *suite {
	return &suite{TB: t, h: h, driver: h.NewDriver(), root: t.TempDir(), ctx: t.Context()}
}

// newTaskConfig makes the TaskConfig of a task called name.
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
		LogDir:      filepath.Join(s.root, "logs"),
		StateDir:    filepath.Join(s.root, "state", name, "1"),
		Logs:        fleet.LogConfig{MaxFiles: 3, MaxFileSizeMB: 1},
		KillTimeout: 5 * time.Second,
	}
	for _, dir := range []string{cfg.Dir, cfg.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			s.Fatal(err)
		}
	}
	cfg.Config = s.h.Config(cfg, b)
	return cfg
}

// mustStart starts a task, waits until it is alive, and stops it when the test
// ends.
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
		// The test's context is over here.
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

func (s *suite) mustRecover(d drivers.Driver, cfg drivers.TaskConfig, h drivers.Handle) drivers.Task {
	s.Helper()
	task, err := d.Recover(s.ctx, cfg, h)
	if err != nil {
		s.Fatalf("Recover: %v", err)
	}
	return task
}

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

// pollUntil polls until ok, or fails with what it saw last.
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

func (s *suite) mustReadLog(cfg drivers.TaskConfig, stream string) string {
	s.Helper()
	b, err := os.ReadFile(filepath.Join(cfg.LogDir, cfg.Task+"."+stream+".0"))
	if err != nil {
		s.Fatalf("read log: %v", err)
	}
	return strings.TrimSpace(string(b))
}

// mustCopy copies a folder, as far as files go, and returns the copy. A driver
// that keeps nothing there gets an empty folder.
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

func holds(err error, want string) bool {
	return err != nil && strings.Contains(err.Error(), want)
}
