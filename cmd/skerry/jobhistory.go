package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/cmd/client"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/fleet/diff"
)

// jobVersions are the versions of a job that are kept, the newest first, and what each
// changed.
type jobVersions struct {
	Versions []fleet.Job
	Diffs    []diff.Job
}

func jobHistory(o *operator) *cobra.Command {
	var tag, version string
	var full bool
	c := &cobra.Command{
		Use: "history ID", Short: "Show a job's versions, and what each changed", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := o.findJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var answer jobVersions
			q := url.Values{"diffs": {"true"}}
			if tag != "" {
				q.Set("diff_tag", tag)
			}
			if f := cmd.Flag("diff-version"); f.Changed {
				q.Set("diff_version", f.Value.String())
			}
			if _, err := hub.Read(cmd.Context(), jobPath(stub.ID, "/versions"), q, &answer); err != nil {
				return err
			}
			if version != "" {
				if answer, err = answer.onlyVersion(stub.ID, version); err != nil {
					return err
				}
			}
			switch {
			case full:
				return console.JSON(cmd.OutOrStdout(), answer.Versions)
			case o.json:
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			return o.writeColoured(cmd.OutOrStdout(), answer.writeVersions)
		},
	}
	c.Flags().StringVar(&tag, "diff-tag", "", "compare each version with the one of this tag, and not with the one before it")
	c.Flags().Uint64("diff-version", 0, "compare each version with this one")
	c.Flags().StringVar(&version, "version", "", "show this version alone")
	c.Flags().BoolVar(&full, "full", false, "show each version whole, as JSON")
	c.Flags().BoolP("patch", "p", true, "show what each changed, which is done anyway: taken for scripts that give it")
	return c
}

// onlyVersion is what there is of one version.
func (v jobVersions) onlyVersion(id fleet.JobID, version string) (jobVersions, error) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return v, fleet.Errorf(fleet.CodeInvalid, "show the history of job %q: version %q is not a whole number", id, version)
	}
	for i := range v.Versions {
		if v.Versions[i].Version != n {
			continue
		}
		one := jobVersions{Versions: v.Versions[i : i+1]}
		if i < len(v.Diffs) {
			one.Diffs = v.Diffs[i : i+1]
		}
		return one, nil
	}
	return v, fleet.Errorf(fleet.CodeNotFound, "version %d of job %q is not kept", n, id).
		WithHint("skerry job history lists the versions that are")
}

func (v jobVersions) writeVersions(w io.Writer) {
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
	var all jobVersions
	if _, err := hub.Read(ctx, jobPath(id, "/versions"), nil, &all); err != nil {
		return nil, err
	}
	one, err := all.onlyVersion(id, version)
	if err != nil {
		return nil, err
	}
	return &one.Versions[0], nil
}
