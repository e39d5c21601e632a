package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/fleet/validate"
)

func jobCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "job", Short: "Run, plan, show, scale, restart and stop jobs"}
	c.AddCommand(jobRun(o), jobPlan(o), jobValidate(o), jobStatus(o), jobStop(o), jobInspect(o), jobHistory(o), jobRevert(o))
	c.AddCommand(jobScale(o), jobScalingEvents(o), jobEval(o), jobTag(o), jobDispatch(o), jobPeriodic(o), jobRestart(o), actionCommand(o))
	c.AddCommand(jobAllocs(o), jobDeployments(o), jobPromote(o), jobStart(o), jobInit(o))
	return c
}

func jobRun(o *operator) *cobra.Command {
	var file jobFileFlags
	var detach, output bool
	var preserve struct{ nonZeroCounts, resources bool }
	var checkIndex uint64
	c := &cobra.Command{
		Use: "run FILE", Short: "Register a job, and monitor it until it runs", Args: cobra.ExactArgs(1),
		Long: "Register the job of a file (- is the standard input), and follow its evaluation and then its\n" +
			"deployment until that is over, or its allocations until they run. It exits with 2 where the job is\n" +
			"registered and not all of it can run now: for want of capacity, of a promotion, or of nodes that are away.",
		RunE: func(cmd *cobra.Command, args []string) error {
			file.readOnly = output
			job, err := file.parseJobFile(cmd, args[0])
			if err != nil {
				return err
			}
			if output {
				return console.JSON(cmd.OutOrStdout(), struct{ Job *fleet.Job }{job})
			}
			hub, err := o.hubClientFor(job)
			if err != nil {
				return err
			}
			reg := api.JobRegisterRequest{Submission: file.source, PreserveCounts: preserve.nonZeroCounts, PreserveResources: preserve.resources}
			if cmd.Flags().Changed("check-index") {
				reg.EnforceIndex, reg.JobModifyIndex = true, fleet.Index(checkIndex)
			}
			answer, err := hub.RegisterJob(cmd.Context(), job, reg)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			warn(cmd, warnings(answer.Warnings, job))
			return o.followEvaluation(cmd, hub, answer, detach, fmt.Sprintf("Job %q registered", job.ID))
		},
	}
	file.addJobFileFlags(c)
	c.Flags().BoolVar(&preserve.nonZeroCounts, "preserve-counts", false, "keep the counts of the registered job")
	c.Flags().BoolVar(&preserve.resources, "preserve-resources", false, "keep the resources of the registered job")
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the job is registered")
	c.Flags().BoolVar(&output, "output", false, "write the job as JSON and do not register it")
	c.Flags().Uint64Var(&checkIndex, "check-index", 0, "register only if the job's modify index is this one; 0: only if the job does not exist")
	return c
}

func jobValidate(o *operator) *cobra.Command {
	var file jobFileFlags
	c := &cobra.Command{
		Use: "validate FILE", Short: "Check a job file, without a hub", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := file.parseJobFile(cmd, args[0])
			if o.json {
				return writeValidation(cmd, job, err)
			}
			if err != nil {
				return err
			}
			warn(cmd, strings.Join(validate.Warnings(job), "\n"))
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Job %q is valid.\n", job.ID)
			return err
		},
	}
	file.addJobFileFlags(c)
	return c
}

// warnings are those of the hub, and what of the file was passed over before it was sent.
func warnings(hub string, job *fleet.Job) string {
	lines := strings.FieldsFunc(hub, func(r rune) bool { return r == '\n' })
	for _, line := range validate.Warnings(job) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// writeValidation writes what is wrong with a job file as JSON; the exit code says
// whether something is.
func writeValidation(cmd *cobra.Command, job *fleet.Job, err error) error {
	var ds jobspec.Diagnostics
	if err != nil && !errors.As(err, &ds) {
		return err
	}
	out := struct {
		Valid       bool
		Diagnostics jobspec.Diagnostics
		Warnings    []string `json:",omitempty"`
	}{Valid: err == nil, Diagnostics: ds}
	if err == nil {
		out.Warnings = validate.Warnings(job)
	}
	if werr := console.JSON(cmd.OutOrStdout(), out); werr != nil || err == nil {
		return werr
	}
	return &console.ExitError{Code: 1, Err: err, Silent: true}
}

func jobStop(o *operator) *cobra.Command {
	var purge, detach, noDelay bool
	c := &cobra.Command{
		Use: "stop ID", Short: "Stop a job", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, job, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			answer, err := hub.StopJob(cmd.Context(), job.ID, client.StopOptions{Purge: purge, NoShutdownDelay: noDelay})
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Job %q stops, evaluation %s\n", job.ID, displayID(answer.EvalID))
			if detach {
				return nil
			}
			return followStop(cmd.Context(), hub, cmd.OutOrStdout(), answer.EvalID)
		},
	}
	c.Flags().BoolVar(&purge, "purge", false, "also remove the job from the hubs")
	addNoDelay(c, &noDelay)
	addYes(c)
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the hub has accepted the request")
	return c
}

// addYes takes -yes where scripts for Nomad give it.
func addYes(c *cobra.Command) {
	c.Flags().BoolP("yes", "y", false, "accepted for scripts; this command asks nothing")
}

func jobInspect(o *operator) *cobra.Command {
	var hcl, withVars bool
	c := &cobra.Command{
		Use: "inspect ID", Short: "Show a job as JSON, in the form that job run accepts", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if hcl {
				return o.inspectSource(cmd, args[0], withVars)
			}
			hub, job, err := o.wholeJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if f := cmd.Flag("version"); f.Changed {
				if job, err = versionOf(cmd.Context(), hub, job.ID, f.Value.String()); err != nil {
					return err
				}
			}
			return console.JSON(cmd.OutOrStdout(), struct{ Job *fleet.Job }{job})
		},
	}
	c.Flags().BoolVar(&hcl, "hcl", false, "show the file that it was made of instead")
	c.Flags().BoolVar(&withVars, "with-vars", false, "with --hcl, also the variables that it was given")
	c.Flags().Uint64("version", 0, "another version than the newest")
	return c
}

// nonZeroCounts writes what is not zero, in order.
func nonZeroCounts(pairs ...any) string {
	var parts []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if n := fmt.Sprint(pairs[i]); n != "0" {
			parts = append(parts, n+" "+fmt.Sprint(pairs[i+1]))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
