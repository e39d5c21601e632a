package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
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
			var list []api.AllocStub
			if _, err := hub.Read(cmd.Context(), jobPath(job.ID, "/allocations"), includeEarlierJobs(all), &list); err != nil {
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

// includeEarlierJobs asks for what there was of an earlier job of the same id, too.
func includeEarlierJobs(all bool) url.Values { return url.Values{"all": {strconv.FormatBool(all)}} }

func jobDeployments(o *operator) *cobra.Command {
	var latest, all bool
	c := &cobra.Command{
		Use: "deployments ID", Short: "List a job's rollouts, the newest first", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if latest {
				return o.latestDeployment(cmd, hub, job.ID)
			}
			var list []fleet.Deployment
			if _, err := hub.Read(cmd.Context(), jobPath(job.ID, "/deployments"), includeEarlierJobs(all), &list); err != nil {
				return err
			}
			return o.writeDeployments(cmd, list, fmt.Sprintf("Job %q was never rolled out.", job.ID))
		},
	}
	c.Flags().BoolVar(&latest, "latest", false, "show how far the newest is")
	c.Flags().BoolVar(&all, "all", false, "also those of an earlier job of this id")
	c.MarkFlagsMutuallyExclusive("latest", "all")
	return c
}

func jobPromote(o *operator) *cobra.Command {
	var f promotion
	c := &cobra.Command{
		Use: "promote ID", Short: "Let a job's healthy canaries be what they stand for", Args: cobra.ExactArgs(1),
		Long: "Promote the canaries of the rollout that a job's newest version is in, as deployment promote does by\n" +
			"the rollout's id.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var d *fleet.Deployment
			if _, err := hub.Read(cmd.Context(), jobPath(job.ID, "/deployment"), nil, &d); err != nil {
				return err
			}
			if !d.Active() {
				return fleet.Errorf(fleet.CodeInvalid, "promote job %q: no rollout of it goes on", job.ID).
					WithHint("skerry job deployments lists those that were")
			}
			f.All = len(f.Groups) == 0
			return o.changeDeployment(cmd, string(d.ID), "promote", f)
		},
	}
	f.addGroupFlag(c)
	return c
}

func jobStart(o *operator) *cobra.Command {
	var detach bool
	c := &cobra.Command{
		Use: "start ID", Short: "Run a job again that was stopped", Args: cobra.ExactArgs(1),
		Long: "Register a job that was stopped again, as it is, and follow it as job run does.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.wholeJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !job.Stop {
				return fleet.Errorf(fleet.CodeInvalid, "start job %q: it is not stopped", job.ID)
			}
			reg := registration{Job: job, EnforceIndex: true, JobModifyIndex: job.JobModifyIndex}
			var source fleet.Submission
			q := url.Values{"version": {fmt.Sprint(job.Version)}}
			switch _, err := hub.Read(cmd.Context(), jobPath(job.ID, "/submission"), q, &source); {
			case err == nil:
				reg.Submission = &source
			case fleet.CodeOf(err) != fleet.CodeNotFound:
				return err
			}
			job.Stop = false
			var answer api.EvalAnswer
			if err := hub.Write(cmd.Context(), http.MethodPost, "/v1/jobs", reg, &answer); err != nil {
				return err
			}
			return o.followEvaluation(cmd, hub, answer, detach, fmt.Sprintf("Job %q is started", job.ID))
		},
	}
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return when the job is registered")
	return c
}
