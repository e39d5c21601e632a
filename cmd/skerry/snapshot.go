package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"

	"skerry/hub/state"
)

func snapshotSave(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "save [FILE]", Short: "Save a snapshot of the cluster's state to a file", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			name := "skerry-" + time.Now().UTC().Format("20060102T150405Z") + ".snap"
			if len(args) > 0 {
				name = args[0]
			}
			size, err := save(cmd.Context(), hub, name)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), struct {
					File  string
					Bytes int64
				}{name, size})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "State written to %s (%d bytes)\n", name, size)
			return err
		},
	}
}

// save writes a snapshot beside its name first: a file of that name is a whole one.
func save(ctx context.Context, hub *client.Client, name string) (size int64, err error) {
	in, err := hub.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return 0, fmt.Errorf("save a snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	size, err = io.Copy(f, in)
	if err = errors.Join(err, f.Sync()); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = state.New().Restore(f) // cut short or damaged on its way: say so now
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("save a snapshot: %w", err)
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return 0, fmt.Errorf("save a snapshot: %w", err)
	}
	return size, nil
}

func snapshotInspect(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Short: "Verify a snapshot, and count its objects", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "inspect a snapshot: %w", err)
			}
			defer f.Close()
			s := state.New()
			if err := s.Restore(f); err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "inspect %s: %w", args[0], err)
			}
			return o.showSnapshot(cmd, s.View())
		},
	}
}

func (o *operator) showSnapshot(cmd *cobra.Command, v *state.View) error {
	count := struct {
		Cluster                                                  string
		Index                                                    fleet.Index
		Hubs, Nodes, Jobs, Allocations, Evaluations, Deployments int
	}{Index: v.Index(), Hubs: len(v.Hubs())}
	if c, ok := v.Cluster(); ok {
		count.Cluster = c.ID
	}
	for range v.Nodes("") {
		count.Nodes++
	}
	for range v.Jobs("*", "") {
		count.Jobs++
	}
	for range v.Allocs("*", "") {
		count.Allocations++
	}
	for range v.Evals("*", "") {
		count.Evaluations++
	}
	for range v.Deployments("*", "") {
		count.Deployments++
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), count)
	}
	t := console.Table{}
	t.Add("Cluster", count.Cluster)
	t.Add("Index", count.Index)
	t.Add("Hubs", count.Hubs)
	t.Add("Nodes", count.Nodes)
	t.Add("Jobs", count.Jobs)
	t.Add("Allocations", count.Allocations)
	t.Add("Evaluations", count.Evaluations)
	t.Add("Deployments", count.Deployments)
	return t.Write(cmd.OutOrStdout())
}

const restoreHelp = `Replace the cluster's state by one that was saved, on all hubs, while they run.

What was wanted is wound back: jobs and their versions, deployments, evaluations,
node pools, namespaces, settings. Who belongs to the cluster is not (hubs, join
tokens, certificates), and neither is what has happened: nodes replay what the
snapshot does not know, what has ended does not run again, and allocations that it
has no record of go on and are listed by "skerry fleet status".

The file is checked first. One that is damaged, or of another cluster, is refused
before anything is changed.`

func snapshotRestore(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "restore FILE", Short: "Restore the cluster's state from a snapshot", Long: restoreHelp, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: %w", err)
			}
			defer f.Close()
			done, err := hub.RestoreSnapshot(cmd.Context(), f)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), done)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "State restored from %s: as of entry %d, with %d jobs and %d nodes\n",
				args[0], done.RestoredTo, done.Jobs, done.Nodes)
			return err
		},
	}
}
