package planner

import (
	"context"

	"skerry/fleet"
	"skerry/hub/rpc"
)

// methodSubmit is the call of workers on other hubs.
const methodSubmit rpc.Method[fleet.Plan, fleet.PlanResult] = "plan.submit"

// Client reaches the planner of the hub that leads, which may be this one.
type Client struct {
	planner *Planner
	peers   *rpc.Peers
}

// NewClient returns a client whose hub has the planner pl.
func NewClient(pl *Planner, p *rpc.Peers) *Client { return &Client{planner: pl, peers: p} }

// Submit hands a plan to the leader's planner.
func (c *Client) Submit(ctx context.Context, plan fleet.Plan) (fleet.PlanResult, error) {
	return methodSubmit.OnLeader(ctx, c.peers, plan, c.planner.Submit)
}

// ServeCalls registers what the clients of other hubs call.
func (p *Planner) ServeCalls(peers *rpc.Peers) {
	methodSubmit.Handle(peers, func(ctx context.Context, _ string, plan fleet.Plan) (fleet.PlanResult, error) {
		res, err := p.Submit(ctx, plan)
		return nodesOnly(res), err
	})
}

// nodesOnly leaves the allocations out of a plan's result, which its worker has made
// itself: they would take as much as the plan.
func nodesOnly(res fleet.PlanResult) fleet.PlanResult {
	for _, byNode := range []*map[fleet.NodeID][]fleet.Alloc{&res.NodeAllocation, &res.NodeUpdate} {
		nodes := make(map[fleet.NodeID][]fleet.Alloc, len(*byNode))
		for id := range *byNode {
			nodes[id] = nil
		}
		*byNode = nodes
	}
	return res
}
