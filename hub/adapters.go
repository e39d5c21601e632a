package hub

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/hub/api"
	"skerry/hub/liveness"
	"skerry/hub/pki"
	"skerry/hub/scheduler"
	"skerry/hub/state"
	"skerry/syncproto"
)

// queue is the scheduler's broker: this hub's while it leads, else the leader's.
type queue struct{ h *Hub }

func (q queue) Dequeue(ctx context.Context, types []string) (fleet.Delivery, error) {
	for {
		d, err := q.dequeueDelivery(ctx, types)
		// One call's wait is over, not the worker's.
		if fleet.CodeOf(err) == fleet.CodeTimeout || errors.Is(err, context.DeadlineExceeded) {
			if ctx.Err() == nil {
				continue
			}
		}
		return d, err
	}
}

func (q queue) dequeueDelivery(ctx context.Context, types []string) (fleet.Delivery, error) {
	if q.h.isLeader() {
		ctx, cancel := context.WithTimeout(ctx, dequeueTimeout)
		defer cancel()
		return q.h.broker.Dequeue(ctx, types)
	}
	ctx, cancel := context.WithTimeout(ctx, dequeueCall)
	defer cancel()
	return callLeader[[]string, fleet.Delivery](ctx, q.h, methodDequeue, types)
}

func (q queue) Ack(ctx context.Context, id fleet.EvalID, token string) error {
	if q.h.isLeader() {
		return q.h.broker.Ack(id, token)
	}
	return q.sendAckOrNack(ctx, methodAck, id, token)
}

func (q queue) Nack(ctx context.Context, id fleet.EvalID, token string) error {
	if q.h.isLeader() {
		return q.h.broker.Nack(id, token)
	}
	return q.sendAckOrNack(ctx, methodNack, id, token)
}

func (q queue) sendAckOrNack(ctx context.Context, method string, id fleet.EvalID, token string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := callLeader[deliveryRef, struct{}](ctx, q.h, method, deliveryRef{id, token})
	return err
}

// plans is the scheduler's planner, in the same way.
type plans struct{ h *Hub }

func (p plans) Submit(ctx context.Context, plan fleet.Plan) (fleet.PlanResult, error) {
	if p.h.isLeader() {
		return p.h.planner.Submit(ctx, plan)
	}
	return callLeader[fleet.Plan, fleet.PlanResult](ctx, p.h, methodSubmit, plan)
}

// forwardHeartbeats hands beats to the leader, as liveness has it done.
func (h *Hub) forwardHeartbeats(ctx context.Context, b []liveness.Heartbeat) error {
	if h.isLeader() {
		h.liveness.RecordHeartbeats(b...) // it is about to hold the deadlines itself
		return nil
	}
	_, err := callLeader[[]liveness.Heartbeat, struct{}](ctx, h, methodHeartbeats, b)
	return err
}

// remoteSessions reaches sessions of other hubs.
type remoteSessions struct{ h *Hub }

// edges is how the HTTP API reaches edges.
type edges struct{ h *Hub }

func (e edges) Logs(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadCloser, error) {
	addr, body, err := e.locateSession(node, req)
	if err != nil {
		return nil, err
	}
	if addr == "" {
		return e.h.gateway.Logs(ctx, node, req)
	}
	stream, err := e.h.peers.Stream(ctx, addr, methodLogs, body)
	if err != nil {
		return nil, err
	}
	return &contextClosedStream{ReadCloser: stream, stop: context.AfterFunc(ctx, func() { stream.Close() })}, nil
}

func (e edges) Talk(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadWriteCloser, error) {
	addr, body, err := e.locateSession(node, req)
	if err != nil {
		return nil, err
	}
	if addr == "" {
		return e.h.gateway.Talk(ctx, node, req)
	}
	talk, err := e.h.peers.Talk(ctx, addr, methodTalk, body)
	if err != nil {
		return nil, err
	}
	return &contextClosedTalk{contextClosedStream{ReadCloser: talk, stop: context.AfterFunc(ctx, func() { talk.Close() })}, talk}, nil
}

// locateSession returns where a node's session is, and what that hub is asked; "": here.
func (e edges) locateSession(node fleet.NodeID, req syncproto.Request) (addr string, body []byte, err error) {
	n, ok := e.h.store.View().Node(node)
	if !ok {
		return "", nil, fleet.Errorf(fleet.CodeNotFound, "ask for %s: there is no node %s", req.Kind, fleet.Short(node))
	}
	if n.Hub == e.h.hubID() || n.Hub == "" {
		return "", nil, nil
	}
	if addr, err = e.h.hubAddr(n.Hub); err != nil {
		return "", nil, err
	}
	body, err = encode(logsRequest{Node: node, Request: req})
	return addr, body, err
}

// contextClosedStream is a stream that a context closes, if nobody else does.
type contextClosedStream struct {
	io.ReadCloser
	stop func() bool
}

func (u *contextClosedStream) Close() error {
	u.stop()
	return u.ReadCloser.Close()
}

// contextClosedTalk is one that goes both ways.
type contextClosedTalk struct {
	contextClosedStream
	io.Writer
}

func (e edges) LastContact(ctx context.Context) (map[fleet.NodeID]time.Time, error) {
	if heard, ok := e.h.liveness.LastHeard(); ok {
		return heard, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nano, err := callLeader[struct{}, map[fleet.NodeID]int64](ctx, e.h, methodHeard, struct{}{})
	if err != nil {
		return nil, err
	}
	out := make(map[fleet.NodeID]time.Time, len(nano))
	for node, at := range nano {
		out[node] = time.Unix(0, at)
	}
	return out, nil
}

// cluster is what the HTTP API sees of the hubs.
type cluster struct{ h *Hub }

func (c cluster) Apply(ctx context.Context, cmd state.Command) (state.Result, error) {
	return c.h.node.Apply(ctx, cmd)
}

// CatchUp asks the leader how far it is, and waits to be there. It bears an
// election.
func (c cluster) CatchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var index fleet.Index
	err := retryWithBackoff(ctx, func() (err error) {
		index, err = c.readIndex(ctx)
		if err != nil && isPermanent(err) {
			return backoff.Permanent(err)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.h.store.WaitIndex(ctx, index)
}

func (c cluster) readIndex(ctx context.Context) (fleet.Index, error) {
	if c.h.isLeader() {
		return c.h.node.ReadIndex(ctx)
	}
	return callLeader[struct{}, fleet.Index](ctx, c.h, methodCatchUp, struct{}{})
}

func (c cluster) Leader() (fleet.HubID, bool) {
	id, _, ok := c.h.node.Leader()
	return id, ok
}

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

func (c cluster) Peers() ([]api.Peer, fleet.Index, error) {
	peers, index, err := c.h.node.Configuration()
	out := make([]api.Peer, 0, len(peers))
	for _, p := range peers {
		out = append(out, api.Peer(p))
	}
	return out, index, err
}

func (c cluster) Standing(ctx context.Context, id fleet.HubID) (api.Standing, error) {
	if id == c.h.hubID() {
		return c.h.raftStatus(), nil
	}
	addr, err := c.h.hubAddr(id)
	if err != nil {
		return api.Standing{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, api.HubAnswerTimeout)
	defer cancel()
	return callHub[struct{}, api.Standing](ctx, c.h, addr, methodRaftStatus, struct{}{})
}

func (c cluster) Self() api.Self {
	h := c.h
	stats := h.node.Stats()
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return api.Self{
		ID: h.hubID(), Region: h.cfg.Region, Term: h.node.Term(),
		Config: h.agentConfig(),
		Stats: map[string]map[string]string{
			"raft": {
				"term": number(stats.Term), "last_log_index": number(stats.LastIndex),
				"commit_index": number(stats.CommitIndex), "applied_index": number(stats.AppliedIndex),
				"last_snapshot_index": number(stats.SnapshotIndex), "leader": strconv.FormatBool(h.isLeader()),
			},
			"gateway": {"sessions": number(h.gateway.Stats().Open)},
		},
	}
}

// jobs parses job files and tries jobs out for the HTTP API.
type jobs struct{ h *Hub }

func (j jobs) Parse(src, vars string) (*fleet.Job, error) {
	opts := jobspec.Options{Drivers: drivers, Configs: configs, Now: time.Now(), WithoutGroups: true}
	if vars != "" {
		opts.VarFiles = []jobspec.File{{Name: "variables.hcl", Src: []byte(vars)}}
	}
	return jobspec.Parse("job.hcl", []byte(src), opts)
}

func (j jobs) DryRun(ctx context.Context, job *fleet.Job) (api.DryRun, error) {
	out, err := scheduler.DryRun(j.h.store.View(), job, time.Now())
	if err != nil {
		return api.DryRun{}, err
	}
	return api.DryRun{Groups: out.Updates, Failed: out.Failed, Reasons: out.Reasons, Created: out.Created}, nil
}

// registry is what enrolment sees of the cluster.
type registry struct{ h *Hub }

func (r registry) Cluster() (state.Cluster, error) {
	c, ok := r.h.store.View().Cluster()
	if !ok {
		return state.Cluster{}, fleet.Errorf(fleet.CodeUnavailable, "enrol: this hub is not part of a cluster yet")
	}
	return pki.OpenCluster(*c, r.h.stateKeys.allStateKeys())
}

func (r registry) StateKey() []byte {
	if c, ok := r.h.store.View().Cluster(); ok {
		if k, ok := r.h.stateKeys.stateKeyByID(c.SealKey); ok {
			return k[:]
		}
	}
	return nil
}

func (r registry) Token(id string) (*state.JoinToken, bool) { return r.h.store.View().Token(id) }

func (r registry) Known(role, name string) bool {
	view := r.h.store.View()
	if role == syncproto.RoleHub {
		_, ok := view.Hub(fleet.HubID(name))
		return ok
	}
	_, ok := view.Node(fleet.NodeID(name))
	return ok
}

func (r registry) Revocation(id fleet.NodeID) (*fleet.Revocation, bool) {
	return r.h.store.View().Revocation(id)
}

func (r registry) Record(ctx context.Context, c state.Certificate) error {
	return r.h.applyAndCheck(ctx, c)
}
