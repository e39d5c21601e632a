package api

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

func (a *API) operatorRoutes() {
	a.mux.HandleFunc("GET /v1/operator/raft/configuration", a.raftConfiguration)
	a.mux.HandleFunc("GET /v1/operator/autopilot/health", a.autopilotHealth)
	a.mux.HandleFunc("GET /v1/operator/snapshot", a.saveSnapshot)
	a.put("/v1/operator/snapshot", func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, fleet.Errorf(fleet.CodeUnsupported, "restore a snapshot: this release does not do it while a cluster runs").
			WithHint("put back the data directories of all hubs"))
	})
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

// saveSnapshot serves the whole state as a file that checks itself.
func (a *API) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r)
	if err == nil && !q.stale {
		err = a.cfg.Cluster.CatchUp(r.Context())
	}
	if err != nil {
		a.fail(w, err)
		return
	}
	v := a.cfg.State.View()
	if err := a.sendSnapshot(w, v); err != nil {
		a.cfg.Log.Warn("snapshot not served", "error", err)
	}
}

// sendSnapshot writes the snapshot to a file first: its digest goes before it.
func (a *API) sendSnapshot(w http.ResponseWriter, v *state.View) (err error) {
	f, err := os.CreateTemp("", "skerry-snapshot-")
	if err != nil {
		err = fmt.Errorf("save a snapshot: %w", err)
		a.fail(w, err)
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	sum := sha256.New()
	size := int64(0)
	if err = v.Persist(io.MultiWriter(f, sum)); err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		a.fail(w, err)
		return err
	}
	a.header(w, v.Index())
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Digest", "sha-256="+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	_, err = io.Copy(w, f)
	return err
}
