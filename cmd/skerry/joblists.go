package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

func jobAllocs(o *operator) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "allocs ID", Short: "List a job's allocations", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			list, err := hub.JobAllocs(cmd.Context(), job.ID, client.List{All: all})
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			if len(list) == 0 {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "Job %q has no allocations.\n", job.ID)
				return err
			}
			return writeAllocs(cmd.OutOrStdout(), list, true)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those of an earlier job of this id")
	return c
}

func jobDeployments(o *operator) *cobra.Command {
	var latest, all bool
	c := &cobra.Command{
		Use: "deployments ID", Short: "List the deployments of a job, the newest first", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if latest {
				return o.latestDeployment(cmd, hub, job.ID)
			}
			list, err := hub.JobDeployments(cmd.Context(), job.ID, client.List{All: all})
			if err != nil {
				return err
			}
			return o.writeDeployments(cmd, list, fmt.Sprintf("Job %q has no deployment.", job.ID))
		},
	}
	c.Flags().BoolVar(&latest, "latest", false, "show the progress of the newest")
	c.Flags().BoolVar(&all, "all", false, "also those of an earlier job of this id")
	c.MarkFlagsMutuallyExclusive("latest", "all")
	return c
}

func jobPromote(o *operator) *cobra.Command {
	var f promotion
	c := &cobra.Command{
		Use: "promote ID", Short: "Promote the canaries of a job's deployment", Args: cobra.ExactArgs(1),
		Long: "Promote the canaries of the rollout that a job's newest version is in, as deployment promote does by\n" +
			"the rollout's id.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := hub.JobDeployment(cmd.Context(), job.ID)
			if err != nil {
				return err
			}
			if !d.Active() {
				return fleet.Errorf(fleet.CodeInvalid, "promote job %q: no rollout of it goes on", job.ID).
					WithHint("skerry job deployments lists those that were")
			}
			return o.changeDeployment(cmd, string(d.ID), f.promoteGroups())
		},
	}
	f.addGroupFlag(c)
	return c
}

func jobStart(o *operator) *cobra.Command {
	var detach bool
	c := &cobra.Command{
		Use: "start ID", Short: "Start a stopped job", Args: cobra.ExactArgs(1),
		Long: "Register a job that was stopped again, as it is, and follow it as job run does.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.wholeJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !job.Stop {
				return fleet.Errorf(fleet.CodeInvalid, "start job %q: it is not stopped", job.ID)
			}
			reg := api.JobRegisterRequest{EnforceIndex: true, JobModifyIndex: job.JobModifyIndex}
			switch source, err := hub.JobSubmission(cmd.Context(), job.ID, fmt.Sprint(job.Version)); {
			case err == nil:
				reg.Submission = &source.Submission
			case fleet.CodeOf(err) != fleet.CodeNotFound:
				return err
			}
			job.Stop = false
			answer, err := hub.RegisterJob(cmd.Context(), job, reg)
			if err != nil {
				return err
			}
			return o.followEvaluation(cmd, hub, answer, detach, fmt.Sprintf("Job %q is started", job.ID))
		},
	}
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the job is registered")
	return c
}
