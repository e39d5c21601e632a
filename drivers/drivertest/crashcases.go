package drivertest

import "cmp"

// crash requires that the exit of a task that was killed from outside has the signal, and that memory is not blamed.
func crash(s *suite) {
	_, task := s.mustStart(s.newTaskConfig("task", Behaviour{RunFor: Forever}))
	if s.h.NoSignals != "" {
		s.mustStop(task, "SIGKILL", 0)
	} else if err := task.Signal(s.ctx, "SIGKILL"); err != nil {
		s.Fatalf("Signal: %v", err)
	}
	if exit := s.mustWait(task); exit.Signal != 9 || exit.Code != 137 || exit.OOM || exit.Success() {
		s.Errorf("killed: %+v, want signal 9, code 137 and no lack of memory", exit)
	}
}

// outOfMemory requires that the exit of a task that took too much memory says so.
func outOfMemory(s *suite) {
	if s.h.NoOOM != "" {
		s.Skip(s.h.NoOOM)
	}
	cfg := s.newTaskConfig("task", Behaviour{Hog: true})
	h, err := s.driver.Start(s.ctx, cfg)
	if err != nil {
		s.Fatalf("Start: %v", err)
	}
	if exit := s.mustWait(s.mustRecover(s.driver, cfg, h)); !exit.OOM || exit.Success() {
		s.Errorf("exit %+v, want that it was killed for memory", exit)
	}
}

// childOutOfMemory requires that memory is not blamed for the end of a task of which another process was killed for its memory: the task
// exits by itself, or is stopped.
func childOutOfMemory(s *suite) {
	if why := cmp.Or(s.h.NoOOM, s.h.NoChildren); why != "" {
		s.Skip(why)
	}
	_, task := s.mustStart(s.newTaskConfig("exits", Behaviour{HogChild: true, ExitCode: 5}))
	if exit := s.mustWait(task); exit.Code != 5 || exit.Signal != 0 || exit.OOM {
		s.Errorf("exit %+v, want code 5 and no lack of memory", exit)
	}
	_, task = s.mustStart(s.newTaskConfig("stopped", Behaviour{HogChild: true, RunFor: Forever}))
	s.mustStop(task, "SIGKILL", 0)
	if exit := s.mustWait(task); exit.OOM || exit.Success() {
		s.Errorf("exit %+v, want it stopped and no lack of memory", exit)
	}
}

// supervisorKilled requires that a task outlives its supervisor, is found by the next agent, and can be stopped.
func supervisorKilled(s *suite) {
	if s.h.NoSupervisor != "" {
		s.Skip(s.h.NoSupervisor)
	}
	cfg := s.newTaskConfig("task", Behaviour{RunFor: Forever})
	h, _ := s.mustStart(cfg)
	if err := s.h.KillSupervisor(cfg); err != nil {
		s.Fatalf("kill supervisor: %v", err)
	}
	task := s.mustRecover(s.h.NewDriver(), cfg, h)
	if task.Ended() {
		s.Fatal("the task ended with its supervisor")
	}
	s.mustStop(task, "SIGTERM", testTimeout)
	if exit := s.mustWait(task); exit.Success() {
		s.Errorf("exit %+v, want that it did not end by itself", exit)
	}
	if n := s.h.Starts(cfg); n != 1 {
		s.Errorf("%d starts, want 1", n)
	}
}

// recoverUpgraded requires that a handle of each earlier version of the driver is found, with the same task.
func recoverUpgraded(s *suite) {
	cfg := s.newTaskConfig("task", Behaviour{RunFor: Forever})
	h, task := s.mustStart(cfg)
	for version := 1; version < h.Version; version++ {
		old := h
		old.Version = version
		if found := s.mustRecover(s.h.NewDriver(), cfg, old); found.Ended() {
			s.Errorf("handle of version %d: the task has ended", version)
		}
	}
	newer := h
	newer.Version++
	if _, err := s.h.NewDriver().Recover(s.ctx, cfg, newer); err == nil {
		s.Errorf("handle of version %d, which does not exist yet: no error", newer.Version)
	}
	s.mustStop(task, "SIGTERM", testTimeout)
}
