package reconcile_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/reconcile"
)

// TestAwaitsNode: whether a system job waits for an absent node whose allocation was stopped, by what the node and the newest
// version of the job are.
func TestAwaitsNode(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	hour := time.Hour
	for name, tc := range map[string]struct {
		change func(*fleet.Node, *fleet.Job)
		pool   string
		reason string // why the node does not suit
		want   bool
	}{
		"disconnected":               {want: true},
		"down":                       {change: func(n *fleet.Node, _ *fleet.Job) { n.Status = fleet.NodeDown }, want: true},
		"replaying":                  {change: func(n *fleet.Node, _ *fleet.Job) { n.Status = fleet.NodeInitializing }, want: true},
		"ready":                      {change: func(n *fleet.Node, _ *fleet.Job) { n.Status = fleet.NodeReady }},
		"ineligible":                 {change: func(n *fleet.Node, _ *fleet.Job) { n.SchedulingEligibility = fleet.NodeIneligible }},
		"revoked":                    {change: func(n *fleet.Node, _ *fleet.Job) { n.Revoked = &fleet.Revocation{} }},
		"lost by its pool's rules":   {pool: fleet.DisconnectNomad},
		"excluded by a constraint":   {reason: "constraint"},
		"in another pool":            {change: func(n *fleet.Node, _ *fleet.Job) { n.NodePool = "ships" }},
		"in another datacenter":      {change: func(_ *fleet.Node, j *fleet.Job) { j.Datacenters = []string{"dc9"} }},
		"of a group that is no more": {change: func(_ *fleet.Node, j *fleet.Job) { j.TaskGroups[0].Name = "other" }},
		"of an earlier job":          {change: func(_ *fleet.Node, j *fleet.Job) { j.CreateIndex = 99 }},
		"of a sysbatch job":          {change: func(_ *fleet.Node, j *fleet.Job) { j.Type = fleet.JobTypeSysBatch }},
		"away for longer than lost_after": {change: func(_ *fleet.Node, j *fleet.Job) {
			j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &hour}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &fleet.Node{
				ID: "n1", Name: "n1", NodePool: fleet.DefaultPool, Datacenter: "dc1", Status: fleet.NodeDisconnected, SchedulingEligibility: fleet.NodeEligible,
			}
			job := &fleet.Job{
				ID: "web", Namespace: fleet.DefaultNamespace, Type: fleet.JobTypeSystem, CreateIndex: 1, Version: 1, NodePool: fleet.DefaultPool,
				Datacenters: []string{"*"}, TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1}},
			}
			if tc.change != nil {
				tc.change(node, job)
			}
			was := *job
			was.Version, was.CreateIndex, was.TaskGroups = 0, 1, []fleet.TaskGroup{job.TaskGroups[0]}
			was.TaskGroups[0].Name = "g"
			a := &fleet.Alloc{
				ID: "a1", Namespace: job.Namespace, JobID: job.ID, Job: &was, TaskGroup: "g", Name: "web.g[0]", NodeID: node.ID,
				DesiredStatus: fleet.DesiredStop, ClientStatus: fleet.ClientUnknown, ModifyTime: now.Add(-2 * hour).UnixNano(),
			}
			suits := func(*fleet.Node, string) (string, bool) { return tc.reason, false }
			pool := &fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: tc.pool}
			if got := reconcile.AwaitsNode(job, node, pool, a, suits, now); got != tc.want {
				t.Errorf("the job waits: %t, want %t", got, tc.want)
			}
		})
	}
}
