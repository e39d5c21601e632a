package drivertest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skerry/drivers"
	"skerry/fleet"
)

// pin is a secret in the environment of a task.
const pin = "pin-4711-0815"

// secretEnv requires that a driver with HidesEnv leaves no secret of a task's environment in its state folder, also after
// another supervisor has adopted the task, and that commands beside the task have the secret.
func secretEnv(s *suite) {
	if !s.driver.Capabilities().HidesEnv {
		s.Skip("the driver keeps the environment of its tasks on the disk")
	}
	cfg := s.newTaskConfig("secret", Behaviour{RunFor: Forever})
	cfg.Env["PIN"], cfg.MemoryDir = pin, filepath.Join(s.root, "memory")
	if err := os.Mkdir(cfg.MemoryDir, 0o700); err != nil {
		s.Fatal(err)
	}
	h, task := s.mustStart(cfg)
	s.checkSecret(cfg, task)
	if s.h.KillSupervisor != nil {
		if err := s.h.KillSupervisor(cfg); err != nil {
			s.Fatal(err)
		}
		s.driver = s.h.NewDriver()
		task = s.mustRecover(s.driver, cfg, h)
		s.checkSecret(cfg, task)
	}
	if err := task.Stop(s.ctx, "", cfg.KillTimeout); err != nil {
		s.Fatal(err)
	}
	s.wantNoSecret(cfg.StateDir)
}

// checkSecret checks that a command beside a task has its secret, and that its state folder has not.
func (s *suite) checkSecret(cfg drivers.TaskConfig, task drivers.Task) {
	s.Helper()
	if beside, ok := task.(drivers.Execer); ok {
		code, err := beside.Exec(s.ctx, fleet.Exec{
			Command: []string{"/bin/sh", "-c", `test "$PIN" = ` + pin}, Stdin: io.NopCloser(strings.NewReader("")), Stdout: io.Discard, Stderr: io.Discard,
		})
		if err != nil || code != 0 {
			s.Errorf("a command beside the task does not have its secret: %d, %v", code, err)
		}
	}
	s.wantNoSecret(cfg.StateDir)
}

// wantNoSecret checks that no file below a folder has the secret.
func (s *suite) wantNoSecret(dir string) {
	s.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(pin)) {
			s.Errorf("%s has a secret of the task's environment", path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Error(err)
	}
}
