package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// followEvaluation says what became of a change that made an evaluation, and follows it.
func (o *operator) followEvaluation(cmd *cobra.Command, hub *client.Client, answer api.EvalAnswer, detach bool, said string) error {
	if o.json {
		return console.JSON(cmd.OutOrStdout(), answer)
	}
	if answer.EvalID == "" {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), said)
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s, evaluation %s\n", said, displayID(answer.EvalID))
	if detach {
		return nil
	}
	return follow(cmd.Context(), hub, cmd.OutOrStdout(), answer.EvalID)
}

func jobScale(o *operator) *cobra.Command {
	var message string
	var detach bool
	var checkIndex uint64
	c := &cobra.Command{
		Use: "scale ID [GROUP] COUNT", Short: "Change the count of a task group", Args: cobra.RangeArgs(2, 3),
		Long: "Give a group of a job another count. The group may be left out where the job has one only.\n" +
			"It is refused while a deployment of the job goes on.",
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[len(args)-1]
			count, err := strconv.ParseUint(text, 10, 31)
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "the count %q is not a whole number", text)
			}
			hub, job, err := o.wholeJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			group, err := groupOf(job, args[1:len(args)-1])
			if err != nil {
				return err
			}
			wanted := int64(count)
			answer, err := hub.ScaleJob(cmd.Context(), job.ID, api.JobScaleRequest{
				Count: &wanted, Message: message, JobModifyIndex: fleet.Index(checkIndex), Target: map[string]string{"Group": group},
			})
			if err != nil {
				return err
			}
			said := fmt.Sprintf("Group %q of job %q is to have %d", group, job.ID, count)
			return o.followEvaluation(cmd, hub, answer, detach, said)
		},
	}
	c.Flags().StringVar(&message, "message", "submitted using the Skerry CLI", "why, for the history")
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the hub has accepted the request")
	c.Flags().Uint64Var(&checkIndex, "check-index", 0, "scale only if the job's modify index is this one; 0: any")
	return c
}

// groupOf is the group that is named, or the only one.
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

func jobScalingEvents(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "scaling-events ID", Short: "Show the scaling events of a job, the newest first", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			status, err := hub.ScaleStatus(cmd.Context(), stub.ID)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), status)
			}
			return writeScaling(cmd.OutOrStdout(), status)
		},
	}
}

func writeScaling(w io.Writer, status api.ScaleStatus) error {
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
		_, err := fmt.Fprintf(w, "Job %q was never scaled.\n", status.JobID)
		return err
	}
	newestFirst(all, func(e groupEvent) fleet.Index { return e.CreateIndex })
	t := console.Table{Heads: []string{"GROUP", "COUNT", "BEFORE", "ERROR", "EVALUATION", "TIME", "MESSAGE"}}
	for _, e := range all {
		count, eval := "", ""
		if e.Count != nil {
			count = strconv.Itoa(*e.Count)
		}
		if e.EvalID != nil {
			eval = displayID(*e.EvalID)
		}
		t.Add(e.group, count, e.PreviousCount, e.Error, eval, console.LocalTime(console.Nano(e.Time)), e.Message)
	}
	return t.Write(w)
}

func jobEval(o *operator) *cobra.Command {
	var force, detach bool
	c := &cobra.Command{
		Use: "eval ID", Short: "Create a new evaluation for a job", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			answer, err := hub.EvaluateJob(cmd.Context(), job.ID, api.EvalOptions{ForceReschedule: force})
			if err != nil {
				return err
			}
			return o.followEvaluation(cmd, hub, answer, detach, fmt.Sprintf("Job %q is evaluated", job.ID))
		},
	}
	c.Flags().BoolVar(&force, "force-reschedule", false, "replace what failed now, whatever its delay and attempts")
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the hub has accepted the request")
	return c
}

// inspectSource writes the file that a version of a job was made of.
func (o *operator) inspectSource(cmd *cobra.Command, ref string, withVars bool) error {
	hub, stub, err := o.findJob(cmd.Context(), ref)
	if err != nil {
		return err
	}
	version := ""
	if f := cmd.Flag("version"); f.Changed {
		version = f.Value.String()
	}
	s, err := hub.JobSubmission(cmd.Context(), stub.ID, version)
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), s)
	}
	if withVars {
		for _, name := range slices.Sorted(maps.Keys(s.VariableFlags)) {
			fmt.Fprintf(cmd.OutOrStdout(), "# --var %s=%s\n", name, s.VariableFlags[name])
		}
		if s.Variables != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "# --var-file\n%s\n", s.Variables)
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), s.Source)
	return err
}

func jobTag(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "tag", Short: "Tag versions of a job; a tagged version is kept"}
	c.AddCommand(jobTagApply(o), jobTagUnset(o))
	return c
}

func jobTagApply(o *operator) *cobra.Command {
	var name, description string
	var version uint64
	c := &cobra.Command{
		Use: "apply ID", Short: "Tag a version of a job", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &api.JobTagRequest{Version: version, Latest: !cmd.Flags().Changed("version"), Description: description}
			return o.changeVersionTag(cmd, args[0], name, req)
		},
	}
	c.Flags().StringVar(&name, "name", "", "the version's name")
	c.Flags().StringVar(&description, "description", "", "what it stands for")
	c.Flags().Uint64Var(&version, "version", 0, "the version; the newest where it is left out")
	return c
}

func jobTagUnset(o *operator) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "unset ID", Short: "Remove the tag of a version", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.changeVersionTag(cmd, args[0], name, nil)
		},
	}
	c.Flags().StringVar(&name, "name", "", "the version's name")
	return c
}

// changeVersionTag gives a version of a job a tag, or removes the tag (req is nil).
func (o *operator) changeVersionTag(cmd *cobra.Command, ref, name string, req *api.JobTagRequest) error {
	if name == "" {
		return fleet.Errorf(fleet.CodeInvalid, "no name is given").WithHint("give one with --name")
	}
	hub, job, err := o.findJob(cmd.Context(), ref)
	if err != nil {
		return err
	}
	if req != nil {
		err = hub.TagJobVersion(cmd.Context(), job.ID, name, *req)
	} else {
		err = hub.UntagJobVersion(cmd.Context(), job.ID, name)
	}
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), struct {
			JobID fleet.JobID
			Tag   string
			Set   bool
		}{job.ID, name, req != nil})
	}
	said := "Job %q has a version with the tag %q.\n"
	if req == nil {
		said = "Job %q has no version with the tag %q any more.\n"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), said, job.ID, name)
	return err
}
