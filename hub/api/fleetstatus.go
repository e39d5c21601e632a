package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// fleetStatus answers with the whole fleet on one page: hubs, sites, nodes, counts of allocations, and waiting work.
// The parameter filter selects nodes. Without a leader the times of last contact are missing.
func (a *API) fleetStatus(v *state.View, r *http.Request, _ query) (any, fleet.Index, error) {
	self := a.cfg.Cluster.Self()
	s := api.FleetStatus{Time: a.cfg.Now(), Index: v.Index(), Region: self.Region, Term: self.Term, Allocs: map[string]int{}}
	s.Leader, _ = a.cfg.Cluster.Leader()
	s.Hubs = a.hubLines(v, s.Leader)
	contact, err := a.cfg.Cluster.LastContact(r.Context())
	if err != nil {
		a.cfg.Log.Debug("last contacts are not known", "error", err)
	}
	p, err := parsePages(r)
	if err != nil {
		return nil, 0, err
	}
	sites, g := map[string]*api.SiteStatus{}, grantOf(r)
	listed := map[fleet.NodeID]bool{}
	for n := range v.Nodes("") {
		if ok, err := p.passesFilter(n); err != nil {
			return nil, 0, err
		} else if !ok {
			continue
		}
		if !g.allowsItem(n) {
			continue
		}
		listed[n.ID] = true
		line := nodeLine(v, n, g)
		if at, ok := contact[n.ID]; ok {
			line.LastContact = &at
		}
		s.Nodes = append(s.Nodes, line)
		site := sites[line.Site]
		if site == nil {
			site = &api.SiteStatus{Site: line.Site, Nodes: map[fleet.NodeStatus]int{}, Allocs: map[string]int{}}
			sites[line.Site] = site
		}
		site.Nodes[n.Status]++
		for status, count := range line.Allocs {
			site.Allocs[status] += count
			s.Allocs[status] += count
		}
	}
	for _, site := range sites {
		s.Sites = append(s.Sites, *site)
	}
	slices.SortFunc(s.Sites, func(x, y api.SiteStatus) int { return strings.Compare(x.Site, y.Site) })
	slices.SortFunc(s.Nodes, func(x, y api.NodeLine) int { return strings.Compare(x.Name+string(x.ID), y.Name+string(y.ID)) })
	s.Waiting = waitingLines(v, listed, g)
	return s, v.Index(), nil
}

// hubLines lists the hubs of the state with their status in gossip.
func (a *API) hubLines(v *state.View, leader fleet.HubID) []api.HubStatus {
	gossip := map[fleet.HubID]string{}
	for _, m := range a.cfg.Cluster.Members() {
		gossip[m.ID] = m.Status
	}
	lines := []api.HubStatus{}
	for _, h := range v.Hubs() {
		lines = append(lines, api.HubStatus{ID: h.ID, QUIC: h.QUIC, HTTP: h.HTTP, Status: gossip[h.ID], Leader: h.ID == leader})
	}
	return lines
}

// nodeLine returns the line of a node on the fleet's page, with the counts of its allocations that may still run, and
// of which the grant may know.
func nodeLine(v *state.View, n *fleet.Node, g *grant) api.NodeLine {
	line := api.NodeLine{
		ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, Site: n.AtSite(), NodePool: n.NodePool, Status: n.Status, StatusDescription: n.StatusDescription,
		Hub: n.Hub, Allocs: map[string]int{}, Fenced: n.Fenced, Newcomer: n.Newcomer, Orphans: n.Orphans, Revoked: n.Revoked != nil,
	}
	if n.DisconnectedAt != 0 {
		at := time.Unix(0, n.DisconnectedAt)
		line.DisconnectedAt = &at
	}
	for al := range v.AllocsByNode(n.ID) {
		if g.allowsItem(al) && (!al.Terminal() || al.ClientStatus == fleet.ClientUnknown) { // it may still run: its node is away
			line.Allocs[al.ClientStatus]++
		}
	}
	return line
}

// waitingLines lists waiting work of which the grant may know: blocked or delayed evaluations, and, on the listed nodes, initializing nodes and
// allocations that wait for their node to return or to stop them.
func waitingLines(v *state.View, listed map[fleet.NodeID]bool, g *grant) []api.WaitingLine {
	lines := []api.WaitingLine{}
	for e := range v.Evals("*", "") {
		if !g.allowsItem(e) {
			continue
		}
		line := api.WaitingLine{Kind: "evaluation", ID: string(e.ID), Of: string(e.JobID)}
		switch {
		case e.Status == fleet.EvalBlocked && len(e.FailedTGAllocs) == 0 && len(e.AwaitsRoom) > 0:
			line.For = "room: " + e.StatusDescription
		case e.Status == fleet.EvalBlocked:
			line.For = "capacity: " + e.StatusDescription
		case e.Status == fleet.EvalPending && !e.WaitUntil.IsZero():
			line.For, line.At = "its time ("+e.TriggeredBy+")", &e.WaitUntil
		default:
			continue
		}
		lines = append(lines, line)
	}
	for al := range v.Allocs("*", "") {
		if !listed[al.NodeID] || !g.allowsItem(al) {
			continue
		}
		line := api.WaitingLine{Kind: "allocation", ID: string(al.ID), Of: string(al.JobID)}
		switch {
		case al.ClientStatus == fleet.ClientUnknown && !al.ServerTerminal():
			line.For = "node " + al.NodeName + " to come back"
		case al.ServerTerminal() && !al.ClientTerminal():
			line.For = "node " + al.NodeName + " to stop it"
		default:
			continue
		}
		lines = append(lines, line)
	}
	for n := range v.Nodes("") {
		if n.Status == fleet.NodeInitializing && listed[n.ID] {
			lines = append(lines, api.WaitingLine{Kind: "node", ID: string(n.ID), For: n.StatusDescription})
		}
	}
	return lines
}
