package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"skerry/drivers"
)

// cases are the tests of the suite. Each fails its suite if the driver does not behave as its name says.
var cases = []struct {
	name string
	run  func(s *suite)
}{
	{"fingerprint", fingerprint},
	{"bad config", badConfig},
	{"exit codes", exitCodes},
	{"wait gives the same again", waitAgain},
	{"wait heeds its context", waitContext},
	{"stop signal ends it", stopSignal},
	{"stop kills what ignores the signal", stopKills},
	{"stop is carried out without its caller", stopAlone},
	{"stop of what has ended", stopEnded},
	{"signal", signal},
	{"start is idempotent by id", startAgain},
	{"start of what has ended", startEnded},
	{"recover running", recoverRunning},
	{"recover by id alone", recoverByID},
	{"recover what ended while away", recoverEnded},
	{"recover after a reboot", recoverRebooted},
	{"recover what ended before a reboot", recoverEndedRebooted},
	{"recover a foreign handle", recoverForeign},
	{"recover in a copied data directory", recoverCopied},
	{"logs outlive the agent", logsSurvive},
	{"disabled logs", disabledLogs},
	{"many at once", manyAtOnce},
	{"forget", forget},
	{"crash", crash},
	{"out of memory", outOfMemory},
	{"another process out of memory", childOutOfMemory},
	{"supervisor killed", supervisorKilled},
	{"recover after an upgrade", recoverUpgraded},
	{"secrets of the environment", secretEnv},
}

// fingerprint requires that the driver is detected, healthy and says so.
func fingerprint(s *suite) {
	info := s.driver.Fingerprint(s.ctx)
	if !info.Detected || !info.Healthy || info.HealthDescription == "" {
		s.Errorf("Fingerprint: %+v, want it detected, healthy and described", info)
	}
}

// badConfig requires that Validate and Start reject the harness's invalid configurations for good.
func badConfig(s *suite) {
	for want, config := range s.h.BadConfigs {
		if err := s.driver.Validate(config); !errorContains(err, want) {
			s.Errorf("Validate(%v): %v, want an error with %q", config, err, want)
		}
		cfg := s.newTaskConfig("bad", Behaviour{})
		cfg.Config = config
		if _, err := s.driver.Start(s.ctx, cfg); !errorContains(err, want) || drivers.IsRecoverable(err) {
			s.Errorf("Start(%v): %v, want an error with %q that no second try can mend", config, err, want)
		}
	}
	if err := s.driver.Validate(s.newTaskConfig("good", Behaviour{ExitCode: 3}).Config); err != nil {
		s.Errorf("Validate of a good config: %v", err)
	}
}

// exitCodes requires that the exit has the exit code of the task.
func exitCodes(s *suite) {
	for _, code := range []int{0, 1, 7, 255} {
		_, task := s.mustStart(s.newTaskConfig(fmt.Sprintf("exit%d", code), Behaviour{ExitCode: code}))
		exit := s.mustWait(task)
		if exit.Code != code || exit.Signal != 0 || exit.Err != "" || exit.Success() != (code == 0) {
			s.Errorf("exit %d: got %+v", code, exit)
		}
	}
}

// waitAgain requires that a second Wait returns the same exit.
func waitAgain(s *suite) {
	_, task := s.mustStart(s.newTaskConfig("task", Behaviour{ExitCode: 4}))
	first := s.mustWait(task)
	if again := s.mustWait(task); again != first {
		s.Errorf("first %+v, then %+v", first, again)
	}
	if !task.Ended() {
		s.Error("waited for, but not ended")
	}
}

// waitContext requires that Wait returns when its context ends, and the task runs on.
func waitContext(s *suite) {
	_, task := s.mustStart(s.newTaskConfig("task", Behaviour{RunFor: Forever}))
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := task.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("Wait: %v, want the context's error", err)
	}
	if task.Ended() {
		s.Error("ended, but it runs")
	}
}

// stopSignal requires that Stop sends the given signal, which ends the task.
func stopSignal(s *suite) {
	_, task := s.mustStart(s.newTaskConfig("task", Behaviour{RunFor: Forever}))
	s.mustStop(task, "SIGINT", testTimeout)
	if exit := s.mustWait(task); exit.Signal != 2 || exit.Code != 130 || exit.Success() {
		s.Errorf("stopped with SIGINT: %+v, want signal 2 and code 130", exit)
	}
}

// stopKills requires that Stop kills a task that ignores the signal, after the timeout and not before.
func stopKills(s *suite) {
	s.skipUnlessIgnoring()
	const timeout = 100 * time.Millisecond
	_, task := s.mustStart(s.newTaskConfig("task", Behaviour{RunFor: Forever, Ignore: "SIGTERM"}))
	begin := time.Now()
	s.mustStop(task, "", timeout)
	if took := time.Since(begin); took < timeout {
		s.Errorf("killed after %v, before its %v were over", took, timeout)
	}
	if exit := s.mustWait(task); exit.Signal != 9 || exit.Code != 137 {
		s.Errorf("killed: %+v, want signal 9 and code 137", exit)
	}
}

// stopAlone requires that a stop is carried out although its caller's context has ended.
func stopAlone(s *suite) {
	s.skipUnlessIgnoring()
	_, task := s.mustStart(s.newTaskConfig("task", Behaviour{RunFor: Forever, Ignore: "SIGTERM"}))
	ctx, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancel()
	if err := task.Stop(ctx, "SIGTERM", 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("Stop: %v, want the context's error", err)
	}
	if exit := s.mustWait(task); exit.Signal != 9 {
		s.Errorf("stopped without its caller: %+v, want signal 9", exit)
	}
}

// stopEnded requires that Stop of an ended task succeeds, keeps its exit, and that Signal then fails.
func stopEnded(s *suite) {
	_, task := s.mustStart(s.newTaskConfig("task", Behaviour{ExitCode: 5}))
	s.mustWait(task)
	s.mustStop(task, "SIGTERM", time.Second)
	if exit := s.mustWait(task); exit.Code != 5 {
		s.Errorf("stopped after its end: %+v, want its own exit code 5", exit)
	}
	if err := task.Signal(s.ctx, "SIGHUP"); err == nil {
		s.Error("Signal to what has ended: no error")
	}
}

// signal requires that Signal sends signals by long and short names, and rejects unknown ones.
func signal(s *suite) {
	_, task := s.mustStart(s.newTaskConfig("task", Behaviour{RunFor: Forever, Ignore: "SIGHUP"}))
	if err := task.Signal(s.ctx, "SIGSOLDIER"); !errorContains(err, "SIGSOLDIER") {
		s.Errorf("Signal: %v, want an error that names the signal", err)
	}
	if err := task.Stop(s.ctx, "SIGSOLDIER", 0); !errorContains(err, "SIGSOLDIER") || task.Ended() {
		s.Errorf("Stop with an unknown signal: %v, want an error that names it, and the task alive", err)
	}
	if s.h.NoSignals != "" {
		if err := task.Signal(s.ctx, "SIGHUP"); err == nil || task.Ended() {
			s.Errorf("Signal: %v, want an error, because %s", err, s.h.NoSignals)
		}
		return
	}
	if s.h.CannotIgnore == "" {
		if err := task.Signal(s.ctx, "SIGHUP"); err != nil {
			s.Errorf("Signal that is ignored: %v", err)
		}
	}
	if err := task.Signal(s.ctx, "usr1"); err != nil {
		s.Errorf("Signal by its short name: %v", err)
	}
	if exit := s.mustWait(task); exit.Signal != 10 {
		s.Errorf("after SIGHUP, which it ignores, and SIGUSR1: %+v, want signal 10", exit)
	}
}

// startAgain requires that a second Start with the same ID, also by another driver, returns the first handle.
func startAgain(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{RunFor: Forever})
	first, _ := s.mustStart(cfg)
	for _, d := range []drivers.Driver{s.driver, s.h.NewDriver()} {
		again, err := d.Start(s.ctx, cfg)
		if err != nil {
			s.Fatalf("Start again: %v", err)
		}
		if again.TaskID != first.TaskID || string(again.State) != string(first.State) {
			s.Errorf("Start again: %v, want the first handle %v", again, first)
		}
	}
	if n := s.h.Starts(cfg); n != 1 {
		s.Errorf("%d starts, want 1", n)
	}
}

// startEnded requires that Start with the ID of an ended task starts nothing, and finds that task.
func startEnded(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{ExitCode: 6})
	_, task := s.mustStart(cfg)
	s.mustWait(task)
	d := s.h.NewDriver()
	h, err := d.Start(s.ctx, cfg)
	if err != nil {
		s.Fatalf("Start again: %v", err)
	}
	if exit := s.mustWait(s.mustRecover(d, cfg, h)); exit.Code != 6 {
		s.Errorf("exit %+v, want that of the first start, 6", exit)
	}
	if n := s.h.Starts(cfg); n != 1 {
		s.Errorf("%d starts, want 1", n)
	}
}

// recoverRunning requires that another driver finds a running task, and can stop it.
func recoverRunning(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{RunFor: Forever})
	h, first := s.mustStart(cfg)
	task := s.mustRecover(s.h.NewDriver(), cfg, h)
	if task.Ended() {
		s.Fatal("recovered as ended, but it runs")
	}
	s.mustStop(task, "SIGTERM", testTimeout)
	if exit := s.mustWait(task); exit.Signal != 15 {
		s.Errorf("exit %+v, want signal 15", exit)
	}
	if exit := s.mustWait(first); exit.Signal != 15 {
		s.Errorf("as the first agent sees it: %+v, want signal 15", exit)
	}
	if n := s.h.Starts(cfg); n != 1 {
		s.Errorf("%d starts, want 1", n)
	}
}

// recoverByID requires that a task is found by its ID without a state. If it was never started, the error is
// drivers.ErrTaskGone.
func recoverByID(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{RunFor: Forever})
	h := drivers.Handle{Driver: s.h.Name, TaskID: cfg.ID}
	if _, err := s.driver.Recover(s.ctx, cfg, h); !errors.Is(err, drivers.ErrTaskGone) {
		s.Errorf("Recover of what was never started: %v, want %v", err, drivers.ErrTaskGone)
	}
	s.mustStart(cfg)
	task := s.mustRecover(s.h.NewDriver(), cfg, h)
	s.mustStop(task, "SIGTERM", testTimeout)
	if exit := s.mustWait(task); exit.Signal != 15 {
		s.Errorf("exit %+v, want signal 15", exit)
	}
}

// recoverEnded requires that a task that ended while no agent watched is found with its exit.
func recoverEnded(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{RunFor: 20 * time.Millisecond, ExitCode: 9})
	h, err := s.driver.Start(s.ctx, cfg)
	if err != nil {
		s.Fatalf("Start: %v", err)
	}
	var task drivers.Task
	s.pollUntil(func() (bool, string) {
		task = s.mustRecover(s.h.NewDriver(), cfg, h)
		return task.Ended(), "it runs"
	})
	if exit := s.mustWait(task); exit.Code != 9 || exit.Err != "" {
		s.Errorf("exit %+v, want code 9", exit)
	}
}

// recoverRebooted requires that Recover returns drivers.ErrTaskGone for a task that ran when the machine
// rebooted.
func recoverRebooted(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{RunFor: Forever})
	h, _ := s.mustStart(cfg)
	s.h.Reboot()
	if _, err := s.h.NewDriver().Recover(s.ctx, cfg, h); !errors.Is(err, drivers.ErrTaskGone) {
		s.Errorf("Recover: %v, want %v", err, drivers.ErrTaskGone)
	}
}

// recoverEndedRebooted requires that a task that ended before a reboot is found with its exit.
func recoverEndedRebooted(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{ExitCode: 3})
	h, task := s.mustStart(cfg)
	s.mustWait(task)
	s.h.Reboot()
	if exit := s.mustWait(s.mustRecover(s.h.NewDriver(), cfg, h)); exit.Code != 3 {
		s.Errorf("exit %+v, want code 3", exit)
	}
}

// recoverForeign requires that the handle of another driver is an error.
func recoverForeign(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{})
	h := drivers.Handle{Driver: "no such driver", Version: 1, TaskID: cfg.ID, State: []byte("{}")}
	if _, err := s.driver.Recover(s.ctx, cfg, h); err == nil {
		s.Error("Recover of another driver's handle: no error")
	}
}

// recoverCopied requires that a copy of the state folder does not find, or end, the task of the original.
func recoverCopied(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{RunFor: Forever})
	h, task := s.mustStart(cfg)
	elsewhere := cfg
	elsewhere.StateDir = s.mustCopy(cfg.StateDir)
	if _, err := s.h.NewDriver().Recover(s.ctx, elsewhere, h); !errors.Is(err, drivers.ErrTaskGone) {
		s.Errorf("Recover: %v, want %v", err, drivers.ErrTaskGone)
	}
	if task.Ended() {
		s.Error("the first one's task has ended")
	}
}

// logsSurvive requires that a task's output is in its log files, also after Forget.
func logsSurvive(s *suite) {
	if s.h.NoLogs != "" {
		s.Skip(s.h.NoLogs)
	}
	cfg := s.newTaskConfig("task", Behaviour{Print: "to stdout", PrintErr: "to stderr", RunFor: 20 * time.Millisecond})
	h, task := s.mustStart(cfg)
	s.mustWait(task)
	task = s.mustRecover(s.h.NewDriver(), cfg, h)
	if err := task.Forget(s.ctx); err != nil {
		s.Errorf("Forget: %v", err)
	}
	if got := s.mustReadLog(cfg, "stdout"); got != "to stdout" {
		s.Errorf("stdout: %q", got)
	}
	if got := s.mustReadLog(cfg, "stderr"); got != "to stderr" {
		s.Errorf("stderr: %q", got)
	}
}

// disabledLogs requires that a task whose logs are disabled runs and writes no log files.
func disabledLogs(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{Print: "to stdout", PrintErr: "to stderr", ExitCode: 3})
	cfg.Logs.Disabled = true
	h, task := s.mustStart(cfg)
	if exit := s.mustWait(task); exit.Code != 3 {
		s.Errorf("Wait: %+v, want the code 3", exit)
	}
	task = s.mustRecover(s.h.NewDriver(), cfg, h)
	if err := task.Forget(s.ctx); err != nil {
		s.Errorf("Forget: %v", err)
	}
	if files, err := os.ReadDir(cfg.LogDir); err != nil || len(files) > 0 {
		s.Errorf("files in the folder of logs: %v, %v", files, err)
	}
}

// manyAtOnce requires that ten tasks can be started and waited for concurrently.
func manyAtOnce(s *suite) {
	const tasks = 10
	cfgs := make([]drivers.TaskConfig, tasks)
	for i := range cfgs {
		cfgs[i] = s.newTaskConfig(fmt.Sprintf("task%d", i), Behaviour{ExitCode: i})
	}
	exits := make([]drivers.Exit, tasks)
	errs := make([]error, tasks)
	var wg sync.WaitGroup
	for i, cfg := range cfgs {
		wg.Go(func() {
			var h drivers.Handle
			var task drivers.Task
			if h, errs[i] = s.driver.Start(s.ctx, cfg); errs[i] != nil {
				return
			}
			if task, errs[i] = s.driver.Recover(s.ctx, cfg, h); errs[i] != nil {
				return
			}
			exits[i], errs[i] = task.Wait(s.ctx)
		})
	}
	wg.Wait()
	for i := range cfgs {
		if errs[i] != nil || exits[i].Code != i {
			s.Errorf("task %d: %+v, %v", i, exits[i], errs[i])
		}
	}
}

// forget requires that Forget fails for a running task, and that Recover returns drivers.ErrTaskGone after it.
func forget(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{RunFor: Forever})
	h, task := s.mustStart(cfg)
	if err := task.Forget(s.ctx); err == nil {
		s.Fatal("Forget of a task that runs: no error")
	}
	s.mustStop(task, "SIGTERM", testTimeout)
	if err := task.Forget(s.ctx); err != nil {
		s.Fatalf("Forget: %v", err)
	}
	if _, err := s.h.NewDriver().Recover(s.ctx, cfg, h); !errors.Is(err, drivers.ErrTaskGone) {
		s.Errorf("Recover after Forget: %v, want %v", err, drivers.ErrTaskGone)
	}
}
