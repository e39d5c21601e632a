package scheduler

import "skerry/fleet"

// isOnEveryNode: the evaluation is of a job that has its allocations on every node.
func (a *attempt) isOnEveryNode() bool {
	jobType := a.eval.Type
	if a.job != nil {
		jobType = a.job.Type
	}
	return fleet.RunsEverywhere(jobType)
}

// nodesOf lists the nodes that may take new work of a job, by id.
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

// explainSystemFailures says, for each group of a system job, why nodes do without it: those
// that are full, of which at least one has to wait; and where no node suits the
// group, all of them. That some do not suit is no failure.
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
