package templates_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// TestTemplateReadsNoPipe: a pipe that a task leaves in its folder is an error, and not a wait for its writer, which would keep the
// allocation from being stopped.
func TestTemplateReadsNoPipe(t *testing.T) {
	m := newMachine(t, fleet.Template{EmbeddedTmpl: `{{ file "local/pipe" }}`, DestPath: "local/out"})
	if err := syscall.Mkfifo(filepath.Join(m.dir, "allocs/a/web/local/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.prepare() }()
	select {
	case err := <-done:
		if !drivers.IsRecoverable(err) || !strings.Contains(err.Error(), "it is no regular file") {
			t.Errorf("%v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for a writer")
	}
}
