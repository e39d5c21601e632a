package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/follow"
	"skerry/cmd/skerry/progress"
	"skerry/fleet"
	"skerry/fleet/cron"
)

func statusCommand(s *command.Session) *cobra.Command {
	var show statusFlags
	list := command.Show(s, command.Listed((*client.Client).Jobs, &client.List{}), console.List[api.JobStub]{
		None: "There are no jobs.", Heads: []string{"ID", "TYPE", "PRIORITY", "STATUS", "ALLOCATIONS", "SUBMITTED"},
		Namespace: func(j api.JobStub) string { return j.Namespace },
		Row: func(j api.JobStub) []any {
			return []any{j.ID, j.Type, j.Priority, stubStatus(j), summaryLine(j.JobSummary), console.SinceNano(j.SubmitTime)}
		},
	}.Write)
	one := command.Show(s, readDetails, func(out *console.Output, d jobDetails) { d.writeDetails(out, show) })
	c := &cobra.Command{
		Use: "status [ID]", Short: "List jobs, or show one and its allocations", Args: cobra.MaximumNArgs(1),
		Example: `  skerry job status
  skerry job status shop
  skerry job status --evals --all-allocs shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return list(cmd, args)
			}
			return one(cmd, args)
		},
	}
	c.Flags().BoolVarP(&show.all, "all", "a", false, "also show allocations that have ended")
	c.Flags().BoolVar(&show.all, "all-allocs", false, "as --all")
	console.HideFlag(c.Flags(), "all-allocs")
	c.Flags().BoolVar(&show.evals, "evals", false, "also show its evaluations")
	c.Flags().BoolVar(&show.brief, "short", false, "show only the job, without its allocations")
	c.MarkFlagsMutuallyExclusive("short", "evals")
	c.MarkFlagsMutuallyExclusive("short", "all")
	return c
}

var evaluations = console.List[fleet.Evaluation]{
	Heads: []string{"EVALUATION", "PRIORITY", "TRIGGERED BY", "STATUS", "FAILURES"},
	Row: func(e fleet.Evaluation) []any {
		return []any{console.ID(e.ID), e.Priority, e.TriggeredBy, e.Status, len(e.FailedTGAllocs) > 0}
	},
}

// stubStatus is the status of a job in lists, for people.
func stubStatus(j api.JobStub) string { return statusWord(j.Status, j.Type, j.Stop, j.JobSummary) }

// statusWord is the status of a job for people. A batch job all of whose allocations have completed is complete; in
// Nomad's API, which programs read, it is dead.
func statusWord(status, jobType string, stopped bool, s *fleet.JobSummary) string {
	switch {
	case stopped:
		return status + " (stopped)"
	case status == fleet.JobStatusDead && fleet.RunsToCompletion(jobType) && hasCompleted(s):
		return fleet.ClientComplete
	}
	return status
}

// hasCompleted reports whether a job had allocations, and all of them are complete.
func hasCompleted(s *fleet.JobSummary) bool {
	if s == nil {
		return false
	}
	complete := 0
	for _, g := range s.Summary {
		if g != (fleet.TaskGroupSummary{Complete: g.Complete}) {
			return false
		}
		complete += g.Complete
	}
	return complete > 0
}

func readDetails(c *command.Call) (d jobDetails, err error) {
	if d.Job, err = c.WholeJob(c.Args[0]); err != nil {
		return d, err
	}
	id := d.Job.ID
	if d.Summary, err = c.Hub.JobSummary(c.Context(), id); err != nil {
		return d, err
	}
	if d.Allocations, err = c.Hub.JobAllocs(c.Context(), id, client.List{}); err != nil {
		return d, err
	}
	if d.Evaluations, err = c.Hub.JobEvals(c.Context(), id); err != nil {
		return d, err
	}
	if d.Deployment, err = newestProgress(c, id); err != nil {
		return d, err
	}
	if d.Job.IsPeriodic() || d.Job.IsParameterized() {
		d.Children, err = childrenOf(c, id)
	}
	return d, err
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
	line := console.Counts(running, "running", starting, "starting", queued, "queued", unknown, "unknown", failed, "failed", lost, "lost")
	if line == console.Counts() { // complete allocations of a service are replaced ones
		line = console.Counts(complete, "complete")
	}
	return line
}

// jobDetails are the details of one job for job status.
type jobDetails struct {
	Job         *fleet.Job
	Summary     fleet.JobSummary
	Allocations []api.AllocStub
	Evaluations []fleet.Evaluation
	// Deployment is the newest deployment; nil: there was none.
	Deployment *api.Progress `json:",omitempty"`
	// Children are the jobs that were launched or dispatched from it.
	Children []api.JobStub `json:",omitempty"`
}

// statusFlags says how much of a job is shown.
type statusFlags struct{ all, evals, brief bool }

// newestProgress returns the progress of a job's newest deployment. It returns nil if there was none, or if the hubs
// have removed it.
func newestProgress(c *command.Call, id fleet.JobID) (*api.Progress, error) {
	d, err := c.Hub.JobDeployment(c.Context(), id)
	if err != nil || d == nil {
		return nil, err
	}
	p, err := c.Hub.DeploymentProgress(c.Context(), d.ID)
	if fleet.CodeOf(err) == fleet.CodeNotFound {
		return nil, nil
	}
	return &p, err
}

// childrenOf returns the jobs that were launched or dispatched from a job, the newest first.
func childrenOf(c *command.Call, id fleet.JobID) ([]api.JobStub, error) {
	list, err := c.Hub.Jobs(c.Context(), client.List{Prefix: string(id) + "/"})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(j api.JobStub) bool { return j.ParentID != string(id) })
	command.NewestFirst(list, func(j api.JobStub) int64 { return j.SubmitTime })
	return list, nil
}

func (d *jobDetails) writeDetails(out *console.Output, show statusFlags) {
	j := d.Job
	t := console.NewTable()
	t.Add("Job", j.ID)
	if j.Name != string(j.ID) {
		t.Add("Name", j.Name)
	}
	t.Add("Type", j.Type)
	t.Add("Priority", j.Priority)
	t.Add("Where", fmt.Sprintf("datacenters %s, pool %s", strings.Join(j.Datacenters, ", "), j.NodePool))
	t.Add("Status", console.WithReason(statusWord(j.Status, j.Type, j.Stop, &d.Summary), j.StatusDescription))
	t.Add("Version", fmt.Sprintf("%d, submitted %s", j.Version, console.LocalNano(j.SubmitTime)))
	if p := d.Deployment; p != nil && !p.Deployment.Active() {
		t.Add("Last rollout", fmt.Sprintf("%s, of version %d: %s: %s", console.ID(p.Deployment.ID), p.Deployment.JobVersion,
			p.Deployment.Status, p.Deployment.StatusDescription))
	}
	switch {
	case j.IsPeriodic():
		t.Add("Next launch", nextLaunch(j))
	case j.RunsAtEdge():
		t.Add("Next launch", nextLaunch(j)+", by the clocks of its nodes")
	}
	out.Table(t)
	if show.brief {
		return
	}
	if j.IsPeriodic() || j.IsParameterized() {
		d.writeChildren(out)
		return
	}
	groups := console.NewTable("GROUP", "COUNT", "QUEUED", "STARTING", "RUNNING", "UNKNOWN", "FAILED", "COMPLETE", "LOST")
	for _, g := range j.TaskGroups {
		s := d.Summary.Summary[g.Name]
		groups.Add(g.Name, g.Count, s.Queued, s.Starting, s.Running, s.Unknown, s.Failed, s.Complete, s.Lost)
	}
	out.Line("")
	out.Table(groups)
	for _, e := range d.Evaluations {
		if e.Status == fleet.EvalBlocked {
			out.Line("\nEvaluation %s is blocked: it %s", console.ID(e.ID), e.StatusDescription)
			follow.WriteUnplaced(out, e)
		}
	}
	if p := d.Deployment; p != nil && p.Deployment.Active() {
		out.Line("")
		progress.Write(out, *p)
	}
	if show.evals {
		out.Line("")
		newest := slices.Clone(d.Evaluations)
		command.NewestFirst(newest, func(e fleet.Evaluation) fleet.Index { return e.CreateIndex })
		evaluations.Write(out, newest)
	}
	writeAllocs(out, d.Allocations, show.all)
	if j.RunsAtEdge() {
		writeLaunches(out, d.Allocations)
	}
}

// writeLaunches says of each allocation that its node launches what its last report was.
func writeLaunches(out *console.Output, allocs []api.AllocStub) {
	out.Line("")
	for _, a := range allocs {
		if a.ClientStatus == fleet.ClientRunning || a.ClientStatus == fleet.ClientUnknown {
			out.Line("%s on %s: %s", console.ID(a.ID), a.NodeName, a.ClientDescription)
		}
	}
}

// nextLaunch says when a periodic job is launched next.
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

// writeChildren lists the children of a job that does not run itself.
func (d *jobDetails) writeChildren(out *console.Output) {
	made := "dispatched"
	if d.Job.IsPeriodic() {
		made = "launched"
	}
	out.Line("")
	if len(d.Children) == 0 {
		out.Line("Nothing that it %s is known.", made)
		return
	}
	t := console.NewTable(strings.ToUpper(made), "STATUS", "ALLOCATIONS", "SUBMITTED")
	for _, c := range d.Children {
		t.Add(c.ID, stubStatus(c), summaryLine(c.JobSummary), console.SinceNano(c.SubmitTime))
	}
	out.Table(t)
}

// writeAllocs lists allocations by name, the newest of a name first. Ended ones are listed only with all.
func writeAllocs(out *console.Output, allocs []api.AllocStub, all bool) {
	command.NewestFirst(allocs, func(a api.AllocStub) fleet.Index { return a.CreateIndex })
	slices.SortStableFunc(allocs, func(a, b api.AllocStub) int { return strings.Compare(a.Name, b.Name) })
	t := console.NewTable("ID", "ALLOCATION", "NODE", "VERSION", "WANTED", "STATUS", "CHANGED", "TASKS")
	ended := 0
	var held []string
	for _, a := range allocs {
		if a.Held != nil {
			held = append(held, fmt.Sprintf("%s on %s was %s.", console.ID(a.ID), a.NodeName, a.Held))
		}
		over := (a.Retired || a.DesiredStatus != fleet.DesiredRun) && a.ClientStatus != fleet.ClientRunning && a.ClientStatus != fleet.ClientUnknown
		if over && !all {
			ended++
			continue
		}
		t.Add(console.ID(a.ID), a.Name, a.NodeName, a.JobVersion, a.DesiredStatus, a.ClientStatus,
			console.SinceNano(a.ModifyTime), follow.TaskStates(a))
	}
	out.Line("")
	out.Table(t)
	if ended > 0 {
		out.Line("%d that have ended are not shown (--all)", ended)
	}
	for _, line := range held {
		out.Line("%s", line)
	}
}
