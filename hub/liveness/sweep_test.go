package liveness_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
	"skerry/hub/state"
	"skerry/syncproto"
)

// mustRun has an allocation of a job of its own run on a node, and returns it.
func (c *cluster) mustRun(node fleet.NodeID, id fleet.AllocID) fleet.Alloc {
	c.tb.Helper()
	c.mustApply(state.JobRegister{Now: time.Now().UnixNano(), Job: &fleet.Job{
		Namespace: "default", ID: fleet.JobID(id), Name: string(id), Type: fleet.JobTypeService,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t"}}}},
	}})
	j, _ := c.View().Job("default", fleet.JobID(id))
	a := fleet.Alloc{
		ID: id, Namespace: "default", Name: string(id) + ".g[0]", NodeID: node, JobID: j.ID, JobHash: j.SpecHash, TaskGroup: "g",
		DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	}
	c.mustPlan(fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {a}}})
	n, _ := c.View().Node(node)
	row, err := syncproto.EncodeRow(fleet.Transition{Seq: 1, Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning})
	if err != nil {
		c.tb.Fatal(err)
	}
	c.mustApply(state.AllocUpdates{EvalSeed: "s", Now: time.Now().UnixNano(), Batches: []state.NodeRows{{
		NodeID: node, Epoch: n.Epoch, First: 1, Prev: n.ChainHash, Rows: [][]byte{row},
	}}})
	return a
}

func (c *cluster) mustPlan(result fleet.PlanResult) {
	c.tb.Helper()
	c.mustApply(state.Plan{EvalID: "e", Now: time.Now().UnixNano(), Result: result})
}

// A node that is away is down as soon as nothing waits for it any more.
func TestNodeThatNothingWaitsForIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.mustConnect("n", "")
		a := c.mustRun("n", "a")
		l := newLiveness(c, nil)
		defer runInBackground(t, l.Lead)()
		time.Sleep(time.Minute)
		c.expectStatuses("n=disconnected")
		a.DesiredStatus, a.ClientStatus = fleet.DesiredStop, fleet.ClientLost
		c.mustPlan(fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{"n": {a}}})
		time.Sleep(time.Minute)
		c.expectStatuses("n=down")
	})
}

// A hub that led hands beats on to who leads now, and knows of nobody when it beat.
func TestHubThatNoLongerLeadsForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		epoch := c.mustConnect("n", "")
		forwarded := make(chan []liveness.Heartbeat, 1)
		l := newLiveness(c, func(_ context.Context, beats []liveness.Heartbeat) error { forwarded <- beats; return nil })
		defer runInBackground(t, l.Run)()
		stop := runInBackground(t, l.Lead)
		synctest.Wait()
		if _, leads := l.LastHeard(); !leads {
			t.Error("it does not lead")
		}
		stop()
		if heard, leads := l.LastHeard(); leads {
			t.Errorf("it leads no longer, and says who beat when: %v", heard)
		}
		if n := l.Stats().Deadlines; n != 0 {
			t.Errorf("it leads no longer, and keeps %d deadlines", n)
		}
		l.RecordHeartbeats(liveness.Heartbeat{Node: "n", Epoch: epoch, TTL: 10 * time.Second})
		select {
		case beats := <-forwarded:
			if len(beats) != 1 || beats[0].Node != "n" {
				t.Errorf("forwarded %+v", beats)
			}
		case <-time.After(time.Minute):
			t.Error("the beat is not forwarded")
		}
	})
}
