package reconcile

import (
	"cmp"
	"slices"
	"time"

	"skerry/fleet"
)

// followUpWindow is the longest time between two requests that share one evaluation.
const followUpWindow = 5 * time.Second

// evalRequest asks for an evaluation at a time. The change list[i] then waits for it; list is nil if no
// change does.
type evalRequest struct {
	at      time.Time
	trigger string
	why     string
	list    *[]Change
	i       int
}

// assignFollowUpEvals serves each request with a pending evaluation, or with a new one. Requests within
// followUpWindow share one, at the time of the last of them. Pending evaluations that serve no request are
// canceled.
func (d *decision) assignFollowUpEvals() {
	wishes := d.evalRequests
	slices.SortStableFunc(wishes, func(a, b evalRequest) int {
		return cmp.Or(cmp.Compare(a.trigger, b.trigger), a.at.Compare(b.at))
	})
	waiting := d.waitingEvals()
	used := map[fleet.EvalID]bool{d.in.EvalID: true}
	var open []evalRequest
	for _, w := range wishes {
		if id, ok := w.findServingEval(d.in.Waiting, waiting); ok {
			used[id] = true
			w.linkFollowUp(id)
			continue
		}
		open = append(open, w)
	}
	for len(open) > 0 {
		n := 1
		for n < len(open) && open[n].trigger == open[0].trigger && open[n].at.Sub(open[0].at) <= followUpWindow {
			n++
		}
		id := d.newFollowUpEval(open[n-1])
		for _, w := range open[:n] {
			w.linkFollowUp(id)
		}
		open = open[n:]
	}
	for _, w := range waiting {
		if !used[w] {
			d.out.Cancel = append(d.out.Cancel, w)
		}
	}
}

// waitingEvals returns the pending evaluations, the soonest first.
func (d *decision) waitingEvals() []fleet.EvalID {
	ids := make([]fleet.EvalID, 0, len(d.in.Waiting))
	for id := range d.in.Waiting {
		if id != d.in.EvalID {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b fleet.EvalID) int {
		return cmp.Or(d.in.Waiting[a].Compare(d.in.Waiting[b]), cmp.Compare(a, b))
	})
	return ids
}

// findServingEval returns an evaluation of ids that can serve the request: its time, by at, is the requested one or at
// most followUpWindow later. It prefers the evaluation that the allocation already waits for, and then the first in
// ids.
func (w evalRequest) findServingEval(at map[fleet.EvalID]time.Time, ids []fleet.EvalID) (fleet.EvalID, bool) {
	fits := func(id fleet.EvalID) bool {
		t, ok := at[id]
		return ok && !t.Before(w.at) && t.Sub(w.at) <= followUpWindow
	}
	if w.list != nil {
		if id := (*w.list)[w.i].Alloc.FollowupEvalID; fits(id) && slices.Contains(ids, id) {
			return id, true
		}
	}
	for _, id := range ids {
		if fits(id) {
			return id, true
		}
	}
	return "", false
}

// linkFollowUp makes the change of the request wait for an evaluation.
func (w evalRequest) linkFollowUp(id fleet.EvalID) {
	if w.list != nil {
		(*w.list)[w.i].FollowUp = id
	}
}

// newFollowUpEval adds a new evaluation for a request to the output, and returns its id.
func (d *decision) newFollowUpEval(w evalRequest) fleet.EvalID {
	e := fleet.Evaluation{
		ID: fleet.EvalID(d.in.NewID()), Namespace: d.in.Namespace, JobID: d.in.JobID, Priority: d.in.Priority,
		Type: d.in.Job.Type, JobModifyIndex: d.in.Job.JobModifyIndex,
		TriggeredBy: w.trigger, Status: fleet.EvalPending, StatusDescription: w.why,
		WaitUntil: w.at, PreviousEval: d.in.EvalID,
		CreateTime: d.in.Now.UnixNano(), ModifyTime: d.in.Now.UnixNano(),
	}
	d.out.FollowUps = append(d.out.FollowUps, e)
	return e.ID
}
