package mutate_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry/chaos/mutate"
	"skerry/chaos/proc"
)

// TestRunEndsWhatTestsLeave has mutants of a small module whose test leaves a process behind.
func TestRunEndsWhatTestsLeave(t *testing.T) {
	root, work := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module skerry\n\ngo 1.26\n",
		"hub/hub.go": "package hub\n\nfunc Next(n int) int { return n + 1 }\n",
		"hub/hub_test.go": `package hub

import (
	"os/exec"
	"syscall"
	"testing"
)

func TestNext(t *testing.T) {
	left := exec.Command("sleep", "1000")
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if Next(2) != 3 {
		t.Error("the next one of 2 is not 3")
	}
}
`,
		"edge/edge.go":           "package edge\n",
		"reconcile/reconcile.go": "package reconcile\n",
		"syncproto/syncproto.go": "package syncproto\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mutants, err := mutate.Find(root, []string{"hub"})
	if err != nil || len(mutants) == 0 {
		t.Fatalf("mutants: %v, %v", mutants, err)
	}
	cfg := mutate.Config{Root: root, Work: work, Results: filepath.Join(work, "results"), Mutants: mutants, Unit: time.Minute, Own: true, Out: io.Discard}
	results, err := cfg.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Outcome != mutate.KilledByUnit {
			t.Errorf("%s: %s", r.Mutant, r.Outcome)
		}
	}
	if left, err := proc.Below(work); err != nil || len(left) > 0 {
		t.Errorf("processes %v are left, %v", left, err)
	}
}
