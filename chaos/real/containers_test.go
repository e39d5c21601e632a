package real_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skerry/chaos/proc"
	"skerry/chaos/real"
)

// containerFaults hit within seconds where each edge has a container daemon and some containers.
const containerFaults = "daemon-kill,daemon-pause,daemon-restart,containers-lost,container-kill,container-remove,edge-kill,power-cut"

// Containers and their daemons get the faults of a campaign: all invariants hold, and no container or image is left.
func TestContainerFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("short: make test-real runs the real daemons")
	}
	if len(real.ContainerDrivers()) == 0 {
		t.Skip("no container daemon can run here: it needs root, and dockerd or podman with busybox")
	}
	t.Parallel()
	bin := mustPrograms(t)
	dir := mustRunFolder(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry-chaos"), "run", "faults",
		"--for", "20s", "--seed", "1", "--hubs", "1", "--edges", "2", "--kinds", containerFaults, "--dir", dir)
	said, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("quiet after")) {
		t.Fatalf("run faults, in %s: %v\n%s", dir, err, said)
	}
	t.Logf("%s", said)
	starts, err := filepath.Glob(filepath.Join(dir, "starts", "*"))
	if err != nil || len(starts) == 0 {
		t.Errorf("no task recorded its start: %v", err)
	}
	left, err := proc.Below(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("processes are left: %v, %v", left, err)
	}
	daemons, err := filepath.Glob(filepath.Join(dir, "*.d"))
	if err != nil || len(daemons) > 0 {
		t.Errorf("folders of daemons are left: %v, %v", daemons, err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("something is still mounted: %v\n%s", err, mounts)
	}
}
