package schedule

import (
	"fmt"
	"slices"
)

// NewTopology returns hubs hub-1, hub-2, … and edges edge-1, edge-2, …
func NewTopology(hubs, edges int) Topology {
	var t Topology
	for i := range hubs {
		t.Hubs = append(t.Hubs, HubName(i+1))
	}
	for range edges {
		t = t.With(1, Edge{})
	}
	return t
}

// HubName is the name of the hub of a number, from 1.
func HubName(n int) string { return fmt.Sprintf("hub-%d", n) }

// EdgeName is the name of the edge of a number, from 1.
func EdgeName(n int) string { return fmt.Sprintf("edge-%d", n) }

// With returns the topology with n more edges like e, under the next names.
func (t Topology) With(n int, e Edge) Topology {
	t.Edges = slices.Clone(t.Edges)
	for range n {
		e.Name = EdgeName(len(t.Edges) + 1)
		t.Edges = append(t.Edges, e)
	}
	return t
}

// Minority is how many hubs may be taken at a time: fewer than half. One or two
// hubs have no such minority, and what takes one of them stops the cluster for a
// while, which loses nothing either.
func (t Topology) Minority() int { return max(1, (len(t.Hubs)-1)/2) }

// EdgesOf returns the names of the edges that a fault is on, in their order.
func (t Topology) EdgesOf(f Fault) []string {
	info, _ := f.Kind.Info()
	all := info.At == AtEdges || slices.Contains(f.Targets, TargetEdges)
	var names []string
	for _, e := range t.Edges {
		if all || slices.Contains(f.Targets, e.Name) || e.Site != "" && slices.Contains(f.Targets, e.Site) {
			names = append(names, e.Name)
		}
	}
	return names
}

// HubsOf returns the names of the hubs that a fault is on, in their order, with
// TargetLeader for the one that leads when it begins. Where that is one of the
// others, or one that another fault has taken, nothing more is done to it.
func (t Topology) HubsOf(f Fault) []string {
	info, _ := f.Kind.Info()
	var names []string
	for _, h := range t.Hubs {
		if info.At == AtHubs || slices.Contains(f.Targets, h) {
			names = append(names, h)
		}
	}
	if info.At == AtLeader || slices.Contains(f.Targets, TargetLeader) {
		names = append(names, TargetLeader)
	}
	return names
}

// Edge returns the edge of that name; ok is false where there is none.
func (t Topology) Edge(name string) (e Edge, ok bool) {
	i := slices.IndexFunc(t.Edges, func(e Edge) bool { return e.Name == name })
	if i < 0 {
		return Edge{}, false
	}
	return t.Edges[i], true
}

// Sites returns the names of all sites, in the order of their first edges.
func (t Topology) Sites() []string {
	var sites []string
	for _, e := range t.Edges {
		if e.Site != "" && !slices.Contains(sites, e.Site) {
			sites = append(sites, e.Site)
		}
	}
	return sites
}
