package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/fleet/cron"
)

func jobStatus(o *operator) *cobra.Command {
	var show jobStatusFlags
	c := &cobra.Command{
		Use: "status [ID]", Short: "List jobs, or show one and its allocations", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return o.listJobs(cmd)
			}
			return o.showJob(cmd, args[0], show)
		},
	}
	c.Flags().BoolVarP(&show.all, "all", "a", false, "show allocations that have ended, too")
	c.Flags().BoolVar(&show.all, "all-allocs", false, "as --all")
	if err := c.Flags().MarkHidden("all-allocs"); err != nil {
		panic(err) // it is the flag above
	}
	c.Flags().BoolVar(&show.evals, "evals", false, "show its evaluations, too")
	c.Flags().BoolVar(&show.brief, "short", false, "show the job alone")
	c.MarkFlagsMutuallyExclusive("short", "evals")
	c.MarkFlagsMutuallyExclusive("short", "all")
	return c
}

func (o *operator) listJobs(cmd *cobra.Command) error {
	hub, err := o.hubClient()
	if err != nil {
		return err
	}
	jobs, err := hub.Jobs(cmd.Context(), client.List{})
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), jobs)
	}
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "There are no jobs.")
		return err
	}
	t := console.Table{Heads: o.withNamespaceHead("ID", "TYPE", "PRIORITY", "STATUS", "ALLOCATIONS", "SUBMITTED")}
	for _, j := range jobs {
		status := j.Status
		if j.Stop {
			status += " (stopped)"
		}
		t.Add(o.withNamespaceCell(j.Namespace, j.ID, j.Type, j.Priority, status, summaryLine(j.JobSummary), console.Ago(time.Now(), console.Nano(j.SubmitTime)))...)
	}
	return t.Write(cmd.OutOrStdout())
}

func summaryLine(s *fleet.JobSummary) string {
	if s == nil {
		return ""
	}
	var queued, starting, running, unknown, failed, lost, complete int
	for _, g := range s.Summary {
		queued, starting, running = queued+g.Queued, starting+g.Starting, running+g.Running
		unknown, failed, lost, complete = unknown+g.Unknown, failed+g.Failed, lost+g.Lost, complete+g.Complete
	}
	line := nonZeroCounts(running, "running", starting, "starting", queued, "queued", unknown, "unknown", failed, "failed", lost, "lost")
	if line == nonZeroCounts() { // of a service, what is complete is what was replaced
		line = nonZeroCounts(complete, "complete")
	}
	return line
}

// jobDetails are what job status shows of one job.
type jobDetails struct {
	Job         *fleet.Job
	Summary     fleet.JobSummary
	Allocations []api.AllocStub
	Evaluations []fleet.Evaluation
	// Deployment is the newest rollout; nil: there was none.
	Deployment *api.Progress `json:",omitempty"`
	// Children are the jobs that were made of it, by its times or by dispatch.
	Children []api.JobStub `json:",omitempty"`
}

// jobStatusFlags says how much of a job is shown.
type jobStatusFlags struct{ all, evals, brief bool }

func (o *operator) showJob(cmd *cobra.Command, ref string, show jobStatusFlags) error {
	hub, job, err := o.wholeJob(cmd.Context(), ref)
	if err != nil {
		return err
	}
	d := jobDetails{Job: job}
	if d.Summary, err = hub.JobSummary(cmd.Context(), job.ID); err != nil {
		return err
	}
	if d.Allocations, err = hub.JobAllocs(cmd.Context(), job.ID, client.List{}); err != nil {
		return err
	}
	if d.Evaluations, err = hub.JobEvals(cmd.Context(), job.ID); err != nil {
		return err
	}
	if d.Deployment, err = newestProgress(cmd.Context(), hub, job.ID); err != nil {
		return err
	}
	if job.IsPeriodic() || job.IsParameterized() {
		if d.Children, err = childrenOf(cmd.Context(), hub, job.ID); err != nil {
			return err
		}
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), d)
	}
	return d.writeDetails(cmd.OutOrStdout(), show)
}

// newestProgress is how far a job's newest rollout is; nil: there was none, or it is
// forgotten by now.
func newestProgress(ctx context.Context, hub *client.Client, id fleet.JobID) (*api.Progress, error) {
	d, err := hub.JobDeployment(ctx, id)
	if err != nil || d == nil {
		return nil, err
	}
	p, err := hub.DeploymentProgress(ctx, d.ID)
	if fleet.CodeOf(err) == fleet.CodeNotFound {
		return nil, nil
	}
	return &p, err
}

// childrenOf are the jobs that were made of one, the newest first.
func childrenOf(ctx context.Context, hub *client.Client, id fleet.JobID) ([]api.JobStub, error) {
	list, err := hub.Jobs(ctx, client.List{Prefix: string(id) + "/"})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(j api.JobStub) bool { return j.ParentID != string(id) })
	newestFirst(list, func(j api.JobStub) int64 { return j.SubmitTime })
	return list, nil
}

func (d *jobDetails) writeDetails(w io.Writer, show jobStatusFlags) error {
	j := d.Job
	t := console.Table{}
	status := j.Status
	if j.Stop {
		status += " (stopped)"
	}
	if j.StatusDescription != "" {
		status += ": " + j.StatusDescription
	}
	t.Add("Job", j.ID)
	if j.Name != string(j.ID) {
		t.Add("Name", j.Name)
	}
	t.Add("Type", j.Type)
	t.Add("Priority", j.Priority)
	t.Add("Where", fmt.Sprintf("datacenters %s, pool %s", strings.Join(j.Datacenters, ", "), j.NodePool))
	t.Add("Status", status)
	t.Add("Version", fmt.Sprintf("%d, submitted %s", j.Version, console.LocalTime(console.Nano(j.SubmitTime))))
	if p := d.Deployment; p != nil && !p.Deployment.Active() {
		t.Add("Last rollout", fmt.Sprintf("%s, of version %d: %s: %s", displayID(p.Deployment.ID), p.Deployment.JobVersion,
			p.Deployment.Status, p.Deployment.StatusDescription))
	}
	if j.IsPeriodic() {
		t.Add("Next launch", nextLaunch(j))
	}
	if err := t.Write(w); err != nil || show.brief {
		return err
	}
	if j.IsPeriodic() || j.IsParameterized() {
		return d.writeChildren(w)
	}
	groups := console.Table{Heads: []string{"GROUP", "COUNT", "QUEUED", "STARTING", "RUNNING", "UNKNOWN", "FAILED", "COMPLETE", "LOST"}}
	for _, g := range j.TaskGroups {
		s := d.Summary.Summary[g.Name]
		groups.Add(g.Name, g.Count, s.Queued, s.Starting, s.Running, s.Unknown, s.Failed, s.Complete, s.Lost)
	}
	fmt.Fprintln(w)
	if err := groups.Write(w); err != nil {
		return err
	}
	for _, e := range d.Evaluations {
		if e.Status == fleet.EvalBlocked {
			fmt.Fprintf(w, "\nEvaluation %s is blocked: it %s\n", displayID(e.ID), e.StatusDescription)
			writeUnplaced(w, e)
		}
	}
	if p := d.Deployment; p != nil && p.Deployment.Active() {
		fmt.Fprintln(w)
		if err := writeProgress(w, *p); err != nil {
			return err
		}
	}
	if show.evals {
		if err := writeEvals(w, d.Evaluations); err != nil {
			return err
		}
	}
	return writeAllocs(w, d.Allocations, show.all)
}

func writeEvals(w io.Writer, evals []fleet.Evaluation) error {
	t := console.Table{Heads: []string{"EVALUATION", "PRIORITY", "TRIGGERED BY", "STATUS", "FAILURES"}}
	newestFirst(evals, func(e fleet.Evaluation) fleet.Index { return e.CreateIndex })
	for _, e := range evals {
		t.Add(displayID(e.ID), e.Priority, e.TriggeredBy, e.Status, len(e.FailedTGAllocs) > 0)
	}
	fmt.Fprintln(w)
	return t.Write(w)
}

// nextLaunch says when a periodic job is launched.
func nextLaunch(j *fleet.Job) string {
	switch {
	case j.Stop:
		return "none: it is stopped"
	case !j.Periodic.Enabled:
		return "none: it is not enabled"
	}
	now := time.Now()
	at, err := cron.Next(*j.Periodic, now)
	switch {
	case err != nil:
		return err.Error()
	case at.IsZero():
		return "never again"
	}
	return fmt.Sprintf("%s, in %s", at.Local().Format("2006-01-02 15:04:05 MST"), console.Span(at.Sub(now)))
}

// writeChildren lists the jobs that were made of one that does not run itself.
func (d *jobDetails) writeChildren(w io.Writer) error {
	made := "dispatched"
	if d.Job.IsPeriodic() {
		made = "launched"
	}
	fmt.Fprintln(w)
	if len(d.Children) == 0 {
		_, err := fmt.Fprintf(w, "Nothing that it %s is known.\n", made)
		return err
	}
	t := console.Table{Heads: []string{strings.ToUpper(made), "STATUS", "ALLOCATIONS", "SUBMITTED"}}
	for _, c := range d.Children {
		t.Add(c.ID, c.Status, summaryLine(c.JobSummary), console.Ago(time.Now(), console.Nano(c.SubmitTime)))
	}
	return t.Write(w)
}

// writeAllocs lists allocations by name, and the newest of a name first; those that have ended
// only if asked for.
func writeAllocs(w io.Writer, allocs []api.AllocStub, all bool) error {
	newestFirst(allocs, func(a api.AllocStub) fleet.Index { return a.CreateIndex })
	slices.SortStableFunc(allocs, func(a, b api.AllocStub) int { return strings.Compare(a.Name, b.Name) })
	t := console.Table{Heads: []string{"ID", "ALLOCATION", "NODE", "VERSION", "WANTED", "STATUS", "CHANGED", "TASKS"}}
	ended := 0
	for _, a := range allocs {
		over := (a.Retired || a.DesiredStatus != fleet.DesiredRun) && a.ClientStatus != fleet.ClientRunning && a.ClientStatus != fleet.ClientUnknown
		if over && !all {
			ended++
			continue
		}
		t.Add(displayID(a.ID), a.Name, a.NodeName, a.JobVersion, a.DesiredStatus, a.ClientStatus,
			console.Ago(time.Now(), console.Nano(a.ModifyTime)), taskStates(a))
	}
	fmt.Fprintln(w)
	if err := t.Write(w); err != nil {
		return err
	}
	if ended > 0 {
		fmt.Fprintf(w, "%d that have ended are not shown (--all)\n", ended)
	}
	return nil
}

// taskStates writes an allocation's tasks in one cell.
func taskStates(a api.AllocStub) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a.TaskStates)) {
		t := a.TaskStates[name]
		part := name + " " + t.State
		if t.Restarts > 0 {
			part += " (" + console.Count(int(t.Restarts), "restart") + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
