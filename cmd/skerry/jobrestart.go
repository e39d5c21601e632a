package main

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
	"skerry/fleet"
)

// What may be done about an allocation that does not come back.
const (
	onErrorAsk  = "ask"
	onErrorFail = "fail"
)

// jobRestarter is a job's allocations being restarted, some at a time.
type jobRestarter struct {
	groups     []string
	task       string
	batchSize  string // a number, or a percentage of all
	batchWait  string // a duration, or "ask"
	onError    string
	reschedule bool
	allTasks   bool
	yes        bool

	hub   *client.Client
	out   io.Writer // what is said meanwhile
	in    *bufio.Scanner
	wait  time.Duration
	done  restartOutcome
	total int
}

// restartOutcome is what became of the allocations.
type restartOutcome struct {
	JobID     fleet.JobID
	Restarted []fleet.AllocID
	Failed    []fleet.AllocID
	Away      []fleet.AllocID // out of reach: left alone
}

func jobRestart(o *operator) *cobra.Command {
	var r jobRestarter
	c := &cobra.Command{
		Use: "restart ID", Short: "Restart the allocations of a job, in batches", Args: cobra.ExactArgs(1),
		Long: "Restart the allocations of a job where they are, or with --reschedule have each replaced by another\n" +
			"one, a batch after the other: the next begins when all of this one run. Allocations on nodes that are\n" +
			"away are left alone, and named.",
		RunE: func(cmd *cobra.Command, args []string) error {
			r.out, r.in = cmd.OutOrStdout(), bufio.NewScanner(cmd.InOrStdin())
			if o.json {
				r.out = cmd.ErrOrStderr()
			}
			err := r.runRestart(cmd, o, args[0])
			if o.json && r.done.JobID != "" {
				if jerr := console.JSON(cmd.OutOrStdout(), r.done); jerr != nil {
					return jerr
				}
			}
			return err
		},
	}
	f := c.Flags()
	f.StringArrayVar(&r.groups, "group", nil, "only allocations of this group; may be repeated")
	f.StringVar(&r.task, "task", "", "only this task of each")
	f.StringVar(&r.batchSize, "batch-size", "1", "how many at a time: a number, or a percentage of all")
	f.StringVar(&r.batchWait, "batch-wait", "0s", "how long to wait between two batches, or ask")
	f.StringVar(&r.onError, "on-error", onErrorAsk, "what to do where one does not come back: ask or fail")
	f.BoolVar(&r.reschedule, "reschedule", false, "stop each, so that the job gets another one in its place")
	f.BoolVar(&r.allTasks, "all-tasks", false, "restart all tasks; refused if a task has ended")
	f.BoolVarP(&r.yes, "yes", "y", false, "answer every question with yes")
	return c
}

func (r *jobRestarter) runRestart(cmd *cobra.Command, o *operator, ref string) error {
	if err := r.validateRestart(); err != nil {
		return err
	}
	hub, job, err := o.wholeJob(cmd.Context(), ref)
	if err != nil {
		return err
	}
	r.hub = hub
	for _, g := range r.groups {
		if job.Group(g) == nil {
			return fleet.Errorf(fleet.CodeInvalid, "job %q has no group %q", job.ID, g)
		}
	}
	all, err := r.hub.JobAllocs(cmd.Context(), job.ID, client.List{})
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
		fmt.Fprintf(r.out, "Allocation %s is left alone: its node is away\n", displayID(id))
	}
	if len(chosen) == 0 {
		fmt.Fprintf(r.out, "Nothing of job %q runs that could be restarted.\n", job.ID)
		return nil
	}
	return r.restartInBatches(cmd.Context(), chosen, size)
}

// validateRestart refuses what contradicts itself.
func (r *jobRestarter) validateRestart() error {
	switch {
	case r.onError != onErrorAsk && r.onError != onErrorFail:
		return fleet.Errorf(fleet.CodeInvalid, "--on-error %q is neither %s nor %s", r.onError, onErrorAsk, onErrorFail)
	case r.reschedule && (r.task != "" || r.allTasks):
		return fleet.Errorf(fleet.CodeInvalid, "--reschedule replaces whole allocations, and not tasks")
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

// chooseAllocs picks what runs, in the order of names, and notes what is out of reach.
func (r *jobRestarter) chooseAllocs(all []api.AllocStub) []api.AllocStub {
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

// batchOf reads how many are restarted at a time: at least one.
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

func (r *jobRestarter) restartInBatches(ctx context.Context, chosen []api.AllocStub, size int) error {
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
	fmt.Fprintf(r.out, "%d of %s restarted.\n", len(r.done.Restarted), console.Count(r.total, "allocation"))
	if len(r.done.Failed) > 0 {
		return fmt.Errorf("%s did not come back", console.Count(len(r.done.Failed), "allocation"))
	}
	return nil
}

// waitBetweenBatches waits before the next batch.
func (r *jobRestarter) waitBetweenBatches(ctx context.Context) error {
	if r.batchWait == onErrorAsk {
		if !r.askYesNo("Go on with the next batch?") {
			return fleet.Errorf(fleet.CodeConflict, "%d of %d are restarted, and no more", len(r.done.Restarted), r.total)
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

// restartBatch restarts some, and waits until they run.
func (r *jobRestarter) restartBatch(ctx context.Context, batch []api.AllocStub) error {
	waits := make([]func(context.Context) error, len(batch))
	for i, a := range batch {
		fmt.Fprintf(r.out, "Allocation %s %s on %s restarts\n", displayID(a.ID), a.Name, a.NodeName)
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
		err = fmt.Errorf("restart allocation %s %s: %w", displayID(a.ID), a.Name, err)
		if r.onError == onErrorFail {
			return err
		}
		fmt.Fprintln(r.out, err)
		if !r.askYesNo("Go on all the same?") {
			return err
		}
	}
	return nil
}

// askYesNo asks a question. No answer is a no.
func (r *jobRestarter) askYesNo(question string) bool {
	if r.yes {
		return true
	}
	fmt.Fprintf(r.out, "%s [y/N] ", question)
	if !r.in.Scan() {
		fmt.Fprintln(r.out)
		return false
	}
	answer := strings.ToLower(strings.TrimSpace(r.in.Text()))
	return answer == "y" || answer == "yes"
}

// startRestart restarts or replaces an allocation, and returns what waits until that is done.
func (r *jobRestarter) startRestart(ctx context.Context, a api.AllocStub) (func(context.Context) error, error) {
	if r.reschedule {
		answer, err := r.hub.StopAlloc(ctx, a.ID, client.StopOptions{})
		return func(ctx context.Context) error { return r.waitForReplacement(ctx, a.ID, answer.EvalID) }, err
	}
	err := r.hub.RestartAlloc(ctx, a.ID, api.AllocRestartRequest{TaskName: r.task, AllTasks: r.allTasks})
	return func(ctx context.Context) error { return r.waitForTasksAgain(ctx, a) }, err
}

// waitForTasksAgain waits until the tasks that ran do so again.
func (r *jobRestarter) waitForTasksAgain(ctx context.Context, before api.AllocStub) error {
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

// waitForReplacement waits until what took an allocation's place runs.
func (r *jobRestarter) waitForReplacement(ctx context.Context, id fleet.AllocID, evalID fleet.EvalID) error {
	if evalID != "" {
		eval, err := awaitEval(ctx, r.hub, evalID)
		if err != nil {
			return err
		}
		if len(eval.FailedTGAllocs) > 0 {
			return fmt.Errorf("nothing takes its place: evaluation %s found no node", displayID(eval.ID))
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

// waitForAlloc reads an allocation until something is true of it.
func (r *jobRestarter) waitForAlloc(ctx context.Context, id fleet.AllocID, done func(fleet.Alloc) (bool, error)) error {
	var index fleet.Index
	for {
		a, err := r.hub.Watch(&index).Alloc(ctx, id)
		if err != nil {
			return err
		}
		if ok, err := done(a); ok || err != nil {
			return err
		}
	}
}

// whyNotRunning says why an allocation will not run.
func whyNotRunning(a fleet.Alloc) error {
	if a.ClientStatus == fleet.ClientUnknown {
		return fmt.Errorf("its node %s went away", a.NodeName)
	}
	if a.ClientTerminal() || a.DesiredStatus != fleet.DesiredRun {
		return fmt.Errorf("allocation %s is %s", displayID(a.ID), withReason(a.ClientStatus, a.ClientDescription))
	}
	return nil
}
