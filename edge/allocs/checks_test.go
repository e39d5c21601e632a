package allocs_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/fleet"
)

// fakeChecks reports the health that a test sets.
type fakeChecks struct {
	mu       sync.Mutex
	followed map[fleet.AllocID]map[string]time.Duration
	networks map[fleet.AllocID]*fleet.NetworkStatus
	since    time.Duration
	failing  string
	devices  *fakeDevices // nil: none was missing
}

// fakeDevices is since when all devices are there, or those that are missing.
type fakeDevices struct {
	since   time.Duration
	missing string
}

func (b *fakeChecks) Follow(_ context.Context, a fleet.Alloc, since map[string]time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.followed[a.ID] = maps.Clone(since)
	if b.networks == nil {
		b.networks = map[fleet.AllocID]*fleet.NetworkStatus{}
	}
	b.networks[a.ID] = a.NetworkStatus
}

func (b *fakeChecks) networkOf(id fleet.AllocID) *fleet.NetworkStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.networks[id]
}

func (b *fakeChecks) Forget(id fleet.AllocID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.followed, id)
}

func (b *fakeChecks) Passing(fleet.AllocID) (time.Duration, string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since, b.failing, b.failing == ""
}

func (b *fakeChecks) Devices(id fleet.AllocID) (since time.Duration, missing string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.devices == nil || id != "a" {
		return 0, "", false
	}
	return b.devices.since, b.devices.missing, true
}

func (b *fakeChecks) setDevices(since time.Duration, missing string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.devices = &fakeDevices{since, missing}
}

func (b *fakeChecks) Wait() {}

func (b *fakeChecks) setPassing(since time.Duration, failing string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since, b.failing = since, failing
}

// followedAllocs returns the followed allocations with their running tasks.
func (b *fakeChecks) followedAllocs() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := ""
	for _, id := range slices.Sorted(maps.Keys(b.followed)) {
		out += fmt.Sprint(id, slices.Sorted(maps.Keys(b.followed[id])))
	}
	return out
}

// checked is a health test whose allocation has a service with a check.
func checked(t *testing.T, health string) (*healthTest, *fakeChecks) {
	c := &healthTest{t: t, fakeJournal: newFakeJournal(), factory: &factory{}, start: time.Now()}
	c.mono = func() time.Duration { return time.Since(c.start) }
	w := want("a", 0)
	g := &w.Alloc.Job.TaskGroups[0]
	g.Update = &fleet.Update{MaxParallel: 1, HealthCheck: health, MinHealthyTime: 10 * time.Second, HealthyDeadline: time.Minute}
	g.Services = []fleet.Service{{Name: "s", Provider: fleet.ProviderNomad, Checks: []fleet.ServiceCheck{{Type: "tcp"}}}}
	w.Alloc.DeploymentID = "d1"
	c.wants["a"], c.wants["plain"] = w, want("plain", 0)
	b := &fakeChecks{followed: map[fleet.AllocID]map[string]time.Duration{}, failing: "it fails"}
	c.life = mustStartAgent(t, c.fakeJournal, c.factory, func(cfg *allocs.Config) { cfg.Checks = b })
	synctest.Wait()
	return c, b
}

func TestHealthWaitsForChecks(t *testing.T) {
	for _, tc := range []struct {
		name, health string
		run          func(c *healthTest, b *fakeChecks)
	}{
		{"passing", fleet.HealthChecks, func(c *healthTest, b *fakeChecks) {
			c.passVirtualTime(20 * time.Second)
			c.wantHealthRows("")
			b.setPassing(20*time.Second, "")
			c.life.TriggerReconcile()
			c.passVirtualTime(9 * time.Second)
			c.wantHealthRows("")
			c.passVirtualTime(time.Second)
			c.wantHealthRows("d1 healthy: all checks have been passing for 10s")
		}},
		{"failing again begins anew", fleet.HealthChecks, func(c *healthTest, b *fakeChecks) {
			b.setPassing(0, "")
			c.life.TriggerReconcile()
			c.passVirtualTime(5 * time.Second)
			b.setPassing(0, "it fails")
			c.passVirtualTime(7 * time.Second)
			c.wantHealthRows("")
			b.setPassing(12*time.Second, "")
			c.life.TriggerReconcile()
			c.passVirtualTime(10 * time.Second)
			c.wantHealthRows("d1 healthy: all checks have been passing for 10s")
		}},
		{"never", fleet.HealthChecks, func(c *healthTest, b *fakeChecks) {
			c.passVirtualTime(time.Minute)
			c.wantHealthRows("d1 unhealthy: not healthy within 1m0s: it fails")
		}},
		{"not asked for", fleet.HealthTaskStates, func(c *healthTest, b *fakeChecks) {
			c.passVirtualTime(10 * time.Second)
			c.wantHealthRows(wellSaid)
		}},
		{"a device is missing", fleet.HealthTaskStates, func(c *healthTest, b *fakeChecks) {
			c.passVirtualTime(5 * time.Second)
			b.setDevices(0, "device usb/stick/x (s1)")
			c.passVirtualTime(15 * time.Second)
			c.wantHealthRows("")
			b.setDevices(20*time.Second, "")
			c.life.TriggerReconcile()
			c.passVirtualTime(9 * time.Second)
			c.wantHealthRows("")
			c.passVirtualTime(time.Second)
			c.wantHealthRows("d1 healthy: all checks have been passing for 10s")
		}},
		{"a device stays missing, and all checks pass", fleet.HealthChecks, func(c *healthTest, b *fakeChecks) {
			b.setPassing(0, "")
			b.setDevices(0, "device usb/stick/x (s1)")
			c.passVirtualTime(time.Minute)
			c.wantHealthRows("d1 unhealthy: not healthy within 1m0s: device usb/stick/x (s1)")
		}},
	} {
		t.Run("C53 "+tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, b := checked(t, tc.health)
				tc.run(c, b)
			})
		})
	}
}

// Checks run for running allocations and end with them.
func TestWhatIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := checked(t, fleet.HealthManual)
		expect := func(want string) {
			t.Helper()
			if got := b.followedAllocs(); got != want {
				t.Errorf("checked: %q, want %q", got, want)
			}
		}
		expect("a[t]")
		c.recordTaskState(fleet.TaskState{State: fleet.TaskPending})
		expect("a[]")
		c.recordTaskState(fleet.TaskState{State: fleet.TaskRunning})
		expect("a[t]")
		network := &fleet.NetworkStatus{InterfaceName: "eth0", Address: "172.26.64.2"}
		c.withLock(func() {
			s := c.states["a"]
			s.Network = network
			c.states["a"] = s
		})
		c.life.TriggerReconcile()
		c.passVirtualTime(time.Second)
		if got := b.networkOf("a"); got != network {
			t.Errorf("checked in the network %+v", got)
		}
		if err := c.life.Unhealthy(t.Context(), "a", "t", "it fails"); err != nil {
			t.Fatal(err)
		}
		if got := c.runnersOf("a")[0].restarted; len(got) != 1 || got[0] != "t: unhealthy, it fails" {
			t.Errorf("restarted %q", got)
		}
		c.withLock(func() {
			w := c.wants["a"]
			w.Stop, w.StopReason = true, "told to"
			c.wants["a"] = w
		})
		c.life.TriggerReconcile()
		c.passVirtualTime(time.Second)
		expect("")
		if err := c.life.Unhealthy(t.Context(), "a", "t", "it fails"); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("restarted what has ended: %v", err)
		}
	})
}
