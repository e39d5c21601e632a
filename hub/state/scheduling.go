package state

import "skerry/fleet"

// SchedulerConfig stores how jobs are scheduled. With Enforce it is refused
// (conflict) unless what is stored was last changed by the entry CheckIndex.
type SchedulerConfig struct {
	Config     fleet.SchedulerConfiguration
	Enforce    bool
	CheckIndex fleet.Index
}

func (SchedulerConfig) Kind() Kind { return KindSchedulerConfig }

func (t *tx) schedulerConfig(c SchedulerConfig) Result {
	k := key(tableScheduler)
	next := c.Config
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	var known fleet.Index
	if old := t.scheduling.currentRow(t, k); old != nil {
		next.CreateIndex, known = old.CreateIndex, old.ModifyIndex
	}
	if c.Enforce && c.CheckIndex != known {
		return refused(fleet.CodeConflict, "store scheduler configuration: its modify index is %d, not %d", known, c.CheckIndex)
	}
	t.scheduling.putRow(k, &next)
	t.markTableChanged(tableScheduler)
	return Result{}
}

// Scheduling is how jobs are scheduled: what was stored last, or the default.
func (v *View) Scheduling() fleet.SchedulerConfiguration {
	if c, ok := watchRow[fleet.SchedulerConfiguration](v, tableScheduler, key(tableScheduler)); ok {
		return *c
	}
	return fleet.DefaultScheduling()
}
