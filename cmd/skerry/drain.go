package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// drainFlags are what node drain is told.
type drainFlags struct {
	enable, disable, force, noDeadline, ignoreSystem, keepIneligible, detach, monitor bool
	deadline                                                                          time.Duration
	message                                                                           string
	meta                                                                              map[string]string
}

func nodeDrain(o *operator) *cobra.Command {
	f := drainFlags{}
	c := &cobra.Command{
		Use: "drain ID", Short: "Start or stop the drain of a node", Args: cobra.ExactArgs(1),
		Long: "Move everything off a node: services as their migrate blocks allow, batch jobs when the\n" +
			"deadline is over, and system jobs last. The node takes no new work, then and afterwards,\n" +
			"until node eligibility says so. It is followed until the drain is done.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.drainNode(cmd, args[0], f) },
	}
	flags := c.Flags()
	flags.BoolVar(&f.enable, "enable", false, "drain the node")
	flags.BoolVar(&f.disable, "disable", false, "end a drain, and let new work onto the node")
	flags.BoolVar(&f.force, "force", false, "stop everything at once")
	flags.BoolVar(&f.noDeadline, "no-deadline", false, "let what is left stay for as long as it takes")
	flags.DurationVar(&f.deadline, "deadline", time.Hour, "when what is left is stopped")
	flags.BoolVar(&f.ignoreSystem, "ignore-system", false, "leave system jobs alone")
	flags.BoolVar(&f.keepIneligible, "keep-ineligible", false, "with --disable: no new work all the same")
	flags.BoolVarP(&f.detach, "detach", "d", false, "return as soon as the hub has accepted the request")
	flags.BoolVar(&f.monitor, "monitor", false, "follow the drain that is going on")
	addYes(c)
	flags.StringVarP(&f.message, "message", "m", "", "why, for who looks at the node")
	flags.StringToStringVar(&f.meta, "meta", nil, "what else to note of it (KEY=VALUE)")
	c.MarkFlagsOneRequired("enable", "disable", "monitor")
	c.MarkFlagsMutuallyExclusive("enable", "disable", "monitor")
	c.MarkFlagsMutuallyExclusive("force", "no-deadline", "deadline")
	return c
}

// drainRequest is what the flags ask for.
func (f drainFlags) drainRequest(id fleet.NodeID) (api.DrainRequest, error) {
	req := api.DrainRequest{NodeID: id, Meta: f.meta}
	if f.message != "" {
		req.Meta = map[string]string{"message": f.message}
		for k, v := range f.meta {
			req.Meta[k] = v
		}
	}
	if f.disable {
		req.MarkEligible = !f.keepIneligible
		return req, nil
	}
	req.DrainSpec = &api.DrainSpec{Deadline: f.deadline, IgnoreSystemJobs: f.ignoreSystem}
	switch {
	case f.force:
		req.DrainSpec.Deadline = -time.Nanosecond
	case f.noDeadline:
		req.DrainSpec.Deadline = 0
	case f.deadline <= 0:
		return req, fleet.Errorf(fleet.CodeInvalid, "drain node %s: a deadline of %s", displayID(id), f.deadline).
			WithHint("--force stops everything at once, --no-deadline waits for as long as it takes")
	}
	return req, nil
}

func (o *operator) drainNode(cmd *cobra.Command, ref string, f drainFlags) error {
	hub, node, err := o.findNode(cmd.Context(), ref)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !f.monitor {
		req, err := f.drainRequest(node.ID)
		if err != nil {
			return err
		}
		answer, err := hub.DrainNode(cmd.Context(), node.ID, req)
		if err != nil {
			return err
		}
		switch {
		case o.json:
			return console.JSON(out, answer)
		case f.disable:
			_, err := fmt.Fprintf(out, "Node %s (%s) is not drained any more\n", displayID(node.ID), node.Name)
			return err
		}
		fmt.Fprintf(out, "Node %s (%s) is drained\n", displayID(node.ID), node.Name)
		if f.detach {
			return nil
		}
	}
	return interruptedError(cmd.Context(), out, followDrain(cmd.Context(), hub, out, node.ID))
}

// followDrain writes what happens to a node's allocations until its drain is over.
func followDrain(ctx context.Context, hub *client.Client, out io.Writer, id fleet.NodeID) error {
	awaitNode := func(ctx context.Context, hub *client.Client) error { _, err := hub.Node(ctx, id); return err }
	awaitAllocs := func(ctx context.Context, hub *client.Client) error { _, err := hub.NodeAllocs(ctx, id); return err }
	seen := map[fleet.AllocID]string{}
	for {
		var nodeIndex, allocIndex fleet.Index
		node, err := hub.Watch(&nodeIndex).Node(ctx, id)
		if err != nil {
			return err
		}
		allocs, err := hub.Watch(&allocIndex).NodeAllocs(ctx, id)
		if err != nil {
			return err
		}
		for _, a := range allocs {
			told := drainLine(a)
			if last, ok := seen[a.ID]; ok && last != told {
				fmt.Fprintf(out, "%s  %s %s\n", displayID(a.ID), a.Name, told)
			}
			seen[a.ID] = told
		}
		if node.DrainStrategy == nil {
			return drainEnd(out, node)
		}
		if err := awaitAnyChange(ctx, hub, map[*fleet.Index]blockingRead{&nodeIndex: awaitNode, &allocIndex: awaitAllocs}); err != nil {
			return err
		}
	}
}

func drainLine(a fleet.Alloc) string {
	switch {
	case a.DesiredStatus == fleet.DesiredStop && !a.ClientTerminal():
		return a.ClientStatus + ", to stop"
	case a.DesiredTransition.Migrate && !a.ClientTerminal():
		return a.ClientStatus + ", to go elsewhere"
	}
	return a.ClientStatus
}

func drainEnd(out io.Writer, n fleet.Node) error {
	if n.LastDrain == nil {
		_, err := fmt.Fprintf(out, "Node %s (%s) is not drained, and never was\n", displayID(n.ID), n.Name)
		return err
	}
	_, err := fmt.Fprintf(out, "Drain of node %s (%s) is %s\n", displayID(n.ID), n.Name, n.LastDrain.Status)
	return err
}

func nodeEligibility(o *operator) *cobra.Command {
	var enable, disable bool
	c := &cobra.Command{
		Use: "eligibility ID", Short: "Set whether new allocations may be placed on a node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.NodeEligibilityRequest{Eligibility: fleet.NodeIneligible}
			if enable {
				req.Eligibility = fleet.NodeEligible
			}
			return o.changeNode(cmd, args[0], "is "+req.Eligibility+" for new work", func(hub *client.Client, id fleet.NodeID) (api.NodeAnswer, error) {
				return hub.SetNodeEligibility(cmd.Context(), id, req)
			})
		},
	}
	c.Flags().BoolVar(&enable, "enable", false, "new work may be placed on the node")
	c.Flags().BoolVar(&disable, "disable", false, "no new work is placed on the node")
	c.MarkFlagsOneRequired("enable", "disable")
	c.MarkFlagsMutuallyExclusive("enable", "disable")
	return c
}

func nodePurge(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "purge ID", Short: "Remove a node that is gone for good, and replace its allocations", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.changeNode(cmd, args[0], "is purged", func(hub *client.Client, id fleet.NodeID) (api.NodeAnswer, error) {
				return hub.PurgeNode(cmd.Context(), id)
			})
		},
	}
}

// changeNode changes the node of a name or an abbreviated id. done is what the node then is: the rest
// of a sentence about it.
func (o *operator) changeNode(cmd *cobra.Command, ref, done string, change func(*client.Client, fleet.NodeID) (api.NodeAnswer, error)) error {
	hub, node, err := o.findNode(cmd.Context(), ref)
	if err != nil {
		return err
	}
	answer, err := change(hub, node.ID)
	if err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), answer)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Node %s (%s) %s\n", displayID(node.ID), node.Name, done)
	return err
}
