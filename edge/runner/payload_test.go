package runner_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"skerry/fleet"
)

func TestDispatchPayload(t *testing.T) {
	asks := task("a", nil)
	asks.DispatchPayload = &fleet.DispatchPayload{File: "in/payload.txt"}
	alloc := allocOf(fleet.JobTypeBatch, nil, asks, task("b", nil))
	alloc.Job.Payload = []byte("hello")
	inVirtualTime(t, alloc, func(m *machine) {
		a := m.startRunner(m.mustRunner())
		synctest.Wait()
		m.mustBe(fleet.ClientRunning)
		local := filepath.Join(m.dir, "allocs", string(alloc.ID), "a", "local")
		path := filepath.Join(local, "in", "payload.txt")
		mustHold := func(want string) {
			t.Helper()
			if b, err := os.ReadFile(path); err != nil || string(b) != want {
				t.Fatalf("%q, %v; want %q", b, err, want)
			}
		}
		mustHold("hello")
		if _, err := os.Stat(filepath.Join(m.dir, "allocs", string(alloc.ID), "b", "local", "in")); err == nil {
			t.Error("a task that did not ask for the payload has it")
		}
		if err := os.WriteFile(path, []byte("worked on"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := a.Restart(m.Context(), "a", "again"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mustHold("worked on")
	})
}

// TestDispatchPayloadStaysInside has a task's folder that is a link out of its allocation.
func TestDispatchPayloadStaysInside(t *testing.T) {
	asks := task("a", nil)
	asks.DispatchPayload = &fleet.DispatchPayload{File: "out/payload.txt"}
	alloc := allocOf(fleet.JobTypeBatch, &fleet.RestartPolicy{Mode: fleet.RestartModeFail}, asks)
	alloc.Job.Payload = []byte("hello")
	inVirtualTime(t, alloc, func(m *machine) {
		elsewhere := filepath.Join(m.dir, "elsewhere")
		local := filepath.Join(m.dir, "allocs", string(alloc.ID), "a", "local")
		for _, dir := range []string{elsewhere, local} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(elsewhere, filepath.Join(local, "out")); err != nil {
			t.Fatal(err)
		}
		m.startRunner(m.mustRunner()).mustEnd()
		m.mustBe(fleet.ClientFailed)
		if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
			t.Fatalf("outside lies %v, %v", entries, err)
		}
	})
}
