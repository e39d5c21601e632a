package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/follow"
	"skerry/fleet"
)

func scaleCommand(s *command.Session) *cobra.Command {
	var req api.JobScaleRequest
	var detach bool
	var checkIndex uint64
	c := &cobra.Command{
		Use: "scale ID [GROUP] COUNT", Short: "Change the count of a task group", Args: cobra.RangeArgs(2, 3),
		Example: `  skerry job scale shop till 3`,
		Long: "Change the count of a task group of a job. The group may be left out if the job has only one.\n" +
			"The hub refuses this while a deployment of the job is active.",
		RunE: s.Run(func(c *command.Call) error {
			text := c.Args[len(c.Args)-1]
			count, err := strconv.ParseUint(text, 10, 31)
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "scale a job: the count %q is not a whole number", text)
			}
			job, err := c.WholeJob(c.Args[0])
			if err != nil {
				return err
			}
			group, err := groupOf(job, c.Args[1:len(c.Args)-1])
			if err != nil {
				return err
			}
			wanted := int64(count)
			req.Count, req.JobModifyIndex, req.Target = &wanted, fleet.Index(checkIndex), map[string]string{"Group": group}
			answer, err := c.Hub.ScaleJob(c.Context(), job.ID, req)
			if err != nil {
				return err
			}
			return follow.ShowAnswer(c, answer, answer.EvalID, detach, fmt.Sprintf("Group %q of job %q is to have %d", group, job.ID, count))
		}),
	}
	c.Flags().StringVar(&req.Message, "message", "submitted using the Skerry CLI", "reason, for the history")
	command.AddDetach(c, &detach)
	c.Flags().Uint64Var(&checkIndex, "check-index", 0, "scale only if the job's modify index is this one; 0: any")
	return c
}

func scalingEventsCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "scaling-events ID", Short: "Show the scaling events of a job, the newest first", Args: cobra.ExactArgs(1),
		Example: `  skerry job scaling-events shop`,
		RunE:    command.Show(s, command.OfJob((*client.Client).ScaleStatus), writeScaling),
	}
}

// groupOf returns the named group, or the only one.
func groupOf(job *fleet.Job, named []string) (string, error) {
	switch {
	case len(named) > 0:
		return named[0], nil
	case len(job.TaskGroups) == 1:
		return job.TaskGroups[0].Name, nil
	}
	var names []string
	for _, g := range job.TaskGroups {
		names = append(names, g.Name)
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "job %q has %d groups", job.ID, len(names)).WithHint("name one of %q", names)
}

func writeScaling(out *console.Output, status api.ScaleStatus) {
	type groupEvent struct {
		group string
		fleet.ScalingEvent
	}
	var all []groupEvent
	for _, name := range slices.Sorted(maps.Keys(status.TaskGroups)) {
		for _, e := range status.TaskGroups[name].Events {
			all = append(all, groupEvent{name, e})
		}
	}
	if len(all) == 0 {
		out.Line("Job %q was never scaled.", status.JobID)
		return
	}
	command.NewestFirst(all, func(e groupEvent) fleet.Index { return e.CreateIndex })
	t := console.NewTable("GROUP", "COUNT", "BEFORE", "ERROR", "EVALUATION", "TIME", "MESSAGE")
	for _, e := range all {
		count, eval := "", ""
		if e.Count != nil {
			count = strconv.Itoa(*e.Count)
		}
		if e.EvalID != nil {
			eval = console.ID(*e.EvalID)
		}
		t.Add(e.group, count, e.PreviousCount, e.Error, eval, console.LocalNano(e.Time), e.Message)
	}
	out.Table(t)
}

// ScalingCommand is skerry scaling.
func ScalingCommand(s *command.Session) *cobra.Command {
	return command.Group("scaling", "Show the scaling policies of jobs",
		command.Group("policy", "Show scaling policies", policyListCommand(s), policyInfoCommand(s)))
}

func policyListCommand(s *command.Session) *cobra.Command {
	var query client.List
	c := &cobra.Command{
		Use: "list", Short: "List scaling policies", Args: cobra.NoArgs,
		Example: `  skerry scaling policy list
  skerry scaling policy list --job shop`,
		RunE: command.Show(s, command.Listed((*client.Client).ScalingPolicies, &query), console.List[api.ScalingStub]{
			Heads: []string{"ID", "ENABLED", "TYPE", "TARGET"},
			Row:   func(p api.ScalingStub) []any { return []any{console.ID(p.ID), p.Enabled, p.Type, target(p)} },
		}.Write),
	}
	c.Flags().StringVar(&query.Job, "job", "", "list only the policies of this job")
	c.Flags().StringVar(&query.Type, "type", "", "list only policies of this type")
	return c
}

func policyInfoCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "info ID", Short: "Show a scaling policy", Args: cobra.ExactArgs(1),
		Example: `  skerry scaling policy info 4bc9b641`,
		RunE:    command.Show(s, findPolicy, writePolicy),
	}
}

// findPolicy finds a scaling policy by its id, which may be abbreviated.
func findPolicy(c *command.Call) (p api.ScalingPolicy, err error) {
	list, err := c.Hub.ScalingPolicies(c.Context(), client.List{})
	if err != nil {
		return p, err
	}
	list = slices.DeleteFunc(list, func(p api.ScalingStub) bool { return !strings.HasPrefix(p.ID, strings.ToLower(c.Args[0])) })
	switch len(list) {
	case 0:
		return p, fleet.Errorf(fleet.CodeNotFound, "no scaling policy begins with %q", c.Args[0])
	case 1:
		return c.Hub.ScalingPolicy(c.Context(), list[0].ID)
	}
	return p, fleet.Errorf(fleet.CodeConflict, "%q begins the ids of %d scaling policies", c.Args[0], len(list)).WithHint("give more of the id")
}

// target returns the job, group or task that a policy scales.
func target(p api.ScalingStub) string {
	of := p.Target["Job"] + "." + p.Target["Group"]
	if task := p.Target["Task"]; task != "" {
		of += "." + task
	}
	return of
}

func writePolicy(out *console.Output, p api.ScalingPolicy) {
	t := console.NewTable()
	t.Add("Policy", p.ID)
	t.Add("Target", target(p.Stub()))
	t.Add("Type", p.Type)
	t.Add("Enabled", p.Enabled)
	if p.Min != nil {
		t.Add("Min", *p.Min)
	}
	if p.Max != nil {
		t.Add("Max", *p.Max)
	}
	out.Table(t)
	if len(p.Policy) > 0 {
		out.Line("")
		out.JSON(p.Policy)
	}
}
