package real_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRehearsalIsWhatHappens rehearses the three examples, runs them on real processes
// that suffer the same cut, and compares. They run side by side in one fleet, with
// rules short enough for all of them to apply: one is kept, one is replaced while it
// runs on, one is stopped by its edge and then replaced.
func TestRehearsalIsWhatHappens(t *testing.T) {
	t.Parallel()
	bin := mustPrograms(t)
	dir, err := os.MkdirTemp("", "sk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	examples := func(name string) string { return filepath.Join("..", "..", "examples", name) }
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry-chaos"), "run", "rehearsal", "--proxy", "--dir", dir,
		"--job", examples("shop.hcl"), "--job", examples("prices.hcl"), "--job", examples("payments.hcl"),
		"--var", "lost_after=20s", "--var", "stop_after=15s", "--var", "copies=3",
		"--fleet", examples("fleet.yaml"), "--cut", "3@20s:40s", "--for", "75s", // a start may be late by the tolerance
		"--heartbeat-min-ttl", "5s", "--heartbeat-grace", "5s", "--backoff-cap", "2s", "--tolerance", "15s")
	said, err := cmd.CombinedOutput()
	t.Logf("%s", said)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"payments.gateway on edge-4, in place of edge-3's", "prices.api on edge-4, in place of edge-3's", "facts agree"} {
		if !bytes.Contains(said, []byte(want)) {
			t.Errorf("there is no %q", want)
		}
	}
}
