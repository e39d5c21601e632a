package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/jobfile"
	"skerry/fleet"
)

// dispatchFlags say what a dispatched job is given.
type dispatchFlags struct {
	meta     []string
	prefix   string
	token    string
	priority int
	detach   bool
}

func jobDispatch(o *operator) *cobra.Command {
	var f dispatchFlags
	c := &cobra.Command{
		Use: "dispatch ID [FILE]", Short: "Dispatch an instance of a parameterized job", Args: cobra.RangeArgs(1, 2),
		Long: "Make a job of a parameterized one and run it, with the content of a file (- is the standard\n" +
			"input) as its payload, and follow it until it runs.",
		RunE: func(cmd *cobra.Command, args []string) error {
			meta, err := parseKeyValues(f.meta)
			if err != nil {
				return err
			}
			payload, err := payloadOf(cmd, args[1:])
			if err != nil {
				return err
			}
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return o.dispatchJob(cmd, hub, job.ID, f, api.JobDispatchRequest{
				Payload: payload, Meta: meta, IdPrefixTemplate: f.prefix, Priority: f.priority,
			})
		},
	}
	c.Flags().StringArrayVar(&f.meta, "meta", nil, "KEY=VALUE for the job; may be repeated")
	c.Flags().StringVar(&f.prefix, "id-prefix-template", "", "what the new job's id begins with, after the parent's")
	c.Flags().StringVar(&f.token, "idempotency-token", "", "make a job only where none was made with this token")
	c.Flags().IntVar(&f.priority, "priority", 0, "another priority than the parent's")
	c.Flags().BoolVarP(&f.detach, "detach", "d", false, "return as soon as the job is registered")
	return c
}

func (o *operator) dispatchJob(cmd *cobra.Command, hub *client.Client, id fleet.JobID, f dispatchFlags, req api.JobDispatchRequest) error {
	answer, err := hub.DispatchJob(cmd.Context(), id, f.token, req)
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), answer)
	}
	if answer.EvalID == "" {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Job %q was dispatched with this token before.\n", answer.DispatchedJobID)
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Job %q is dispatched, evaluation %s\n", answer.DispatchedJobID, displayID(answer.EvalID))
	if f.detach {
		return nil
	}
	return follow(cmd.Context(), hub, cmd.OutOrStdout(), answer.EvalID)
}

// payloadOf reads the payload's file, where one is named.
func payloadOf(cmd *cobra.Command, args []string) ([]byte, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case args[0] != "-":
		return jobfile.ReadFile(args[0])
	}
	b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), fleet.MaxJobSize))
	if err != nil {
		return nil, fmt.Errorf("read the payload from the standard input: %w", err)
	}
	return b, nil
}

// parseKeyValues reads KEY=VALUE.
func parseKeyValues(list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "%q is not KEY=VALUE", s)
		}
		m[k] = v
	}
	return m, nil
}

func jobPeriodic(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "periodic", Short: "Launch periodic jobs now"}
	var detach bool
	force := &cobra.Command{
		Use: "force ID", Short: "Launch a periodic job now", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			answer, err := hub.ForcePeriodicJob(cmd.Context(), job.ID)
			if err != nil {
				return err
			}
			return o.followEvaluation(cmd, hub, answer, detach, fmt.Sprintf("Job %q is launched", job.ID))
		},
	}
	force.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the hub has accepted the request")
	c.AddCommand(force)
	return c
}
