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
	Status            fleet.NodeStatus
	StatusDescription string
	Hub               fleet.HubID
	LastContact       *time.Time // as the leader heard it; nil: not since it leads
	DisconnectedAt    *time.Time // since when it is away
	Allocs            map[string]int
	Fenced            []fleet.FencedSession `json:",omitempty"`
	Orphans           []fleet.AllocID       `json:",omitempty"` // kept there, not known to the cluster
}

// WaitingLine is something that cannot go on.
type WaitingLine struct {
	Kind string // "evaluation", "allocation" or "node"
	ID   string
	Of   string // the job
	For  string // what it waits for
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
	sites := map[string]*SiteStatus{}
	for n := range v.Nodes("") {
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
	s.Waiting = waiting(v)
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
		ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, Site: n.AtSite(), Status: n.Status, StatusDescription: n.StatusDescription,
		Hub: n.Hub, Allocs: map[string]int{}, Fenced: n.Fenced, Orphans: n.Orphans,
	}
	if n.DisconnectedAt != 0 {
		at := time.Unix(0, n.DisconnectedAt)
		line.DisconnectedAt = &at
	}
	for al := range v.AllocsByNode(n.ID) {
		if !al.Terminal() {
			line.Allocs[al.ClientStatus]++
		}
	}
	return line
}

// waiting lists what cannot go on, and for whom it waits.
func waiting(v *state.View) []WaitingLine {
	lines := []WaitingLine{}
	for e := range v.Evals("*", "") {
		switch {
		case e.Status == fleet.EvalBlocked:
			lines = append(lines, WaitingLine{"evaluation", string(e.ID), string(e.JobID), "capacity: " + e.StatusDescription})
		case e.Status == fleet.EvalPending && !e.WaitUntil.IsZero():
			lines = append(lines, WaitingLine{"evaluation", string(e.ID), string(e.JobID),
				e.TriggeredBy + " at " + e.WaitUntil.UTC().Format(time.RFC3339)})
		}
	}
	for al := range v.Allocs("*", "") {
		if al.ClientStatus == fleet.ClientUnknown && !al.ServerTerminal() {
			lines = append(lines, WaitingLine{"allocation", string(al.ID), string(al.JobID), "node " + al.NodeName + " to come back"})
		}
		if al.ServerTerminal() && !al.ClientTerminal() {
			lines = append(lines, WaitingLine{"allocation", string(al.ID), string(al.JobID), "node " + al.NodeName + " to stop it"})
		}
	}
	for n := range v.Nodes("") {
		if n.Status == fleet.NodeInitializing {
			lines = append(lines, WaitingLine{"node", string(n.ID), "", n.StatusDescription})
		}
	}
	return lines
}
