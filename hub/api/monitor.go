package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/internal/logtap"
	"skerry/syncproto"
)

// streamMonitor streams the log lines that this hub or a node writes from now on, as JSON frames, or with plain=true
// as text, until the client leaves.
func (a *API) streamMonitor(w http.ResponseWriter, r *http.Request) {
	r, stop := a.whileGranted(r)
	defer stop()
	lines, err := a.openLogMonitor(r)
	if err != nil {
		a.writeError(w, err)
		return
	}
	defer lines.Close()
	a.cfg.Log.Debug("a client follows the log", "client", r.RemoteAddr)
	detach := context.AfterFunc(r.Context(), func() { _ = lines.Close() })
	defer detach()
	frames := json.NewEncoder(w)
	emit := func(b []byte) error { return frames.Encode(api.StreamFrame{Data: b}) }
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("plain") == "true" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		emit = func(b []byte) error { _, err := w.Write(b); return err }
	}
	if err := copyAndFlush(lines, http.NewResponseController(w), emit); err != nil {
		a.cfg.Log.Debug("log stream ended", "client", r.RemoteAddr, "error", err)
	}
}

// openLogMonitor opens the log of the hub or node that the request's parameters name, at their level. The log of
// another hub is an error.
func (a *API) openLogMonitor(r *http.Request) (io.ReadCloser, error) {
	p := r.URL.Query()
	level, err := logtap.ParseLevel(p.Get("log_level"))
	if err != nil {
		return nil, err
	}
	asJSON, err := queryFlag(r, "log_json", false)
	if err != nil {
		return nil, err
	}
	node, server := p.Get("node_id"), p.Get("server_id")
	switch {
	case node != "" && server != "":
		return nil, fleet.Errorf(fleet.CodeInvalid, "monitor: both node_id and server_id are given").WithHint("give only one of them: server_id is the id of a hub")
	case node != "":
		return a.openNodeMonitor(r, fleet.NodeID(node), syncproto.Request{Kind: syncproto.RequestMonitor, Level: level.String(), JSON: asJSON})
	case server == "leader":
		leader, known := a.cfg.Cluster.Leader()
		if !known {
			return nil, fleet.Errorf(fleet.CodeUnavailable, "no cluster leader")
		}
		server = string(leader)
	}
	if self := a.cfg.Cluster.Self().ID; server != "" && server != string(self) {
		return nil, a.otherHubError(fleet.HubID(server))
	}
	return a.cfg.Logs.Listen(level, asJSON)
}

// otherHubError returns the error for a request about another hub: the client has to ask that hub itself.
func (a *API) otherHubError(id fleet.HubID) error {
	hub, ok := a.cfg.State.View().Hub(id)
	if !ok {
		return fleet.Errorf(fleet.CodeNotFound, "monitor: there is no hub %q", id)
	}
	return fleet.Errorf(fleet.CodeUnsupported, "monitor hub %s: a hub streams only its own logs", id).
		WithHint("ask it itself: its HTTP address is %s", hub.HTTP)
}

// openNodeMonitor opens the log of a node's edge.
func (a *API) openNodeMonitor(r *http.Request, id fleet.NodeID, req syncproto.Request) (io.ReadCloser, error) {
	if _, err := a.freshReachableNode(r, id, "monitor"); err != nil {
		return nil, err
	}
	return a.cfg.Edges.Logs(r.Context(), id, req)
}
