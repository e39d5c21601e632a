package virtual

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skerry/chaos/engine"
	"skerry/chaos/fabric"
	"skerry/chaos/schedule"
)

var ways = map[schedule.Way]fabric.Direction{
	schedule.WayBoth: fabric.Both, schedule.WayOut: fabric.AToB, schedule.WayIn: fabric.BToA,
}

var profiles = map[schedule.Profile]fabric.Profile{
	schedule.Satellite:  fabric.Satellite,
	schedule.Cellular3G: fabric.Cellular3G,
	schedule.Lossy:      {Latency: 20 * time.Millisecond, Loss: 0.1, Reorder: 0.1, Duplicate: 0.05},
}

// changedNetwork returns one active fault for several faults of the network: healing heals all of
// them, and the evidence is the number of packets and dials that they hit.
func changedNetwork(faults ...*fabric.Fault) engine.Active {
	return engine.Active{
		Heal: func(context.Context) error {
			for _, f := range faults {
				f.Heal()
			}
			return nil
		},
		Evidence: engine.Counted(func() (n uint64) {
			for _, f := range faults {
				n += uint64(f.Hits())
			}
			return n
		}),
	}
}

// CutEdges cuts edges off from all hubs, in the direction of p.Way, silently or with refusals.
func (r *run) CutEdges(edges []string, p schedule.Params) (engine.Active, error) {
	mode := fabric.Silent
	if p.Refused {
		mode = fabric.Refused
	}
	return changedNetwork(r.c.Net.Cut(fabric.Hosts(edges...), fabric.Hosts(r.s.Topology.Hubs...), ways[p.Way], mode)), nil
}

// ShapeEdges gives the links between edges and hubs a profile.
func (r *run) ShapeEdges(edges []string, p schedule.Profile) (engine.Active, error) {
	return changedNetwork(r.c.Net.Shape(fabric.Hosts(edges...), fabric.Hosts(r.s.Topology.Hubs...), profiles[p])), nil
}

// CutHubs cuts hubs off from all other machines.
func (r *run) CutHubs(hubs []string) (engine.Active, error) {
	return changedNetwork(r.c.Net.Cut(fabric.Hosts(hubs...), fabric.Except(hubs...), fabric.Both, fabric.Silent)), nil
}

// PartHubs cuts hubs off from the other hubs; edges still reach all of them.
func (r *run) PartHubs(hubs []string) (engine.Active, error) {
	others := slices.DeleteFunc(slices.Clone(r.s.Topology.Hubs), func(h string) bool { return slices.Contains(hubs, h) })
	return changedNetwork(r.c.Net.Cut(fabric.Hosts(hubs...), fabric.Hosts(others...), fabric.Both, fabric.Silent)), nil
}

// CutMajority cuts every hub off from every other hub; edges still reach all of them.
func (r *run) CutMajority() (engine.Active, error) {
	hubs := r.s.Topology.Hubs
	var cuts []*fabric.Fault
	for i, h := range hubs {
		cuts = append(cuts, r.c.Net.Cut(fabric.Hosts(h), fabric.Hosts(hubs[i+1:]...), fabric.Both, fabric.Silent))
	}
	return changedNetwork(cuts...), nil
}

// RebindEdge makes the NAT of an edge drop its mappings. The next packets show the effect.
func (r *run) RebindEdge(_ context.Context, edge string, _ schedule.Fault) (engine.Active, error) {
	return lateNetworkFault(r.c.Edge(edge).Host.Rebind()), nil
}

// MoveEdge gives an edge another public address. The next packets show the effect.
func (r *run) MoveEdge(_ context.Context, edge string, _ schedule.Fault) (engine.Active, error) {
	n := r.moves.Add(1)
	return lateNetworkFault(r.c.Edge(edge).Host.Move(fmt.Sprintf("198.19.%d.%d", n/250, n%250+1))), nil
}

// lateNetworkFault returns an active fault without healing whose evidence may come after its end.
func lateNetworkFault(f *fabric.Fault) engine.Active {
	return engine.Active{Evidence: engine.Counted(func() uint64 { return uint64(f.Hits()) }), Late: true}
}
