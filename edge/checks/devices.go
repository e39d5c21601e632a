package checks

import (
	"slices"
	"time"

	"skerry/fleet"
)

// devicesCheck is the name under which results show the devices of a task.
const devicesCheck = "devices"

// devicesState says whether all devices of a running task are there. It counts as a check of its allocation.
type devicesState struct {
	result fleet.CheckResult
	since  time.Duration // since when they all are, as time since boot; negative: some are missing
}

// ReportDevices records which devices of a running task are missing; "": all are there again. If that is new, it
// calls Config.Changed.
func (c *Checks) ReportDevices(a fleet.Alloc, task, missing string) {
	s := devicesState{since: -1, result: fleet.CheckResult{
		ID: string(a.ID) + "/" + task + "/" + devicesCheck, Check: devicesCheck, Group: a.Name, Mode: "healthiness", Task: task,
		Status: Failure, Output: missing, Timestamp: c.cfg.Now().Unix(),
	}}
	if missing == "" {
		s.since, s.result.Status, s.result.Output = c.cfg.Mono(), Success, "all devices of the task are there"
	}
	c.mu.Lock()
	before, known := c.devices[a.ID][task]
	changed := known && before.result.Output != s.result.Output || !known && missing != ""
	if changed {
		if c.devices[a.ID] == nil {
			c.devices[a.ID] = map[string]devicesState{}
		}
		c.devices[a.ID][task] = s
	}
	c.mu.Unlock()
	if changed {
		c.cfg.Changed(a.ID)
	}
}

// ForgetDevices drops what was reported of a task's devices, because the task has ended.
func (c *Checks) ForgetDevices(id fleet.AllocID, task string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.devices[id], task)
	if len(c.devices[id]) == 0 {
		delete(c.devices, id)
	}
}

// Devices returns since when, as time since boot, all devices of an allocation's running tasks are there, or those
// that are missing. ok is false if none ever was missing.
func (c *Checks) Devices(id fleet.AllocID) (since time.Duration, missing string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gone []string
	for _, s := range c.devices[id] {
		if s.since < 0 {
			gone = append(gone, s.result.Output)
		}
		since = max(since, s.since)
	}
	if len(gone) > 0 {
		missing = slices.Min(gone)
	}
	return since, missing, len(c.devices[id]) > 0
}
