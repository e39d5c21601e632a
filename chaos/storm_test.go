package chaos_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stormKinds hit within a few seconds, whatever else goes on; those that need root
// are left out by the run itself where there is none.
const stormKinds = "cut,flapping,hub-kill,hub-pause,edge-kill,power-cut,slow-disk,crash-loop"

// TestStorm runs the command as people do: as root in a cell with disks that forget.
func TestStorm(t *testing.T) {
	bin, err := programs()
	if err != nil {
		t.Fatalf("build the programs: %v", err)
	}
	dir, err := os.MkdirTemp("", "sk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	report := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry-chaos"), "run", "faults",
		"--for", "45s", "--seed", "1", "--edges", "3", "--kinds", stormKinds, "--dir", dir, "--report", report)
	said, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("quiet after")) {
		t.Fatalf("a storm: %v\n%s", err, said)
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
