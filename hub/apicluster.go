package hub

import (
	"context"
	"io"
	"net"
	"strconv"
	"time"

	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/hub/api"
	"skerry/hub/rollout"
	"skerry/hub/rpc"
	"skerry/hub/scheduler"
	"skerry/hub/state"
)

// methodRaftStatus asks a hub how much of the log it has.
const methodRaftStatus rpc.Method[struct{}, api.Standing] = "raft.standing"

// raftStatus returns this hub's Raft term and the index of its last log entry.
func (h *Hub) raftStatus() api.Standing {
	s := h.node.Stats()
	return api.Standing{Term: s.Term, LastIndex: s.LastIndex}
}

// cluster implements api.Cluster, the HTTP API's access to the hubs, Raft and gossip.
type cluster struct{ h *Hub }

func (c cluster) Apply(ctx context.Context, cmd state.Command) (state.Result, error) {
	return c.h.node.Apply(ctx, cmd)
}

func (c cluster) CatchUp(ctx context.Context) error { return c.h.node.CatchUp(ctx, c.h.peers) }

func (c cluster) RemovePeer(ctx context.Context, id fleet.HubID) error {
	return c.h.node.RemoveFromCluster(ctx, c.h.peers, id)
}

func (c cluster) TransferLead(ctx context.Context, id fleet.HubID) error {
	return c.h.node.TransferLead(ctx, c.h.peers, id)
}

func (c cluster) Restore(ctx context.Context, snapshot io.ReadSeeker, size int64, sum []byte) (fleet.Index, error) {
	return c.h.restorer.Restore(ctx, snapshot, size, sum)
}

func (c cluster) LastContact(ctx context.Context) (map[fleet.NodeID]time.Time, error) {
	return c.h.liveness.LastContact(ctx, c.h.peers)
}

func (c cluster) Leader() (fleet.HubID, bool) {
	id, _, ok := c.h.node.Leader()
	return id, ok
}

// Members lists the hubs that gossip knows. It leaves out those whose gossip address is not known yet.
func (c cluster) Members() []api.Member {
	var out []api.Member
	for _, m := range c.h.members.Members() {
		host, port, err := net.SplitHostPort(m.Gossip)
		if err != nil {
			continue // a member that has not said its address yet
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			continue
		}
		_, rpcPort, _ := net.SplitHostPort(m.QUIC) // "" of one that has not said it
		out = append(out, api.Member{
			ID: m.ID, Addr: host, Port: uint16(n), Status: string(m.Status),
			// By the names that Nomad's clients look for: they find the leader by the port.
			Tags: map[string]string{
				"role": "nomad", "id": string(m.ID), "region": m.Region, "dc": fleet.DefaultDatacenter, "build": m.Build,
				"port": rpcPort, "rpc_addr": m.QUIC, "raft_vsn": "3", "vsn": "1", "quic": m.QUIC, "http": m.HTTP,
			},
		})
	}
	return out
}

func (c cluster) Peers() ([]state.HubPeer, fleet.Index, error) {
	return c.h.node.Configuration()
}

// Standing returns the Raft term and last log index of a hub. It asks other hubs, which have api.HubAnswerTimeout.
func (c cluster) Standing(ctx context.Context, id fleet.HubID) (api.Standing, error) {
	if id == c.h.hubID() {
		return c.h.raftStatus(), nil
	}
	hub, ok := c.h.store.View().Hub(id)
	if !ok {
		return api.Standing{}, fleet.Errorf(fleet.CodeNotFound, "hub %s is not a member of the cluster", id)
	}
	ctx, cancel := context.WithTimeout(ctx, api.HubAnswerTimeout)
	defer cancel()
	return methodRaftStatus.Call(ctx, c.h.peers, hub.QUIC, struct{}{})
}

// Self names this hub.
func (c cluster) Self() api.Self {
	return api.Self{ID: c.h.hubID(), Region: c.h.cfg.Region, Term: c.h.node.Term()}
}

// Describe returns this hub's configuration and statistics.
func (c cluster) Describe() (config map[string]any, stats map[string]map[string]string) {
	h := c.h
	raft := h.node.Stats()
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return h.agentConfig(), map[string]map[string]string{
		"raft": {
			"term": number(raft.Term), "last_log_index": number(raft.LastIndex),
			"commit_index": number(raft.CommitIndex), "applied_index": number(raft.AppliedIndex),
			"last_snapshot_index": number(raft.SnapshotIndex), "leader": strconv.FormatBool(h.node.IsLeader()),
		},
		"gateway": {"sessions": number(h.gateway.Stats().Open)},
	}
}

// jobs implements api.Jobs: it parses job files and does dry runs.
type jobs struct{ h *Hub }

// Parse reads an HCL or JSON job file; vars is the content of a variables file, or "".
func (j jobs) Parse(src, vars string) (*fleet.Job, error) {
	opts := jobspec.Options{Configs: j.h.cfg.Drivers.Configs, Now: time.Now(), WithoutGroups: true}
	if vars != "" {
		opts.VarFiles = []jobspec.File{{Name: "variables.hcl", Src: []byte(vars)}}
	}
	return jobspec.Parse("job.hcl", []byte(src), opts)
}

func (j jobs) Outlook(v *state.View, d *fleet.Deployment, now time.Time) *fleet.DeploymentOutlook {
	return rollout.OutlookOf(v, d, scheduler.SuitsFunc, now)
}

// DryRun returns what the scheduler would do if the job were registered now. It changes nothing.
func (j jobs) DryRun(ctx context.Context, job *fleet.Job) (api.DryRun, error) {
	out, err := scheduler.DryRun(j.h.store.View(), job, time.Now())
	if err != nil {
		return api.DryRun{}, err
	}
	return api.DryRun{Groups: out.Updates, Failed: out.Failed, Reasons: out.Reasons, Created: out.Created}, nil
}
