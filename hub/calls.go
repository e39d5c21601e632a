package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/api"
	"skerry/hub/broker"
	"skerry/hub/consensus"
	"skerry/hub/gateway"
	"skerry/hub/liveness"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/syncproto"
)

// Methods that hubs call on each other. Names are never used again for something
// else.
const (
	methodApply      = "raft.apply"             // an encoded command; gives an encoded Result
	methodCatchUp    = "raft.catchup"           // nothing; gives the index to reach
	methodJoin       = "hub.join"               // a consensus.Peer; gives the index of the change
	methodRemove     = "hub.remove"             // a hub's id
	methodLead       = "hub.lead"               // the id of the hub that shall lead, or none
	methodDequeue    = "eval.dequeue"           // job types; gives a fleet.Delivery
	methodAck        = "eval.ack"               // a delivered
	methodNack       = "eval.nack"              // a delivered
	methodSubmit     = "plan.submit"            // a fleet.Plan; gives a fleet.PlanResult
	methodHeartbeats = "liveness.beats"         // beats
	methodHeard      = "liveness.heard"         // nothing; gives times by node
	methodProbe      = "gateway.probe"          // a node's id; gives whether its edge answered
	methodFormer     = "gateway.former"         // a formerSession; the leader gives a gateway.Former
	methodLease      = "gateway.lease"          // nothing; the leader renews the caller's lease on its sessions
	methodRaftStatus = "raft.standing"          // nothing; gives an api.Standing
	methodRestore    = "state.restore"          // a state.SnapshotRestore, whose parts are in the log; gives the index of its entry
	methodGetKey     = "identity.statekey"      // nothing; gives the state key that the cluster's secrets are sealed with
	methodKeepKey    = "identity.keep-statekey" // a state key, which they will be sealed with
	methodLogs       = "gateway.logs"           // a logsRequest; answers with a stream
	methodTalk       = "gateway.talk"           // a logsRequest; goes both ways
)

const (
	callTimeout = 10 * time.Second
	// dequeueTimeout is how long one call waits at the leader for an evaluation. Who calls
	// from elsewhere listens for longer, dequeueCall: what is handed out when it listens
	// no more stays with it until the delivery's deadline, and nobody looks at it.
	dequeueTimeout = time.Minute
	dequeueCall    = dequeueTimeout + callTimeout
)

// deliveryRef names a delivery of an evaluation.
type deliveryRef struct {
	Eval  fleet.EvalID
	Token string
}

// logsRequest asks for a task's output on a node whose session the asked hub has.
type logsRequest struct {
	Node    fleet.NodeID
	Request syncproto.Request
}

// serveCalls registers what this hub answers.
func (h *Hub) serveCalls() {
	p := h.peers
	p.Handle(methodApply, func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		return h.node.ApplyEncoded(ctx, body)
	})
	p.Handle(methodCatchUp, typedHandler(func(ctx context.Context, _ string, _ struct{}) (fleet.Index, error) {
		return h.node.ReadIndex(ctx)
	}))
	p.Handle(methodJoin, typedHandler(h.addPeerOrForward))
	p.Handle(methodRemove, typedHandler(func(ctx context.Context, _ string, id fleet.HubID) (struct{}, error) {
		return struct{}{}, h.node.Remove(ctx, id)
	}))
	p.Handle(methodLead, typedHandler(func(ctx context.Context, _ string, id fleet.HubID) (struct{}, error) {
		return struct{}{}, h.node.Transfer(ctx, id)
	}))
	p.Handle(methodDequeue, typedHandler(func(ctx context.Context, from string, types []string) (fleet.Delivery, error) {
		return dequeueForHub(ctx, h.broker, fleet.HubID(from), types)
	}))
	p.Handle(methodAck, typedHandler(func(_ context.Context, _ string, d deliveryRef) (struct{}, error) {
		return struct{}{}, h.broker.Ack(d.Eval, d.Token)
	}))
	p.Handle(methodNack, typedHandler(func(_ context.Context, _ string, d deliveryRef) (struct{}, error) {
		return struct{}{}, h.broker.Nack(d.Eval, d.Token)
	}))
	p.Handle(methodSubmit, typedHandler(func(ctx context.Context, _ string, plan fleet.Plan) (fleet.PlanResult, error) {
		res, err := h.planner.Submit(ctx, plan)
		return nodesOnly(res), err
	}))
	p.Handle(methodHeartbeats, typedHandler(func(_ context.Context, _ string, beats []liveness.Heartbeat) (struct{}, error) {
		h.liveness.RecordHeartbeats(beats...)
		return struct{}{}, nil
	}))
	p.Handle(methodHeard, typedHandler(func(context.Context, string, struct{}) (map[fleet.NodeID]int64, error) {
		return h.lastHeardByNode()
	}))
	p.Handle(methodProbe, typedHandler(func(ctx context.Context, _ string, node fleet.NodeID) (bool, error) {
		return h.gateway.Probe(ctx, node), nil
	}))
	p.Handle(methodFormer, typedHandler(func(ctx context.Context, _ string, q formerSession) (gateway.Former, error) {
		return h.formerSessionAsLeader(ctx, q)
	}))
	p.Handle(methodLease, typedHandler(func(ctx context.Context, from string, _ struct{}) (struct{}, error) {
		return struct{}{}, h.renewLeaseFor(ctx, fleet.HubID(from))
	}))
	p.Handle(methodRaftStatus, typedHandler(func(context.Context, string, struct{}) (api.Standing, error) {
		return h.raftStatus(), nil
	}))
	p.Handle(methodRestore, typedHandler(func(ctx context.Context, from string, c state.SnapshotRestore) (fleet.Index, error) {
		return h.restoreAsLeader(ctx, from, c)
	}))
	p.Handle(methodGetKey, typedHandler(h.serveStateKey))
	p.Handle(methodKeepKey, typedHandler(h.storeStateKey))
	p.HandleStream(methodLogs, h.serveLogs)
	p.HandleTalk(methodTalk, h.serveTalk)
}

// nodesOnly leaves the allocations out of a plan's result, which its worker has made
// itself: they would take as much as the plan.
func nodesOnly(res fleet.PlanResult) fleet.PlanResult {
	for _, byNode := range []*map[fleet.NodeID][]fleet.Alloc{&res.NodeAllocation, &res.NodeUpdate} {
		nodes := make(map[fleet.NodeID][]fleet.Alloc, len(*byNode))
		for id := range *byNode {
			nodes[id] = nil
		}
		*byNode = nodes
	}
	return res
}

// formerSession names a node's session that a hub had last.
type formerSession struct {
	Hub  fleet.HubID  `cbor:"1,keyasint"`
	Node fleet.NodeID `cbor:"2,keyasint"`
}

// dequeueForHub waits for an evaluation for a worker of another hub.
func dequeueForHub(ctx context.Context, b *broker.Broker, to fleet.HubID, types []string) (fleet.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, dequeueTimeout)
	defer cancel()
	return b.DequeueFor(ctx, to, types)
}

// typedHandler makes a handler of a function of decoded values.
func typedHandler[Q, A any](f func(ctx context.Context, from string, q Q) (A, error)) func(context.Context, string, []byte) ([]byte, error) {
	return func(ctx context.Context, from string, body []byte) ([]byte, error) {
		q, err := decode[Q](body)
		if err != nil {
			return nil, err
		}
		a, err := f(ctx, from, q)
		if err != nil {
			return nil, err
		}
		return encode(a)
	}
}

// callHub asks the hub at addr.
func callHub[Q, A any](ctx context.Context, h *Hub, addr, method string, q Q) (A, error) {
	var none A
	body, err := encode(q)
	if err != nil {
		return none, err
	}
	b, err := h.peers.Call(ctx, addr, method, body)
	if err != nil {
		return none, err
	}
	return decode[A](b)
}

// callLeader asks the hub that leads, which must be another one.
func callLeader[Q, A any](ctx context.Context, h *Hub, method string, q Q) (A, error) {
	id, addr, ok := h.node.Leader()
	if !ok || id == h.hubID() {
		var none A
		return none, noLeader()
	}
	return callHub[Q, A](ctx, h, addr, method, q)
}

func noLeader() *fleet.Error {
	return fleet.Errorf(fleet.CodeUnavailable, "no hub leads the cluster at the moment").
		WithHint("an election is going on, or most hubs are out of reach")
}

// isLeader reports whether this hub leads.
func (h *Hub) isLeader() bool {
	_, ok := h.node.Leads()
	return ok
}

// addPeerOrForward takes a hub into the cluster, or its new address: at the leader, to
// which a follower hands the request on.
func (h *Hub) addPeerOrForward(ctx context.Context, from string, p consensus.Peer) (fleet.Index, error) {
	if h.isLeader() {
		h.log.Info("hub joins", "hub", p.ID, "addr", p.Addr, "voter", p.Voter, "by", from)
		return h.node.Add(ctx, p)
	}
	return callLeader[consensus.Peer, fleet.Index](ctx, h, methodJoin, p)
}

// lastHeardByNode is when this hub, which must lead, heard each node (UnixNano).
func (h *Hub) lastHeardByNode() (map[fleet.NodeID]int64, error) {
	heard, ok := h.liveness.LastHeard()
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotLeader, "hub %s does not lead", h.hubID())
	}
	out := make(map[fleet.NodeID]int64, len(heard))
	for node, at := range heard {
		out[node] = at.UnixNano()
	}
	return out, nil
}

// raftStatus is how far this hub is.
func (h *Hub) raftStatus() api.Standing {
	s := h.node.Stats()
	return api.Standing{Term: s.Term, LastIndex: s.LastIndex}
}

// serveLogs passes a task's output on to another hub.
func (h *Hub) serveLogs(ctx context.Context, _ string, body []byte, w io.Writer) error {
	q, err := decode[logsRequest](body)
	if err != nil {
		return err
	}
	out, err := h.gateway.Logs(ctx, q.Node, q.Request)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, out)
	return errors.Join(err, out.Close())
}

// serveTalk passes what goes both ways between another hub and an edge on.
func (h *Hub) serveTalk(ctx context.Context, _ string, body []byte, talk rpc.Talk) error {
	q, err := decode[logsRequest](body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	edge, err := h.gateway.Talk(ctx, q.Node, q.Request)
	if err != nil {
		return err
	}
	if _, err := talk.Write(nil); err != nil { // it is open, and may stay silent for long
		return errors.Join(err, edge.Close())
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		if _, err := io.Copy(edge, talk); err != nil {
			cancel() // the other hub is gone, or the edge takes nothing
		}
	})
	_, err = io.Copy(talk, edge)
	err = errors.Join(err, talk.SetReadDeadline(time.Unix(1, 0)), edge.Close())
	asking.Wait()
	return err
}

// hubAddr returns where a hub is reached.
func (h *Hub) hubAddr(id fleet.HubID) (string, error) {
	a, ok := h.store.View().Hub(id)
	if !ok {
		return "", fleet.Errorf(fleet.CodeNotFound, "hub %s is not a member of the cluster", id)
	}
	return a.QUIC, nil
}

// askToJoin asks every hub that may be reached, until one brings the request to
// the leader.
func (h *Hub) askToJoin(ctx context.Context, p consensus.Peer) (fleet.Index, error) {
	if h.isLeader() {
		return h.node.Add(ctx, p)
	}
	err := error(noLeader())
	for _, addr := range h.otherHubAddrs() {
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		index, callErr := callHub[consensus.Peer, fleet.Index](callCtx, h, addr, methodJoin, p)
		cancel()
		if callErr == nil {
			return index, nil
		}
		err = fmt.Errorf("ask %s to join: %w", addr, callErr)
		if isPermanent(callErr) {
			return 0, err
		}
	}
	return 0, err
}

// otherHubAddrs lists the addresses of all other hubs that this one has ever heard of.
func (h *Hub) otherHubAddrs() []string {
	var out []string
	seen := map[string]bool{h.addr.QUIC: true}
	add := func(addr string) {
		if addr != "" && !seen[addr] {
			seen[addr] = true
			out = append(out, addr)
		}
	}
	if h.creds.pending != nil {
		for _, a := range h.creds.pending.Hubs {
			add(a)
		}
	}
	for _, a := range h.store.View().Hubs() {
		if a.ID != h.hubID() {
			add(a.QUIC)
		}
	}
	if voters, err := h.node.Peers(); err == nil {
		for _, v := range voters {
			if v.ID != h.hubID() {
				add(v.Addr)
			}
		}
	}
	return out
}
