package artifacts_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/tmpfs"
)

// TestFullSecretsFolder says how a secrets folder in memory gets larger, and tries again later.
func TestFullSecretsFolder(t *testing.T) {
	srv, _ := serve(t, map[string][]byte{"a": make([]byte, 2<<20)})
	task := newTask(t, fleet.TaskArtifact{GetterSource: srv.URL + "/a", RelativeDest: "secrets/key", GetterMode: fleet.ArtifactFile})
	dir := filepath.Join(task.root, "web", "secrets")
	err := tmpfs.Attach(dir, "test:", 1)
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("no right to mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tmpfs.DetachBelow(dir, "test:"); err != nil {
			t.Error(err)
		}
	})
	err = task.prepare(t)
	if err == nil || !strings.Contains(err.Error(), "secrets in the task's resources") || !drivers.IsRecoverable(err) {
		t.Errorf("2 MiB in 1 MiB: %v", err)
	}
}
