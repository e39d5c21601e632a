package scheduler

import "skerry/fleet"

// isOnEveryNode reports whether the evaluation is of a system or sysbatch job.
func (a *attempt) isOnEveryNode() bool {
	jobType := a.eval.Type
	if a.job != nil {
		jobType = a.job.Type
	}
	return fleet.RunsEverywhere(jobType)
}

// nodesOf returns the schedulable nodes in the job's node pool and datacenters, by id.
func (a *attempt) nodesOf(job *fleet.Job) []*fleet.Node {
	var nodes []*fleet.Node
	if job.Stopped() {
		return nil
	}
	for n := range a.view.Nodes("") {
		if n.Schedulable() && job.InPool(n.NodePool) && job.InDatacenter(n.Datacenter) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// explainSystemFailures fills in, for each group of a system job with failed placements, the metric of all
// suitable nodes that are full; and for a group that no node suits, why. Nodes that do not suit are
// otherwise no failure.
func (a *attempt) explainSystemFailures(targets []*fleet.Node) error {
	if a.job.Stopped() {
		return nil
	}
	for i := range a.job.TaskGroups {
		g := &a.job.TaskGroups[i]
		none := len(targets) > 0 && a.decisions.Groups[g.Name].Desired == 0
		if a.failed[g.Name] == nil && !none {
			continue
		}
		r := a.rankings[g.Name]
		if r == nil {
			var err error
			if r, err = newRanking(a.view, a.job, g, a.plannedUsage, nil); err != nil {
				return err
			}
			a.rankings[g.Name] = r
		}
		for _, n := range targets {
			if r.feasibility.whyInfeasible(n) != "" {
				r.considerNode(n)
			}
		}
		m := r.failureMetric()
		m.CoalescedFailures = max(a.queued[g.Name]-1, 0)
		a.failed[g.Name] = m
	}
	return nil
}
