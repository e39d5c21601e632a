package client

import (
	"context"
	"net/url"
	"strings"

	"skerry/api"
	"skerry/fleet"
)

// FindAlloc returns the allocation that an abbreviated id names.
func (c *Client) FindAlloc(ctx context.Context, prefix string) (api.AllocStub, error) {
	var list []api.AllocStub
	if err := c.listByUUID(ctx, "/v1/allocations", prefix, &list); err != nil {
		return api.AllocStub{}, err
	}
	return pickMatch("allocation", prefix, list, func(a api.AllocStub) (id, label string) { return string(a.ID), a.Name })
}

// FindNode returns the node that an abbreviated id or a name names.
func (c *Client) FindNode(ctx context.Context, ref string) (api.NodeStub, error) {
	var list []api.NodeStub
	if err := c.listByUUID(ctx, "/v1/nodes", "", &list); err != nil {
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

// FindEval returns the evaluation that an abbreviated id names.
func (c *Client) FindEval(ctx context.Context, prefix string) (fleet.Evaluation, error) {
	var list []fleet.Evaluation
	if err := c.listByUUID(ctx, "/v1/evaluations", prefix, &list); err != nil {
		return fleet.Evaluation{}, err
	}
	return pickMatch("evaluation", prefix, list, func(e fleet.Evaluation) (id, label string) { return string(e.ID), string(e.JobID) })
}

// FindDeployment returns the deployment that an abbreviated id names.
func (c *Client) FindDeployment(ctx context.Context, prefix string) (fleet.Deployment, error) {
	var list []fleet.Deployment
	if err := c.listByUUID(ctx, "/v1/deployments", prefix, &list); err != nil {
		return fleet.Deployment{}, err
	}
	return pickMatch("deployment", prefix, list, func(d fleet.Deployment) (id, label string) { return string(d.ID), string(d.JobID) })
}

// FindJob returns the job that an id, or the only beginning of one, names.
func (c *Client) FindJob(ctx context.Context, prefix string) (api.JobStub, error) {
	var list []api.JobStub
	if err := c.readByPrefix(ctx, "/v1/jobs", prefix, &list); err != nil {
		return api.JobStub{}, err
	}
	return pickMatch("job", prefix, list, func(j api.JobStub) (id, label string) { return string(j.ID), j.Status })
}

// listByUUID reads a list of things with UUIDs, which are lower case. An id says enough: where
// no namespace is named, it is looked for in all.
func (c *Client) listByUUID(ctx context.Context, path, prefix string, out any) error {
	if c.namespace == "" {
		c = c.In("*")
	}
	return c.readByPrefix(ctx, path, strings.ToLower(prefix), out)
}

func (c *Client) readByPrefix(ctx context.Context, path, prefix string, out any) error {
	q := url.Values{}
	if prefix != "" {
		q.Set("prefix", prefix)
	}
	_, err := c.Read(ctx, path, q, out)
	return err
}

// pickMatch picks what ref names: the exact one, or the only one.
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
		return none, fleet.Errorf(fleet.CodeConflict, "%d %ss of different namespaces are called %q", len(exact), kind, ref).
			WithHint("name one namespace with --namespace")
	case ref == "":
		return none, fleet.Errorf(fleet.CodeInvalid, "which %s? Its id is empty", kind)
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
