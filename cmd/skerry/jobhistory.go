package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

func jobHistory(o *operator) *cobra.Command {
	var tag, version string
	var full bool
	c := &cobra.Command{
		Use: "history ID", Short: "Show the versions of a job, and the changes of each", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			q := client.VersionsQuery{Diffs: true, DiffTag: tag}
			if f := cmd.Flag("diff-version"); f.Changed {
				q.DiffVersion = f.Value.String()
			}
			answer, err := hub.JobVersions(cmd.Context(), stub.ID, q)
			if err != nil {
				return err
			}
			if version != "" {
				if answer, err = onlyVersion(answer, stub.ID, version); err != nil {
					return err
				}
			}
			switch {
			case full:
				return console.JSON(cmd.OutOrStdout(), answer.Versions)
			case o.json:
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			return o.writeColoured(cmd.OutOrStdout(), func(w io.Writer) { writeVersions(w, answer) })
		},
	}
	c.Flags().StringVar(&tag, "diff-tag", "", "compare each version with the one of this tag, and not with the one before it")
	c.Flags().Uint64("diff-version", 0, "compare each version with this one")
	c.Flags().StringVar(&version, "version", "", "show this version alone")
	c.Flags().BoolVar(&full, "full", false, "show each version whole, as JSON")
	c.Flags().BoolP("patch", "p", true, "show what each changed, which is done anyway: taken for scripts that give it")
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
	return v, fleet.Errorf(fleet.CodeNotFound, "version %d of job %q is not kept", n, id).
		WithHint("skerry job history lists the versions that are")
}

func writeVersions(w io.Writer, v api.JobVersionsAnswer) {
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
		fmt.Fprintf(w, "Version %d, %s%s\n", job.Version, console.LocalTime(console.Nano(job.SubmitTime)), state)
		if i < len(v.Diffs) {
			writeDiff(w, v.Diffs[i], "  ")
		}
	}
}

// versionOf reads one version of a job.
func versionOf(ctx context.Context, hub *client.Client, id fleet.JobID, version string) (*fleet.Job, error) {
	all, err := hub.JobVersions(ctx, id, client.VersionsQuery{})
	if err != nil {
		return nil, err
	}
	one, err := onlyVersion(all, id, version)
	if err != nil {
		return nil, err
	}
	return one.Versions[0], nil
}
