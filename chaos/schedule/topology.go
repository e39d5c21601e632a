package schedule

import (
	"fmt"
	"slices"
)

// NewTopology returns a topology of hubs hub-1, hub-2, … and default edges edge-1, edge-2, …
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

// HubName returns the name of hub n, which counts from 1.
func HubName(n int) string { return fmt.Sprintf("hub-%d", n) }

// EdgeName returns the name of edge n, which counts from 1.
func EdgeName(n int) string { return fmt.Sprintf("edge-%d", n) }

// With returns a topology with n more copies of e, named by the next numbers. It does not change t.
func (t Topology) With(n int, e Edge) Topology {
	t.Edges = slices.Clone(t.Edges)
	for range n {
		e.Name = EdgeName(len(t.Edges) + 1)
		t.Edges = append(t.Edges, e)
	}
	return t
}

// Minority returns the number of hubs that faults may hit at the same time: fewer than half, but
// at least one. With one or two hubs that one fault stops the cluster for a while, which loses no data.
func (t Topology) Minority() int { return max(1, (len(t.Hubs)-1)/2) }

// EdgesOf returns the names of the edges that a fault hits, in the order of the topology.
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

// HubsOf returns the names of the hubs that a fault hits, in the order of the topology, then
// TargetLeader if it hits the hub that leads when it begins. If that hub is also named, or
// another fault has hit it, it is not hit twice.
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
