package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// Exit codes beyond 1: what was asked for is registered, and not all of it runs; and
// who watched has left.
const (
	exitWaiting     = 2
	exitInterrupted = 130
)

// follow follows an evaluation and its job's deployment until that is over or, where
// there is none, its allocations until all of them run.
func follow(ctx context.Context, hub *client.Client, out io.Writer, id fleet.EvalID) error {
	f, err := awaitDecision(ctx, hub, id)
	if err == nil && f.job != nil && !f.job.Stop {
		var d *fleet.Deployment
		if d, err = rolloutOf(ctx, hub, f.job); err == nil && d != nil {
			return f.followRollout(ctx, hub, out, d.ID)
		}
	}
	if err != nil {
		return interruptedError(ctx, out, err)
	}
	return followUntil(ctx, hub, out, id, func(f *followedJob) (bool, error) { return f.checkRunning() })
}

// followStop follows until nothing of the job runs, but for what nobody can reach.
func followStop(ctx context.Context, hub *client.Client, out io.Writer, id fleet.EvalID) error {
	return followUntil(ctx, hub, out, id, func(f *followedJob) (bool, error) { return f.checkStopped() })
}

func followUntil(ctx context.Context, hub *client.Client, out io.Writer, id fleet.EvalID, done func(*followedJob) (bool, error)) error {
	f, err := awaitDecision(ctx, hub, id)
	if err != nil {
		return interruptedError(ctx, out, err)
	}
	screen := newScreen(out)
	for {
		clearStale(out)
		var allocs, evals fleet.Index
		if f.allocs, err = hub.Watch(&allocs).JobAllocs(ctx, f.eval.JobID, client.List{}); err != nil {
			return interruptedError(ctx, out, err)
		}
		if err = f.readBlocked(ctx, hub.Watch(&evals)); err != nil {
			return interruptedError(ctx, out, err)
		}
		screen.showAllocs(f.allocs)
		if ok, err := done(f); ok || err != nil {
			if err == nil {
				screen.writeSummary(f.endSummary())
			}
			return err
		}
		if err := awaitAnyChange(ctx, hub, map[*fleet.Index]blockingRead{&allocs: f.awaitAllocs, &evals: f.awaitEvals}); err != nil {
			return interruptedError(ctx, out, err)
		}
	}
}

// awaitDecision waits until an evaluation has ended, and reads its job.
func awaitDecision(ctx context.Context, hub *client.Client, id fleet.EvalID) (*followedJob, error) {
	eval, err := awaitEval(ctx, hub, id)
	if err != nil {
		return nil, err
	}
	if eval.Status != fleet.EvalComplete {
		return nil, fmt.Errorf("evaluation %s is %s: %s", displayID(id), eval.Status, eval.StatusDescription)
	}
	f := &followedJob{eval: eval}
	f.job, err = hub.Job(ctx, eval.JobID)
	if fleet.CodeOf(err) == fleet.CodeNotFound {
		return &followedJob{eval: eval}, nil // it was purged
	}
	return f, err
}

// interruptedError turns an interrupt into a word of farewell.
func interruptedError(ctx context.Context, out io.Writer, err error) error {
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintln(out, "No longer followed; the job goes on.")
	return &console.ExitError{Code: exitInterrupted, Err: err, Silent: true}
}

// awaitEval waits until an evaluation has ended.
func awaitEval(ctx context.Context, hub *client.Client, id fleet.EvalID) (*fleet.Evaluation, error) {
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

// followedJob is a job on its way.
type followedJob struct {
	job     *fleet.Job // nil: purged
	eval    *fleet.Evaluation
	blocked *fleet.Evaluation // the job's that waits now; nil: none does
	allocs  []api.AllocStub
}

// awaitAllocs reads the allocations of the job, for awaitAnyChange.
func (f *followedJob) awaitAllocs(ctx context.Context, hub *client.Client) error {
	_, err := hub.JobAllocs(ctx, f.eval.JobID, client.List{})
	return err
}

// awaitEvals reads the evaluations of the job, for awaitAnyChange.
func (f *followedJob) awaitEvals(ctx context.Context, hub *client.Client) error {
	_, err := hub.JobEvals(ctx, f.eval.JobID)
	return err
}

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
		case a.ClientStatus == fleet.ClientComplete && f.job.Type == fleet.JobTypeBatch:
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

// checkRunning reports whether all that shall run does, or, as an error, why it will not for
// now.
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
	case done:
		return true, nil
	case pending > 0 || f.awaitsCapacity() || len(why) == 0:
		return false, nil
	}
	return false, f.waitingError("", why...)
}

// missingLines says what keeps a group from being complete.
func (f *followedJob) missingLines(g fleet.TaskGroup, t groupTally) []string {
	var why []string
	for _, a := range t.failed {
		why = append(why, fmt.Sprintf("allocation %s on %s failed: %s", displayID(a.ID), a.NodeName, failureReason(a)))
	}
	if t.unknown > 0 {
		why = append(why, fmt.Sprintf("group %q: %d on nodes that are away", g.Name, t.unknown))
	}
	if m := f.placementFailures()[g.Name]; m != nil {
		line := fmt.Sprintf("group %q: %d wait for capacity", g.Name, m.CoalescedFailures+1)
		if f.blocked != nil {
			line += " (evaluation " + displayID(f.blocked.ID) + ")"
		}
		why = append(append(why, line), placementReasons(m)...)
	}
	return why
}

// failureReason says why an allocation failed, by its last event that failed a task.
func failureReason(a api.AllocStub) string {
	for _, task := range a.TaskStates {
		for _, e := range slices.Backward(task.Events) {
			if task.Failed && (e.Type == fleet.TaskDriverFailure || e.Type == fleet.TaskTerminated || e.Type == fleet.TaskSetup) {
				return console.Plain(strings.TrimSpace(e.Type + ": " + e.DisplayMessage))
			}
		}
	}
	return a.ClientDescription
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
	if fleet.RunsToCompletion(f.job.Type) && f.hasCompleted() {
		return fmt.Sprintf("Job %q is complete, version %d.", f.job.ID, f.job.Version)
	}
	return fmt.Sprintf("Job %q runs, version %d.", f.job.ID, f.job.Version)
}

// screen shows allocations as they change: as a table that is written over and over on
// a terminal, else as a line a change.
type screen struct {
	out     io.Writer
	columns int // of the terminal; 0: it is none
	height  int
	lines   int // on the screen now
	seen    map[fleet.AllocID]string
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, seen: map[fleet.AllocID]string{}}
	if columns, rows, ok := console.IsTerminal(out); ok {
		s.columns, s.height = columns, rows
	}
	return s
}

func (s *screen) showAllocs(allocs []api.AllocStub) {
	allocs = slices.Clone(allocs)
	slices.SortStableFunc(allocs, func(a, b api.AllocStub) int { return strings.Compare(a.Name+string(a.ID), b.Name+string(b.ID)) })
	if s.columns == 0 {
		s.writeChanges(allocs)
		return
	}
	t := console.Table{Heads: []string{"ID", "ALLOCATION", "NODE", "VERSION", "WANTED", "STATUS", "TASKS"}}
	for _, a := range allocs {
		if a.ClientStatus == fleet.ClientRunning || a.ClientStatus == fleet.ClientPending || a.DesiredStatus == fleet.DesiredRun && !a.Retired {
			t.Add(displayID(a.ID), a.Name, a.NodeName, a.JobVersion, a.DesiredStatus, a.ClientStatus, taskStates(a))
		}
	}
	s.writeOver(t.Write)
}

// writeOver writes something over the lines that it wrote before.
func (s *screen) writeOver(write func(w io.Writer) error) {
	var text strings.Builder
	out := &console.Output{Writer: &text}
	out.SetStale(console.IsStale(s.out))
	if err := write(out); err != nil {
		return // a strings.Builder takes everything
	}
	s.redrawLines(strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n"))
}

// redrawLines writes lines over those that it wrote before, as many as the terminal has.
func (s *screen) redrawLines(lines []string) {
	if room := max(s.height-2, 1); len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(slices.Clone(lines[:room-1]), fmt.Sprintf("… and %d more", hidden))
	}
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.lines)
	}
	for _, line := range lines {
		if r := []rune(line); s.columns > 0 && len(r) > s.columns-1 {
			line = string(r[:s.columns-1])
		}
		b.WriteString(line + "\n")
	}
	s.lines = len(lines)
	fmt.Fprint(s.out, b.String())
}

// foldedFrom is how many allocations that reach the same status at once share one line.
const foldedFrom = 6

// writeChanges writes a line for each allocation whose status is another one than before. Many
// that reach the same status at once, and have nothing to say of it, share one line.
func (s *screen) writeChanges(allocs []api.AllocStub) {
	type change struct{ state, group string }
	var order []change
	lines := map[change][]string{}
	for _, a := range allocs {
		state := a.ClientStatus
		if a.DesiredStatus != fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning {
			state = "stopping"
		}
		was, known := s.seen[a.ID]
		s.seen[a.ID] = state
		if was == state || !known && a.DesiredStatus != fleet.DesiredRun && state != "stopping" {
			continue
		}
		key, line := change{state, a.TaskGroup}, fmt.Sprintf("allocation %s %s on %s is %s", displayID(a.ID), a.Name, a.NodeName, state)
		if a.ClientStatus == fleet.ClientFailed {
			why := failureReason(a)
			key.state, line = key.state+": "+why, line+": "+why
		}
		if lines[key] == nil {
			order = append(order, key)
		}
		lines[key] = append(lines[key], line)
	}
	now := time.Now().Format(time.TimeOnly)
	for _, key := range order {
		if n := len(lines[key]); n >= foldedFrom {
			lines[key] = []string{fmt.Sprintf("%d allocations of group %q are %s", n, key.group, key.state)}
		}
		for _, line := range lines[key] {
			fmt.Fprintf(s.out, "%s  %s\n", now, line)
		}
	}
}

func (s *screen) writeSummary(summary string) { fmt.Fprintln(s.out, summary) }
