package real

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/chaos/schedule"
)

// profileImpairment returns the impairment of a link with the profile.
func profileImpairment(p schedule.Profile) faultnet.Impairment {
	const mbit = 1_000_000 / 8
	switch p {
	case schedule.Satellite:
		return faultnet.Both(faultnet.Way{Delay: 300 * time.Millisecond, Jitter: 25 * time.Millisecond, Loss: 0.02, Rate: 25 * mbit})
	case schedule.Cellular3G:
		return faultnet.Both(faultnet.Way{Delay: 75 * time.Millisecond, Jitter: 37 * time.Millisecond, Loss: 0.01, Rate: mbit})
	}
	return faultnet.Both(faultnet.Way{Delay: 5 * time.Millisecond, Loss: 0.1, Reorder: 0.1, Duplicate: 0.05})
}

// impairMembers impairs the links of members until healed. The evidence is the number of affected
// packets. After an error the result has the impairments that have to be healed.
func (p platform) impairMembers(members []string, with faultnet.Impairment) (engine.Active, error) {
	var all []engine.Active
	for _, member := range members {
		imposed, err := p.s.Net.Impose(member, with)
		if err != nil {
			return engine.Combine(all), err
		}
		all = append(all, engine.Active{
			Heal: func(context.Context) error { imposed.Lift(); return nil },
			Evidence: func() (uint64, string) {
				tally := imposed.Tally()
				return tally.Touched(), fmt.Sprintf("%s: %s", member, tally)
			},
		})
	}
	return engine.Combine(all), nil
}

// CutEdges cuts edges off in the direction of params.Way. With params.Refused, and network
// namespaces, senders on the edge get an error instead of silence.
func (p platform) CutEdges(edges []string, params schedule.Params) (engine.Active, error) {
	if params.Refused && p.s.space != nil {
		return p.refuseEdges(edges)
	}
	with := faultnet.Dead()
	switch params.Way {
	case schedule.WayOut:
		with.In = faultnet.Way{}
	case schedule.WayIn:
		with.Out = faultnet.Way{}
	}
	return p.impairMembers(edges, with)
}

// refuseEdges cuts edges off in both directions; their own machines refuse to send, with an error
// for the sender. The evidence is that error.
func (p platform) refuseEdges(edges []string) (engine.Active, error) {
	var all []engine.Active
	for _, e := range edges {
		cut, err := p.impairMembers([]string{e}, faultnet.Impairment{In: faultnet.Way{Cut: true}})
		if err != nil {
			return engine.Combine(all), err
		}
		var said error
		lift := cut.Heal
		cut.Heal = func(ctx context.Context) error { return errors.Join(lift(ctx), p.s.space.Accept(e)) }
		cut.Evidence = func() (uint64, string) {
			if said == nil {
				return 0, ""
			}
			return 1, fmt.Sprintf("%s: %v", e, said)
		}
		all = append(all, cut)
		if err := p.s.space.Refuse(e); err != nil {
			return engine.Combine(all), err
		}
		said = p.s.space.Refused(e)
	}
	return engine.Combine(all), nil
}

// ShapeEdges gives the links of edges a profile.
func (p platform) ShapeEdges(edges []string, profile schedule.Profile) (engine.Active, error) {
	return p.impairMembers(edges, profileImpairment(profile))
}

// CutHubs cuts hubs off from all other members.
func (p platform) CutHubs(hubs []string) (engine.Active, error) {
	return p.impairMembers(hubs, faultnet.Dead())
}

// PartHubs returns engine.ErrUnsupported: a member's link can only be cut towards all others.
func (p platform) PartHubs([]string) (engine.Active, error) {
	return engine.Active{}, engine.ErrUnsupported
}

// CutMajority cuts all hubs but the first off from all other members.
func (p platform) CutMajority() (engine.Active, error) {
	return p.CutHubs(p.s.topology.Hubs[1:])
}

// RebindEdge makes the NAT in front of an edge drop its flows: packets get new ports.
func (p platform) RebindEdge(_ context.Context, edge string, _ schedule.Fault) (engine.Active, error) {
	through, err := p.s.Net.Rebind(edge)
	return elsewhere(through, "packets under new ports"), err
}

// MoveEdge gives an edge another address. It needs network namespaces.
func (p platform) MoveEdge(_ context.Context, edge string, _ schedule.Fault) (engine.Active, error) {
	through, err := p.s.space.Move(edge)
	return elsewhere(through, "packets to the new address"), err
}

// elsewhere returns an active fault of a member with a new address or port. There is nothing to
// heal. The evidence is the number of packets that through counts; `what` describes them.
func elsewhere(through func() uint64, what string) engine.Active {
	return engine.Active{Late: true, Evidence: func() (uint64, string) {
		if through == nil {
			return 0, ""
		}
		n := through()
		return n, fmt.Sprintf("%d %s", n, what)
	}}
}
