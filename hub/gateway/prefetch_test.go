package gateway_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// An edge is told of a prefetch once with its job, and of its end. A later session names it without the job, which
// the edge has journaled; what the edge says of it is in the state.
func TestPrefetchesAreDelivered(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	h.mustApply(state.JobRegister{Now: time.Now().UnixNano(), Job: &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: "shop", Name: "shop", Type: fleet.JobTypeService, Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec"}}}},
	}})
	h.mustApply(state.PrefetchStore{Namespace: fleet.DefaultNamespace, JobID: "shop", Nodes: []fleet.NodeID{node1}, Now: time.Now().UnixNano()})
	d := expect[syncproto.Desired](w, syncproto.StreamDesired)
	if len(d.Prefetches) != 1 || d.Prefetches[0].Delete || d.Prefetches[0].JobID != "shop" || d.Full {
		t.Fatalf("desired %+v", d)
	}
	wanted := d.Prefetches[0]
	job, err := syncproto.DecodeJob(wanted.Job)
	if err != nil || job.ID != "shop" || len(job.TaskGroups) != 1 {
		t.Fatalf("its job: %+v, %v", job, err)
	}
	w.sendMessage(syncproto.StreamDesired, syncproto.Received{Index: d.Index})
	done := fleet.Transition{Kind: fleet.TransitionPrefetch, Prefetch: &fleet.PrefetchReport{ID: wanted.ID, RequestIndex: wanted.RequestIndex, State: fleet.PrefetchDone}}
	w.sendMessage(syncproto.StreamUpdates, w.newUpdates(1, done))
	expect[syncproto.Applied](w, syncproto.StreamUpdates)
	h.waitForState("the prefetch is done, and the delivery is journaled", func(v *state.View) bool {
		n, _ := v.Node(node1)
		for p := range v.PrefetchesOn(node1) {
			return p.State == fleet.PrefetchDone && n.Received >= d.Index
		}
		return false
	})
	later := h.mustDial(t, node1)
	hello := later.newHello(2, "agent-1")
	hello.Last, hello.ChainHash, hello.Desired = 1, w.chain, d.Index
	later.exchangeHello(hello)
	later.sendHeartbeat()
	if again := expect[syncproto.Desired](later, syncproto.StreamDesired); !again.Full || len(again.Prefetches) != 1 || again.Prefetches[0].Job != nil {
		t.Fatalf("desired in a later session %+v", again)
	}
	h.mustApply(state.PrefetchEnd{Prefetches: []state.EndedPrefetch{{ID: wanted.ID, RequestIndex: wanted.RequestIndex}}, Now: time.Now().UnixNano()})
	if end := expect[syncproto.Desired](later, syncproto.StreamDesired); len(end.Prefetches) != 1 || !end.Prefetches[0].Delete || end.Prefetches[0].Job != nil {
		t.Fatalf("desired at the end %+v", end)
	}
}
