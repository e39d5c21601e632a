package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
)

func jobRevert(o *operator) *cobra.Command {
	var detach bool
	var prior uint64
	c := &cobra.Command{
		Use: "revert ID VERSION|TAG", Short: "Revert a job to an older version", Args: cobra.ExactArgs(2),
		Long: "Register an older version of a job again, as its newest, and follow it as job run does. Job history\n" +
			"lists the versions that are kept, and their tags; what is no number is a tag.",
		RunE: func(cmd *cobra.Command, args []string) error {
			version, notNumber := strconv.ParseUint(args[1], 10, 64)
			tag := ""
			if notNumber != nil {
				version, tag = 0, args[1]
			}
			hub, stub, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			req := api.JobRevertRequest{JobID: stub.ID, JobVersion: version, TaggedVersion: tag}
			if cmd.Flags().Changed("check-version") {
				req.EnforcePriorVersion = &prior
			}
			answer, err := hub.RevertJob(cmd.Context(), req)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Job %q goes back to what version %s was\n", stub.ID, args[1])
			if detach || answer.EvalID == "" {
				return nil
			}
			return follow(cmd.Context(), hub, cmd.OutOrStdout(), answer.EvalID)
		},
	}
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the version is registered")
	c.Flags().Uint64Var(&prior, "check-version", 0, "revert only if the job is at this version now")
	return c
}
