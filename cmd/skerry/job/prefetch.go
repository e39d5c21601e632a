package job

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// prefetchFlags are the flags of job prefetch.
type prefetchFlags struct {
	nodes          []string
	pool           string
	version        uint64
	status, cancel bool
}

func prefetchCommand(s *command.Session) *cobra.Command {
	var f prefetchFlags
	c := &cobra.Command{
		Use: "prefetch ID", Short: "Have nodes fetch the artifacts and images of a job before its rollout", Args: cobra.ExactArgs(1),
		Example: `  skerry job prefetch shop
  skerry job prefetch --node-pool ships --version 3 shop
  skerry job prefetch --status shop
  skerry job prefetch --cancel shop`,
		Long: "Have nodes fetch the artifacts and images of a version of a job, so that they need no network when its rollout\n" +
			"begins. Without --node and --node-pool these are the nodes that have an allocation of the job. They fetch in\n" +
			"the background, one content after the other, try again after a failure, and keep the contents for 30 days.\n" +
			"A node that is away fetches when it is back. --status shows the state on each node, --cancel lets the contents go.",
		RunE: s.RunJob(func(c *command.Call, job api.JobStub) error {
			switch {
			case f.status:
				return showPrefetches(c, job.ID)
			case f.cancel:
				return cancelPrefetches(c, job.ID)
			}
			return requestPrefetch(c, job.ID, f)
		}),
	}
	c.Flags().StringArrayVar(&f.nodes, "node", nil, "fetch on the node with this id or name; may be repeated")
	c.Flags().StringVar(&f.pool, "node-pool", "", "fetch on all nodes of this node pool that are in the job's datacenters")
	c.Flags().Uint64Var(&f.version, "version", 0, "version of the job (default: the newest)")
	c.Flags().BoolVar(&f.status, "status", false, "show the state of earlier requests instead")
	c.Flags().BoolVar(&f.cancel, "cancel", false, "let nodes remove the contents that they fetched for the job")
	c.MarkFlagsMutuallyExclusive("status", "cancel")
	for _, choice := range []string{"node", "node-pool", "version"} {
		c.MarkFlagsMutuallyExclusive("status", choice)
		c.MarkFlagsMutuallyExclusive("cancel", choice)
	}
	c.MarkFlagsMutuallyExclusive("node", "node-pool")
	return c
}

func requestPrefetch(c *command.Call, id fleet.JobID, f prefetchFlags) error {
	req := api.PrefetchRequest{NodePool: f.pool}
	if c.Changed("version") {
		req.JobVersion = &f.version
	}
	for _, ref := range f.nodes {
		n, err := c.FindNode(ref)
		if err != nil {
			return err
		}
		req.NodeIDs = append(req.NodeIDs, n.ID)
	}
	answer, err := c.Hub.PrefetchJob(c.Context(), id, req)
	if err != nil {
		return err
	}
	if answer.Warnings != "" {
		c.Warn([]string{answer.Warnings})
	}
	c.Out.Say(answer, "%s to fetch the artifacts and images of version %d of job %q; --status shows the state on each node",
		console.Count(len(answer.NodeIDs), "node"), answer.JobVersion, id)
	return nil
}

func cancelPrefetches(c *command.Call, id fleet.JobID) error {
	if err := c.Hub.EndPrefetches(c.Context(), id); err != nil {
		return err
	}
	c.Out.Say(struct{ JobID fleet.JobID }{id}, "The nodes let go the contents that they fetched for job %q", id)
	return nil
}

func showPrefetches(c *command.Call, id fleet.JobID) error {
	list, err := c.Hub.JobPrefetches(c.Context(), id, client.List{})
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b api.PrefetchStub) int {
		return strings.Compare(a.NodeName+string(a.NodeID), b.NodeName+string(b.NodeID))
	})
	c.Out.Show(list, func() {
		console.List[api.PrefetchStub]{
			None: "No node was asked to fetch the artifacts and images of this job.", Heads: []string{"NODE", "NAME", "NODE STATUS", "VERSION", "STATE", "SINCE"},
			Row: func(p api.PrefetchStub) []any {
				state := p.State
				if p.Ending {
					state = "ending"
				}
				return []any{
					console.ID(p.NodeID), p.NodeName, p.NodeStatus, p.JobVersion, console.WithReason(state, p.StateDescription), console.SinceNano(p.ModifyTime),
				}
			},
		}.Write(c.Out, list)
	})
	return nil
}
