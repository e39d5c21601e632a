package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"skerry/cmd/client"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/hub/api"
	"skerry/hub/state"
)

func operatorCommand(o *operator) *cobra.Command {
	group := func(use, short string, children ...*cobra.Command) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short}
		c.AddCommand(children...)
		return c
	}
	return group("operator", "Look after the hubs themselves",
		group("raft", "Show how the hubs agree", raftPeers(o)),
		group("autopilot", "Show how the hubs are", autopilotHealth(o)),
		group("scheduler", "Show and change how jobs are scheduled", schedulerGet(o), schedulerSet(o)),
		group("snapshot", "Save the cluster's state, and look at what was saved", snapshotSave(o), snapshotInspect(o)),
	)
}

func raftPeers(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list-peers", Short: "List the hubs that the log is replicated to", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Servers []api.RaftServer
				Index   fleet.Index
			}
			if err := o.read(cmd, "/v1/operator/raft/configuration", &answer); err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			t := console.Table{Heads: []string{"NODE", "ADDRESS", "STATE", "VOTER"}}
			for _, s := range answer.Servers {
				role := "follower"
				if s.Leader {
					role = "leader"
				}
				t.Add(s.Node, s.Address, role, strconv.FormatBool(s.Voter))
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

// read reads from the hub.
func (o *operator) read(cmd *cobra.Command, path string, out any) error {
	hub, err := o.client()
	if err != nil {
		return err
	}
	_, err = hub.Read(cmd.Context(), path, url.Values{"report": {"true"}}, out)
	return err
}

func autopilotHealth(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Show how each hub is, and how many may be lost", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var h api.HealthAnswer
			if err := o.read(cmd, "/v1/operator/autopilot/health", &h); err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), h)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "Healthy            %t\nFailure tolerance  %d\nLeader             %s\n\n", h.Healthy, h.FailureTolerance, h.Leader)
			t := console.Table{Heads: []string{"NAME", "ADDRESS", "GOSSIP", "ANSWERS IN", "TERM", "INDEX", "VOTER", "HEALTHY"}}
			for _, s := range h.Servers {
				t.Add(s.Name, s.Address, s.SerfStatus, s.LastContact, s.LastTerm, s.LastIndex, strconv.FormatBool(s.Voter), strconv.FormatBool(s.Healthy))
			}
			return t.Write(w)
		},
	}
}

func snapshotSave(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "save [FILE]", Short: "Write the cluster's whole state into a file", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.client()
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
	in, err := hub.Stream(ctx, "/v1/operator/snapshot", nil)
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
		Use: "inspect FILE", Short: "Check a saved state, and count what is in it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "inspect a snapshot: %v", err)
			}
			defer f.Close()
			s := state.New()
			if err := s.Restore(f); err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "inspect %s: %v", args[0], err)
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
