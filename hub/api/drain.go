package api

import (
	"net/http"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) drainEndpoints() []endpoint {
	return []endpoint{
		{writes, "/v1/node/{id}/drain", onNode("write"), writeBody(a, a.drainNode)},
		{writes, "/v1/node/{id}/eligibility", onNode("write"), writeBody(a, a.nodeEligibility)},
		{writes, "/v1/node/{id}/purge", onNode("write"), a.writeHandler(a.purgeNode)},
		{writes, "/v1/node/{id}/evaluate", onNode("write"), a.writeHandler(a.evaluateNode)},
	}
}

// changeNode finds the node that a request names, in a state that has caught up with the leader, and commits the
// command for it.
func (a *API) changeNode(r *http.Request, command func(*fleet.Node) state.Command) (any, fleet.Index, error) {
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	n, err := needNode(a.cfg.State.View(), r)
	if err != nil {
		return nil, 0, err
	}
	return commitAnswer(a, r, command(n), nodeAnswer)
}

// nodeAnswer makes the answer to a committed change of a node.
func nodeAnswer(res state.Result) api.NodeAnswer {
	answer := api.NodeAnswer{EvalIDs: res.Evals, NodeModifyIndex: res.Index, Index: res.Index}
	if answer.EvalIDs == nil {
		answer.EvalIDs = []fleet.EvalID{}
	}
	if len(res.Evals) > 0 {
		answer.EvalID, answer.EvalCreateIndex = res.Evals[0], res.Index
	}
	return answer
}

// maxDeadline bounds a drain's deadline: a later time could overflow the clock's range.
const maxDeadline = 10 * 365 * 24 * time.Hour

// drainNode starts the drain of a node, or cancels it if the request has no DrainSpec.
func (a *API) drainNode(r *http.Request, req api.DrainRequest) (any, fleet.Index, error) {
	if req.DrainSpec != nil && req.DrainSpec.Deadline > maxDeadline {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "drain a node: a deadline of %s is more than %s", req.DrainSpec.Deadline, maxDeadline).
			WithHint("0 means no deadline")
	}
	return a.changeNode(r, func(n *fleet.Node) state.Command {
		now := a.cfg.Now()
		c := state.NodeDrain{
			NodeID: n.ID, MarkEligible: req.MarkEligible, Meta: req.Meta, Accessor: actorOf(r).Accessor, EvalSeed: a.cfg.NewID(), Now: now.UnixNano(),
		}
		if req.DrainSpec != nil {
			c.Drain = fleet.NewDrain(req.DrainSpec.Deadline, req.DrainSpec.IgnoreSystemJobs, now)
		}
		return c
	})
}

// nodeEligibility says whether new allocations may be placed on a node.
func (a *API) nodeEligibility(r *http.Request, req api.NodeEligibilityRequest) (any, fleet.Index, error) {
	if req.Eligibility != fleet.NodeEligible && req.Eligibility != fleet.NodeIneligible {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "set a node's eligibility: %q is neither %q nor %q",
			req.Eligibility, fleet.NodeEligible, fleet.NodeIneligible)
	}
	return a.changeNode(r, func(n *fleet.Node) state.Command {
		return state.NodeEligibility{NodeID: n.ID, Eligibility: req.Eligibility, EvalSeed: a.cfg.NewID(), Now: a.cfg.Now().UnixNano()}
	})
}

// purgeNode removes a node from the state and creates evaluations, which replace its allocations. A node that has a
// session is refused.
func (a *API) purgeNode(r *http.Request) (any, fleet.Index, error) {
	return a.changeNode(r, func(n *fleet.Node) state.Command {
		return state.NodePurge{NodeID: n.ID, EvalSeed: a.cfg.NewID(), Now: a.cfg.Now().UnixNano()}
	})
}

// evaluateNode creates an evaluation for each job that has an allocation on a node or runs on all nodes.
func (a *API) evaluateNode(r *http.Request) (any, fleet.Index, error) {
	return a.changeNode(r, func(n *fleet.Node) state.Command {
		return state.NodeEvaluate{NodeID: n.ID, EvalSeed: a.cfg.NewID(), Now: a.cfg.Now().UnixNano()}
	})
}
