package docker_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"skerry/drivers/docker"
	"skerry/internal/programs"
)

// TestTheNextAgentKnowsOfLowLimits: Podman's refused limits are kept for the next agent, so that it does not create each
// container twice after a boot. Docker's tasks have no such limits.
func TestTheNextAgentKnowsOfLowLimits(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, docker.Podman)
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	agent := func(name string) *docker.Driver {
		t.Helper()
		d, err := docker.New(docker.Config{
			Name: name, Socket: filepath.Join(dir, "none.sock"), BootID: "boot", Log: slog.New(slog.DiscardHandler),
			Programs: programs.Open(filepath.Join(dir, "programs.json")),
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := agent(docker.Podman)
	if first.NeedsLowLimits() {
		t.Fatal("low limits are needed before a start was refused")
	}
	first.NoteLowLimits()
	if !first.NeedsLowLimits() || !agent(docker.Podman).NeedsLowLimits() {
		t.Error("a refused start is forgotten")
	}
	if agent(docker.Docker).NeedsLowLimits() {
		t.Error("Docker's tasks get low limits")
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\n# newer\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if agent(docker.Podman).NeedsLowLimits() {
		t.Error("another Podman gets the same limits, untried")
	}
}
