package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
)

// existingJob is a job that is there already.
type existingJob struct {
	id       string
	priority int
	cpu, mem int
	disk     int
	port     int
	gpu      string
	gpus     int
}

func (l existingJob) applyToJob(j *fleet.Job) {
	j.ID, j.Name, j.Priority = fleet.JobID(l.id), l.id, l.priority
	j.TaskGroups[0].EphemeralDisk.SizeMB = l.disk
	t := task(j)
	t.Resources.CPU, t.Resources.MemoryMB, t.Resources.DiskMB = l.cpu, l.mem, 0
	if l.port > 0 {
		j.TaskGroups[0].Networks = []fleet.NetworkResource{{ReservedPorts: []fleet.Port{{Label: "p", Value: l.port}}}}
	}
	if l.gpus > 0 {
		t.Resources.Devices = []fleet.RequestedDevice{{Name: l.gpu, Count: l.gpus}}
	}
}

// TestPreemption has one node of 4000 MHz, 8192 MB, 100 GiB, 4 GPUs of one model, 5 of
// another and an FPGA; 100 MHz, 256 MB and 4 GiB are reserved.
func TestPreemption(t *testing.T) {
	gib := 1 << 10
	for _, tc := range []struct {
		row     string
		there   []existingJob
		ask     existingJob
		evicted string // ids
	}{
		{"B134", []existingJob{{id: "h", priority: 100, mem: 7256}}, existingJob{priority: 100, mem: 900, port: 22}, ""},
		{"B86", []existingJob{{id: "h", priority: 100, cpu: 3800, mem: 7000}}, existingJob{priority: 100, cpu: 1000, mem: 1000}, ""},
		{"B135", []existingJob{{id: "l", priority: 30, mem: 7256}}, existingJob{priority: 100, mem: 8192}, ""},
		{"B88", []existingJob{{id: "h", priority: 100, mem: 256, port: 88}}, existingJob{priority: 100, mem: 256, port: 88}, ""},
		{"B89", []existingJob{{id: "l", priority: 30, mem: 256, port: 88}, {id: "l2", priority: 30, mem: 256}}, existingJob{priority: 100, mem: 256, port: 88}, "l"},
		{"B140", []existingJob{{id: "l", priority: 30, mem: 7256}}, existingJob{priority: 39, mem: 2000}, ""},
		{"the distance is enough", []existingJob{{id: "l", priority: 30, mem: 7256}}, existingJob{priority: 40, mem: 2000}, "l"},
		{"B141", []existingJob{{id: "h", priority: 100, mem: 2256, disk: 40 * gib}, {id: "l1", priority: 30, mem: 256, disk: 4 * gib},
			{id: "l2", priority: 30, mem: 512, disk: 25 * gib}, {id: "l3", priority: 30, mem: 276, disk: 20 * gib}},
			existingJob{priority: 100, mem: 3000, disk: 50 * gib}, "l2 l3"},
		{"B144", []existingJob{{id: "h", priority: 100, mem: 150}, {id: "l1", priority: 30, mem: 600, port: 88}, {id: "l2", priority: 30, mem: 100}},
			existingJob{priority: 100, mem: 700, port: 88}, "l1"},
		{"B151", []existingJob{{id: "h", priority: 100, mem: 7000}, {id: "l1", priority: 30, mem: 400, disk: 5 * gib}, {id: "l2", priority: 30, mem: 500, disk: 5 * gib}},
			existingJob{priority: 100, mem: 256, disk: 5 * gib}, "l1"},
		{"B146", []existingJob{{id: "l1", priority: 30, gpu: "nvidia/gpu/1080ti", gpus: 2}, {id: "l2", priority: 30, gpu: "nvidia/gpu/1080ti", gpus: 1}},
			existingJob{priority: 100, gpu: "nvidia/gpu/1080ti", gpus: 4}, "l1 l2"},
		{"B147", []existingJob{{id: "l1", priority: 30, gpu: "nvidia/gpu/1080ti", gpus: 4}, {id: "l2", priority: 30, gpu: "intel/fpga/F100", gpus: 1}},
			existingJob{priority: 100, gpu: "nvidia/gpu/1080ti", gpus: 4}, "l1"},
		{"B148", []existingJob{{id: "a1", priority: 30, gpu: "nvidia/gpu/1080ti", gpus: 2}, {id: "a2", priority: 100, gpu: "nvidia/gpu/1080ti", gpus: 1},
			{id: "b1", priority: 30, gpu: "nvidia/gpu/2080ti", gpus: 2}, {id: "b2", priority: 30, gpu: "nvidia/gpu/2080ti", gpus: 2},
			{id: "f", priority: 30, gpu: "intel/fpga/F100", gpus: 1}}, existingJob{priority: 100, gpu: "gpu", gpus: 4}, "b1 b2"},
		{"B149", []existingJob{{id: "a1", priority: 30, gpu: "nvidia/gpu/1080ti", gpus: 2}, {id: "a2", priority: 40, gpu: "nvidia/gpu/1080ti", gpus: 2},
			{id: "b1", priority: 30, gpu: "nvidia/gpu/2080ti", gpus: 2}, {id: "b2", priority: 30, gpu: "nvidia/gpu/2080ti", gpus: 2},
			{id: "b3", priority: 30, gpu: "nvidia/gpu/2080ti", gpus: 1}, {id: "f", priority: 30, gpu: "intel/fpga/F100", gpus: 1}},
			existingJob{priority: 100, gpu: "gpu", gpus: 4}, "b1 b2"},
		{"B150", []existingJob{{id: "l1", priority: 30, gpu: "nvidia/gpu/1080ti", gpus: 2}, {id: "l2", priority: 30, gpu: "nvidia/gpu/1080ti", gpus: 1}},
			existingJob{priority: 100, gpu: "nvidia/gpu/1080ti", gpus: 6}, ""},
	} {
		t.Run(tc.row, func(t *testing.T) {
			c := newCluster(t)
			c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.PreemptionConfig.ServiceSchedulerEnabled = true })
			c.addReadyNodes(1, func(n *fleet.Node) {
				n.Resources = fleet.Resources{CPU: 4000, MemoryMB: 8192, DiskMB: 100 * gib}
				n.Reserved = fleet.Resources{CPU: 100, MemoryMB: 256, DiskMB: 4 * gib}
				n.ReservedPorts = "22"
				for model, many := range map[string]int{"1080ti": 4, "2080ti": 5} {
					for i := range many {
						n.Devices = append(n.Devices, fleet.Device{Vendor: "nvidia", Type: "gpu", Name: model, ID: fmt.Sprint(model, i)})
					}
				}
				n.Devices = append(n.Devices, fleet.Device{Vendor: "intel", Type: "fpga", Name: "F100", ID: "fpga0"})
			})
			for _, l := range tc.there {
				if e := c.registerAndSchedule(job(1, l.applyToJob)); e.QueuedAllocations["web"] != 0 {
					t.Fatalf("%s is not there: %+v", l.id, e.FailedTGAllocs["web"])
				}
			}
			tc.ask.id = "ask"
			e := c.registerAndSchedule(job(1, tc.ask.applyToJob))
			var evicted []string
			for a := range c.store.View().Allocs("*", "") {
				if a.DesiredStatus == fleet.DesiredEvict {
					evicted = append(evicted, string(a.JobID))
				}
			}
			slices.Sort(evicted)
			if got := strings.Join(evicted, " "); got != tc.evicted || e.QueuedAllocations["web"] != 1 {
				t.Errorf("evicted %q, want %q; %+v", got, tc.evicted, e.FailedTGAllocs["web"])
			}
		})
	}
}

// What was evicted ends, and the job is placed without an evaluation left that
// waits; the jobs that lost theirs wait for room.
func TestPreemptionPlaces(t *testing.T) {
	t.Run("B85", func(t *testing.T) {
		c := newCluster(t)
		c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.PreemptionConfig.ServiceSchedulerEnabled = true })
		c.addReadyNodes(1, func(n *fleet.Node) {
			n.Resources = fleet.Resources{CPU: 1000, MemoryMB: 2048, DiskMB: 10000}
			n.Reserved = fleet.Resources{CPU: 50, MemoryMB: 256}
		})
		c.registerAndSchedule(job(1, existingJob{id: "a", priority: 30, cpu: 500, mem: 1024}.applyToJob))
		c.registerAndSchedule(job(1, existingJob{id: "b", priority: 50, cpu: 350, mem: 512}.applyToJob))
		for a := range c.store.View().Allocs("*", "") {
			c.reportAllocStatus(a, fleet.ClientRunning)
		}
		e := c.registerAndSchedule(job(1, existingJob{id: "c", priority: 100, cpu: 900, mem: 1700}.applyToJob))
		c.schedulePendingEvals()
		evicted := c.evictedAllocs()
		if len(evicted) != 2 {
			t.Fatalf("%d evicted", len(evicted))
		}
		// Looked at again while they are stopping: no more is evicted, and nothing placed.
		c.unblockEval(e.BlockedEval)
		c.scheduleEval(e.BlockedEval)
		if got := c.countByNodeValue(dcOf); len(got) != 0 {
			t.Errorf("placed on what is not free yet: %v", got)
		}
		for _, a := range evicted {
			c.reportAllocStatus(a, fleet.ClientComplete)
		}
		c.unblockEval(e.BlockedEval)
		done := c.scheduleEval(e.BlockedEval)
		if done.Status != fleet.EvalComplete || c.countByNodeValue(dcOf)["dc1"] != 1 {
			t.Errorf("%+v, placed %v", done, c.countByNodeValue(dcOf))
		}
		c.checkPreemptor("c", evicted) // PreemptedAllocations of one, PreemptedByAllocation of the others
		for _, id := range []fleet.JobID{"a", "b"} {
			waits := false
			for e := range c.store.View().EvalsByJob(fleet.DefaultNamespace, id) {
				waits = waits || e.Status == fleet.EvalBlocked
			}
			if !waits {
				t.Errorf("job %s does not wait for another place", id)
			}
		}
	})
	t.Run("B106", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1)
		c.registerAndSchedule(job(1, existingJob{id: "big", priority: 50, cpu: 13500, mem: 256}.applyToJob))
		running := slices.Collect(c.store.View().Allocs("*", ""))[0]
		c.reportAllocStatus(running, fleet.ClientRunning)
		e := c.registerAndSchedule(job(1, asSystemJob, existingJob{id: "web", priority: 100, cpu: 600, mem: 256}.applyToJob))
		evicted := c.evictedAllocs()
		c.reportAllocStatus(running, fleet.ClientComplete)
		c.unblockEval(e.BlockedEval)
		done := c.scheduleEval(e.BlockedEval)
		if len(c.nonTerminalAllocs()) != 1 || done.QueuedAllocations["web"] != 0 {
			t.Errorf("%+v", done)
		}
		if len(evicted) != 1 || evicted[0].ID != running.ID {
			t.Errorf("evicted %v", evicted)
		}
		c.checkPreemptor("web", evicted)
	})
	t.Run("B94", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1, func(n *fleet.Node) { n.Resources.CPU = 4000 })
		for i, priority := range []int{20, 20, 40, 100} {
			c.registerAndSchedule(job(1, existingJob{id: fmt.Sprint("b", i), priority: priority, cpu: 1000, mem: 100}.applyToJob))
		}
		e := c.registerAndSchedule(job(1, asSystemJob, existingJob{id: "web", priority: 100, cpu: 3000, mem: 256}.applyToJob))
		evicted := c.evictedAllocs()
		if len(evicted) != 3 || slices.ContainsFunc(evicted, func(a *fleet.Alloc) bool { return a.JobID == "b3" }) {
			t.Errorf("evicted %v", evicted)
		}
		for _, a := range evicted {
			c.reportAllocStatus(a, fleet.ClientComplete)
		}
		c.unblockEval(e.BlockedEval)
		c.scheduleEval(e.BlockedEval)
		c.checkPreemptor("web", evicted)
	})
	t.Run("switched off", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1)
		c.registerAndSchedule(job(1, existingJob{id: "big", priority: 10, cpu: 13500, mem: 256}.applyToJob))
		c.registerAndSchedule(job(1, existingJob{id: "web", priority: 100, cpu: 600, mem: 256}.applyToJob))
		for a := range c.store.View().Allocs("*", "") {
			if a.DesiredStatus == fleet.DesiredEvict {
				t.Errorf("evicted %s", a.JobID)
			}
		}
	})
}

// evictedAllocs lists the allocations that are evicted.
func (c *cluster) evictedAllocs() []*fleet.Alloc {
	var out []*fleet.Alloc
	for a := range c.store.View().Allocs("*", "") {
		if a.DesiredStatus == fleet.DesiredEvict {
			out = append(out, a)
		}
	}
	return out
}

// checkPreemptor checks that the one allocation of a job, and those that were evicted for it, name each other.
// evicted is from the time when the allocation was not placed yet.
func (c *cluster) checkPreemptor(job fleet.JobID, evicted []*fleet.Alloc) {
	c.tb.Helper()
	placed := slices.Collect(c.store.View().AllocsByJob(fleet.DefaultNamespace, job))
	if len(placed) != 1 || len(placed[0].PreemptedAllocations) != len(evicted) {
		c.tb.Fatalf("job %s has %d allocations, for which %d were evicted: %+v", job, len(placed), len(evicted), placed)
	}
	for _, a := range evicted {
		now, _ := c.store.View().Alloc(a.ID)
		if a.PreemptedByAllocation != "" || now.PreemptedByAllocation != placed[0].ID || !slices.Contains(placed[0].PreemptedAllocations, a.ID) {
			c.tb.Errorf("%s was evicted by %q, before it was there by %q; that evicted %v", a.JobID, now.PreemptedByAllocation, a.PreemptedByAllocation, placed[0].PreemptedAllocations)
		}
	}
}

// B145, B91: of two that would do, the one whose job has lost none yet.
func TestPreemptionSparesTheBurdened(t *testing.T) {
	c := newCluster(t)
	c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.PreemptionConfig.ServiceSchedulerEnabled = true })
	small := func(n *fleet.Node) { n.Resources = fleet.Resources{CPU: 1000, MemoryMB: 1000, DiskMB: 1000} }
	c.openNodeSession(node(0, small))
	c.openNodeSession(node(1, small))
	c.registerAndSchedule(job(2, existingJob{id: "one", priority: 30, cpu: 500, mem: 500}.applyToJob, func(j *fleet.Job) {
		j.TaskGroups[0].Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts}}
	}))
	c.registerAndSchedule(job(2, existingJob{id: "two", priority: 30, cpu: 500, mem: 500}.applyToJob, func(j *fleet.Job) {
		j.TaskGroups[0].Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts}}
	}))
	c.registerAndSchedule(job(2, existingJob{id: "ask", priority: 100, cpu: 500, mem: 500}.applyToJob, func(j *fleet.Job) {
		j.TaskGroups[0].Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts}}
	}))
	evicted := map[fleet.JobID]int{}
	for a := range c.store.View().Allocs("*", "") {
		if a.DesiredStatus == fleet.DesiredEvict {
			evicted[a.JobID]++
		}
	}
	if evicted["one"] != 1 || evicted["two"] != 1 {
		t.Errorf("evicted %v", evicted)
	}
}
