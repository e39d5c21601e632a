package api

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"skerry/api"
	"skerry/fleet"
)

func (a *API) operatorEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/operator/raft/configuration", onOperator("read"), a.writeHandler(a.raftConfiguration)},
		{"DELETE", "/v1/operator/raft/peer", onOperator("write"), a.writeHandler(a.removePeer)},
		{writes, "/v1/operator/raft/transfer-leadership", onOperator("write"), a.writeHandler(a.transferLead)},
		{"GET", "/v1/operator/autopilot/health", onOperator("read"), a.autopilotHealth},
		{"GET", "/v1/operator/autopilot/configuration", onOperator("read"), a.writeHandler(a.autopilotConfiguration)},
		{writes, "/v1/operator/autopilot/configuration", onOperator("write"), a.bodyHandler(a.storeAutopilot)},
		{"GET", "/v1/operator/snapshot", onOperator("snapshot-save"), a.saveSnapshot},
		{writes, "/v1/operator/snapshot", managementOnly, a.bodyHandler(a.restoreSnapshot)},
	}
}

// Standing is a hub's Raft term and the index of its last log entry.
type Standing struct {
	Term      uint64
	LastIndex uint64
}

// raftConfiguration lists the hubs of the newest Raft configuration that this hub knows.
func (a *API) raftConfiguration(*http.Request) (any, fleet.Index, error) {
	peers, index, err := a.cfg.Cluster.Peers()
	now := a.cfg.State.View().Index()
	if err != nil {
		return nil, now, err
	}
	leader, _ := a.cfg.Cluster.Leader()
	answer := api.RaftConfiguration{Servers: []api.RaftServer{}, Index: index}
	for _, p := range peers {
		answer.Servers = append(answer.Servers, api.RaftServer{
			ID: p.ID, Node: string(p.ID), Address: p.Addr, Leader: p.ID == leader, Voter: p.Voter, RaftProtocol: "3",
		})
	}
	return answer, now, nil
}

// findNamedHub returns the hub whose id or address a request has; "": it has neither. Besides Raft's members it
// finds hubs that only the state lists: after a recovery from a lost quorum edges still dial those.
func (a *API) findNamedHub(r *http.Request) (fleet.HubID, error) {
	p := r.URL.Query()
	id, addr := fleet.HubID(p.Get("id")), p.Get("address")
	if id != "" && addr != "" {
		return "", fleet.Errorf(fleet.CodeInvalid, "find hub %s: both id and address are given", id).WithHint("give one of them")
	}
	if id == "" && addr == "" {
		return "", nil
	}
	peers, _, err := a.cfg.Cluster.Peers()
	if err != nil {
		return "", err
	}
	for _, p := range peers {
		if p.ID == id || p.Addr == addr {
			return p.ID, nil
		}
	}
	for _, h := range a.cfg.State.View().Hubs() {
		if h.ID == id || h.QUIC == addr {
			return h.ID, nil
		}
	}
	there := make([]string, 0, len(peers))
	for _, p := range peers {
		there = append(there, fmt.Sprintf("%s (%s)", p.ID, p.Addr))
	}
	return "", fleet.Errorf(fleet.CodeNotFound, "find hub %s%s: it is not a member of the Raft cluster", id, addr).
		WithHint("hubs there are: %s", strings.Join(there, ", "))
}

// removePeer removes a hub from the Raft configuration and from the addresses that edges dial. The leader is
// refused.
func (a *API) removePeer(r *http.Request) (answer any, index fleet.Index, err error) {
	id, err := a.findNamedHub(r)
	if err == nil && id == "" {
		err = fleet.Errorf(fleet.CodeInvalid, "remove a hub: neither id nor address is given").WithHint("give its id")
	}
	if err != nil {
		return nil, 0, err
	}
	if leader, _ := a.cfg.Cluster.Leader(); leader == id {
		return nil, 0, fleet.Errorf(fleet.CodeConflict, "remove hub %s: it is the leader", id).
			WithHint("have another one lead first: skerry operator raft transfer-leadership")
	}
	err = a.cfg.Cluster.RemovePeer(r.Context(), id)
	return struct{}{}, a.cfg.State.View().Index(), err
}

// transferLead hands the leadership to the hub that the request names, or else to the one with the newest log.
func (a *API) transferLead(r *http.Request) (answer any, index fleet.Index, err error) {
	id, err := a.findNamedHub(r)
	if err != nil {
		return nil, 0, err
	}
	from, _ := a.cfg.Cluster.Leader()
	err = a.cfg.Cluster.TransferLead(r.Context(), id)
	return api.LeadershipTransfer{From: from, To: id}, a.cfg.State.View().Index(), err
}

// HubAnswerTimeout is how long a hub may take to answer with its Standing.
const HubAnswerTimeout = 2 * time.Second

// maxTrailing is how many log entries a healthy hub may be behind this one.
const maxTrailing = 250

// autopilotHealth asks every hub for its Standing and answers with their health. The status is 429 if one is
// unhealthy, as in Nomad, but not with report=true.
func (a *API) autopilotHealth(w http.ResponseWriter, r *http.Request) {
	peers, index, err := a.cfg.Cluster.Peers()
	a.setAnswerHeaders(w, a.cfg.State.View().Index())
	if err != nil {
		a.writeError(w, err)
		return
	}
	gossip, build := map[fleet.HubID]string{}, map[fleet.HubID]string{}
	for _, m := range a.cfg.Cluster.Members() {
		gossip[m.ID], build[m.ID] = m.Status, m.Tags["build"]
	}
	leader, known := a.cfg.Cluster.Leader()
	answer := api.HealthAnswer{Healthy: known, Leader: leader, Servers: []api.ServerHealth{}, Voters: []fleet.HubID{}}
	healthy := 0
	for _, p := range peers {
		s := api.ServerHealth{
			ID: p.ID, Name: string(p.ID), Address: p.Addr, SerfStatus: gossip[p.ID], Leader: p.ID == leader, Voter: p.Voter,
			LastContact: "0s", Version: build[p.ID],
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
	a.writeAnswer(w, r, answer)
}
