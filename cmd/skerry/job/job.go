// Package job has the commands of skerry job: they register, plan, show, scale, restart and stop jobs. It starts
// no goroutine, and persists nothing.
package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/deployment"
	"skerry/cmd/skerry/follow"
	"skerry/fleet"
)

// Command is skerry job.
func Command(s *command.Session) *cobra.Command {
	return command.Group("job", "Run, plan, show, scale, restart and stop jobs",
		runCommand(s), planCommand(s), validateCommand(s), statusCommand(s), stopCommand(s), inspectCommand(s), historyCommand(s),
		revertCommand(s), scaleCommand(s), scalingEventsCommand(s), evalCommand(s), tagCommand(s), dispatchCommand(s),
		periodicCommand(s), restartCommand(s), ActionCommand(s), allocsCommand(s), deploymentsCommand(s), promoteCommand(s),
		startCommand(s), prefetchCommand(s), initCommand(s))
}

// Shortcuts are the commands that also exist without their group.
func Shortcuts(s *command.Session) []*cobra.Command {
	return []*cobra.Command{runCommand(s), planCommand(s), validateCommand(s), stopCommand(s), inspectCommand(s), initCommand(s)}
}

func stopCommand(s *command.Session) *cobra.Command {
	var o client.StopOptions
	var detach bool
	c := &cobra.Command{
		Use: "stop ID", Short: "Stop a job", Args: cobra.ExactArgs(1),
		Example: `  skerry job stop shop
  skerry job stop --purge shop`,
		RunE: s.RunJob(func(c *command.Call, job api.JobStub) error {
			answer, err := c.Hub.StopJob(c.Context(), job.ID, o)
			if err != nil {
				return err
			}
			return follow.ShowStop(c, answer, answer.EvalID, detach, fmt.Sprintf("Job %q stops", job.ID))
		}),
	}
	c.Flags().BoolVar(&o.Purge, "purge", false, "also remove the job and its versions from the hubs' state")
	command.AddNoShutdownDelay(c, &o.NoShutdownDelay)
	command.AddYes(c)
	command.AddDetach(c, &detach)
	return c
}

func startCommand(s *command.Session) *cobra.Command {
	var detach bool
	c := &cobra.Command{
		Use: "start ID", Short: "Start a stopped job", Args: cobra.ExactArgs(1),
		Example: `  skerry job start shop`,
		Long:    "Register a stopped job again, unchanged, and follow it as job run does.",
		RunE: s.Run(func(c *command.Call) error {
			job, err := c.WholeJob(c.Args[0])
			if err != nil {
				return err
			}
			if !job.Stop {
				return fleet.Errorf(fleet.CodeInvalid, "start job %q: it is not stopped", job.ID)
			}
			req := api.JobRegisterRequest{EnforceIndex: true, JobModifyIndex: job.JobModifyIndex}
			switch source, err := c.Hub.JobSubmission(c.Context(), job.ID, fmt.Sprint(job.Version)); {
			case err == nil:
				req.Submission = &source.Submission
			case fleet.CodeOf(err) != fleet.CodeNotFound:
				return err
			}
			job.Stop = false
			answer, err := c.Hub.RegisterJob(c.Context(), job, req)
			if err != nil {
				return err
			}
			return follow.ShowAnswer(c, answer, answer.EvalID, detach, fmt.Sprintf("Job %q is started", job.ID))
		}),
	}
	command.AddDetach(c, &detach)
	return c
}

func revertCommand(s *command.Session) *cobra.Command {
	var detach bool
	var prior uint64
	c := &cobra.Command{
		Use: "revert ID VERSION|TAG", Short: "Revert a job to an older version", Args: cobra.ExactArgs(2),
		Example: `  skerry job revert shop 3
  skerry job revert shop stable`,
		Long: "Register an older version of a job again, as its newest one, and follow it as job run does. The versions\n" +
			"that are kept and their tags are listed by job history. An argument that is not a number is a tag.",
		RunE: s.Run(func(c *command.Call) error {
			version, notNumber := strconv.ParseUint(c.Args[1], 10, 64)
			tag := ""
			if notNumber != nil {
				version, tag = 0, c.Args[1]
			}
			stub, err := c.FindJob(c.Args[0])
			if err != nil {
				return err
			}
			req := api.JobRevertRequest{JobID: stub.ID, JobVersion: version, TaggedVersion: tag}
			if c.Changed("check-version") {
				req.EnforcePriorVersion = &prior
			}
			answer, err := c.Hub.RevertJob(c.Context(), req)
			if err != nil {
				return err
			}
			c.Out.Say(answer, "Job %q is reverted to version %s", stub.ID, c.Args[1])
			if detach || answer.EvalID == "" || c.Out.IsJSON() {
				return nil
			}
			return follow.Evaluation(c, answer.EvalID)
		}),
	}
	command.AddDetach(c, &detach)
	c.Flags().Uint64Var(&prior, "check-version", 0, "revert only if the job is at this version now")
	return c
}

func evalCommand(s *command.Session) *cobra.Command {
	var o api.EvalOptions
	c := evaluatingCommand(s, "is evaluated", func(c *command.Call, id fleet.JobID) (api.EvalAnswer, error) {
		return c.Hub.EvaluateJob(c.Context(), id, o)
	})
	c.Use, c.Short = "eval ID", "Create a new evaluation for a job"
	c.Example = `  skerry job eval --force-reschedule shop`
	c.Flags().BoolVar(&o.ForceReschedule, "force-reschedule", false, "replace failed allocations now, whatever their delay and attempts")
	return c
}

func periodicCommand(s *command.Session) *cobra.Command {
	force := evaluatingCommand(s, "is launched", func(c *command.Call, id fleet.JobID) (api.EvalAnswer, error) {
		return c.Hub.ForcePeriodicJob(c.Context(), id)
	})
	force.Use, force.Short = "force ID", "Launch a periodic job now"
	force.Example = `  skerry job periodic force report`
	return command.Group("periodic", "Launch periodic jobs now", force)
}

// evaluatingCommand makes a command that creates an evaluation of a job. done describes the result for the output.
func evaluatingCommand(s *command.Session, done string, ask func(*command.Call, fleet.JobID) (api.EvalAnswer, error)) *cobra.Command {
	var detach bool
	c := &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: s.RunJob(func(c *command.Call, job api.JobStub) error {
			answer, err := ask(c, job.ID)
			if err != nil {
				return err
			}
			return follow.ShowAnswer(c, answer, answer.EvalID, detach, fmt.Sprintf("Job %q %s", job.ID, done))
		}),
	}
	command.AddDetach(c, &detach)
	return c
}

func allocsCommand(s *command.Session) *cobra.Command {
	var query client.List
	c := &cobra.Command{
		Use: "allocs ID", Short: "List a job's allocations", Args: cobra.ExactArgs(1),
		Example: `  skerry job allocs shop`,
		RunE: s.RunJob(func(c *command.Call, job api.JobStub) error {
			list, err := c.Hub.JobAllocs(c.Context(), job.ID, query)
			if err != nil {
				return err
			}
			c.Out.Show(list, func() {
				if len(list) == 0 {
					c.Out.Line("Job %q has no allocations.", job.ID)
					return
				}
				writeAllocs(c.Out, list, true)
			})
			return nil
		}),
	}
	c.Flags().BoolVar(&query.All, "all", false, "also list those of a purged job that had the same id")
	return c
}

func deploymentsCommand(s *command.Session) *cobra.Command {
	var latest bool
	var query client.List
	c := &cobra.Command{
		Use: "deployments ID", Short: "List the deployments of a job, the newest first", Args: cobra.ExactArgs(1),
		Example: `  skerry job deployments shop
  skerry job deployments --latest shop`,
		RunE: s.RunJob(func(c *command.Call, job api.JobStub) error {
			if latest {
				return deployment.ShowLatest(c, job.ID)
			}
			list, err := c.Hub.JobDeployments(c.Context(), job.ID, query)
			if err == nil {
				deployment.ShowList(c, list, fmt.Sprintf("Job %q has no deployment.", job.ID))
			}
			return err
		}),
	}
	c.Flags().BoolVar(&latest, "latest", false, "show the progress of the newest deployment instead")
	c.Flags().BoolVar(&query.All, "all", false, "also list those of a purged job that had the same id")
	c.MarkFlagsMutuallyExclusive("latest", "all")
	return c
}

func promoteCommand(s *command.Session) *cobra.Command {
	var p deployment.Promotion
	c := &cobra.Command{
		Use: "promote ID", Short: "Promote the canaries of a job's deployment", Args: cobra.ExactArgs(1),
		Example: `  skerry job promote shop
  skerry job promote --group till shop`,
		Long: "Promote the canaries of the deployment of a job's newest version. The command deployment promote does the\n" +
			"same by the id of the deployment.",
		RunE: s.RunJob(func(c *command.Call, job api.JobStub) error {
			d, err := c.Hub.JobDeployment(c.Context(), job.ID)
			if err != nil {
				return err
			}
			if !d.Active() {
				return fleet.Errorf(fleet.CodeInvalid, "promote job %q: it has no running deployment", job.ID).
					WithHint("register a version with canaries first; skerry job deployments %s lists earlier deployments", job.ID)
			}
			return p.Change().Apply(c, string(d.ID))
		}),
	}
	p.AddFlags(c)
	return c
}

func inspectCommand(s *command.Session) *cobra.Command {
	var hcl, withVars bool
	c := &cobra.Command{
		Use: "inspect ID", Short: "Show a job as JSON, in the form that job run accepts", Args: cobra.ExactArgs(1),
		Example: `  skerry job inspect shop
  skerry job inspect --hcl shop`,
		RunE: s.Run(func(c *command.Call) error {
			if hcl {
				return showSource(c, withVars)
			}
			job, err := c.WholeJob(c.Args[0])
			if f := c.Flag("version"); err == nil && f.Changed {
				job, err = versionOf(c, job.ID, f.Value.String())
			}
			if err == nil {
				c.Out.JSON(struct{ Job *fleet.Job }{job})
			}
			return err
		}),
	}
	c.Flags().BoolVar(&hcl, "hcl", false, "show the job file with which it was registered")
	c.Flags().BoolVar(&withVars, "with-vars", false, "with --hcl: also show the variables of the job file")
	c.Flags().Uint64("version", 0, "version to show (default: the newest)")
	return c
}

// showSource shows the file of a version of a job.
func showSource(c *command.Call, withVars bool) error {
	stub, err := c.FindJob(c.Args[0])
	if err != nil {
		return err
	}
	version := ""
	if f := c.Flag("version"); f.Changed {
		version = f.Value.String()
	}
	source, err := c.Hub.JobSubmission(c.Context(), stub.ID, version)
	if err != nil {
		return err
	}
	c.Out.Show(source, func() {
		if withVars {
			for _, name := range slices.Sorted(maps.Keys(source.VariableFlags)) {
				c.Out.Line("# --var %s=%s", name, source.VariableFlags[name])
			}
			if source.Variables != "" {
				c.Out.Line("# --var-file\n%s", source.Variables)
			}
		}
		c.Out.Line("%s", source.Source)
	})
	return nil
}

func tagCommand(s *command.Session) *cobra.Command {
	return command.Group("tag", "Tag versions of a job; a tagged version is kept", tagApplyCommand(s), tagUnsetCommand(s))
}

func tagApplyCommand(s *command.Session) *cobra.Command {
	var req api.JobTagRequest
	c := versionTagCommand(s, "Job %q has a version with the tag %q.", true, func(c *command.Call, id fleet.JobID, name string) error {
		req.Latest = !c.Changed("version")
		return c.Hub.TagJobVersion(c.Context(), id, name, req)
	})
	c.Use, c.Short = "apply ID", "Tag a version of a job"
	c.Example = `  skerry job tag apply --name stable --version 3 shop`
	c.Flags().StringVar(&req.Description, "description", "", "purpose of the tag")
	c.Flags().Uint64Var(&req.Version, "version", 0, "version to tag (default: the newest)")
	return c
}

func tagUnsetCommand(s *command.Session) *cobra.Command {
	c := versionTagCommand(s, "Job %q has no version with the tag %q any more.", false, func(c *command.Call, id fleet.JobID, name string) error {
		return c.Hub.UntagJobVersion(c.Context(), id, name)
	})
	c.Use, c.Short = "unset ID", "Remove a tag from the version of a job that has it"
	c.Example = `  skerry job tag unset --name stable shop`
	return c
}

// versionTagCommand is a command that changes the tag of a version of a job. done is the line for it, set
// whether a version has the tag then.
func versionTagCommand(s *command.Session, done string, set bool, change func(*command.Call, fleet.JobID, string) error) *cobra.Command {
	var name string
	c := &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: s.Run(func(c *command.Call) error {
			if name == "" {
				return fleet.Errorf(fleet.CodeInvalid, "tag a version: no tag is given").WithHint("name it with --name")
			}
			job, err := c.FindJob(c.Args[0])
			if err != nil {
				return err
			}
			if err := change(c, job.ID, name); err != nil {
				return err
			}
			c.Out.Say(struct {
				JobID fleet.JobID
				Tag   string
				Set   bool
			}{job.ID, name, set}, done, job.ID, name)
			return nil
		}),
	}
	c.Flags().StringVar(&name, "name", "", "name of the tag")
	return c
}
