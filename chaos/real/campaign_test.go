package real_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"skerry/chaos/cluster"
	"skerry/chaos/proc"
)

// stormKinds hit within a few seconds, whatever else goes on, also where no task runs yet; those that need root are left out
// by the run itself where there is none.
const stormKinds = "cut,flapping,hub-kill,hub-pause,edge-kill,power-cut,slow-disk"

// TestStorm runs the command as people do: as root in a cell with disks that forget.
func TestStorm(t *testing.T) {
	t.Parallel()
	bin := mustPrograms(t)
	dir := mustRunFolder(t)
	report := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry-chaos"), "run", "faults",
		"--for", "30s", "--seed", "1", "--edges", "3", "--no-containers", "--kinds", stormKinds, "--dir", dir, "--report", report)
	said, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("quiet after")) {
		t.Fatalf("a storm: %v\n%s", err, said)
	}
	const kinds = `a site code \(2\), an identity of a task \(\d+\), the secret of a join token \(3\), the secret of a one-time token \(1\), the secret of an ACL token \(3\), the value of a variable \(1\)`
	if !regexp.MustCompile(kinds).Match(said) || !regexp.MustCompile(`secrets-sealed +holds`).Match(said) {
		t.Errorf("the storm was not searched for secrets of each kind:\n%s", said)
	}
	for _, name := range []string{"history.jsonl.gz", "report.html"} {
		if info, err := os.Stat(filepath.Join(report, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s was not written: %v", name, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err == nil && strings.Contains(string(mounts), dir) {
		t.Errorf("disks are still mounted: %s", mounts)
	}
}

// TestStormFailsOnASecret: a run whose folder has the value of a variable in clear is violated, and says where the value is.
func TestStormFailsOnASecret(t *testing.T) {
	t.Parallel()
	bin := mustPrograms(t)
	dir := mustRunFolder(t)
	if err := os.WriteFile(filepath.Join(dir, "told"), []byte("mArKeD-sEcReT-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry-chaos"), "run", "faults",
		"--for", "5s", "--seed", "1", "--hubs", "1", "--edges", "1", "--no-containers", "--no-disks", "--kinds", "cut", "--dir", dir)
	said, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(said, []byte("a secret is in clear in told: the value of a variable")) {
		t.Errorf("a storm with a secret: %v\n%s", err, said)
	}
}

// TestKilledStormLeavesNothing kills a run with SIGKILL once its disks are mounted and its hubs run: its processes,
// mounts and devices have to go with it.
func TestKilledStormLeavesNothing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("not root: a run makes nothing that outlives its processes")
		return
	}
	bin := mustPrograms(t)
	dir := mustRunFolder(t)
	cmd := exec.Command(filepath.Join(bin, "skerry-chaos"), "run", "faults", "--for", "10m", "--seed", "1", "--edges", "2", "--no-containers", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(what string, want func(processes, disks int) bool) {
		t.Helper()
		err := cluster.Eventually(context.WithoutCancel(t.Context()), 90*time.Second, what, func(context.Context) string {
			pids, err := proc.Below(dir)
			if err != nil {
				return err.Error()
			}
			disks := attached(t, dir)
			if !want(len(pids), disks) {
				return fmt.Sprintf("%d processes and %d disks", len(pids), disks)
			}
			return ""
		})
		if err != nil {
			t.Error(err)
		}
	}
	// The run itself, its keeper, the hubs and the edges.
	await("the run is under way", func(processes, disks int) bool { return processes >= 3+3+2 && disks == 3+2 })
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	await("nothing is left", func(processes, disks int) bool { return processes == 0 && disks == 0 })
}

// attached counts loop devices whose image is below a folder.
func attached(tb testing.TB, dir string) int {
	tb.Helper()
	images, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, path := range images {
		if b, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(b), dir+"/") {
			n++
		}
	}
	return n
}
