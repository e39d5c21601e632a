package state

import "skerry/fleet"

// SchedulerConfig stores the scheduler configuration. With Enforce it is refused (conflict) unless
// CheckIndex is the modify index of the stored one (0: none).
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

// schedulerConfig applies the command SchedulerConfig: it stores the configuration, unless the stored one
// has another modify index than the command expects.
func (t *tx) schedulerConfig(c SchedulerConfig) Result {
	next := c.Config
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	var known fleet.Index
	if old := schedulerTable.currentRow(t, onlyKey); old != nil {
		next.CreateIndex, known = old.CreateIndex, old.ModifyIndex
	}
	if c.Enforce && c.CheckIndex != known {
		return refusal(fleet.CodeConflict, "store scheduler configuration: its modify index is %d, not %d", known, c.CheckIndex)
	}
	schedulerTable.putRow(t, &next)
	schedulerTable.markChanged(t)
	return Result{}
}

// Scheduling returns the stored scheduler configuration, or the default.
func (v *View) Scheduling() fleet.SchedulerConfiguration {
	if c, ok := schedulerTable.watchRow(v, onlyKey); ok {
		return *c
	}
	return fleet.DefaultScheduling()
}
