package api

import (
	"net/http"
	"time"

	"skerry/fleet"
)

func (a *API) operatorRoutes() {
	a.mux.HandleFunc("GET /v1/operator/raft/configuration", a.raftConfiguration)
	a.mux.HandleFunc("GET /v1/operator/autopilot/health", a.autopilotHealth)
	a.mux.HandleFunc("GET /v1/operator/snapshot", a.saveSnapshot)
	a.put("/v1/operator/snapshot", a.write(a.restoreSnapshot))
}

// Peer is a hub in the newest Raft configuration.
type Peer struct {
	ID    fleet.HubID
	Addr  string
	Voter bool
}

// Standing is how far a hub is, as it says itself.
type Standing struct {
	Term      uint64
	LastIndex uint64
}

// RaftServer is a hub in the Raft configuration, in Nomad's shape.
type RaftServer struct {
	ID           fleet.HubID
	Node         string
	Address      string
	Leader       bool
	Voter        bool
	RaftProtocol string
}

func (a *API) raftConfiguration(w http.ResponseWriter, r *http.Request) {
	peers, index, err := a.cfg.Cluster.Peers()
	a.header(w, a.cfg.State.View().Index())
	if err != nil {
		a.fail(w, err)
		return
	}
	leader, _ := a.cfg.Cluster.Leader()
	answer := struct {
		Servers []RaftServer
		Index   fleet.Index
	}{[]RaftServer{}, index}
	for _, p := range peers {
		answer.Servers = append(answer.Servers, RaftServer{
			ID: p.ID, Node: string(p.ID), Address: p.Addr, Leader: p.ID == leader, Voter: p.Voter, RaftProtocol: "3",
		})
	}
	a.send(w, r, answer)
}

// maxTrailing is how many entries a healthy hub may be behind this one.
const maxTrailing = 250

// ServerHealth is how one hub is, in Nomad's shape.
type ServerHealth struct {
	ID          fleet.HubID
	Name        string
	Address     string
	SerfStatus  string // gossip's
	Version     string
	Leader      bool
	LastContact string // how long its answer took
	LastTerm    uint64
	LastIndex   uint64
	Healthy     bool
	Voter       bool
	StableSince time.Time
}

// HealthAnswer is how the hubs are together.
type HealthAnswer struct {
	Healthy          bool
	FailureTolerance int
	Servers          []ServerHealth
	Leader           fleet.HubID
	Voters           []fleet.HubID
}

// autopilotHealth asks every hub how far it is. The status is 429 where one is not
// healthy, as Nomad's is, but not with report=true.
func (a *API) autopilotHealth(w http.ResponseWriter, r *http.Request) {
	peers, index, err := a.cfg.Cluster.Peers()
	a.header(w, a.cfg.State.View().Index())
	if err != nil {
		a.fail(w, err)
		return
	}
	gossip := map[fleet.HubID]string{}
	for _, m := range a.cfg.Cluster.Members() {
		gossip[m.ID] = m.Status
	}
	leader, known := a.cfg.Cluster.Leader()
	answer := HealthAnswer{Healthy: known, Leader: leader, Servers: []ServerHealth{}, Voters: []fleet.HubID{}}
	healthy := 0
	for _, p := range peers {
		s := ServerHealth{
			ID: p.ID, Name: string(p.ID), Address: p.Addr, SerfStatus: gossip[p.ID], Leader: p.ID == leader, Voter: p.Voter,
			LastContact: "0s",
		}
		began := time.Now()
		if st, err := a.cfg.Cluster.Standing(r.Context(), p.ID); err == nil {
			s.LastTerm, s.LastIndex, s.LastContact = st.Term, st.LastIndex, time.Since(began).Round(time.Microsecond).String()
			s.Healthy = s.SerfStatus == "alive" && st.LastIndex+maxTrailing >= uint64(index)
		}
		if p.Voter {
			answer.Voters = append(answer.Voters, p.ID)
			if s.Healthy {
				healthy++
			}
		}
		answer.Healthy = answer.Healthy && s.Healthy
		answer.Servers = append(answer.Servers, s)
	}
	answer.FailureTolerance = max(healthy-(len(answer.Voters)/2+1), 0)
	w.Header().Set("Content-Type", "application/json")
	if !answer.Healthy && r.URL.Query().Get("report") != "true" {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	a.send(w, r, answer)
}
