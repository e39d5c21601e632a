package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
)

func (a *API) clusterEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/status/leader", public, a.writeHandler(a.statusLeader)},
		{"GET", "/v1/status/peers", public, a.writeHandler(a.statusPeers)},
		{"GET", "/v1/agent/self", onAgents("read"), a.writeHandler(a.agentSelf)},
		{"GET", "/v1/agent/members", onNodes("read"), a.writeHandler(a.agentMembers)},
		{"GET", "/v1/agent/health", public, a.agentHealth},
		{"GET", "/v1/agent/monitor", onAgents("read"), a.streamMonitor},
		{"GET", "/v1/agent/servers", onAgents("read"), a.writeHandler(a.statusPeers)}, // those that edges dial
		{"GET", "/v1/agent/host", onAgents("read"), a.agentHost},
		{"GET", "/v1/regions", public, a.writeHandler(a.listRegions)},
		{"GET", "/v1/fleet/status", onListed(acl.KindNode, "read"), a.readHandler(a.fleetStatus)},
		{"GET", "/v1/fleet/held", inRequestNamespace("read-job"), a.readHandler(a.listHeld)},
	}
}

// statusLeader answers with the QUIC address of the leader that this hub knows. Without a leader it is an error.
func (a *API) statusLeader(*http.Request) (any, fleet.Index, error) {
	id, ok := a.cfg.Cluster.Leader()
	v := a.cfg.State.View()
	addr, known := v.Hub(id)
	if !ok || !known {
		return nil, v.Index(), noLeader()
	}
	return addr.QUIC, v.Index(), nil
}

// noLeader returns the error that says that this hub knows no leader.
func noLeader() *fleet.Error {
	return fleet.Errorf(fleet.CodeUnavailable, "no cluster leader").
		WithHint("an election is in progress, or most hubs are unreachable; try again in a few seconds")
}

// statusPeers answers with the QUIC addresses of all hubs that the state has.
func (a *API) statusPeers(*http.Request) (any, fleet.Index, error) {
	v := a.cfg.State.View()
	addrs := []string{}
	for _, h := range v.Hubs() {
		addrs = append(addrs, h.QUIC)
	}
	return addrs, v.Index(), nil
}

// clusterMembers converts the hubs that gossip knows to Nomad's shape.
func (a *API) clusterMembers() []api.AgentMember {
	members := []api.AgentMember{}
	for _, m := range a.cfg.Cluster.Members() {
		members = append(members, api.AgentMember{
			Name: string(m.ID), Addr: m.Addr, Port: m.Port, Tags: m.Tags, Status: m.Status,
			ProtocolMin: 1, ProtocolMax: 1, ProtocolCur: 1, DelegateMin: 1, DelegateMax: 1, DelegateCur: 1,
		})
	}
	return members
}

// agentMembers answers with the hubs that gossip knows.
func (a *API) agentMembers(*http.Request) (any, fleet.Index, error) {
	self := a.cfg.Cluster.Self()
	return struct {
		ServerName   string
		ServerRegion string
		ServerDC     string
		Members      []api.AgentMember
	}{string(self.ID), self.Region, fleet.DefaultDatacenter, a.clusterMembers()}, a.cfg.State.View().Index(), nil
}

// agentSelf answers with this hub's configuration and statistics, and its own entry of the members.
func (a *API) agentSelf(*http.Request) (any, fleet.Index, error) {
	self := a.cfg.Cluster.Self()
	var answer struct {
		Config map[string]any               `json:"config"`
		Member api.AgentMember              `json:"member"`
		Stats  map[string]map[string]string `json:"stats"`
	}
	answer.Config, answer.Stats = a.cfg.Cluster.Describe()
	for _, m := range a.clusterMembers() {
		if m.Name == string(self.ID) {
			answer.Member = m
		}
	}
	return answer, a.cfg.State.View().Index(), nil
}

// agentHealth answers 200 if this hub knows a leader and the edge in its process (skerry dev) is healthy; else 500.
// The parameter type limits the check to "server" (hub) or "client" (edge); a hub without an edge is an unhealthy
// client.
func (a *API) agentHealth(w http.ResponseWriter, r *http.Request) {
	kinds := r.URL.Query()["type"]
	for _, kind := range kinds {
		if kind != "client" && kind != "server" {
			a.writeError(w, fleet.Errorf(fleet.CodeInvalid, "read the parameter type: %q is neither client nor server", kind))
			return
		}
	}
	var answer struct {
		Client *api.ComponentHealth `json:"client,omitempty"`
		Server *api.ComponentHealth `json:"server,omitempty"`
	}
	status := http.StatusOK
	healthOf := func(err error) *api.ComponentHealth {
		if err != nil {
			status = http.StatusInternalServerError
			return &api.ComponentHealth{Message: err.Error()}
		}
		return &api.ComponentHealth{Ok: true, Message: "ok"}
	}
	if len(kinds) == 0 || slices.Contains(kinds, "server") {
		var err error
		if _, ok := a.cfg.Cluster.Leader(); !ok {
			err = errors.New(noLeader().Message)
		}
		answer.Server = healthOf(err)
	}
	switch {
	case a.cfg.EdgeHealth != nil && (len(kinds) == 0 || slices.Contains(kinds, "client")):
		answer.Client = healthOf(a.cfg.EdgeHealth())
	case slices.Contains(kinds, "client"):
		answer.Client = healthOf(errors.New("client not enabled"))
	}
	a.setAnswerHeaders(w, a.cfg.State.View().Index())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	a.writeAnswer(w, r, answer)
}

// agentHost answers with the operating system and addresses of this hub's machine. It shows no environment and no
// files, since anybody can ask.
func (a *API) agentHost(w http.ResponseWriter, r *http.Request) {
	self, p := a.cfg.Cluster.Self(), r.URL.Query()
	if p.Get("node_id") != "" {
		a.writeError(w, fleet.Errorf(fleet.CodeUnsupported, "read the host data of a node: nodes do not provide it").WithHint("skerry node status --verbose ID shows its attributes"))
		return
	}
	if server := fleet.HubID(p.Get("server_id")); server != "" && server != self.ID {
		a.writeError(w, a.otherHubError(server))
		return
	}
	type data struct {
		OS      string
		Network []map[string]string
	}
	answer := struct {
		AgentID  fleet.HubID
		HostData data
	}{self.ID, data{OS: runtime.GOOS + "/" + runtime.GOARCH, Network: []map[string]string{}}}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		a.writeError(w, fmt.Errorf("list the addresses of the machine: %w", err))
		return
	}
	for _, addr := range addrs {
		answer.HostData.Network = append(answer.HostData.Network, map[string]string{"address": addr.String()})
	}
	a.setAnswerHeaders(w, a.cfg.State.View().Index())
	a.writeAnswer(w, r, answer)
}

// listRegions answers with the only region, that of this cluster.
func (a *API) listRegions(*http.Request) (any, fleet.Index, error) {
	return []string{a.cfg.Cluster.Self().Region}, a.cfg.State.View().Index(), nil
}

// reachable returns an error if the node of an allocation does not exist, is disconnected or is down. what begins
// its text.
func reachable(v *state.View, al *fleet.Alloc, what string) error {
	n, ok := v.Node(al.NodeID)
	if !ok {
		return fleet.Errorf(fleet.CodeNotFound, "%s of allocation %s: its node %s does not exist any more", what, fleet.Short(al.ID), fleet.Short(al.NodeID))
	}
	if n.Status == fleet.NodeDisconnected || n.Status == fleet.NodeDown {
		return fleet.Errorf(fleet.CodeUnavailable, "%s of allocation %s: its node %s is %s since %s",
			what, fleet.Short(al.ID), n.Name, n.Status, time.Unix(n.StatusUpdatedAt, 0).UTC().Format(time.RFC3339)).
			WithHint("on the node itself: skerry local logs %s", fleet.Short(al.ID))
	}
	return nil
}
