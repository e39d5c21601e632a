package node

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// drainFlags are the flags of node drain.
type drainFlags struct {
	enable, disable, force, noDeadline, ignoreSystem, keepIneligible, detach, monitor bool
	deadline                                                                          time.Duration
	message                                                                           string
	meta                                                                              map[string]string
}

func drainCommand(s *command.Session) *cobra.Command {
	var f drainFlags
	c := &cobra.Command{
		Use: "drain ID", Short: "Start or stop the drain of a node", Args: cobra.ExactArgs(1),
		Example: `  skerry node drain --enable --deadline 1h shop-17
  skerry node drain --disable shop-17`,
		Long: "Move all allocations off a node: services as their migrate blocks allow, batch jobs at the deadline, and\n" +
			"system jobs last. The node gets no new allocations, also afterwards, until node eligibility allows it. The\n" +
			"command follows the drain until it is complete.",
		RunE: s.Run(func(c *command.Call) error { return drainNode(c, f) }),
	}
	flags := c.Flags()
	flags.BoolVar(&f.enable, "enable", false, "drain the node")
	flags.BoolVar(&f.disable, "disable", false, "end the drain, and allow new allocations on the node")
	flags.BoolVar(&f.force, "force", false, "stop all allocations at once")
	flags.BoolVar(&f.noDeadline, "no-deadline", false, "let the remaining allocations take as long as they need")
	flags.DurationVar(&f.deadline, "deadline", time.Hour, "time after which the remaining allocations are stopped")
	flags.BoolVar(&f.ignoreSystem, "ignore-system", false, "do not stop system jobs")
	flags.BoolVar(&f.keepIneligible, "keep-ineligible", false, "with --disable: do not allow new allocations")
	command.AddDetach(c, &f.detach)
	flags.BoolVar(&f.monitor, "monitor", false, "follow the active drain")
	command.AddYes(c)
	flags.StringVarP(&f.message, "message", "m", "", "reason for the drain, shown with the node")
	flags.StringToStringVar(&f.meta, "meta", nil, "KEY=VALUE to record with the drain")
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
		return req, fleet.Errorf(fleet.CodeInvalid, "drain node %s: the deadline %s is not in the future", console.ID(id), f.deadline).
			WithHint("--force stops all allocations at once, --no-deadline waits without a bound")
	}
	return req, nil
}

func drainNode(c *command.Call, f drainFlags) error {
	node, err := c.FindNode(c.Args[0])
	if err != nil {
		return err
	}
	if !f.monitor {
		req, err := f.drainRequest(node.ID)
		if err != nil {
			return err
		}
		answer, err := c.Hub.DrainNode(c.Context(), node.ID, req)
		if err != nil {
			return err
		}
		state := "is drained"
		if f.disable {
			state = "is not drained any more"
		}
		c.Out.Say(answer, "Node %s (%s) %s", console.ID(node.ID), node.Name, state)
		if f.disable || f.detach || c.Out.IsJSON() {
			return nil
		}
	}
	return c.Interrupted(followDrain(c, node.ID))
}

// followDrain writes what happens to a node's allocations until its drain is over.
func followDrain(c *command.Call, id fleet.NodeID) error {
	var node fleet.Node
	var allocs []fleet.Alloc
	readNode := func(ctx context.Context, hub *client.Client) (err error) { node, err = hub.Node(ctx, id); return err }
	readAllocs := func(ctx context.Context, hub *client.Client) (err error) {
		allocs, err = hub.NodeAllocs(ctx, id)
		return err
	}
	seen := map[fleet.AllocID]string{}
	for {
		var nodeIndex, allocIndex fleet.Index
		if err := readNode(c.Context(), c.Hub.Watch(&nodeIndex)); err != nil {
			return err
		}
		if err := readAllocs(c.Context(), c.Hub.Watch(&allocIndex)); err != nil {
			return err
		}
		for _, a := range allocs {
			state := drainState(a)
			if last, ok := seen[a.ID]; ok && last != state {
				c.Out.Line("%s  %s %s", console.ID(a.ID), a.Name, state)
			}
			seen[a.ID] = state
		}
		if node.DrainStrategy == nil {
			writeDrainEnd(c.Out, node)
			return nil
		}
		if err := c.AwaitAnyChange(map[*fleet.Index]command.BlockingRead{&nodeIndex: readNode, &allocIndex: readAllocs}); err != nil {
			return err
		}
	}
}

func drainState(a fleet.Alloc) string {
	switch {
	case a.DesiredStatus == fleet.DesiredStop && !a.ClientTerminal():
		return a.ClientStatus + ", to stop"
	case a.DesiredTransition.Migrate && !a.ClientTerminal():
		return a.ClientStatus + ", to go elsewhere"
	}
	return a.ClientStatus
}

func writeDrainEnd(out *console.Output, n fleet.Node) {
	if n.LastDrain == nil {
		out.Line("Node %s (%s) is not drained, and never was", console.ID(n.ID), n.Name)
		return
	}
	out.Line("Drain of node %s (%s) is %s", console.ID(n.ID), n.Name, n.LastDrain.Status)
}
