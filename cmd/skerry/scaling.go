package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

func scalingCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "scaling", Short: "Show the scaling policies of jobs"}
	policy := &cobra.Command{Use: "policy", Short: "Show scaling policies"}
	policy.AddCommand(scalingList(o), scalingInfo(o))
	c.AddCommand(policy)
	return c
}

func scalingList(o *operator) *cobra.Command {
	var narrow client.List
	c := &cobra.Command{
		Use: "list", Short: "List scaling policies", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := o.scalingPolicies(cmd, narrow)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			t := console.Table{Heads: []string{"ID", "ENABLED", "TYPE", "TARGET"}}
			for _, p := range list {
				t.Add(displayID(p.ID), p.Enabled, p.Type, target(p))
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&narrow.Job, "job", "", "those of a job")
	c.Flags().StringVar(&narrow.Type, "type", "", "those of a type")
	return c
}

func (o *operator) scalingPolicies(cmd *cobra.Command, narrow client.List) ([]api.ScalingStub, error) {
	hub, err := o.hubClient()
	if err != nil {
		return nil, err
	}
	return hub.ScalingPolicies(cmd.Context(), narrow)
}

// target is what a policy is about.
func target(p api.ScalingStub) string {
	of := p.Target["Job"] + "." + p.Target["Group"]
	if task := p.Target["Task"]; task != "" {
		of += "." + task
	}
	return of
}

func scalingInfo(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "info ID", Short: "Show a scaling policy", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := o.scalingPolicies(cmd, client.List{})
			if err != nil {
				return err
			}
			var found []api.ScalingStub
			for _, p := range list {
				if strings.HasPrefix(p.ID, strings.ToLower(args[0])) {
					found = append(found, p)
				}
			}
			switch {
			case len(found) == 0:
				return fleet.Errorf(fleet.CodeNotFound, "no scaling policy begins with %q", args[0])
			case len(found) > 1:
				return fleet.Errorf(fleet.CodeConflict, "%q begins the ids of %d scaling policies", args[0], len(found)).WithHint("give more of the id")
			}
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			p, err := hub.ScalingPolicy(cmd.Context(), found[0].ID)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), p)
			}
			return writePolicy(cmd.OutOrStdout(), p)
		},
	}
}

func writePolicy(w io.Writer, p api.ScalingPolicy) error {
	t := console.Table{}
	t.Add("Policy", p.ID)
	t.Add("Target", target(p.Stub()))
	t.Add("Type", p.Type)
	t.Add("Enabled", p.Enabled)
	for _, bound := range []struct {
		name string
		n    *int
	}{{"Min", p.Min}, {"Max", p.Max}} {
		if bound.n != nil {
			t.Add(bound.name, *bound.n)
		}
	}
	if err := t.Write(w); err != nil || len(p.Policy) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return console.JSON(w, p.Policy)
}
