package state

import "skerry/fleet"

// SchedulerConfig stores how jobs are scheduled. With Enforce it is refused
// (conflict) unless what is stored was last changed by the entry CheckIndex.
type SchedulerConfig struct {
	command
	Config     fleet.SchedulerConfiguration
	Enforce    bool
	CheckIndex fleet.Index
}

var schedulerTable = table[fleet.SchedulerConfiguration]{
	name: "scheduler", key: onlyRow[fleet.SchedulerConfiguration], announced: true,
	records: []record[fleet.SchedulerConfiguration]{rowRecord[fleet.SchedulerConfiguration](50)},
}

func (t *tx) schedulerConfig(c SchedulerConfig) Result {
	next := c.Config
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	var known fleet.Index
	if old := schedulerTable.currentRow(t, onlyKey); old != nil {
		next.CreateIndex, known = old.CreateIndex, old.ModifyIndex
	}
	if c.Enforce && c.CheckIndex != known {
		return refused(fleet.CodeConflict, "store scheduler configuration: its modify index is %d, not %d", known, c.CheckIndex)
	}
	schedulerTable.putRow(t, &next)
	schedulerTable.markChanged(t)
	return Result{}
}

// Scheduling is how jobs are scheduled: what was stored last, or the default.
func (v *View) Scheduling() fleet.SchedulerConfiguration {
	if c, ok := schedulerTable.watchRow(v, onlyKey); ok {
		return *c
	}
	return fleet.DefaultScheduling()
}
