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
	"skerry/hub/peers"
	"skerry/hub/state"
	"skerry/syncproto"
)

// Methods that hubs call on each other. Names are never used again for something
// else.
const (
	methodApply   = "raft.apply"             // an encoded command; gives an encoded Result
	methodCatchUp = "raft.catchup"           // nothing; gives the index to reach
	methodJoin    = "hub.join"               // a consensus.Peer; gives the index of the change
	methodRemove  = "hub.remove"             // a hub's id
	methodLead    = "hub.lead"               // the id of the hub that shall lead, or none
	methodDequeue = "eval.dequeue"           // job types; gives a broker.Delivery
	methodAck     = "eval.ack"               // a delivered
	methodNack    = "eval.nack"              // a delivered
	methodSubmit  = "plan.submit"            // a fleet.Plan; gives a fleet.PlanResult
	methodBeats   = "liveness.beats"         // beats
	methodHeard   = "liveness.heard"         // nothing; gives times by node
	methodProbe   = "gateway.probe"          // a node's id; gives whether its edge answered
	methodFormer  = "gateway.former"         // a formerSession; the leader gives a gateway.Former
	methodLease   = "gateway.lease"          // nothing; the leader renews the caller's lease on its sessions
	methodStand   = "raft.standing"          // nothing; gives an api.Standing
	methodRestore = "state.restore"          // a state.SnapshotRestore, whose parts are in the log; gives the index of its entry
	methodGetKey  = "identity.statekey"      // nothing; gives the state key that the cluster's secrets are sealed with
	methodKeepKey = "identity.keep-statekey" // a state key, which they will be sealed with
	methodLogs    = "gateway.logs"           // a logsRequest; answers with a stream
	methodTalk    = "gateway.talk"           // a logsRequest; goes both ways
)

const (
	callTimeout = 10 * time.Second
	// dequeueFor is how long one call waits at the leader for an evaluation. Who calls
	// from elsewhere listens for longer, dequeueCall: what is handed out when it listens
	// no more stays with it until the delivery's deadline, and nobody looks at it.
	dequeueFor  = time.Minute
	dequeueCall = dequeueFor + callTimeout
)

// delivered names a delivery of an evaluation.
type delivered struct {
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
	p.Handle(methodCatchUp, answers(func(ctx context.Context, _ string, _ struct{}) (fleet.Index, error) {
		return h.node.ReadIndex(ctx)
	}))
	p.Handle(methodJoin, answers(h.joinFor))
	p.Handle(methodRemove, answers(func(ctx context.Context, _ string, id fleet.HubID) (struct{}, error) {
		return struct{}{}, h.node.Remove(ctx, id)
	}))
	p.Handle(methodLead, answers(func(ctx context.Context, _ string, id fleet.HubID) (struct{}, error) {
		return struct{}{}, h.node.Transfer(ctx, id)
	}))
	p.Handle(methodDequeue, answers(func(ctx context.Context, from string, types []string) (broker.Delivery, error) {
		return handOut(ctx, h.broker, fleet.HubID(from), types)
	}))
	p.Handle(methodAck, answers(func(_ context.Context, _ string, d delivered) (struct{}, error) {
		return struct{}{}, h.broker.Ack(d.Eval, d.Token)
	}))
	p.Handle(methodNack, answers(func(_ context.Context, _ string, d delivered) (struct{}, error) {
		return struct{}{}, h.broker.Nack(d.Eval, d.Token)
	}))
	p.Handle(methodSubmit, answers(func(ctx context.Context, _ string, plan fleet.Plan) (fleet.PlanResult, error) {
		res, err := h.planner.Submit(ctx, plan)
		return nodesOnly(res), err
	}))
	p.Handle(methodBeats, answers(func(_ context.Context, _ string, beats []liveness.Beat) (struct{}, error) {
		h.liveness.Beat(beats...)
		return struct{}{}, nil
	}))
	p.Handle(methodHeard, answers(func(context.Context, string, struct{}) (map[fleet.NodeID]int64, error) {
		return h.heardHere()
	}))
	p.Handle(methodProbe, answers(func(ctx context.Context, _ string, node fleet.NodeID) (bool, error) {
		return h.gateway.Probe(ctx, node), nil
	}))
	p.Handle(methodFormer, answers(func(ctx context.Context, _ string, q formerSession) (gateway.Former, error) {
		return h.formerAsLeader(ctx, q)
	}))
	p.Handle(methodLease, answers(func(ctx context.Context, from string, _ struct{}) (struct{}, error) {
		return struct{}{}, h.renewLeaseFor(ctx, fleet.HubID(from))
	}))
	p.Handle(methodStand, answers(func(context.Context, string, struct{}) (api.Standing, error) {
		return h.standing(), nil
	}))
	p.Handle(methodRestore, answers(func(ctx context.Context, from string, c state.SnapshotRestore) (fleet.Index, error) {
		return h.restoreHere(ctx, from, c)
	}))
	p.Handle(methodGetKey, answers(h.giveStateKey))
	p.Handle(methodKeepKey, answers(h.keepStateKey))
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

// handOut waits for an evaluation for a worker of another hub.
func handOut(ctx context.Context, b *broker.Broker, to fleet.HubID, types []string) (broker.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, dequeueFor)
	defer cancel()
	return b.DequeueFor(ctx, to, types)
}

// answers makes a handler of a function of decoded values.
func answers[Q, A any](f func(ctx context.Context, from string, q Q) (A, error)) func(context.Context, string, []byte) ([]byte, error) {
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

// call asks the hub at addr.
func call[Q, A any](ctx context.Context, h *Hub, addr, method string, q Q) (A, error) {
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
	if !ok || id == h.id() {
		var none A
		return none, noLeader()
	}
	return call[Q, A](ctx, h, addr, method, q)
}

func noLeader() *fleet.Error {
	return fleet.Errorf(fleet.CodeUnavailable, "no hub leads the cluster at the moment").
		WithHint("an election is going on, or most hubs are out of reach")
}

// leads reports whether this hub leads.
func (h *Hub) leads() bool {
	_, ok := h.node.Leads()
	return ok
}

// joinFor takes a hub into the cluster, or its new address: at the leader, to
// which a follower hands the request on.
func (h *Hub) joinFor(ctx context.Context, from string, p consensus.Peer) (fleet.Index, error) {
	if h.leads() {
		h.log.Info("hub joins", "hub", p.ID, "addr", p.Addr, "voter", p.Voter, "by", from)
		return h.node.Add(ctx, p)
	}
	return callLeader[consensus.Peer, fleet.Index](ctx, h, methodJoin, p)
}

// heardHere is when this hub, which must lead, heard each node (UnixNano).
func (h *Hub) heardHere() (map[fleet.NodeID]int64, error) {
	heard, ok := h.liveness.LastHeard()
	if !ok {
		return nil, fleet.Errorf(fleet.CodeNotLeader, "hub %s does not lead", h.id())
	}
	out := make(map[fleet.NodeID]int64, len(heard))
	for node, at := range heard {
		out[node] = at.UnixNano()
	}
	return out, nil
}

// standing is how far this hub is.
func (h *Hub) standing() api.Standing {
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
func (h *Hub) serveTalk(ctx context.Context, _ string, body []byte, talk peers.Talk) error {
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
	if h.leads() {
		return h.node.Add(ctx, p)
	}
	err := error(noLeader())
	for _, addr := range h.others() {
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		index, callErr := call[consensus.Peer, fleet.Index](callCtx, h, addr, methodJoin, p)
		cancel()
		if callErr == nil {
			return index, nil
		}
		err = fmt.Errorf("ask %s to join: %w", addr, callErr)
		if final(callErr) {
			return 0, err
		}
	}
	return 0, err
}

// others lists the addresses of all other hubs that this one has ever heard of.
func (h *Hub) others() []string {
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
		if a.ID != h.id() {
			add(a.QUIC)
		}
	}
	if voters, err := h.node.Peers(); err == nil {
		for _, v := range voters {
			if v.ID != h.id() {
				add(v.Addr)
			}
		}
	}
	return out
}
