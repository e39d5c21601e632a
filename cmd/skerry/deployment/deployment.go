// Package deployment has the commands of skerry deployment. Commands of jobs and evaluations show the
// progress of a deployment with it. It starts no goroutine, and persists nothing.
package deployment

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/progress"
	"skerry/fleet"
)

// Command is skerry deployment.
func Command(s *command.Session) *cobra.Command {
	return command.Group("deployment", "Show deployments, and promote, pause or fail them",
		listCommand(s), statusCommand(s), promoteCommand(s),
		changeCommand(s, "pause", "Pause a deployment", Change{"paused", (*client.Client).PauseDeployment}),
		changeCommand(s, "resume", "Resume a paused deployment", Change{"resumed", (*client.Client).ResumeDeployment}),
		changeCommand(s, "fail", "Fail a deployment, and revert its job if it has auto_revert", Change{"failed", (*client.Client).FailDeployment}))
}

func listCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List active and ended deployments, the newest first", Args: cobra.NoArgs, RunE: s.Run(listDeployments),
		Example: `  skerry deployment list`,
	}
}

func listDeployments(c *command.Call) error {
	list, err := c.Hub.Deployments(c.Context(), client.List{})
	if err == nil {
		ShowList(c, list, "There are no deployments.")
	}
	return err
}

// ShowList lists deployments, the newest first; none is the line for an empty list.
func ShowList(c *command.Call, list []fleet.Deployment, none string) {
	command.NewestFirst(list, func(d fleet.Deployment) fleet.Index { return d.CreateIndex })
	c.Out.Show(list, func() {
		console.List[fleet.Deployment]{
			None: none, Heads: []string{"ID", "JOB", "VERSION", "STATUS", "DESCRIPTION"},
			Namespace: func(d fleet.Deployment) string { return d.Namespace },
			Row: func(d fleet.Deployment) []any {
				return []any{console.ID(d.ID), d.JobID, d.JobVersion, d.Status, d.StatusDescription}
			},
		}.Write(c.Out, list)
	})
}

func statusCommand(s *command.Session) *cobra.Command {
	var monitor bool
	c := &cobra.Command{
		Use: "status [ID]", Short: "List deployments, or show the progress of one, by group and site", Args: cobra.MaximumNArgs(1),
		Example: `  skerry deployment status
  skerry deployment status ffd2ac50`,
		Long: "List deployments, or show the progress of one. Allocations of the newest version are healthy, running\n" +
			"(not known to be healthy yet) or failed. Deferred ones are on nodes that are away. Waiting ones still run\n" +
			"an older version; some of them wait for an update window.",
		RunE: s.Run(func(c *command.Call) error {
			switch {
			case len(c.Args) == 0 && monitor:
				return fleet.Errorf(fleet.CodeInvalid, "monitor a deployment: no deployment is named").
					WithHint("skerry deployment list lists them")
			case len(c.Args) == 0:
				return listDeployments(c)
			}
			d, err := c.Hub.FindDeployment(c.Context(), c.Args[0])
			if err != nil {
				return err
			}
			if monitor && !c.Out.IsJSON() {
				return c.Interrupted(followProgress(c, d.ID))
			}
			return showProgress(c, d.ID)
		}),
	}
	c.Flags().BoolVar(&monitor, "monitor", false, "keep showing the progress until the deployment has ended")
	return c
}

func showProgress(c *command.Call, id fleet.DeploymentID) error {
	p, err := c.Hub.DeploymentProgress(c.Context(), id)
	if err == nil {
		c.Out.Show(p, func() { progress.Write(c.Out, p) })
	}
	return err
}

// ShowLatest shows the progress of a job's newest deployment.
func ShowLatest(c *command.Call, id fleet.JobID) error {
	d, err := c.Hub.JobDeployment(c.Context(), id)
	if err != nil {
		return err
	}
	if d == nil {
		return fleet.Errorf(fleet.CodeNotFound, "job %q has no deployment", id)
	}
	return showProgress(c, d.ID)
}

// followProgress writes a deployment's progress, whenever that changes, until the deployment is over.
func followProgress(c *command.Call, id fleet.DeploymentID) error {
	screen := console.NewScreen(c.Out)
	var index fleet.Index
	last := ""
	for {
		c.Out.SetStale(false)
		p, err := c.Hub.Watch(&index).DeploymentProgress(c.Context(), id)
		if err != nil {
			return err
		}
		if now := fmt.Sprint(p.Deployment.Status, p.Groups); now != last {
			last = now
			if screen.IsTerminal() {
				screen.WriteOver(func(out *console.Output) { progress.Write(out, p) })
			} else {
				progress.Write(c.Out, p)
			}
		}
		if !p.Deployment.Active() {
			return nil
		}
	}
}

// Promotion has the task groups whose canaries are promoted; none is all.
type Promotion struct{ groups []string }

// AddFlags adds --group.
func (p *Promotion) AddFlags(c *cobra.Command) {
	c.Flags().StringArrayVar(&p.groups, "group", nil, "promote only this group (default: all groups); may be repeated")
}

// Change is the change that promotes the groups.
func (p *Promotion) Change() Change {
	return Change{"promoted", func(hub *client.Client, ctx context.Context, id fleet.DeploymentID) (api.DeploymentAnswer, error) {
		return hub.PromoteDeployment(ctx, id, p.groups...)
	}}
}

func promoteCommand(s *command.Session) *cobra.Command {
	var p Promotion
	c := changeCommand(s, "promote", "Promote the canaries of a deployment", p.Change())
	c.Example = `  skerry deployment promote ffd2ac50
  skerry deployment promote --group till ffd2ac50`
	c.Long = "Promote the canaries of a deployment: the rollout goes on, and the other allocations are updated. It is refused\n" +
		"if not all canaries are healthy."
	p.AddFlags(c)
	return c
}

// Change is a change of a deployment, and the word for what it then is.
type Change struct {
	Done string
	Make func(*client.Client, context.Context, fleet.DeploymentID) (api.DeploymentAnswer, error)
}

// changeCommand is a command that changes a deployment.
func changeCommand(s *command.Session, verb, short string, change Change) *cobra.Command {
	return &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		Example: "  skerry deployment " + verb + " ffd2ac50",
		RunE:    s.Run(func(c *command.Call) error { return change.Apply(c, c.Args[0]) }),
	}
}

// Apply changes the deployment of an id that may be abbreviated.
func (change Change) Apply(c *command.Call, ref string) error {
	d, err := c.Hub.FindDeployment(c.Context(), ref)
	if err != nil {
		return err
	}
	answer, err := change.Make(c.Hub, c.Context(), d.ID)
	if err != nil {
		return err
	}
	c.Out.Show(answer, func() {
		c.Out.Line("Deployment %s of job %q is %s", console.ID(d.ID), d.JobID, change.Done)
		if v := answer.RevertedJobVersion; v != nil {
			c.Out.Line("The job goes back to version %d", *v)
		}
	})
	return nil
}
