package allocs_test

import (
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/allocs"
	"skerry/fleet"
)

// clinic is an edge with one allocation "a" of a deployment.
type clinic struct {
	*notebook
	*factory
	t     *testing.T
	start time.Time
	life  *life
}

func newClinic(t *testing.T, change func(*fleet.Update)) *clinic {
	c := &clinic{t: t, notebook: newNotebook(), factory: &factory{}, start: time.Now()}
	c.mono = func() time.Duration { return time.Since(c.start) }
	u := fleet.Update{MaxParallel: 1, HealthCheck: "task_states", MinHealthyTime: 10 * time.Second, HealthyDeadline: time.Minute}
	if change != nil {
		change(&u)
	}
	w := want("a", 0)
	w.Alloc.Job.TaskGroups[0].Update = &u
	w.Alloc.DeploymentID = "d1"
	c.wants["a"] = w
	c.begin()
	return c
}

// begin starts a life of the agent.
func (c *clinic) begin() {
	c.life = mustLive(c.t, c.notebook, c.factory, func(cfg *allocs.Config) { cfg.Mono = c.mono })
	synctest.Wait()
}

func (c *clinic) pass(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

// task says how the allocation's task is now.
func (c *clinic) task(s fleet.TaskState) {
	c.t.Helper()
	row := fleet.Transition{Kind: fleet.TransitionTask, Alloc: "a", Task: "t", TaskState: &s}
	if err := c.of("a")[len(c.of("a"))-1].rec.Record(c.t.Context(), row); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// said is what was said of the allocation's health, in order.
func (c *clinic) said() string {
	c.notebook.mu.Lock()
	defer c.notebook.mu.Unlock()
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

func (c *clinic) expect(want string) {
	c.t.Helper()
	if got := c.said(); got != want {
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
		run    func(c *clinic)
	}{
		{"C53", nil, func(c *clinic) {
			c.pass(9 * time.Second)
			c.expect("")
			c.pass(time.Second)
			c.expect(wellSaid)
			c.task(fleet.TaskState{State: fleet.TaskDead, Failed: true})
			c.pass(time.Hour)
			c.expect(wellSaid) // what comes later is the hub's to see
		}},
		{"C53 a restart begins the time anew", nil, func(c *clinic) {
			c.pass(5 * time.Second)
			c.task(down)
			c.pass(20 * time.Second)
			c.task(up)
			c.pass(9 * time.Second)
			c.expect("")
			c.pass(time.Second)
			c.expect(wellSaid)
		}},
		{"C53 failed", nil, func(c *clinic) {
			c.pass(time.Second)
			c.task(fleet.TaskState{State: fleet.TaskDead, Failed: true})
			c.expect(`d1 unhealthy: task "t" failed`)
		}},
		{"C53 too late", nil, func(c *clinic) {
			c.task(down)
			c.pass(55 * time.Second)
			c.task(up)
			c.pass(4 * time.Second)
			c.expect("")
			c.pass(time.Second)
			c.expect(lateSaid)
		}},
		{"by hand", func(u *fleet.Update) { u.HealthCheck = "manual" }, func(c *clinic) {
			c.pass(time.Hour)
			c.expect("")
		}},
		{"an agent that starts again gives no more time", nil, func(c *clinic) {
			c.task(down)
			c.pass(40 * time.Second)
			c.life.end()
			c.pass(10 * time.Second)
			c.begin()
			c.task(down)
			c.pass(9 * time.Second)
			c.expect("")
			c.pass(time.Second)
			c.expect(lateSaid)
		}},
		{"a boot gives it anew", nil, func(c *clinic) {
			c.task(down)
			c.pass(40 * time.Second)
			c.life.end()
			c.notebook.boot = boot2
			c.begin()
			c.task(down)
			c.pass(59 * time.Second)
			c.expect("")
			c.pass(time.Second)
			c.expect(lateSaid)
		}},
		{"another deployment looks again", nil, func(c *clinic) {
			c.pass(10 * time.Second)
			c.expect(wellSaid)
			c.set(func() {
				w := c.wants["a"]
				w.Alloc.DeploymentID, w.Alloc.AllocModifyIndex = "d2", 9
				c.wants["a"] = w
			})
			c.life.Nudge()
			c.pass(9 * time.Second)
			c.expect(wellSaid)
			c.pass(time.Second)
			c.expect(wellSaid + "d2 healthy: all tasks have been running for 10s")
		}},
		{"said again to a cluster that went back", nil, func(c *clinic) {
			c.pass(10 * time.Second)
			if err := c.life.Restate(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
			c.expect(wellSaid + "d1 healthy: said again: the cluster went back behind it")
		}},
		{"a full disk delays it", nil, func(c *clinic) {
			c.set(func() { c.full = true })
			c.pass(12 * time.Second)
			c.expect("")
			c.set(func() { c.full = false })
			c.pass(10 * time.Second)
			c.expect(wellSaid)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.run(newClinic(t, tc.update)) })
		})
	}
}
