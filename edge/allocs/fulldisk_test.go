package allocs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"skerry/edge/allocs"
	"skerry/edge/journal"
	"skerry/fleet"
)

// While the disk is almost full, an allocation that has begun runs on, and again after a reboot. A new one waits, and
// says so once in the journal; it starts when there is space. A stop ends one that waits.
func TestNewAllocationsWaitForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		var full atomic.Bool
		dir := t.TempDir()
		start := func() *runningAgent {
			l := mustStartAgent(t, n, f, func(c *allocs.Config) {
				c.Dir = dir
				c.WhyFull = func() string {
					if full.Load() {
						return "the disk is almost full"
					}
					return ""
				}
			})
			synctest.Wait()
			return l
		}
		n.wants["old"] = want("old", 0)
		l := start()
		l.stopAgent()
		n.boot = boot2
		full.Store(true)
		n.wants["new"], n.wants["stopped"] = want("new", 0), want("stopped", 0)
		l = start()
		l.TriggerReconcile()
		synctest.Wait()
		if len(f.runnersOf("old")) != 2 || len(f.runnersOf("new")) != 0 || len(f.runnersOf("stopped")) != 0 {
			t.Fatalf("old has %d runners, new %d, stopped %d; want 2, 0, 0", len(f.runnersOf("old")), len(f.runnersOf("new")), len(f.runnersOf("stopped")))
		}
		rows := 0
		for _, r := range n.rows {
			if r.Alloc == "new" && r.Message == "not started: the disk is almost full" {
				rows++
			}
		}
		all, err := l.Status(t.Context())
		if err != nil || all["new"].Note != "the disk is almost full" || rows != 1 {
			t.Errorf("the status says %q (%v), and %d rows do; want 1", all["new"].Note, err, rows)
		}
		n.withLock(func() {
			w := n.wants["stopped"]
			w.Stop, w.StopReason = true, "scaled down"
			n.wants["stopped"] = w
		})
		full.Store(false)
		l.TriggerReconcile()
		synctest.Wait()
		s := n.States()
		if s["new"].ClientStatus != fleet.ClientRunning || s["stopped"].ClientStatus != fleet.ClientComplete || len(f.runnersOf("stopped")) != 0 {
			t.Errorf("with space: new is %q, stopped %q with %d runners", s["new"].ClientStatus, s["stopped"].ClientStatus, len(f.runnersOf("stopped")))
		}
	})
}

// CollectOldest takes allocations in the order of their ends, and none that is still needed.
func TestCollectOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newFakeJournal(), &factory{}
		dir := t.TempDir()
		for id, seq := range map[fleet.AllocID]fleet.Seq{"a2": 2, "b1": 1, "c3": 3, "runs": 0, "unsent": 9} {
			n.wants[id] = want(id, 0)
			if seq > 0 {
				n.states[id] = journal.State{ClientStatus: fleet.ClientComplete, BootID: boot1, Seq: seq}
			}
			if err := os.Mkdir(filepath.Join(dir, string(id)), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		n.acked = 3
		l := mustStartAgent(t, n, f, func(c *allocs.Config) { c.Dir = dir })
		synctest.Wait()
		for _, left := range []string{"a2 c3", "c3", ""} {
			if ok, err := l.CollectOldest(t.Context()); !ok || err != nil {
				t.Fatalf("collect: %t, %v", ok, err)
			}
			want := strings.Fields(left + " runs unsent")
			if names := mustList(t, dir); fmt.Sprint(names) != fmt.Sprint(want) {
				t.Fatalf("left: %q, want %q", names, want)
			}
		}
		if ok, err := l.CollectOldest(t.Context()); ok || err != nil {
			t.Errorf("collect what is needed: %t, %v", ok, err)
		}
	})
}
