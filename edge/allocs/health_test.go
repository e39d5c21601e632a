package allocs_test

import (
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
)

// healthTest is an edge with one allocation "a" of a deployment.
type healthTest struct {
	*fakeJournal
	*factory
	t     *testing.T
	start time.Time
	life  *runningAgent
}

func newHealthTest(t *testing.T, change func(*fleet.Update)) *healthTest {
	c := &healthTest{t: t, fakeJournal: newFakeJournal(), factory: &factory{}, start: time.Now()}
	c.mono = func() time.Duration { return time.Since(c.start) }
	u := fleet.Update{MaxParallel: 1, HealthCheck: "task_states", MinHealthyTime: 10 * time.Second, HealthyDeadline: time.Minute}
	if change != nil {
		change(&u)
	}
	w := want("a", 0)
	w.Alloc.Job.TaskGroups[0].Update = &u
	w.Alloc.DeploymentID = "d1"
	c.wants["a"] = w
	c.startAgent()
	return c
}

// startAgent starts a run of the agent.
func (c *healthTest) startAgent() {
	c.life = mustStartAgent(c.t, c.fakeJournal, c.factory, nil)
	synctest.Wait()
}

func (c *healthTest) passVirtualTime(d time.Duration) {
	time.Sleep(d) // virtual time
	synctest.Wait()
}

// recordTaskState records the state of the allocation's task.
func (c *healthTest) recordTaskState(s fleet.TaskState) {
	c.t.Helper()
	row := fleet.Transition{Kind: fleet.TransitionTask, Alloc: "a", Task: "t", TaskState: &s}
	if err := c.runnersOf("a")[len(c.runnersOf("a"))-1].rec.Record(c.t.Context(), row); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// healthRowLines returns the health rows, in order.
func (c *healthTest) healthRowLines() string {
	c.fakeJournal.mu.Lock()
	defer c.fakeJournal.mu.Unlock()
	out := ""
	for _, r := range c.rows {
		switch {
		case r.Kind != fleet.TransitionHealth:
		case *r.Healthy:
			out += string(r.Deployment) + " healthy: " + r.Message
		default:
			out += string(r.Deployment) + " unhealthy: " + r.Message
		}
	}
	return out
}

func (c *healthTest) wantHealthRows(want string) {
	c.t.Helper()
	if got := c.healthRowLines(); got != want {
		c.t.Fatalf("after %s: %q, want %q", time.Since(c.start), got, want)
	}
}

const (
	wellSaid = "d1 healthy: all tasks have been running for 10s"
	lateSaid = "d1 unhealthy: not healthy within 1m0s"
)

func TestHealth(t *testing.T) {
	down := fleet.TaskState{State: fleet.TaskPending}
	up := fleet.TaskState{State: fleet.TaskRunning}
	for _, tc := range []struct {
		name   string
		update func(*fleet.Update)
		run    func(c *healthTest)
	}{
		{"C53", nil, func(c *healthTest) {
			c.passVirtualTime(9 * time.Second)
			c.wantHealthRows("")
			c.passVirtualTime(time.Second)
			c.wantHealthRows(wellSaid)
			c.recordTaskState(fleet.TaskState{State: fleet.TaskDead, Failed: true})
			c.passVirtualTime(time.Hour)
			c.wantHealthRows(wellSaid) // later changes concern the hub
		}},
		{"without a deadline", func(u *fleet.Update) { u.HealthyDeadline = 0 }, func(c *healthTest) {
			c.recordTaskState(down)
			c.passVirtualTime(24 * time.Hour)
			c.wantHealthRows("")
			c.recordTaskState(up)
			c.passVirtualTime(10 * time.Second)
			c.wantHealthRows(wellSaid)
		}},
		{"C53 a restart begins the time anew", nil, func(c *healthTest) {
			c.passVirtualTime(5 * time.Second)
			c.recordTaskState(down)
			c.passVirtualTime(20 * time.Second)
			c.recordTaskState(up)
			c.passVirtualTime(9 * time.Second)
			c.wantHealthRows("")
			c.passVirtualTime(time.Second)
			c.wantHealthRows(wellSaid)
		}},
		{"C53 failed", nil, func(c *healthTest) {
			c.passVirtualTime(time.Second)
			c.recordTaskState(fleet.TaskState{State: fleet.TaskDead, Failed: true})
			c.wantHealthRows(`d1 unhealthy: task "t" failed`)
		}},
		{"C53 too late", nil, func(c *healthTest) {
			c.recordTaskState(down)
			c.passVirtualTime(55 * time.Second)
			c.recordTaskState(up)
			c.passVirtualTime(4 * time.Second)
			c.wantHealthRows("")
			c.passVirtualTime(time.Second)
			c.wantHealthRows(lateSaid)
		}},
		{"by hand", func(u *fleet.Update) { u.HealthCheck = "manual" }, func(c *healthTest) {
			c.passVirtualTime(time.Hour)
			c.wantHealthRows("")
		}},
		{"an agent that starts again gives no more time", nil, func(c *healthTest) {
			c.recordTaskState(down)
			c.passVirtualTime(40 * time.Second)
			c.life.stopAgent()
			c.passVirtualTime(10 * time.Second)
			c.startAgent()
			c.recordTaskState(down)
			c.passVirtualTime(9 * time.Second)
			c.wantHealthRows("")
			c.passVirtualTime(time.Second)
			c.wantHealthRows(lateSaid)
		}},
		{"a boot gives it anew", nil, func(c *healthTest) {
			c.recordTaskState(down)
			c.passVirtualTime(40 * time.Second)
			c.life.stopAgent()
			c.fakeJournal.boot = boot2
			c.startAgent()
			c.recordTaskState(down)
			c.passVirtualTime(59 * time.Second)
			c.wantHealthRows("")
			c.passVirtualTime(time.Second)
			c.wantHealthRows(lateSaid)
		}},
		{"another deployment looks again", nil, func(c *healthTest) {
			c.passVirtualTime(10 * time.Second)
			c.wantHealthRows(wellSaid)
			c.withLock(func() {
				w := c.wants["a"]
				w.Alloc.DeploymentID, w.Alloc.AllocModifyIndex = "d2", 9
				c.wants["a"] = w
			})
			c.life.TriggerReconcile()
			c.passVirtualTime(9 * time.Second)
			c.wantHealthRows(wellSaid)
			c.passVirtualTime(time.Second)
			c.wantHealthRows(wellSaid + "d2 healthy: all tasks have been running for 10s")
		}},
		{"said again to a cluster that went back", nil, func(c *healthTest) {
			c.passVirtualTime(10 * time.Second)
			if err := c.life.Restate(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
			c.wantHealthRows(wellSaid + "d1 healthy: repeated: the cluster has lost it")
		}},
		{"a full disk delays it", nil, func(c *healthTest) {
			c.withLock(func() { c.full = true })
			c.passVirtualTime(12 * time.Second)
			c.wantHealthRows("")
			c.withLock(func() { c.full = false })
			c.passVirtualTime(10 * time.Second)
			c.wantHealthRows(wellSaid)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.run(newHealthTest(t, tc.update)) })
		})
	}
}
