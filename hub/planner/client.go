package planner

import (
	"context"

	"skerry/fleet"
	"skerry/hub/rpc"
)

// methodSubmit is the call with which workers on other hubs submit a plan.
const methodSubmit rpc.Method[fleet.Plan, fleet.PlanResult] = "plan.submit"

// Client calls the planner of the leader, which may be this hub.
type Client struct {
	planner *Planner
	peers   *rpc.Peers
}

// NewClient returns a client for a hub whose own planner is pl.
func NewClient(pl *Planner, p *rpc.Peers) *Client { return &Client{planner: pl, peers: p} }

// Submit submits a plan to the leader's planner: see Planner.Submit. A result from another hub names nodes
// without their allocations.
func (c *Client) Submit(ctx context.Context, plan fleet.Plan) (fleet.PlanResult, error) {
	return methodSubmit.OnLeader(ctx, c.peers, plan, c.planner.Submit)
}

// ServeCalls registers the handler for plans from other hubs.
func (p *Planner) ServeCalls(peers *rpc.Peers) {
	methodSubmit.Handle(peers, func(ctx context.Context, _ string, plan fleet.Plan) (fleet.PlanResult, error) {
		res, err := p.Submit(ctx, plan)
		return withoutAllocs(res), err
	})
}

// withoutAllocs empties the allocation lists of a plan's result, and keeps their nodes. The worker has the
// allocations itself, and they would be as large as the plan.
func withoutAllocs(res fleet.PlanResult) fleet.PlanResult {
	for _, byNode := range []*map[fleet.NodeID][]fleet.Alloc{&res.NodeAllocation, &res.NodeUpdate} {
		nodes := make(map[fleet.NodeID][]fleet.Alloc, len(*byNode))
		for id := range *byNode {
			nodes[id] = nil
		}
		*byNode = nodes
	}
	return res
}
