package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/syncproto"
)

// Calls between hubs about sessions.
const (
	methodProbe  rpc.Method[fleet.NodeID, bool]    = "gateway.probe"  // whether its edge answered
	methodFormer rpc.Method[formerSession, Former] = "gateway.former" // asked of the leader
	methodLease  rpc.Method[struct{}, struct{}]    = "gateway.lease"  // the leader renews the caller's lease
	methodLogs   rpc.StreamMethod[edgeRequest]     = "gateway.logs"
	methodTalk   rpc.TalkMethod[edgeRequest]       = "gateway.talk"
)

// remoteProbeTimeout is how long another hub may take to say whether an edge answers it.
const remoteProbeTimeout = 2 * time.Second

// formerSession names a node's session that a hub had last.
type formerSession struct {
	Hub  fleet.HubID  `cbor:"1,keyasint"`
	Node fleet.NodeID `cbor:"2,keyasint"`
}

// edgeRequest is a request to a node whose session the asked hub has.
type edgeRequest struct {
	Node    fleet.NodeID
	Request syncproto.Request
}

// Leases are the leases of hubs on their sessions, as the leader counts them.
type Leases interface {
	RenewLease(hub fleet.HubID)
	// HubSilence returns for how long a hub has certainly not renewed its lease, or false if this hub does not lead.
	HubSilence(hub fleet.HubID) (silence time.Duration, ok bool)
}

// Raft is the part of this hub's Raft node that leases need.
type Raft interface {
	// Verify fails unless a majority confirms that this hub leads.
	Verify(ctx context.Context) error
	IsMember(hub fleet.HubID) (bool, error)
}

// RemoteConfig of a Remote. All is required.
type RemoteConfig struct {
	Hub    fleet.HubID
	State  *state.Store
	Peers  *rpc.Peers
	Leases Leases
	Raft   Raft
}

// Remote reaches edges through the hub that has their session (this one or another), and asks other
// hubs about sessions.
type Remote struct {
	cfg     RemoteConfig
	gateway *Gateway
}

// NewRemote returns a Remote; ServeCalls has to be called before it is used.
func NewRemote(cfg RemoteConfig) *Remote { return &Remote{cfg: cfg} }

// ServeCalls gives the Remote this hub's gateway, and registers what other hubs call.
func (r *Remote) ServeCalls(g *Gateway) {
	r.gateway = g
	p := r.cfg.Peers
	methodProbe.Handle(p, func(ctx context.Context, _ string, node fleet.NodeID) (bool, error) {
		return g.Probe(ctx, node), nil
	})
	methodFormer.Handle(p, func(ctx context.Context, _ string, q formerSession) (Former, error) {
		return r.formerSessionAsLeader(ctx, q)
	})
	methodLease.Handle(p, func(ctx context.Context, from string, _ struct{}) (struct{}, error) {
		return struct{}{}, r.renewLeaseFor(ctx, fleet.HubID(from))
	})
	methodLogs.Handle(p, r.serveLogs)
	methodTalk.Handle(p, r.serveTalk)
}

// RenewLease renews this hub's lease on the sessions of its edges.
func (r *Remote) RenewLease(ctx context.Context) error {
	_, err := methodLease.OnLeader(ctx, r.cfg.Peers, struct{}{}, func(ctx context.Context, _ struct{}) (struct{}, error) {
		return struct{}{}, r.renewLeaseFor(ctx, r.cfg.Hub)
	})
	if fleet.CodeOf(err) == fleet.CodeUnsupported {
		return nil // a leader of an older release requires no leases
	}
	return err
}

// renewLeaseFor renews a hub's lease, as the leader: a majority confirms that this hub still leads, so no later leader
// can have begun before the request for the renewal.
func (r *Remote) renewLeaseFor(ctx context.Context, id fleet.HubID) error {
	if err := r.cfg.Raft.Verify(ctx); err != nil {
		return err
	}
	member, err := r.cfg.Raft.IsMember(id)
	if err != nil {
		return err
	}
	if !member {
		return fleet.Errorf(fleet.CodeForbidden, "renew the lease of hub %s: it is not a member of the cluster", id)
	}
	r.cfg.Leases.RenewLease(id)
	return nil
}

// FormerSession asks the hub of a former session, or the leader if that hub does not answer.
func (r *Remote) FormerSession(ctx context.Context, hub fleet.HubID, node fleet.NodeID) (Former, error) {
	q := formerSession{Hub: hub, Node: node}
	if former, err := r.probeFormerSession(ctx, q); err == nil {
		return former, nil
	}
	former, err := methodFormer.OnLeader(ctx, r.cfg.Peers, q, r.silenceOfHub)
	if fleet.CodeOf(err) == fleet.CodeUnsupported {
		return Former{Silence: FormerWait}, nil // a leader of an older release knows no leases
	}
	return former, err
}

// probeFormerSession asks the hub that has a node's session whether its edge answers there.
func (r *Remote) probeFormerSession(ctx context.Context, q formerSession) (Former, error) {
	if q.Hub == r.cfg.Hub {
		return Former{Answered: true, Alive: r.gateway.Probe(ctx, q.Node)}, nil
	}
	addr, err := r.hubAddr(q.Hub)
	if err != nil {
		return Former{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, remoteProbeTimeout)
	defer cancel()
	alive, err := methodProbe.Call(ctx, r.cfg.Peers, addr, q.Node)
	return Former{Answered: err == nil, Alive: alive}, err
}

// formerSessionAsLeader returns the leader's knowledge about a session on another hub.
func (r *Remote) formerSessionAsLeader(ctx context.Context, q formerSession) (Former, error) {
	if former, err := r.probeFormerSession(ctx, q); err == nil {
		return former, nil
	}
	return r.silenceOfHub(ctx, q)
}

// silenceOfHub returns, as the leader, for how long a session's hub has not renewed its lease. It verifies afterwards
// that this hub led during all of that time.
func (r *Remote) silenceOfHub(ctx context.Context, q formerSession) (Former, error) {
	silence, leads := r.cfg.Leases.HubSilence(q.Hub)
	if !leads {
		return Former{}, fleet.Errorf(fleet.CodeNotLeader, "hub %s does not lead", r.cfg.Hub)
	}
	return Former{Silence: silence}, r.cfg.Raft.Verify(ctx)
}

// hubAddr returns the address of a hub.
func (r *Remote) hubAddr(id fleet.HubID) (string, error) {
	a, ok := r.cfg.State.View().Hub(id)
	if !ok {
		return "", fleet.Errorf(fleet.CodeNotFound, "hub %s is not a member of the cluster", id)
	}
	return a.QUIC, nil
}

// Logs opens the answer to a request, such as a task's output, on the hub that has the
// node's session.
func (r *Remote) Logs(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadCloser, error) {
	addr, err := r.locateSession(node, req)
	if err != nil {
		return nil, err
	}
	if addr == "" {
		return r.gateway.Logs(ctx, node, req)
	}
	return methodLogs.Open(ctx, r.cfg.Peers, addr, edgeRequest{node, req})
}

// Talk is Logs for a request whose edge keeps reading.
func (r *Remote) Talk(ctx context.Context, node fleet.NodeID, req syncproto.Request) (io.ReadWriteCloser, error) {
	addr, err := r.locateSession(node, req)
	if err != nil {
		return nil, err
	}
	if addr == "" {
		return r.gateway.Talk(ctx, node, req)
	}
	return methodTalk.Open(ctx, r.cfg.Peers, addr, edgeRequest{node, req})
}

// locateSession returns the address of the hub that has a node's session; "": this one.
func (r *Remote) locateSession(node fleet.NodeID, req syncproto.Request) (addr string, err error) {
	n, ok := r.cfg.State.View().Node(node)
	if !ok {
		return "", fleet.Errorf(fleet.CodeNotFound, "ask for %s: there is no node %s", req.Kind, fleet.Short(node))
	}
	if n.Hub == r.cfg.Hub || n.Hub == "" {
		return "", nil
	}
	return r.hubAddr(n.Hub)
}

// serveLogs passes an edge's answer on to another hub.
func (r *Remote) serveLogs(ctx context.Context, q edgeRequest, w io.Writer) error {
	out, err := r.gateway.Logs(ctx, q.Node, q.Request)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, out)
	return errors.Join(err, out.Close())
}

// serveTalk passes bytes in both directions between another hub and an edge.
func (r *Remote) serveTalk(ctx context.Context, q edgeRequest, talk rpc.Talk) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	edge, err := r.gateway.Talk(ctx, q.Node, q.Request)
	if err != nil {
		return err
	}
	if _, err := talk.Write(nil); err != nil { // tells the caller that the stream is open, which may stay silent for long
		return errors.Join(err, edge.Close())
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		if _, err := io.Copy(edge, talk); err != nil {
			cancel() // the other hub is gone, or the edge accepts nothing
		}
	})
	_, err = io.Copy(talk, edge)
	err = errors.Join(err, talk.SetReadDeadline(time.Unix(1, 0)), edge.Close())
	asking.Wait()
	return err
}
