package rpc_test

import (
	"reflect"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/liveness"
	"skerry/hub/rpc"
	"skerry/syncproto"
)

func examplePlan() fleet.Plan {
	wait := time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC)
	return fleet.Plan{
		EvalID: "e", EvalToken: "t", Priority: 50, SnapshotIndex: 7,
		Job: &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{{
			Name: "t", Driver: "raw_exec", KillTimeout: 5 * time.Second,
			Config: map[string]any{"command": "/bin/x", "args": []any{"-a", int64(1)}, "nested": map[string]any{"on": true, "rate": 0.5}},
		}}}}},
		NodeAllocation: map[fleet.NodeID][]fleet.Alloc{"n": {{
			ID: "a", NodeID: "n", JobID: "shop", JobHash: "h", Score: 0.25, DesiredStatus: fleet.DesiredRun,
			AllocStates: []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: fleet.ClientUnknown, Time: wait}},
			TaskStates:  map[string]fleet.TaskState{"t": {State: fleet.TaskRunning, StartedAt: &wait}},
		}}},
		Evals: []fleet.Evaluation{{ID: "later", WaitUntil: wait}, {ID: "now"}},
	}
}

func TestPlanTravels(t *testing.T) {
	want := examplePlan()
	b, err := rpc.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := rpc.Decode[fleet.Plan](b)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Evals[0].WaitUntil.Equal(want.Evals[0].WaitUntil) || !got.Evals[1].WaitUntil.IsZero() {
		t.Errorf("wait until %s and %s, want %s and never", got.Evals[0].WaitUntil, got.Evals[1].WaitUntil, want.Evals[0].WaitUntil)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range []any{
		examplePlan(), fleet.Delivery{Eval: &fleet.Evaluation{ID: "e"}, Token: "t", WaitIndex: 3},
		[]liveness.Heartbeat{{Node: "n", Epoch: 1, TTL: time.Second}}, struct{}{},
	} {
		b, err := rpc.Encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := rpc.Decode[fleet.Plan](b); err == nil {
			if _, err := rpc.Encode(p); err != nil {
				t.Errorf("a plan that was decoded is not encoded: %v", err)
			}
		} else if fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%v is not %s", err, fleet.CodeInvalid)
		}
		rpc.Decode[fleet.Delivery](b)
		rpc.Decode[[]liveness.Heartbeat](b)
		rpc.Decode[syncproto.Request](b)
	})
}
