package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
	"skerry/hub/state"
)

func saveCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "save [FILE]", Short: "Save a snapshot of the cluster's state to a file", Args: cobra.MaximumNArgs(1),
		Example: `  skerry operator snapshot save backup.snap`,
		RunE: s.Run(func(c *command.Call) error {
			name := "skerry-" + time.Now().UTC().Format("20060102T150405Z") + ".snap"
			if len(c.Args) > 0 {
				name = c.Args[0]
			}
			size, err := saveSnapshot(c.Context(), c.Hub, name)
			if err == nil {
				c.Out.Say(struct {
					File  string
					Bytes int64
				}{name, size}, "State written to %s (%d bytes)", name, size)
			}
			return err
		}),
	}
}

// saveSnapshot writes a snapshot beside its name first: a file of that name is a whole one.
func saveSnapshot(ctx context.Context, hub *client.Client, name string) (size int64, err error) {
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

func inspectCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Short: "Verify a snapshot, and count its objects", Args: cobra.ExactArgs(1),
		Example: `  skerry operator snapshot inspect backup.snap`,
		RunE: s.RunOffline(func(c *command.Call) error {
			f, err := os.Open(c.Args[0])
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "inspect a snapshot: %w", err)
			}
			defer f.Close()
			restored := state.New()
			if err := restored.Restore(f); err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "inspect %s: %w", c.Args[0], err)
			}
			count := countObjects(restored.View())
			c.Out.Show(count, func() {
				t := console.NewTable()
				t.Add("Cluster", count.Cluster)
				t.Add("Index", count.Index)
				t.Add("Hubs", count.Hubs)
				t.Add("Nodes", count.Nodes)
				t.Add("Jobs", count.Jobs)
				t.Add("Allocations", count.Allocations)
				t.Add("Evaluations", count.Evaluations)
				t.Add("Deployments", count.Deployments)
				t.Add("Variables", count.Variables)
				t.Add("Root keys", count.RootKeys)
				t.AddSet("State keys", strings.Join(count.StateKeys, ", "))
				c.Out.Table(t)
			})
			return nil
		}),
	}
}

// objectCount is how many objects of each kind a snapshot has.
type objectCount struct {
	Cluster                                                  string
	Index                                                    fleet.Index
	Hubs, Nodes, Jobs, Allocations, Evaluations, Deployments int
	Variables, RootKeys                                      int
	StateKeys                                                []string // that the hubs need to decrypt the variables and the CA's key
}

func countObjects(v *state.View) objectCount {
	count := objectCount{Index: v.Index(), Hubs: len(v.Hubs())}
	if c, ok := v.Cluster(); ok {
		count.Cluster = c.ID
		if c.SealKey != "" {
			count.StateKeys = []string{c.SealKey}
		}
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
	for range v.Variables("*", "") {
		count.Variables++
	}
	for range v.RootKeys() {
		count.RootKeys++
	}
	for _, by := range v.WrappedSecrets() {
		if !slices.Contains(count.StateKeys, by) {
			count.StateKeys = append(count.StateKeys, by)
		}
	}
	return count
}

func restoreCommand(s *command.Session) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Restore the cluster's state from a snapshot", Args: cobra.ExactArgs(1),
		Example: `  skerry operator snapshot restore backup.snap`,
		Long: `Replace the cluster's state by a saved one, on all hubs, while they run.

The desired state goes back to that of the snapshot: jobs and their versions, deployments,
evaluations, node pools, namespaces and settings. The members of the cluster stay as they
are (hubs, join tokens, certificates), and so does what has happened: nodes replay what the
snapshot does not know, allocations that have ended do not run again, and allocations that
the snapshot does not have keep running and are listed by "skerry fleet status".

The file is checked first. A damaged snapshot, or one of another cluster, is refused
before anything is changed. So is one with variables that the hub cannot decrypt, because
it lacks the state key: then --force restores everything else, and the variables can be
read as soon as a hub has the key.`,
		RunE: s.Run(func(c *command.Call) error {
			f, err := os.Open(c.Args[0])
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: %w", err)
			}
			defer f.Close()
			done, err := c.Hub.RestoreSnapshot(c.Context(), f, force)
			if err == nil {
				c.Out.Say(done, "State restored from %s: as of entry %d, with %d jobs and %d nodes", c.Args[0], done.RestoredTo, done.Jobs, done.Nodes)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "restore the snapshot although its variables cannot be decrypted")
	return cmd
}
