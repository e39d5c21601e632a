package client

import (
	"context"
	"slices"
	"strings"

	"skerry/api"
	"skerry/fleet"
)

// FindAlloc returns the only allocation whose id begins with prefix, in any namespace unless the Client has one.
func (c *Client) FindAlloc(ctx context.Context, prefix string) (api.AllocStub, error) {
	list, err := c.inAnyNamespace().Allocs(ctx, List{Prefix: strings.ToLower(prefix)})
	if err != nil {
		return api.AllocStub{}, err
	}
	return pickMatch("allocation", prefix, list, func(a api.AllocStub) (id, label string) { return string(a.ID), a.Name })
}

// FindNode returns the node with the name ref, or the only one whose id begins with ref.
func (c *Client) FindNode(ctx context.Context, ref string) (api.NodeStub, error) {
	list, err := c.Nodes(ctx, List{})
	if err != nil {
		return api.NodeStub{}, err
	}
	var found []api.NodeStub
	for _, n := range list {
		if n.Name == ref {
			return n, nil
		}
		if ref != "" && strings.HasPrefix(string(n.ID), strings.ToLower(ref)) {
			found = append(found, n)
		}
	}
	return pickMatch("node", ref, found, func(n api.NodeStub) (id, label string) { return string(n.ID), n.Name })
}

// FindRevocation returns the revocation of the only node with the name ref, or whose id begins with ref.
func (c *Client) FindRevocation(ctx context.Context, ref string) (fleet.Revocation, error) {
	list, err := c.Revocations(ctx)
	if err != nil {
		return fleet.Revocation{}, err
	}
	found := slices.DeleteFunc(list, func(r fleet.Revocation) bool {
		return r.Name != ref && !strings.HasPrefix(string(r.NodeID), strings.ToLower(ref))
	})
	return pickMatch("revoked node", ref, found, func(r fleet.Revocation) (id, label string) { return string(r.NodeID), r.Name })
}

// FindEval returns the only evaluation whose id begins with prefix, in any namespace unless the Client has one.
func (c *Client) FindEval(ctx context.Context, prefix string) (fleet.Evaluation, error) {
	list, err := c.inAnyNamespace().Evals(ctx, List{Prefix: strings.ToLower(prefix)})
	if err != nil {
		return fleet.Evaluation{}, err
	}
	return pickMatch("evaluation", prefix, list, func(e fleet.Evaluation) (id, label string) { return string(e.ID), string(e.JobID) })
}

// FindDeployment returns the only deployment whose id begins with prefix, in any namespace unless the Client has
// one.
func (c *Client) FindDeployment(ctx context.Context, prefix string) (fleet.Deployment, error) {
	list, err := c.inAnyNamespace().Deployments(ctx, List{Prefix: strings.ToLower(prefix)})
	if err != nil {
		return fleet.Deployment{}, err
	}
	return pickMatch("deployment", prefix, list, func(d fleet.Deployment) (id, label string) { return string(d.ID), string(d.JobID) })
}

// FindJob returns the job with the id prefix, or the only one whose id begins with prefix.
func (c *Client) FindJob(ctx context.Context, prefix string) (api.JobStub, error) {
	list, err := c.Jobs(ctx, List{Prefix: prefix})
	if err != nil {
		return api.JobStub{}, err
	}
	return pickMatch("job", prefix, list, func(j api.JobStub) (id, label string) { return string(j.ID), j.Status })
}

// inAnyNamespace returns the Client for all namespaces, unless it has one: an id is unique without a namespace.
func (c *Client) inAnyNamespace() *Client {
	if c.params.Get("namespace") == "" {
		return c.In("*")
	}
	return c
}

// pickMatch returns the item whose id is ref, or else the only item of list. The error says why there is no such
// item, or which ones match. name returns the id and the label that the error shows.
func pickMatch[T any](kind, ref string, list []T, name func(T) (id, label string)) (T, error) {
	var none T
	var exact []T
	for _, e := range list {
		if id, _ := name(e); id == ref {
			exact = append(exact, e)
		}
	}
	switch {
	case len(exact) == 1:
		return exact[0], nil
	case len(exact) > 1:
		return none, fleet.Errorf(fleet.CodeConflict, "%d %ss of different namespaces have the id %q", len(exact), kind, ref).
			WithHint("name one namespace with --namespace")
	case ref == "":
		return none, fleet.Errorf(fleet.CodeInvalid, "find a %s: the id is empty", kind)
	case len(list) == 0:
		return none, fleet.Errorf(fleet.CodeNotFound, "no %s begins with %q", kind, ref)
	case len(list) == 1:
		return list[0], nil
	}
	const shown = 5
	var names []string
	for _, e := range list[:min(len(list), shown)] {
		id, label := name(e)
		names = append(names, id+" ("+label+")")
	}
	if len(list) > shown {
		names = append(names, "…")
	}
	return none, fleet.Errorf(fleet.CodeConflict, "%q begins the ids of %d %ss: %s", ref, len(list), kind, strings.Join(names, ", ")).
		WithHint("give more of the id")
}
