package engine

import (
	"context"
	"net/http"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/hubclient"
	"skerry/chaos/schedule"
	"skerry/client"
	"skerry/fleet"
)

// dispatchJob dispatches a parameterized job once: it repeats the call with the same token until a hub acknowledges it, or
// refuses it for its flaw. Some users repeat it once more after the answer. For a job with Payload it reports to the
// checkers the request before the first call, and each acknowledgement.
func (u *Users) dispatchJob(ctx context.Context, s schedule.Step) error {
	req := u.Schedule.DispatchOf(s)
	j, _ := u.Schedule.Job(s.Job)
	report := func(acknowledged fleet.JobID) {
		if j.Payload != "" {
			u.Observe(check.Observation{Dispatch: &check.DispatchCall{
				Job: s.Job, Token: req.Token, Flaw: string(s.Flaw), Input: check.DescribeInput(req.Payload, req.Meta), Child: acknowledged,
			}})
		}
	}
	report("")
	child, err := u.dispatchUntilAcked(ctx, s, req)
	if child != "" {
		report(child)
	}
	if err != nil || child == "" || !req.Repeats {
		return err
	}
	if child, err = u.dispatchUntilAcked(ctx, s, req); child != "" {
		report(child)
	}
	return err
}

// dispatchUntilAcked calls the hubs until one answers a dispatch, and returns the child that it names: "" if it refused the
// dispatch for its flaw, or knows no such job.
func (u *Users) dispatchUntilAcked(ctx context.Context, s schedule.Step, req schedule.DispatchRequest) (fleet.JobID, error) {
	var child fleet.JobID
	_, err := u.askUntilAcked(ctx, s, func(ctx context.Context, h hubclient.Hub) error {
		answer, err := h.DispatchJob(ctx, s.Job, req.Token, api.JobDispatchRequest{Payload: req.Payload, Meta: req.Meta})
		if s.Flaw != "" && client.StatusOf(err) == http.StatusBadRequest {
			return nil
		}
		child = answer.DispatchedJobID
		return err
	})
	return child, err
}
