package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"skerry/cmd/client"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/hub/api"
)

func deploymentCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "deployment", Short: "Show rollouts, and promote, pause or fail them"}
	c.AddCommand(deploymentList(o), deploymentStatus(o), deploymentPromote(o),
		o.deploymentVerb("pause", "Let a rollout go no further for now", struct{ Pause bool }{true}),
		o.deploymentVerb("resume", "Let a paused rollout go on", struct{ Pause bool }{false}),
		o.deploymentVerb("fail", "End a rollout, and take its job back where that is asked for", nil))
	return c
}

func deploymentList(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List rollouts, the oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.client()
			if err != nil {
				return err
			}
			var list []fleet.Deployment
			if _, err := hub.Read(cmd.Context(), "/v1/deployments", nil, &list); err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			var t console.Table
			t.Add(o.cells("Namespace", "ID", "Job", "Version", "Status", "Description")...)
			for _, d := range list {
				t.Add(o.cells(d.Namespace, fleet.Short(d.ID), d.JobID, d.JobVersion, d.Status, d.StatusDescription)...)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func deploymentStatus(o *operator) *cobra.Command {
	var monitor bool
	c := &cobra.Command{
		Use: "status ID", Short: "Show how far a rollout is, by group and site", Args: cobra.ExactArgs(1),
		Long: "Show how far a rollout is. Of the newest version allocations are healthy, running (not known to\n" +
			"be healthy yet) or failed; deferred ones are on edges that are away, waiting ones still run an\n" +
			"older version, and of these some are deferred until a window of updates opens.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.client()
			if err != nil {
				return err
			}
			d, err := hub.FindDeployment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if monitor && !o.json {
				return left(cmd.Context(), out, followDeployment(cmd.Context(), hub, out, d.ID))
			}
			var p api.Progress
			if _, err := hub.Read(cmd.Context(), "/v1/deployment/progress/"+string(d.ID), nil, &p); err != nil {
				return err
			}
			if o.json {
				return console.JSON(out, p)
			}
			return writeProgress(out, p)
		},
	}
	c.Flags().BoolVar(&monitor, "monitor", false, "go on showing it until it is over")
	return c
}

// followDeployment writes a deployment's progress, whenever that changes, until the
// deployment is over.
func followDeployment(ctx context.Context, hub *client.Client, out io.Writer, id fleet.DeploymentID) error {
	var index fleet.Index
	last := ""
	for {
		var p api.Progress
		var err error
		if index, err = hub.ReadAfter(ctx, index, "/v1/deployment/progress/"+string(id), nil, &p); err != nil {
			return err
		}
		if now := fmt.Sprint(p.Deployment.Status, p.Groups); now != last {
			last = now
			if err := writeProgress(out, p); err != nil {
				return err
			}
		}
		if !p.Deployment.Active() {
			return nil
		}
	}
}

func writeProgress(out io.Writer, p api.Progress) error {
	d := p.Deployment
	fmt.Fprintf(out, "Deployment %s of job %q, version %d: %s\n%s\n\n", fleet.Short(d.ID), d.JobID, d.JobVersion, d.Status, d.StatusDescription)
	var t console.Table
	t.Add("Group", "Site", "Healthy", "Running", "Deferred", "Failed", "Waiting", "Desired")
	for _, group := range d.Groups() {
		s := d.TaskGroups[group]
		desired := fmt.Sprint(s.DesiredTotal)
		if s.DesiredCanaries > 0 && !s.Promoted {
			desired += fmt.Sprintf(", %d canaries", s.DesiredCanaries)
		}
		sum, sites := p.Total(group), p.Groups[group]
		for _, site := range slices.Sorted(maps.Keys(sites)) {
			n := sites[site]
			if len(sites) > 1 {
				t.Add(group, site, n.Healthy, n.Running, n.Deferred, n.Failed, n.Waiting, "")
			}
		}
		t.Add(group, "all", sum.Healthy, sum.Running, sum.Deferred, sum.Failed, sum.Waiting, desired)
	}
	if err := t.Write(out); err != nil {
		return err
	}
	for _, group := range d.Groups() {
		if w := p.Windows[group]; w.Deferred > 0 {
			fmt.Fprintf(out, "\nGroup %q: %s\n", group, windowLine(w))
		}
	}
	return nil
}

// windowLine says what of a group waits for a window of updates.
func windowLine(w api.WindowProgress) string {
	if w.Opens == nil {
		return fmt.Sprintf("%d of those that wait are deferred by their windows, none of which opens again", w.Deferred)
	}
	return fmt.Sprintf("%d of those that wait are deferred by their windows, the next of which opens at %s", w.Deferred, w.Opens.UTC().Format(time.RFC3339))
}

func deploymentPromote(o *operator) *cobra.Command {
	var groups []string
	c := &cobra.Command{
		Use: "promote ID", Short: "Let healthy canaries be what they stand for", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := struct {
				All    bool
				Groups []string `json:",omitempty"`
			}{len(groups) == 0, groups}
			return o.changeDeployment(cmd, args[0], "promote", req)
		},
	}
	c.Flags().StringArrayVar(&groups, "group", nil, "promote this group alone (may be repeated)")
	return c
}

// deploymentVerb is a command that changes a deployment; pause and resume share an
// endpoint.
func (o *operator) deploymentVerb(verb, short string, req any) *cobra.Command {
	return &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.changeDeployment(cmd, args[0], verb, req) },
	}
}

func (o *operator) changeDeployment(cmd *cobra.Command, ref, verb string, req any) error {
	hub, err := o.client()
	if err != nil {
		return err
	}
	d, err := hub.FindDeployment(cmd.Context(), ref)
	if err != nil {
		return err
	}
	endpoint := verb
	if verb == "resume" {
		endpoint = "pause"
	}
	var answer api.DeploymentAnswer
	if err := hub.Write(cmd.Context(), http.MethodPut, "/v1/deployment/"+endpoint+"/"+string(d.ID), req, &answer); err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), answer)
	}
	did := map[string]string{"promote": "promoted", "pause": "paused", "resume": "resumed", "fail": "failed"}[verb]
	fmt.Fprintf(cmd.OutOrStdout(), "Deployment %s of job %q is %s\n", fleet.Short(d.ID), d.JobID, did)
	if v := answer.RevertedJobVersion; v != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "The job goes back to version %d\n", *v)
	}
	return nil
}
