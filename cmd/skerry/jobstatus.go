package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/hub/api"
)

func jobStatus(o *operator) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "status [ID]", Short: "List jobs, or show one and its allocations", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return o.listJobs(cmd)
			}
			return o.showJob(cmd, args[0], all)
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "show allocations that have ended, too")
	return c
}

func (o *operator) listJobs(cmd *cobra.Command) error {
	hub, err := o.client()
	if err != nil {
		return err
	}
	var jobs []api.JobStub
	if _, err := hub.Read(cmd.Context(), "/v1/jobs", nil, &jobs); err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), jobs)
	}
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "There are no jobs.")
		return err
	}
	t := console.Table{Heads: o.heads("ID", "TYPE", "PRIORITY", "STATUS", "ALLOCATIONS", "SUBMITTED")}
	for _, j := range jobs {
		status := j.Status
		if j.Stop {
			status += " (stopped)"
		}
		t.Add(o.cells(j.Namespace, j.ID, j.Type, j.Priority, status, summaryLine(j.JobSummary), console.Ago(time.Now(), console.Nano(j.SubmitTime)))...)
	}
	return t.Write(cmd.OutOrStdout())
}

func summaryLine(s *api.JobSummary) string {
	if s == nil {
		return ""
	}
	var queued, starting, running, unknown, failed, lost int
	for _, g := range s.Summary {
		queued, starting, running = queued+g.Queued, starting+g.Starting, running+g.Running
		unknown, failed, lost = unknown+g.Unknown, failed+g.Failed, lost+g.Lost
	}
	return counts(running, "running", starting, "starting", queued, "queued", unknown, "unknown", failed, "failed", lost, "lost")
}

// jobDetails are what job status shows of one job.
type jobDetails struct {
	Job         *fleet.Job
	Summary     api.JobSummary
	Allocations []api.AllocStub
	Evaluations []fleet.Evaluation
}

func (o *operator) showJob(cmd *cobra.Command, ref string, all bool) error {
	hub, job, err := o.wholeJob(cmd.Context(), ref)
	if err != nil {
		return err
	}
	d := jobDetails{Job: job}
	for path, into := range map[string]any{"/summary": &d.Summary, "/allocations": &d.Allocations, "/evaluations": &d.Evaluations} {
		if _, err := hub.Read(cmd.Context(), jobPath(job.ID, path), nil, into); err != nil {
			return err
		}
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), d)
	}
	return d.write(cmd.OutOrStdout(), all)
}

func (d *jobDetails) write(w io.Writer, all bool) error {
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
	t.Add("Version", fmt.Sprintf("%d, submitted %s", j.Version, console.Nano(j.SubmitTime).Format(time.DateTime)))
	if err := t.Write(w); err != nil {
		return err
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
			fmt.Fprintf(w, "\nEvaluation %s waits: %s\n", fleet.Short(e.ID), e.StatusDescription)
			writeFailures(w, e.FailedTGAllocs)
		}
	}
	return writeAllocs(w, d.Allocations, all)
}

// writeAllocs lists allocations, those that have ended only if asked for.
func writeAllocs(w io.Writer, allocs []api.AllocStub, all bool) error {
	slices.SortFunc(allocs, func(a, b api.AllocStub) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return int(b.CreateTime - a.CreateTime)
	})
	t := console.Table{Heads: []string{"ID", "ALLOCATION", "NODE", "VERSION", "WANTED", "STATUS", "CHANGED", "TASKS"}}
	ended := 0
	for _, a := range allocs {
		over := a.DesiredStatus != fleet.DesiredRun && a.ClientStatus != fleet.ClientRunning && a.ClientStatus != fleet.ClientUnknown
		if over && !all {
			ended++
			continue
		}
		t.Add(fleet.Short(a.ID), a.Name, a.NodeName, a.JobVersion, a.DesiredStatus, a.ClientStatus,
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
