package job

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func historyCommand(s *command.Session) *cobra.Command {
	q := client.VersionsQuery{Diffs: true}
	var version string
	var full bool
	c := &cobra.Command{
		Use: "history ID", Short: "Show the versions of a job, and the changes of each", Args: cobra.ExactArgs(1),
		Example: `  skerry job history shop
  skerry job history -p --version 3 shop`,
		RunE: s.RunJob(func(c *command.Call, stub api.JobStub) error {
			if f := c.Flag("diff-version"); f.Changed {
				q.DiffVersion = f.Value.String()
			}
			answer, err := c.Hub.JobVersions(c.Context(), stub.ID, q)
			if err == nil && version != "" {
				answer, err = onlyVersion(answer, stub.ID, version)
			}
			if err != nil {
				return err
			}
			if full {
				c.Out.JSON(answer.Versions)
				return nil
			}
			c.Out.Show(answer, func() {
				c.Out.Marked(func(out *console.Output) { writeVersions(out, answer) })
			})
			return nil
		}),
	}
	c.Flags().StringVar(&q.DiffTag, "diff-tag", "", "compare each version with the version that has this tag, instead of the one before it")
	c.Flags().Uint64("diff-version", 0, "compare each version with this one")
	c.Flags().StringVar(&version, "version", "", "show only this version")
	c.Flags().BoolVar(&full, "full", false, "show each version whole, as JSON")
	c.Flags().BoolP("patch", "p", true, "show the changes of each version; accepted for scripts, they are always shown")
	return c
}

// onlyVersion returns one version of the answer, with its diff.
func onlyVersion(v api.JobVersionsAnswer, id fleet.JobID, version string) (api.JobVersionsAnswer, error) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return v, fleet.Errorf(fleet.CodeInvalid, "show the history of job %q: version %q is not a whole number", id, version)
	}
	for i := range v.Versions {
		if v.Versions[i].Version != n {
			continue
		}
		one := api.JobVersionsAnswer{Versions: v.Versions[i : i+1]}
		if i < len(v.Diffs) {
			one.Diffs = v.Diffs[i : i+1]
		}
		return one, nil
	}
	return v, fleet.Errorf(fleet.CodeNotFound, "version %d of job %q does not exist or is no longer kept", n, id).
		WithHint("skerry job history lists the versions")
}

func writeVersions(out *console.Output, v api.JobVersionsAnswer) {
	for i, job := range v.Versions {
		state := ""
		if job.VersionTag != nil {
			state = fmt.Sprintf(", tag %q", job.VersionTag.Name)
		}
		if job.Stop {
			state += ", stopped"
		}
		if job.Stable {
			state += ", stable"
		}
		out.Line("Version %d, %s%s", job.Version, console.LocalNano(job.SubmitTime), state)
		if i < len(v.Diffs) {
			writeDiff(out, v.Diffs[i], "  ")
		}
	}
}

// versionOf reads one version of a job.
func versionOf(c *command.Call, id fleet.JobID, version string) (*fleet.Job, error) {
	all, err := c.Hub.JobVersions(c.Context(), id, client.VersionsQuery{})
	if err != nil {
		return nil, err
	}
	one, err := onlyVersion(all, id, version)
	if err != nil {
		return nil, err
	}
	return one.Versions[0], nil
}
