package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"skerry/chaos/proc"
	"skerry/edge/secretdirs"
	"skerry/internal/tmpfs"
)

// mustLeaveNothing fails a script that has ended and left processes behind, and ends
// them: tasks outlive their edge, so a script has to stop its jobs. The last ones have a
// while: the supervisor of a task notes its exit before it ends itself. What a script left
// that failed for another reason is ended at once.
func mustLeaveNothing(tb testing.TB, folder string, within time.Duration) {
	tb.Helper()
	defer func() { // the agent may have been killed before it removed the secrets folder of an ended task
		if err := tmpfs.DetachBelow(folder, secretdirs.SourcePrefix); err != nil {
			tb.Error(err)
		}
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(within)
	left, err := proc.Below(folder)
	for ; err == nil && len(left) > 0 && !tb.Failed() && time.Now().Before(deadline); left, err = proc.Below(folder) {
		<-tick.C
	}
	switch {
	case err != nil:
		tb.Error(err)
		return
	case len(left) == 0:
		return
	case !tb.Failed():
		tb.Errorf("processes are left behind: what was started has to be stopped\n  %s", strings.Join(describe(left), "\n  "))
	}
	if err := proc.KillBelow(folder); err != nil {
		tb.Error(err)
	}
}

func describe(pids []int) []string {
	out := make([]string, len(pids))
	for i, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // nothing, of what has ended
		out[i] = fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(bytes.TrimSuffix(text, []byte{0}), []byte{0}, []byte{' '}))
	}
	return out
}

// failureNotes is a test whose failures are only noted.
type failureNotes struct {
	testing.TB
	failures []string
}

func (n *failureNotes) Helper()      {}
func (n *failureNotes) Failed() bool { return len(n.failures) > 0 }
func (n *failureNotes) Error(args ...any) {
	n.failures = append(n.failures, fmt.Sprint(args...))
}
func (n *failureNotes) Errorf(format string, args ...any) {
	n.failures = append(n.failures, fmt.Sprintf(format, args...))
}

// TestLeftovers leaves a process behind: that fails the test, by its number, and ends it.
func TestLeftovers(t *testing.T) {
	folder := t.TempDir()
	mustLeaveNothing(t, folder, 0)
	for _, failures := range [][]string{nil, {"another reason"}} {
		cmd := exec.Command("sleep", "600")
		cmd.Dir = folder
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		seen := &failureNotes{TB: t, failures: failures}
		mustLeaveNothing(seen, folder, 0)
		if err := <-ended; err == nil {
			t.Error("it ended by itself")
		}
		if len(seen.failures) != 1 || failures == nil && !strings.Contains(seen.failures[0], fmt.Sprint(cmd.Process.Pid)) {
			t.Errorf("the test fails with %q", seen.failures)
		}
	}
}
