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

// TestHubThatGoesGivesBackWhatItHolds: the evaluations of a hub that is out of
// reach go to others at once, long before their deadline, and what it still says
// about them is refused.
func TestHubThatGoesGivesBackWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := statetest.NewLog()
		b, err := broker.New(broker.Config{State: l.Store, Applier: l})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.Run(ctx) }()
		synctest.Wait()
		eval := &fleet.Evaluation{
			ID: "e1", Namespace: fleet.DefaultNamespace, JobID: "j", Type: fleet.JobTypeService, Priority: 50,
			Status: fleet.EvalPending, TriggeredBy: fleet.TriggerJobRegister,
		}
		job := &fleet.Job{ID: "j", TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{{Name: "t", Driver: "sim"}}}}}
		validate.FillDefaults(job)
		if _, err := l.Apply(ctx, state.JobRegister{Job: job, Eval: eval, Now: 1}); err != nil {
			t.Fatal(err)
		}
		first, err := b.DequeueFor(ctx, "hub2", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b.Release("hub3")
		if s := b.Stats(); s.Outstanding != 1 {
			t.Fatalf("another hub's going took the delivery back: %+v", s)
		}
		b.Release("hub2")
		second, err := b.Dequeue(ctx, nil)
		if err != nil || second.Eval.ID != "e1" || second.Token == first.Token {
			t.Fatalf("second delivery %+v, %v", second, err)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("it was delivered again after %s", waited)
		}
		if err := b.Ack("e1", first.Token); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("the hub that went acknowledged: %v", err)
		}
		cancel()
		<-ended
	})
}
