package job

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/follow"
	"skerry/fleet"
)

func restartCommand(s *command.Session) *cobra.Command {
	var r restarter
	c := &cobra.Command{
		Use: "restart ID", Short: "Restart the allocations of a job, in batches", Args: cobra.ExactArgs(1),
		Example: `  skerry job restart --batch-size 20% --batch-wait 30s shop`,
		Long: "Restart the running allocations of a job in place, or with --reschedule stop each of them and let the job\n" +
			"replace it. The next batch begins when all allocations of the current one are running again. Allocations on\n" +
			"nodes that are away are not restarted; their ids are shown.",
		RunE: s.Run(func(c *command.Call) error {
			r.Call, r.said, r.in = c, c.Out, bufio.NewScanner(c.InOrStdin())
			if c.Out.IsJSON() {
				r.said = c.ErrOrStderr()
			}
			err := r.runRestart()
			if c.Out.IsJSON() && r.done.JobID != "" {
				c.Out.JSON(r.done)
			}
			return err
		}),
	}
	f := c.Flags()
	f.StringArrayVar(&r.groups, "group", nil, "restart only allocations of this group; may be repeated")
	f.StringVar(&r.task, "task", "", "restart only this task of each allocation (default: the tasks that have not ended)")
	f.StringVar(&r.batchSize, "batch-size", "1", "size of a batch: a number, or a percentage of the allocations to restart")
	f.StringVar(&r.batchWait, "batch-wait", "0s", `time to wait between two batches; "ask": wait until you agree`)
	f.StringVar(&r.onError, "on-error", onErrorAsk, `if an allocation ends or loses its link: "ask" whether to continue, or "fail"`)
	f.BoolVar(&r.reschedule, "reschedule", false, "replace each allocation instead of restarting it")
	f.BoolVar(&r.allTasks, "all-tasks", false, "restart all tasks; an allocation with a task that has ended counts as failed")
	f.BoolVarP(&r.yes, "yes", "y", false, "answer every question with yes, and continue")
	return c
}

// Actions for an allocation that does not run again.
const (
	onErrorAsk  = "ask"
	onErrorFail = "fail"
)

// restarter restarts a job's allocations in batches.
type restarter struct {
	groups     []string
	task       string
	batchSize  string // a number, or a percentage of the allocations to restart
	batchWait  string // a duration, or "ask"
	onError    string
	reschedule bool
	allTasks   bool
	yes        bool

	*command.Call
	said  io.Writer // the progress
	in    *bufio.Scanner
	wait  time.Duration
	done  restartOutcome
	total int
}

// restartOutcome is the result for the allocations.
type restartOutcome struct {
	JobID     fleet.JobID
	Restarted []fleet.AllocID
	Failed    []fleet.AllocID
	Away      []fleet.AllocID // on disconnected nodes: not restarted
}

func (r *restarter) runRestart() error {
	if err := r.validateRestart(); err != nil {
		return err
	}
	job, err := r.WholeJob(r.Args[0])
	if err != nil {
		return err
	}
	for _, g := range r.groups {
		if job.Group(g) == nil {
			return fleet.Errorf(fleet.CodeInvalid, "job %q has no group %q", job.ID, g)
		}
	}
	all, err := r.Hub.JobAllocs(r.Context(), job.ID, client.List{})
	if err != nil {
		return err
	}
	chosen := r.chooseAllocs(all)
	size, err := batchOf(r.batchSize, len(chosen))
	if err != nil {
		return err
	}
	r.done.JobID, r.total = job.ID, len(chosen)
	for _, id := range r.done.Away {
		fmt.Fprintf(r.said, "Allocation %s is left alone: its node is away\n", console.ID(id))
	}
	if len(chosen) == 0 {
		fmt.Fprintf(r.said, "Job %q has no running allocation to restart.\n", job.ID)
		return nil
	}
	return r.restartInBatches(r.Context(), chosen, size)
}

// validateRestart refuses contradicting flags.
func (r *restarter) validateRestart() error {
	switch {
	case r.onError != onErrorAsk && r.onError != onErrorFail:
		return fleet.Errorf(fleet.CodeInvalid, "--on-error %q is neither %s nor %s", r.onError, onErrorAsk, onErrorFail)
	case r.reschedule && (r.task != "" || r.allTasks):
		return fleet.Errorf(fleet.CodeInvalid, "--reschedule replaces whole allocations, not single tasks")
	case r.task != "" && r.allTasks:
		return fleet.Errorf(fleet.CodeInvalid, "--task and --all-tasks exclude each other")
	case r.batchWait == onErrorAsk:
		return nil
	}
	d, err := time.ParseDuration(r.batchWait)
	if err != nil || d < 0 {
		return fleet.Errorf(fleet.CodeInvalid, "--batch-wait %q is neither a duration nor ask", r.batchWait).WithHint("write it like 30s or 5m")
	}
	r.wait = d
	return nil
}

// chooseAllocs returns the running allocations in the order of names, and records the unreachable ones.
func (r *restarter) chooseAllocs(all []api.AllocStub) []api.AllocStub {
	var chosen []api.AllocStub
	for _, a := range all {
		if a.DesiredStatus != fleet.DesiredRun || len(r.groups) > 0 && !slices.Contains(r.groups, a.TaskGroup) {
			continue
		}
		switch a.ClientStatus {
		case fleet.ClientRunning:
			chosen = append(chosen, a)
		case fleet.ClientUnknown:
			r.done.Away = append(r.done.Away, a.ID)
		}
	}
	slices.SortFunc(chosen, func(a, b api.AllocStub) int { return strings.Compare(a.Name+string(a.ID), b.Name+string(b.ID)) })
	return chosen
}

// batchOf parses the size of a batch: at least one.
func batchOf(text string, all int) (int, error) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || percent && n > 100 {
		return 0, fleet.Errorf(fleet.CodeInvalid, "--batch-size %q is neither a number from 1 nor a percentage", text).
			WithHint("write it like 5 or 20%%")
	}
	if percent {
		n = max(1, all*n/100)
	}
	return n, nil
}

func (r *restarter) restartInBatches(ctx context.Context, chosen []api.AllocStub, size int) error {
	first := true
	for batch := range slices.Chunk(chosen, size) {
		if !first {
			if err := r.waitBetweenBatches(ctx); err != nil {
				return err
			}
		}
		first = false
		if err := r.restartBatch(ctx, batch); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.said, "%d of %s restarted.\n", len(r.done.Restarted), console.Count(r.total, "allocation"))
	if len(r.done.Failed) > 0 {
		return fmt.Errorf("%s did not come back", console.Count(len(r.done.Failed), "allocation"))
	}
	return nil
}

// waitBetweenBatches waits before the next batch.
func (r *restarter) waitBetweenBatches(ctx context.Context) error {
	if r.batchWait == onErrorAsk {
		if !r.askYesNo("Go on with the next batch?") {
			return fleet.Errorf(fleet.CodeConflict, "restart job %q: it was stopped after %d of %d allocations", r.done.JobID, len(r.done.Restarted), r.total)
		}
		return nil
	}
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restartBatch restarts a batch, and waits until its allocations run.
func (r *restarter) restartBatch(ctx context.Context, batch []api.AllocStub) error {
	waits := make([]func(context.Context) error, len(batch))
	for i, a := range batch {
		fmt.Fprintf(r.said, "Allocation %s %s on %s restarts\n", console.ID(a.ID), a.Name, a.NodeName)
		var err error
		if waits[i], err = r.startRestart(ctx, a); err != nil {
			waits[i] = func(context.Context) error { return err }
		}
	}
	for i, a := range batch {
		err := waits[i](ctx)
		if err == nil {
			r.done.Restarted = append(r.done.Restarted, a.ID)
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.done.Failed = append(r.done.Failed, a.ID)
		err = fmt.Errorf("restart allocation %s %s: %w", console.ID(a.ID), a.Name, err)
		if r.onError == onErrorFail {
			return err
		}
		fmt.Fprintln(r.said, err)
		if !r.askYesNo("Go on all the same?") {
			return err
		}
	}
	return nil
}

// askYesNo asks a question. No answer counts as no.
func (r *restarter) askYesNo(question string) bool {
	if r.yes {
		return true
	}
	fmt.Fprintf(r.said, "%s [y/N] ", question)
	if !r.in.Scan() {
		fmt.Fprintln(r.said)
		return false
	}
	answer := strings.ToLower(strings.TrimSpace(r.in.Text()))
	return answer == "y" || answer == "yes"
}

// startRestart restarts or replaces an allocation, and returns a function that waits until that is done.
func (r *restarter) startRestart(ctx context.Context, a api.AllocStub) (func(context.Context) error, error) {
	if r.reschedule {
		answer, err := r.Hub.StopAlloc(ctx, a.ID, client.StopOptions{})
		return func(ctx context.Context) error { return r.waitForReplacement(ctx, a.ID, answer.EvalID) }, err
	}
	err := r.Hub.RestartAlloc(ctx, a.ID, api.AllocRestartRequest{TaskName: r.task, AllTasks: r.allTasks})
	return func(ctx context.Context) error { return r.waitForTasksAgain(ctx, a) }, err
}

// waitForTasksAgain waits until the tasks that ran before run again.
func (r *restarter) waitForTasksAgain(ctx context.Context, before api.AllocStub) error {
	return r.waitForAlloc(ctx, before.ID, func(a fleet.Alloc) (bool, error) {
		if err := whyNotRunning(a); err != nil {
			return false, err
		}
		for name, was := range before.TaskStates {
			if was.State != fleet.TaskRunning || r.task != "" && name != r.task {
				continue
			}
			if now := a.TaskStates[name]; now.State != fleet.TaskRunning || now.Restarts <= was.Restarts {
				return false, nil
			}
		}
		return true, nil
	})
}

// waitForReplacement waits until the replacement of an allocation runs.
func (r *restarter) waitForReplacement(ctx context.Context, id fleet.AllocID, evalID fleet.EvalID) error {
	if evalID != "" {
		e, err := follow.Await(ctx, r.Hub, evalID)
		if err != nil {
			return err
		}
		if len(e.FailedTGAllocs) > 0 {
			return fmt.Errorf("it has no replacement: evaluation %s found no node", console.ID(e.ID))
		}
	}
	var next fleet.AllocID
	err := r.waitForAlloc(ctx, id, func(a fleet.Alloc) (bool, error) {
		next = a.NextAllocation
		return next != "", nil
	})
	if err != nil {
		return err
	}
	return r.waitForAlloc(ctx, next, func(a fleet.Alloc) (bool, error) {
		return a.ClientStatus == fleet.ClientRunning, whyNotRunning(a)
	})
}

// waitForAlloc reads an allocation until done returns true or an error.
func (r *restarter) waitForAlloc(ctx context.Context, id fleet.AllocID, done func(fleet.Alloc) (bool, error)) error {
	var index fleet.Index
	for {
		a, err := r.Hub.Watch(&index).Alloc(ctx, id)
		if err != nil {
			return err
		}
		if ok, err := done(a); ok || err != nil {
			return err
		}
	}
}

// whyNotRunning returns why an allocation will not run.
func whyNotRunning(a fleet.Alloc) error {
	if a.ClientStatus == fleet.ClientUnknown {
		return fmt.Errorf("its node %s lost its link", a.NodeName)
	}
	if a.ClientTerminal() || a.DesiredStatus != fleet.DesiredRun {
		return fmt.Errorf("allocation %s is %s", console.ID(a.ID), console.WithReason(a.ClientStatus, a.ClientDescription))
	}
	return nil
}
