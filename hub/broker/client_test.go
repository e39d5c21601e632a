package broker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/broker"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

// TestAWaitEndsWhileItsCallerListens: what is handed out has somebody who hears of it,
// also over a slow link between hubs, for a caller gives up later than the leader.
func TestAWaitEndsWhileItsCallerListens(t *testing.T) {
	const slow = 5 * time.Second // how long an answer may travel
	synctest.Test(t, func(t *testing.T) {
		s := statetest.NewLog()
		b, err := broker.New(broker.Config{State: s.Store, Applier: s})
		if err != nil {
			t.Fatal(err)
		}
		leads, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.Run(leads) }()
		synctest.Wait()
		caller, cancel := context.WithTimeout(t.Context(), broker.DequeueCall)
		defer cancel()
		if _, err := broker.DequeueForCall(b, caller, "hub-2", nil); fleet.CodeOf(err) != fleet.CodeTimeout {
			t.Fatalf("nothing is to be done, and it got %v", err)
		}
		by, _ := caller.Deadline()
		if left := time.Until(by); left < slow {
			t.Errorf("the caller listens for %s more", left)
		}
		job := &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{{Name: "t", Driver: "sim"}}}}}
		validate.FillDefaults(job)
		eval := &fleet.Evaluation{
			ID: "e1", Namespace: fleet.DefaultNamespace, JobID: "shop", Type: fleet.JobTypeService, Priority: 50,
			Status: fleet.EvalPending, TriggeredBy: fleet.TriggerJobRegister,
		}
		if _, err := s.Apply(t.Context(), state.JobRegister{Job: job, Eval: eval, Now: 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.Stats(); got.Ready != 1 || got.Outstanding != 0 {
			t.Errorf("what came up afterwards is not there for others: %+v", got)
		}
		stop()
		<-ended
	})
}
