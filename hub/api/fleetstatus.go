package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// FleetStatus is the whole fleet on one page.
type FleetStatus struct {
	Time    time.Time // hub's clock
	Index   fleet.Index
	Region  string
	Term    uint64
	Leader  fleet.HubID // "": none is known
	Hubs    []HubStatus
	Sites   []SiteStatus // by datacenter
	Nodes   []NodeLine
	Allocs  map[string]int // by client status, of those that shall run
	Waiting []WaitingLine  // what is waiting for whom
}

// HubStatus is one hub.
type HubStatus struct {
	ID     fleet.HubID
	QUIC   string
	HTTP   string
	Status string // gossip's: "alive", "failed", "left", or "" where it does not know
	Leader bool
}

// SiteStatus counts one site's nodes and allocations.
type SiteStatus struct {
	Site   string
	Nodes  map[fleet.NodeStatus]int
	Allocs map[string]int
}

// NodeLine is one edge.
type NodeLine struct {
	ID                fleet.NodeID
	Name              string
	Datacenter        string
	Site              string
	NodePool          string
	Status            fleet.NodeStatus
	StatusDescription string
	Hub               fleet.HubID
	LastContact       *time.Time // as the leader heard it; nil: not since it leads
	DisconnectedAt    *time.Time // since when it is away
	Allocs            map[string]int
	Fenced            []fleet.FencedSession `json:",omitempty"`
	Newcomer          *fleet.FencedSession  `json:",omitempty"` // an agent process that waits for the end of another's session
	Orphans           []fleet.AllocID       `json:",omitempty"` // kept there, not known to the cluster
	Revoked           bool                  `json:",omitempty"` // expelled: Orphans are what it may still run
}

// WaitingLine is something that cannot go on.
type WaitingLine struct {
	Kind string // "evaluation", "allocation" or "node"
	ID   string
	Of   string     // the job
	For  string     // what it waits for
	At   *time.Time `json:",omitempty"` // when it goes on by itself; nil: not by time
}

func (a *API) fleetStatus(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	self := a.cfg.Cluster.Self()
	s := FleetStatus{Time: a.cfg.Now(), Index: v.Index(), Region: self.Region, Term: self.Term, Allocs: map[string]int{}}
	s.Leader, _ = a.cfg.Cluster.Leader()
	s.Hubs = a.hubLines(v, s.Leader)
	contact, err := a.cfg.Edges.LastContact(r.Context())
	if err != nil {
		a.cfg.Log.Debug("last contacts are not known", "error", err)
	}
	p, err := parsePages(r)
	if err != nil {
		return nil, 0, err
	}
	sites := map[string]*SiteStatus{}
	listed := map[fleet.NodeID]bool{}
	for n := range v.Nodes("") {
		if ok, err := p.passesFilter(n); err != nil {
			return nil, 0, err
		} else if !ok {
			continue
		}
		listed[n.ID] = true
		line := nodeLine(v, n)
		if at, ok := contact[n.ID]; ok {
			line.LastContact = &at
		}
		s.Nodes = append(s.Nodes, line)
		site := sites[line.Site]
		if site == nil {
			site = &SiteStatus{Site: line.Site, Nodes: map[fleet.NodeStatus]int{}, Allocs: map[string]int{}}
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
	slices.SortFunc(s.Sites, func(x, y SiteStatus) int { return strings.Compare(x.Site, y.Site) })
	slices.SortFunc(s.Nodes, func(x, y NodeLine) int { return strings.Compare(x.Name+string(x.ID), y.Name+string(y.ID)) })
	s.Waiting = waitingLines(v, listed)
	return s, v.Index(), nil
}

func (a *API) hubLines(v *state.View, leader fleet.HubID) []HubStatus {
	gossip := map[fleet.HubID]string{}
	for _, m := range a.cfg.Cluster.Members() {
		gossip[m.ID] = m.Status
	}
	lines := []HubStatus{}
	for _, h := range v.Hubs() {
		lines = append(lines, HubStatus{ID: h.ID, QUIC: h.QUIC, HTTP: h.HTTP, Status: gossip[h.ID], Leader: h.ID == leader})
	}
	return lines
}

func nodeLine(v *state.View, n *fleet.Node) NodeLine {
	line := NodeLine{
		ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, Site: n.AtSite(), NodePool: n.NodePool, Status: n.Status, StatusDescription: n.StatusDescription,
		Hub: n.Hub, Allocs: map[string]int{}, Fenced: n.Fenced, Newcomer: n.Newcomer, Orphans: n.Orphans, Revoked: n.Revoked != nil,
	}
	if n.DisconnectedAt != 0 {
		at := time.Unix(0, n.DisconnectedAt)
		line.DisconnectedAt = &at
	}
	for al := range v.AllocsByNode(n.ID) {
		if !al.Terminal() || al.ClientStatus == fleet.ClientUnknown { // told to stop, and nobody knows whether it has
			line.Allocs[al.ClientStatus]++
		}
	}
	return line
}

// waitingLines lists the evaluations that cannot go on, and the listed nodes and their allocations
// that wait for a node.
func waitingLines(v *state.View, listed map[fleet.NodeID]bool) []WaitingLine {
	lines := []WaitingLine{}
	for e := range v.Evals("*", "") {
		line := WaitingLine{Kind: "evaluation", ID: string(e.ID), Of: string(e.JobID)}
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
		if !listed[al.NodeID] {
			continue
		}
		line := WaitingLine{Kind: "allocation", ID: string(al.ID), Of: string(al.JobID)}
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
			lines = append(lines, WaitingLine{Kind: "node", ID: string(n.ID), For: n.StatusDescription})
		}
	}
	return lines
}
