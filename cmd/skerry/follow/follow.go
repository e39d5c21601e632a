// Package follow follows an evaluation and what comes of it: allocations and a deployment, until they
// run or only a person, more capacity or the return of a node gets them on. Commands that make an
// evaluation use it. It starts no goroutine, and persists nothing.
package follow

import (
	"context"
	"fmt"
	"slices"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/progress"
	"skerry/fleet"
)

// exitWaiting is the exit code where a job is registered, and not all of it runs.
const exitWaiting = 2

// ShowAnswer shows the answer to a request that made an evaluation: as JSON, or as what was done, and then
// follows the evaluation unless detach says otherwise.
func ShowAnswer(c *command.Call, answer any, id fleet.EvalID, detach bool, done string) error {
	return showAnswer(c, answer, id, detach, done, Evaluation)
}

// ShowStop is ShowAnswer for a request that stops a job.
func ShowStop(c *command.Call, answer any, id fleet.EvalID, detach bool, done string) error {
	return showAnswer(c, answer, id, detach, done, followStop)
}

// showAnswer shows the answer, and then follows its evaluation with follow.
func showAnswer(c *command.Call, answer any, id fleet.EvalID, detach bool, done string, follow func(*command.Call, fleet.EvalID) error) error {
	switch {
	case c.Out.IsJSON():
		c.Out.JSON(answer)
	case id == "":
		c.Out.Line("%s", done)
	default:
		c.Out.Line("%s, evaluation %s", done, console.ID(id))
		if !detach {
			return follow(c, id)
		}
	}
	return nil
}

// Evaluation follows an evaluation and its job's deployment until that is over or, where
// there is none, its allocations until all of them run.
func Evaluation(c *command.Call, id fleet.EvalID) error {
	f, err := awaitDecision(c, id)
	if err != nil {
		return c.Interrupted(err)
	}
	if f.job != nil && !f.job.Stop {
		d, err := f.activeDeployment()
		if err != nil {
			return c.Interrupted(err)
		}
		if d != nil {
			return f.followDeployment(d.ID)
		}
	}
	return f.followAllocs(f.checkRunning)
}

// followStop follows until nothing of the job runs, but for allocations that nobody can reach.
func followStop(c *command.Call, id fleet.EvalID) error {
	f, err := awaitDecision(c, id)
	if err != nil {
		return c.Interrupted(err)
	}
	return f.followAllocs(f.checkStopped)
}

// Await waits until an evaluation has ended.
func Await(ctx context.Context, hub *client.Client, id fleet.EvalID) (*fleet.Evaluation, error) {
	var index fleet.Index
	for {
		eval, err := hub.Watch(&index).Eval(ctx, id)
		if err != nil {
			return nil, err
		}
		if eval.Terminal() || eval.Status == fleet.EvalBlocked {
			return &eval, nil
		}
	}
}

// followedJob is a job that a command follows.
type followedJob struct {
	*command.Call
	screen *screen

	job     *fleet.Job // nil: purged
	eval    *fleet.Evaluation
	blocked *fleet.Evaluation // the job's that waits now; nil: none does
	allocs  []api.AllocStub
}

// awaitDecision waits until an evaluation has ended, and reads its job.
func awaitDecision(c *command.Call, id fleet.EvalID) (*followedJob, error) {
	eval, err := Await(c.Context(), c.Hub, id)
	if err != nil {
		return nil, err
	}
	if eval.Status != fleet.EvalComplete {
		return nil, fmt.Errorf("evaluation %s is %s: %s", console.ID(id), eval.Status, eval.StatusDescription)
	}
	f := &followedJob{Call: c, screen: newScreen(c.Out), eval: eval}
	job, err := c.Hub.Job(c.Context(), eval.JobID)
	if fleet.CodeOf(err) == fleet.CodeNotFound {
		return f, nil // it was purged
	}
	f.job = job
	return f, err
}

// followAllocs shows the job's allocations until it is over.
func (f *followedJob) followAllocs(isOver func() (bool, error)) error {
	return f.followUntil(f.readAllocs, func() (bool, error) {
		f.screen.showAllocs(f.allocs)
		return isOver()
	})
}

// followUntil reads the job again whenever the answer of read or its evaluations change, until show, which
// shows it, says that it is over.
func (f *followedJob) followUntil(read command.BlockingRead, show func() (bool, error)) error {
	for {
		f.Out.SetStale(false)
		var index, evals fleet.Index
		if err := read(f.Context(), f.Hub.Watch(&index)); err != nil {
			return f.Interrupted(err)
		}
		if err := f.readBlocked(f.Context(), f.Hub.Watch(&evals)); err != nil {
			return f.Interrupted(err)
		}
		if over, err := show(); over {
			if err == nil {
				f.Out.Line("%s", f.endSummary())
			}
			return err
		}
		if err := f.AwaitAnyChange(map[*fleet.Index]command.BlockingRead{&index: read, &evals: f.readBlocked}); err != nil {
			return f.Interrupted(err)
		}
	}
}

// readAllocs reads the allocations of the job.
func (f *followedJob) readAllocs(ctx context.Context, hub *client.Client) (err error) {
	f.allocs, err = hub.JobAllocs(ctx, f.eval.JobID, client.List{})
	return err
}

// readBlocked reads the blocked evaluation of the job, if there is one.
func (f *followedJob) readBlocked(ctx context.Context, hub *client.Client) error {
	evals, err := hub.JobEvals(ctx, f.eval.JobID)
	if err != nil {
		return err
	}
	f.blocked = nil
	if i := slices.IndexFunc(evals, func(e fleet.Evaluation) bool { return e.Status == fleet.EvalBlocked }); i >= 0 {
		f.blocked = &evals[i]
	}
	return nil
}

// placementFailures says, by group, why the newest evaluation found no node. Where none is blocked
// any more, everything is placed or is evaluated again just now.
func (f *followedJob) placementFailures() map[string]*fleet.AllocMetric {
	switch {
	case f.blocked != nil:
		return f.blocked.FailedTGAllocs
	case f.eval.BlockedEval != "" || f.eval.Status == fleet.EvalBlocked:
		return nil
	}
	return f.eval.FailedTGAllocs
}

// awaitsCapacity reports whether some allocations of the job are placed as soon as those that make
// room for them have stopped.
func (f *followedJob) awaitsCapacity() bool { return f.blocked != nil && len(f.blocked.AwaitsRoom) > 0 }

// groupTally counts the allocations of the job's version in one group.
type groupTally struct {
	good, pending, unknown int
	failed                 []api.AllocStub
}

func (f *followedJob) countGroup(group string) groupTally {
	var t groupTally
	replaced := map[fleet.AllocID]bool{}
	for _, a := range f.allocs {
		if a.PreviousAllocation != "" {
			replaced[a.PreviousAllocation] = true
		}
	}
	for _, a := range f.allocs {
		if a.TaskGroup != group || a.JobVersion != f.job.Version || replaced[a.ID] {
			continue
		}
		switch {
		case a.ClientStatus == fleet.ClientFailed:
			t.failed = append(t.failed, a)
		case a.ClientStatus == fleet.ClientComplete && fleet.RunsToCompletion(f.job.Type):
			t.good++
		case a.DesiredStatus != fleet.DesiredRun:
		case a.ClientStatus == fleet.ClientRunning:
			t.good++
		case a.ClientStatus == fleet.ClientPending:
			t.pending++
		case a.ClientStatus == fleet.ClientUnknown:
			t.unknown++
		}
	}
	return t
}

// checkRunning reports whether the job is to be followed no longer: all of it runs or, with an error, it
// will not for now.
func (f *followedJob) checkRunning() (bool, error) {
	if f.job == nil || f.job.Stop {
		return true, nil
	}
	done, pending := true, 0
	var why []string
	for _, g := range f.job.TaskGroups {
		t := f.countGroup(g.Name)
		pending += t.pending
		if t.good >= g.Count {
			continue
		}
		done = false
		why = append(why, f.missingLines(g, t)...)
	}
	switch {
	case done, f.hasNoNode():
		return true, nil
	case pending > 0 || f.awaitsCapacity() || len(why) == 0:
		return false, nil
	}
	return true, f.waitingError("", why...)
}

// hasNoNode reports whether the job is for every node that suits it, and none does now: its evaluation waits for nothing,
// and no allocation of an older version makes room or waits for its turn.
func (f *followedJob) hasNoNode() bool {
	return fleet.RunsEverywhere(f.job.Type) && f.blocked == nil && f.eval.BlockedEval == "" && len(f.eval.FailedTGAllocs) == 0 &&
		!slices.ContainsFunc(f.allocs, func(a api.AllocStub) bool {
			return a.JobVersion == f.job.Version || !fleet.IsClientTerminal(a.ClientStatus)
		})
}

// missingLines says what keeps a group from being complete.
func (f *followedJob) missingLines(g fleet.TaskGroup, t groupTally) []string {
	var why []string
	for _, a := range t.failed {
		why = append(why, fmt.Sprintf("allocation %s on %s failed: %s", console.ID(a.ID), a.NodeName, progress.FailureReason(a)))
	}
	if t.unknown > 0 {
		why = append(why, fmt.Sprintf("group %q: %d on nodes that are away", g.Name, t.unknown))
	}
	if m := f.placementFailures()[g.Name]; m != nil {
		line := fmt.Sprintf("group %q: %d wait for capacity", g.Name, m.CoalescedFailures+1)
		if f.blocked != nil {
			line += " (evaluation " + console.ID(f.blocked.ID) + ")"
		}
		why = append(append(why, line), PlacementReasons(m)...)
	}
	return why
}

// checkStopped reports whether nothing that can be reached runs any more.
func (f *followedJob) checkStopped() (bool, error) {
	for _, a := range f.allocs {
		switch a.ClientStatus {
		case fleet.ClientRunning, fleet.ClientPending:
			return false, nil
		}
	}
	return true, nil
}

// hasCompleted reports whether every allocation that is wanted has ended as it should.
func (f *followedJob) hasCompleted() bool {
	for _, a := range f.allocs {
		if a.DesiredStatus == fleet.DesiredRun && !a.Retired && a.ClientStatus != fleet.ClientComplete {
			return false
		}
	}
	return len(f.allocs) > 0
}

// endSummary says how it ended.
func (f *followedJob) endSummary() string {
	away := 0
	for _, a := range f.allocs {
		if a.ClientStatus == fleet.ClientUnknown {
			away++
		}
	}
	switch {
	case (f.job == nil || f.job.Stop) && away > 0:
		return fmt.Sprintf("Job %q is stopped, but for %s on nodes that are away: told to stop on return.",
			f.eval.JobID, console.Count(away, "allocation"))
	case f.job == nil || f.job.Stop:
		return fmt.Sprintf("Job %q is stopped.", f.eval.JobID)
	}
	if f.hasNoNode() {
		return fmt.Sprintf("Job %q is registered, version %d. No node suits it now; each that joins or returns gets it.", f.job.ID, f.job.Version)
	}
	if fleet.RunsToCompletion(f.job.Type) && f.hasCompleted() {
		return fmt.Sprintf("Job %q is complete, version %d.", f.job.ID, f.job.Version)
	}
	return fmt.Sprintf("Job %q runs, version %d.", f.job.ID, f.job.Version)
}
