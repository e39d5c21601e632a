// Package hubclient is a client of one hub as the harness uses it: most reads are of the hub's own state, which may be stale.
//
// chaos/cluster makes one for each process of a hub, chaos/virtual for each simulated one, and chaos/engine calls them. The
// package starts no goroutine and persists nothing.
package hubclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"skerry/api"
	"skerry/client"
	"skerry/fleet"
)

// Hub is a client of one hub's HTTP API. The embedded client writes, and reads consistently.
type Hub struct {
	*client.Client
	HubName string
	// Own reads this hub's own, maybe stale state, in all namespaces.
	Own *client.Client
}

// New returns a client of the hub with a name, at base. It connects with dial, once for each request. wrap returns what sends the
// requests, from what sends them otherwise; it may be nil.
func New(name, base string, dial func(ctx context.Context) (net.Conn, error), wrap func(http.RoundTripper) http.RoundTripper) (Hub, error) {
	c, err := client.New(client.Config{Addr: base, Dial: dial, Timeout: 30 * time.Second, NoKeepAlive: true, Wrap: wrap})
	if err != nil {
		return Hub{}, fmt.Errorf("make a client of the hub at %s: %w", base, err)
	}
	return Hub{c, name, c.AllowStale().In("*")}, nil
}

// Fleet returns the fleet's status by this hub's own state.
func (h Hub) Fleet(ctx context.Context) (api.FleetStatus, error) {
	return h.Own.Fleet(ctx, client.List{})
}

// Allocs returns the allocations of every node that this hub's own state lists, with all fields. With an error it
// returns only a part of them.
func (h Hub) Allocs(ctx context.Context) ([]fleet.Alloc, error) {
	nodes, err := h.Own.Nodes(ctx, client.List{})
	var all []fleet.Alloc
	for i := 0; i < len(nodes) && err == nil; i++ {
		var allocs []fleet.Alloc
		allocs, err = h.Own.NodeAllocs(ctx, nodes[i].ID)
		all = append(all, allocs...)
	}
	return all, err
}

// ActiveDeployments returns the active deployments by this hub's own state.
func (h Hub) ActiveDeployments(ctx context.Context) ([]fleet.Deployment, error) {
	all, err := h.Own.Deployments(ctx, client.List{})
	return slices.DeleteFunc(all, func(d fleet.Deployment) bool { return !d.Active() }), err
}

// As returns a client of the same hub with another token.
func (h Hub) As(token string) Hub {
	return Hub{h.WithToken(token), h.HubName, h.Own.WithToken(token)}
}
