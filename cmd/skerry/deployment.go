package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

func deploymentCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "deployment", Short: "Show deployments, and promote, pause or fail them"}
	c.AddCommand(deploymentList(o), deploymentStatus(o), deploymentPromote(o),
		o.deploymentVerb("pause", "Pause a deployment", deploymentChange{"paused", (*client.Client).PauseDeployment}),
		o.deploymentVerb("resume", "Resume a paused deployment", deploymentChange{"resumed", (*client.Client).ResumeDeployment}),
		o.deploymentVerb("fail", "Fail a deployment, and revert its job if the job asks for that", deploymentChange{"failed", (*client.Client).FailDeployment}))
	return c
}

func deploymentList(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List deployments, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.listDeployments(cmd) },
	}
}

func (o *operator) listDeployments(cmd *cobra.Command) error {
	hub, err := o.hubClient()
	if err != nil {
		return err
	}
	list, err := hub.Deployments(cmd.Context(), client.List{})
	if err != nil {
		return err
	}
	return o.writeDeployments(cmd, list, "There are no deployments.")
}

// writeDeployments lists rollouts; none says what it means that there is none.
func (o *operator) writeDeployments(cmd *cobra.Command, list []fleet.Deployment, none string) error {
	newestFirst(list, func(d fleet.Deployment) fleet.Index { return d.CreateIndex })
	if o.json {
		return console.JSON(cmd.OutOrStdout(), list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), none)
		return err
	}
	t := console.Table{Heads: o.withNamespaceHead("ID", "JOB", "VERSION", "STATUS", "DESCRIPTION")}
	for _, d := range list {
		t.Add(o.withNamespaceCell(d.Namespace, displayID(d.ID), d.JobID, d.JobVersion, d.Status, d.StatusDescription)...)
	}
	return t.Write(cmd.OutOrStdout())
}

func deploymentStatus(o *operator) *cobra.Command {
	var monitor bool
	c := &cobra.Command{
		Use: "status [ID]", Short: "List deployments, or show the progress of one, by group and site", Args: cobra.MaximumNArgs(1),
		Long: "List rollouts, or show how far one is. Of the newest version allocations are healthy, running (not known to\n" +
			"be healthy yet) or failed; deferred ones are on nodes that are away, waiting ones still run an\n" +
			"older version, and of these some are deferred until a window of updates opens.",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1:
			case monitor:
				return fleet.Errorf(fleet.CodeInvalid, "no deployment is named to monitor").
					WithHint("skerry deployment list lists them")
			default:
				return o.listDeployments(cmd)
			}
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			d, err := hub.FindDeployment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if out := cmd.OutOrStdout(); monitor && !o.json {
				return interruptedError(cmd.Context(), out, followDeployment(cmd.Context(), hub, out, d.ID))
			}
			return o.showProgress(cmd, hub, d.ID)
		},
	}
	c.Flags().BoolVar(&monitor, "monitor", false, "go on showing it until it is over")
	return c
}

func (o *operator) showProgress(cmd *cobra.Command, hub *client.Client, id fleet.DeploymentID) error {
	p, err := hub.DeploymentProgress(cmd.Context(), id)
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), p)
	}
	return writeProgress(cmd.OutOrStdout(), p)
}

// latestDeployment shows how far a job's newest rollout is.
func (o *operator) latestDeployment(cmd *cobra.Command, hub *client.Client, id fleet.JobID) error {
	d, err := hub.JobDeployment(cmd.Context(), id)
	if err != nil {
		return err
	}
	if d == nil {
		return fleet.Errorf(fleet.CodeNotFound, "job %q has no deployment", id)
	}
	return o.showProgress(cmd, hub, d.ID)
}

// followDeployment writes a deployment's progress, whenever that changes, until the
// deployment is over.
func followDeployment(ctx context.Context, hub *client.Client, out io.Writer, id fleet.DeploymentID) error {
	screen := newScreen(out)
	var index fleet.Index
	last := ""
	for {
		clearStale(out)
		p, err := hub.Watch(&index).DeploymentProgress(ctx, id)
		if err != nil {
			return err
		}
		if now := fmt.Sprint(p.Deployment.Status, p.Groups); now != last {
			last = now
			if screen.columns > 0 { // written over what was there
				screen.showRollout(p)
			} else if err := writeProgress(out, p); err != nil {
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
	fmt.Fprintf(out, "Deployment %s of job %q, version %d: %s\n%s\n", displayID(d.ID), d.JobID, d.JobVersion, d.Status, d.StatusDescription)
	if next := outlookSentence(p); next != "" {
		fmt.Fprintf(out, "It %s.\n", next)
	}
	writeFailed(out, p.Failed)
	fmt.Fprintln(out)
	var t console.Table
	t.Heads = []string{"GROUP", "SITE", "HEALTHY", "RUNNING", "DEFERRED", "FAILED", "WAITING", "DESIRED"}
	for _, group := range d.Groups() {
		s := d.TaskGroups[group]
		desired := fmt.Sprint(s.DesiredTotal)
		if s.DesiredCanaries > 0 && !s.Promoted {
			desired += fmt.Sprintf(", %d as canaries", s.DesiredCanaries)
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
	if hint := deploymentHint(p); hint != "" {
		fmt.Fprintln(out)
		console.Hint(out, "%s", hint)
	}
	return nil
}

// windowLine says what of a group waits for a window of updates.
func windowLine(w api.WindowProgress) string {
	if w.Opens == nil {
		return fmt.Sprintf("%d of those that wait are deferred by their windows, none of which opens again", w.Deferred)
	}
	return fmt.Sprintf("%d of those that wait are deferred by their windows, the next of which opens at %s", w.Deferred, console.LocalTime(*w.Opens))
}

// promotion has the task groups whose canaries are promoted; none is all.
type promotion struct{ Groups []string }

func (p *promotion) promoteGroups() deploymentChange {
	return deploymentChange{"promoted", func(hub *client.Client, ctx context.Context, id fleet.DeploymentID) (api.DeploymentAnswer, error) {
		return hub.PromoteDeployment(ctx, id, p.Groups...)
	}}
}

func (p *promotion) addGroupFlag(c *cobra.Command) {
	c.Flags().StringArrayVar(&p.Groups, "group", nil, "promote this group alone (may be repeated)")
}

func deploymentPromote(o *operator) *cobra.Command {
	var p promotion
	c := &cobra.Command{
		Use: "promote ID", Short: "Promote the canaries of a deployment", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.changeDeployment(cmd, args[0], p.promoteGroups())
		},
	}
	p.addGroupFlag(c)
	return c
}

// deploymentChange is a change of a deployment, and the word for what it then is.
type deploymentChange struct {
	done   string
	change func(*client.Client, context.Context, fleet.DeploymentID) (api.DeploymentAnswer, error)
}

// deploymentVerb is a command that changes a deployment.
func (o *operator) deploymentVerb(verb, short string, change deploymentChange) *cobra.Command {
	return &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.changeDeployment(cmd, args[0], change) },
	}
}

func (o *operator) changeDeployment(cmd *cobra.Command, ref string, change deploymentChange) error {
	hub, err := o.hubClient()
	if err != nil {
		return err
	}
	d, err := hub.FindDeployment(cmd.Context(), ref)
	if err != nil {
		return err
	}
	answer, err := change.change(hub, cmd.Context(), d.ID)
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), answer)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Deployment %s of job %q is %s\n", displayID(d.ID), d.JobID, change.done)
	if v := answer.RevertedJobVersion; v != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "The job goes back to version %d\n", *v)
	}
	return nil
}
