package docker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/drivers"
	"skerry/drivers/docker"
	"skerry/drivers/drivertest"
)

func TestConformance(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		drivertest.Run(t, func(tb testing.TB) drivertest.Harness { return newHarness(tb, d) })
	})
}

func newHarness(tb testing.TB, d *daemon) drivertest.Harness {
	bootID, noOOM := "boot-1", ""
	if os.Geteuid() != 0 {
		noOOM = "a Podman without root limits no memory on cgroup v1, and this process may not read the kernel's log"
	}
	return drivertest.Harness{
		Name: d.name,
		NewDriver: func() drivers.Driver {
			return d.mustDriver(tb, bootID, func(c *docker.Config) { c.AllowVolumes = true })
		},
		Reboot: func() { bootID = "boot-2" },
		Config: script,
		Starts: starts,

		NoOOM:        noOOM,
		NoSupervisor: "the daemon keeps the containers: TestDaemonIsKilled, TestDaemonHangs",
		BadConfigs: map[string]map[string]any{
			"image is required":        {"command": "sh"},
			`unknown key "imagge"`:     {"image": testImage, "imagge": "x"},
			"args must be a list":      {"image": testImage, "args": 7},
			"privileged":               {"image": testImage, "privileged": true},
			"NET_ADMIN":                {"image": testImage, "cap_add": []any{"net_admin"}},
			"invalid reference format": {"image": "Not An Image"},
		},
	}
}

// exits are the exit codes of the script for the signals of the suite: the main process of a container only gets
// the signals that it handles.
var exits = map[string]int{"HUP": 129, "INT": 130, "USR1": 138, "TERM": 143}

// script returns a shell script with the behaviour b. It records its start after its traps are set.
func script(cfg drivers.TaskConfig, b drivertest.Behaviour) map[string]any {
	var lines []string
	for name, code := range exits {
		if "SIG"+name == b.Ignore {
			lines = append(lines, fmt.Sprintf("trap '' %s", name))
		} else {
			lines = append(lines, fmt.Sprintf("trap 'exit %d' %s", code, name))
		}
	}
	if b.Print != "" {
		lines = append(lines, fmt.Sprintf("echo '%s'", b.Print))
	}
	if b.PrintErr != "" {
		lines = append(lines, fmt.Sprintf("echo '%s' >&2", b.PrintErr))
	}
	if b.HogChild {
		lines = append(lines, drivertest.HogCommand)
	}
	lines = append(lines, "echo started >> /work/starts")
	switch {
	case b.RunFor == drivertest.Forever:
		lines = append(lines, "while :; do sleep 100 & wait $!; done")
	case b.RunFor > 0:
		lines = append(lines, fmt.Sprintf("sleep %.3f", b.RunFor.Seconds()))
	}
	if b.Hog {
		lines = append(lines, "exec "+drivertest.HogCommand)
	}
	lines = append(lines, fmt.Sprintf("exit %d", b.ExitCode))
	return shell(cfg, lines...)
}

// shell returns the config block of a script in the image of the tests, with the task's folder at /work.
func shell(cfg drivers.TaskConfig, lines ...string) map[string]any {
	return map[string]any{
		"image": testImage, "command": "/bin/sh", "args": []any{"-c", strings.Join(lines, "\n")},
		"network_mode": "none", "volumes": []any{cfg.Dir + ":/work"},
	}
}

func starts(cfg drivers.TaskConfig) int {
	b, err := os.ReadFile(filepath.Join(cfg.Dir, "starts"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "started")
}
