package client

import (
	"context"
	"net/url"

	"skerry/api"
	"skerry/fleet"
)

func namespacePath(name string) string { return "/v1/namespace" + joinPath(name) }

// Namespaces lists namespaces.
func (c *Client) Namespaces(ctx context.Context, l List) ([]fleet.Namespace, error) {
	return readList[fleet.Namespace](ctx, c, "/v1/namespaces", l)
}

// Namespace reads a namespace.
func (c *Client) Namespace(ctx context.Context, name string) (fleet.Namespace, error) {
	return readAnswer[fleet.Namespace](ctx, c, namespacePath(name), nil)
}

// ApplyNamespace creates a namespace, or replaces it.
func (c *Client) ApplyNamespace(ctx context.Context, n fleet.Namespace) error {
	return c.sendPut(ctx, "/v1/namespace", nil, n)
}

// DeleteNamespace deletes a namespace.
func (c *Client) DeleteNamespace(ctx context.Context, name string) error {
	return c.sendDelete(ctx, namespacePath(name), nil)
}

// Services lists the reachable services, by namespace.
func (c *Client) Services(ctx context.Context) ([]api.ServiceList, error) {
	return readList[api.ServiceList](ctx, c, "/v1/services", List{})
}

// Service lists the registrations of a service, also unreachable ones.
func (c *Client) Service(ctx context.Context, name string) ([]fleet.ServiceRegistration, error) {
	return readAnswer[[]fleet.ServiceRegistration](ctx, c, "/v1/service"+joinPath(name), url.Values{"unreachable": {"true"}})
}

// DeleteService asks for the deletion of a registration of a service. Hubs always refuse: it ends with its
// allocation.
func (c *Client) DeleteService(ctx context.Context, name, id string) error {
	return c.sendDelete(ctx, "/v1/service"+joinPath(name, id), nil)
}
