package state

import (
	"fmt"
	"strings"

	"skerry/fleet"
)

// PoolDelete removes a node pool. It is refused (conflict) while a node is in it, or a job of it is not
// dead.
type PoolDelete struct {
	command
	Name string
}

// poolDelete applies the command PoolDelete: it removes a node pool. It is refused for a built-in pool,
// and while the pool has nodes or live jobs.
func (t *tx) poolDelete(c PoolDelete) Result {
	k := key(c.Name)
	for _, p := range builtinPools {
		if p.Name == c.Name {
			return refusal(fleet.CodeInvalid, "delete node pool %s: it always exists", c.Name)
		}
	}
	if poolTable.currentRow(t, k) == nil {
		return refusal(fleet.CodeNotFound, "delete node pool %s: there is no such pool", c.Name)
	}
	if users := t.poolUsers(c.Name); len(users) > 0 {
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "delete node pool %s: it is in use: %s", c.Name, strings.Join(users, ", ")).
			WithHint("stop its jobs, and give its nodes another pool or purge them")}
	}
	poolTable.removeRow(t, k)
	poolTable.markChanged(t)
	return Result{}
}

// poolUsers describes up to maxUsersShown nodes and live jobs of a pool.
func (t *tx) poolUsers(pool string) []string {
	var out []string
	for n := range nodeTable.scanRows(t.base) {
		if n.NodePool != pool {
			continue
		}
		if len(out) == maxUsersShown {
			return append(out, "…")
		}
		out = append(out, fmt.Sprintf("node %s (%s)", n.Name, n.Status))
	}
	for row := range jobTable.scanRows(t.base) {
		if row.job.NodePool != pool || row.job.Status == fleet.JobStatusDead {
			continue
		}
		if len(out) == maxUsersShown {
			return append(out, "…")
		}
		out = append(out, fmt.Sprintf("job %s (%s)", row.job.ID, row.job.Status))
	}
	return out
}
