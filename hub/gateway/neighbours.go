package gateway

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/hub/state"
	"skerry/syncproto"
)

const (
	// maxSiteNodes is how many nodes a site may have whose edges know each other's services: the work for a change grows
	// with it.
	maxSiteNodes = 64
	// serviceBatch is how many services a request has: within a frame, also with syncproto.MaxService bytes each.
	serviceBatch = 64
)

// neighbourSender sends an edge the services of the other edges of its site, and has it forget others that it holds. Its
// owner is the goroutine of runSendLoop.
type neighbourSender struct {
	s        *session
	outcomes deliveryOutcomes
	sent     neighbourInputs   // the edge's copy was computed from these
	held     map[string]string // sums of the services that the edge has, by id; nil: it is to be asked
	exact    bool              // the edge was told that its copy is exact, with unreachable
	overflow string            // what was logged of services that the edge does not get

	unreachable []fleet.NodeID
	request     func(ctx context.Context, req syncproto.Request) ([]syncproto.DeliveredService, error)
}

// neighbourInputs change with the services of a site.
type neighbourInputs struct {
	site      string
	change    fleet.Index // of the site, as this hub has applied it
	catalogue fleet.Index // of all services: another state may have replaced this hub's
}

func newNeighbourSender(s *session) *neighbourSender {
	n := &neighbourSender{s: s}
	n.request = func(ctx context.Context, req syncproto.Request) ([]syncproto.DeliveredService, error) {
		if req.Exact || len(req.Services) > 0 {
			_, err := s.sendDelivery(ctx, req, 0)
			return nil, err
		}
		text, err := s.sendDelivery(ctx, req, syncproto.MaxHeldServices)
		if err != nil {
			return nil, err
		}
		return syncproto.DecodeServices(text)
	}
	return n
}

// sendChanges sends what has changed since the last call, and has watch watch the services of the node's site. It reports
// whether it has to be called again although nothing changes.
func (n *neighbourSender) sendChanges(ctx context.Context, watch *state.View, node *fleet.Node) (retry bool) {
	site := node.OwnSite()
	if n.outcomes.unsupported || n.sent.site == "" && !n.hasNeighbours(watch, site) {
		return false // an edge that has none forgets what it holds
	}
	view := n.s.gw.cfg.State.View()
	now := neighbourInputs{site, watch.SiteIndex(site), view.TableIndex("services")}
	if n.exact && now == n.sent {
		return false
	}
	err := n.trySendChanges(ctx, view, site)
	if err == nil {
		n.outcomes.warned, n.sent, n.exact = "", now, true
		return false
	}
	n.held, n.exact = nil, false // the edge may have a part of it
	return n.outcomes.noteFailure(ctx, n.s.log, "services of neighbours not delivered to the edge", err)
}

// hasNeighbours reports whether there are other nodes at a site, and has watch watch that.
func (n *neighbourSender) hasNeighbours(watch *state.View, site string) bool {
	if site == "" {
		return false
	}
	for other := range watch.NodesOfSite(site) {
		if other.ID != n.s.node {
			return true
		}
	}
	return false
}

func (n *neighbourSender) trySendChanges(ctx context.Context, view *state.View, site string) error {
	if n.held == nil {
		held, err := n.request(ctx, syncproto.Request{Kind: syncproto.RequestServices})
		if err != nil {
			return err
		}
		n.held = make(map[string]string, len(held))
		for _, d := range held {
			n.held[d.ID] = string(d.Sum)
		}
	}
	wanted, unreachable, err := n.wantedServices(view, site)
	if err != nil {
		return err
	}
	var changes []syncproto.DeliveredService
	for _, id := range slices.Sorted(maps.Keys(n.held)) { // removals make room
		if _, ok := wanted[id]; !ok {
			changes = append(changes, syncproto.DeliveredService{ID: id, Removed: true})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if n.held[id] != string(wanted[id].Sum) {
			changes = append(changes, wanted[id])
		}
	}
	if len(changes) == 0 && n.exact && slices.Equal(unreachable, n.unreachable) {
		return nil
	}
	return n.sendServices(ctx, changes, unreachable)
}

// sendServices sends changes in requests of bounded size. With the last one, which may be empty, the copy is exact.
func (n *neighbourSender) sendServices(ctx context.Context, changes []syncproto.DeliveredService, unreachable []fleet.NodeID) error {
	for {
		batch := changes[:min(len(changes), serviceBatch)]
		changes = changes[len(batch):]
		req := syncproto.Request{Kind: syncproto.RequestServices, Services: batch}
		if len(changes) == 0 {
			req.Exact, req.UnreachableNodes = true, unreachable
		}
		if _, err := n.request(ctx, req); err != nil {
			return err
		}
		for _, d := range batch {
			if d.Removed {
				delete(n.held, d.ID)
			} else {
				n.held[d.ID] = string(d.Sum)
			}
		}
		if len(changes) == 0 {
			n.unreachable = unreachable
			return nil
		}
	}
}

// wantedServices returns the services of the other nodes of a site, by id, and the ids of those nodes that have no link. If
// the services are too many it returns those that were placed first, so that a new one never replaces an old one.
func (n *neighbourSender) wantedServices(view *state.View, site string) (map[string]syncproto.DeliveredService, []fleet.NodeID, error) {
	nodes := slices.Collect(view.NodesOfSite(site))
	if len(nodes) > maxSiteNodes {
		n.noteOverflow(fmt.Sprintf("the site has %d nodes, more than %d: none gets the services of the others", len(nodes), maxSiteNodes))
		nodes = nil
	}
	var offers []taskenv.Offer
	names := map[fleet.NodeID]string{}
	for _, other := range nodes {
		if other.ID == n.s.node {
			continue
		}
		names[other.ID] = other.Name
		for a := range view.AllocsByNode(other.ID) {
			if a.Job != nil {
				offers = append(offers, taskenv.Offers(a, other, a.Job.Region, fleet.ProviderNomad)...)
			}
		}
	}
	slices.SortFunc(offers, func(a, b taskenv.Offer) int {
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), strings.Compare(a.ID, b.ID))
	})
	wanted, unreachable := map[string]syncproto.DeliveredService{}, map[fleet.NodeID]bool{}
	for i := range offers {
		o := &offers[i]
		d, err := deliveredService(o, names[o.NodeID])
		if err != nil {
			return nil, nil, err
		}
		if err := d.Check(); err != nil {
			n.noteOverflow(err.Error())
			continue
		}
		if len(wanted) == syncproto.MaxServices {
			n.noteOverflow(fmt.Sprintf("the other edges of the site have more than %d services", syncproto.MaxServices))
			break
		}
		wanted[d.ID] = d
		if o.Status == fleet.ServiceUnreachable {
			unreachable[d.Node] = true
		}
	}
	return wanted, slices.Sorted(maps.Keys(unreachable)), nil
}

// noteOverflow logs once why the edge does not get services of its neighbours.
func (n *neighbourSender) noteOverflow(why string) {
	if n.overflow != why {
		n.overflow = why
		n.s.log.Warn("the edge does not get all services of its neighbours", "reason", why)
	}
}

// deliveredService returns a service as an edge keeps it. A check of type script says nothing of its port.
func deliveredService(o *taskenv.Offer, node string) (syncproto.DeliveredService, error) {
	d := syncproto.DeliveredService{
		ID: o.ID, Name: o.ServiceName, Namespace: o.Namespace, Node: o.NodeID, NodeName: node, Datacenter: o.Datacenter,
		Job: o.JobID, Alloc: o.AllocID, Tags: o.Tags, Address: o.Address, Port: o.Port,
		TCP: slices.ContainsFunc(o.Service.Checks, func(c fleet.ServiceCheck) bool {
			overTCP := c.Type == fleet.CheckHTTP || c.Type == fleet.CheckTCP || c.Type == fleet.CheckGRPC
			return overTCP && (c.PortLabel == "" || c.PortLabel == o.Service.PortLabel)
		}),
	}
	var err error
	d.Sum, err = d.ComputeSum()
	return d, err
}
