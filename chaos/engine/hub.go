package engine

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"skerry/api"
	"skerry/client"
	"skerry/fleet"
)

// Hub is one hub's HTTP API, as users and checkers ask it.
type Hub struct {
	*client.Client
	// Own reads the state of this hub alone, of all namespaces.
	Own *client.Client
}

// NewHub makes a Hub that is reached at base by connections that dial makes.
func NewHub(base string, dial func(ctx context.Context) (net.Conn, error)) (Hub, error) {
	c, err := client.New(client.Config{Addr: base, Dial: dial, Timeout: 30 * time.Second, NoKeepAlive: true})
	if err != nil {
		return Hub{}, fmt.Errorf("make a client of the hub at %s: %w", base, err)
	}
	return Hub{c, c.AllowStale().In("*")}, nil
}

// Fleet reads the status of the fleet, as this hub knows it.
func (h Hub) Fleet(ctx context.Context) (api.FleetStatus, error) {
	return h.Own.Fleet(ctx, client.List{})
}

// Allocs reads all allocations that this hub knows, each whole.
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

// ActiveDeployments reads the deployments that are active, as this hub knows it.
func (h Hub) ActiveDeployments(ctx context.Context) ([]fleet.Deployment, error) {
	all, err := h.Own.Deployments(ctx, client.List{})
	return slices.DeleteFunc(all, func(d fleet.Deployment) bool { return !d.Active() }), err
}
