package reconcile

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// The delays before an ended allocation is replaced on its node: none the first time, then
// systemDelay, and twice the last delay up to systemDelayMax. An allocation that ran for longer
// than systemDelayMax starts the series again.
const (
	systemDelay    = 30 * time.Second
	systemDelayMax = time.Hour
)

// systemBackoff returns the delay after endedAt before an ended allocation is replaced on its node.
func systemBackoff(t *fleet.RescheduleTracker, endedAt time.Time) time.Duration {
	if t == nil || len(t.Events) == 0 {
		return 0
	}
	last := t.Events[len(t.Events)-1]
	if endedAt.UnixNano()-last.RescheduleTime > int64(systemDelayMax) {
		return 0
	}
	return min(max(systemDelay, 2*last.Delay), systemDelayMax)
}

// restartEndedAlloc replaces the current allocation of a node, which has ended, after its
// delay. A failed allocation of a sysbatch job is not replaced.
func (d *decision) restartEndedAlloc(p *nodeAllocs, g *fleet.TaskGroup) {
	m := p.current
	switch {
	case d.isBatchJob() && !m.a.StoppedOnEdge:
		d.keepOrReconnect(m, "it failed, and jobs of its type are not started again")
		return
	case !p.target:
		d.keepOrReconnect(m, "it has ended, and its node takes no new work")
		return
	}
	ended := time.Unix(0, m.a.ModifyTime)
	delay := systemBackoff(m.a.RescheduleTracker, ended)
	at := ended.Add(delay)
	if waits, ok := d.in.Waiting[m.a.FollowupEvalID]; ok {
		at = waits // the follow-up evaluation has the time already
	}
	asked := m.a.FollowupEvalID != "" && m.a.FollowupEvalID == d.in.EvalID
	if !asked && at.After(d.in.Now.Add(rescheduleWindow)) {
		list, i := d.keepOrReconnect(m, fmt.Sprintf("it has ended, and is started anew %s after that", delay))
		d.evalRequests = append(d.evalRequests, evalRequest{
			at: at, trigger: fleet.TriggerRetryFailedAlloc, list: list, i: i, why: "start anew what ended on its node",
		})
		return
	}
	d.stopOrRetire(m, Change{WithPlacement: !m.reconnecting, Reason: "it has ended, and is started anew"})
	d.addPlacement(Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: p.id, Previous: m.a,
		Canary:  m.a.DeploymentStatus.IsCanary() && d.deployment.Active() && m.a.DeploymentID == d.deployment.ID,
		Tracker: nextTracker(m.a, &fleet.ReschedulePolicy{Unlimited: true}, delay, d.in.Now),
		Reason:  fmt.Sprintf("replaces %s, which has ended", fleet.Short(m.a.ID)),
	})
}
