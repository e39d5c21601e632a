package real_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRehearsalIsWhatHappens rehearses the three examples, runs them on real processes
// that suffer the same cut, and compares. They run side by side in one fleet, with
// rules short enough for all of them to apply: one is kept, one is replaced while it
// runs on, one is stopped by its edge and then replaced.
func TestRehearsalIsWhatHappens(t *testing.T) {
	t.Parallel()
	bin := mustPrograms(t)
	dir := mustRunFolder(t)
	command := append([]string{"run", "rehearsal", "--proxy", "--dir", dir}, mustReadRehearsalFlags(t)...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry-chaos"), command...)
	cmd.Dir = filepath.Join("..", "..") // the page names files of the repository
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

// mustReadRehearsalFlags returns the flags of the command on the page docs/rehearse.md.
func mustReadRehearsalFlags(tb testing.TB) []string {
	tb.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "rehearse.md"))
	if err != nil {
		tb.Fatal(err)
	}
	_, command, found := strings.Cut(string(page), "\n    skerry-chaos run rehearsal ")
	command, _, ended := strings.Cut(command, "\n\n")
	if !found || !ended {
		tb.Fatal("docs/rehearse.md has no command skerry-chaos run rehearsal")
	}
	return strings.Fields(strings.ReplaceAll(command, "\\\n", " "))
}
