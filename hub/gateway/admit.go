package gateway

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/pace"
	"skerry/syncproto"
)

const (
	// commitRetryDelay is the pause between two tries to commit a session. The edge waits for
	// three heartbeats in all.
	commitRetryDelay = 250 * time.Millisecond
	// fenceTimeout bounds the commit of a fenced session's record.
	fenceTimeout = 5 * time.Second
)

// admitHello answers an edge's Hello: the returned call sends Welcome or Refused in the loop. An
// edge is welcome if no other living machine has its identity, and its journal continues the rows
// that the cluster has applied, or its Hello says that rows were lost.
func (s *session) admitHello(ctx context.Context) loopCall {
	if s.gw.leader.leaderlessTime() > s.gw.cfg.RefuseAfter || s.gw.lease.isOver() {
		return s.refuseSession(noLeader())
	}
	hello := s.hello
	view := s.gw.cfg.State.View()
	cluster, ok := view.Cluster()
	if !ok { // this hub has just started and its state is not read yet
		return s.refuseSession(syncproto.Refused{
			Code: fleet.CodeUnavailable, Message: "this hub does not know its cluster yet", RetryAfter: commitRetryDelay,
		})
	}
	node, known := view.Node(s.node)
	if known {
		if refused, ok := s.detectFork(node, hello); ok && hello.Lost == "" {
			if s.canContinueJournal(ctx, node) {
				return s.refuseSession(putBackRefusal(node))
			}
			s.recordFenceOnce(ctx, node, refused.Code, nil)
			return s.refuseSession(refused)
		}
		s.former = s.askFormer(ctx, node)
		if refuse := s.refuseFor(ctx, node, s.former); refuse != nil {
			return refuse
		}
	}
	w := syncproto.Welcome{
		Epoch: 1, TTL: s.gw.cfg.Beats.TTL(fleet.DefaultPool), HubTime: s.gw.cfg.Now().UnixNano(),
		Hubs: s.gw.cfg.Hubs(), Term: s.gw.cfg.Term(), Index: view.Index(), Hub: s.gw.cfg.Hub, Cluster: cluster.ID,
	}
	if known {
		w.Epoch, w.Applied, w.TTL = node.Epoch+1, node.Applied, s.gw.cfg.Beats.TTL(node.NodePool)
	}
	return func(now time.Duration) []syncproto.Output {
		s.hubs = w.Hubs
		return s.machine.Accept(now, w)
	}
}

// refuseFor returns the refusal of a Hello whose node may still have a session elsewhere: the former
// one is alive, or nobody can tell yet. nil: nothing forbids the new session.
func (s *session) refuseFor(ctx context.Context, node *fleet.Node, f formerFinding) loopCall {
	switch {
	case f.alive:
		return s.refuseClone(ctx, node)
	case f.wait > 0:
		return s.refuseNewcomer(ctx, node, f)
	}
	return nil
}

// refuseSession logs and counts a refusal, and returns the call that sends it and ends the session.
func (s *session) refuseSession(r syncproto.Refused) loopCall {
	s.log.Warn("session refused", "code", r.Code, "error", r.Message)
	s.gw.updateStats(func(st *Stats) { st.Refused++ })
	return func(time.Duration) []syncproto.Output { return s.machine.Refuse(r) }
}

// detectFork reports whether a Hello announces another journal than the one whose rows the cluster
// has applied, and returns the refusal for it. A journal that ends before the last applied row would
// give its next rows numbers that the cluster already has, and they would be dropped as applied.
func (s *session) detectFork(node *fleet.Node, h syncproto.Hello) (syncproto.Refused, bool) {
	behind := h.Last < node.Applied
	differs := h.Last == node.Applied && len(node.ChainHash) > 0 && !bytes.Equal(h.ChainHash, node.ChainHash)
	if !behind && !differs {
		return syncproto.Refused{}, false
	}
	return syncproto.Refused{
		Code:    fleet.CodeFork,
		Message: "the journal is not the one whose rows the cluster has applied for node " + fleet.Short(s.node),
		Hint:    forkHint(node),
		Applied: node.Applied, RetryAfter: cloneRetry,
	}, true
}

// recordFenceOnce commits a fenced session with the first rows of its journal, once for each agent
// process (instance) and code. A failure is logged only.
func (s *session) recordFenceOnce(ctx context.Context, node *fleet.Node, code fleet.Code, rows [][]byte) {
	if !fencedFor(node, s.hello.Instance, code) {
		s.commitFence(ctx, code, rows)
	}
}

// commitFence commits the record of this session as fenced. A failure is logged only.
func (s *session) commitFence(ctx context.Context, code fleet.Code, rows [][]byte) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	res, err := s.gw.cfg.Apply.Apply(ctx, state.Fence{
		NodeID: s.node,
		Session: fleet.FencedSession{
			Code: code, Instance: s.hello.Instance, BootID: s.hello.Boot, Addr: s.remoteAddr(),
			Head: s.hello.Last, Time: time.Now().UnixNano(),
		},
		Rows: rows,
	})
	if err = res.Failure(err); err != nil {
		s.log.Warn("fenced session not recorded", "code", code, "error", err)
	}
}

// handleHeartbeat answers a heartbeat. The first one commits the session in the background. A heartbeat with a node
// description commits the description, at most as often as the edge's allowance permits.
func (s *session) handleHeartbeat(ctx context.Context, e syncproto.EventHeartbeat) []syncproto.Output {
	h := e.Heartbeat
	switch {
	case e.First:
		s.runInBackground(ctx, func(ctx context.Context) loopCall { return s.commitSession(ctx, h) })
		return nil
	case h.Node != nil && s.allowance.describes.Allow():
		s.pendingDescription = nil
		s.runInBackground(ctx, func(ctx context.Context) loopCall { return s.commitNodeAndAcknowledge(ctx, h) })
		return nil
	case h.Node != nil:
		untold := h
		s.pendingDescription, h.Hash = &untold, nil // the description has arrived: the edge need not send it again
	}
	return s.acknowledgeHeartbeat(h, s.hubsIfChanged())
}

// commitSession commits the session and returns the call that opens it for updates, or refuses it.
// It retries while there is no leader, until ctx ends: the edge gives up before. nil: ctx ended.
func (s *session) commitSession(ctx context.Context, h syncproto.Heartbeat) loopCall {
	cmd := state.SessionOpen{
		NodeID: s.node, Session: s.hello.Session, Instance: s.hello.Instance, BootID: s.hello.Boot,
		Hub: s.gw.cfg.Hub, Addr: s.remoteAddr(), Head: s.hello.Last, Node: s.nodeFromHeartbeat(h), Lost: s.hello.Lost,
	}
	if s.allowance.sessions.Wait(ctx) != nil {
		return nil
	}
	for began := time.Now(); ; {
		if s.former.unasked {
			refuse, settled := s.askFormerAgain(ctx, began)
			if refuse != nil {
				return refuse
			}
			if !settled {
				if !pace.Rest(ctx, commitRetryDelay) {
					return nil
				}
				continue
			}
		}
		cmd.Follows = s.former.checked
		cmd.EvalSeed, cmd.Now = fleet.NewUUID(nil), time.Now().UnixNano()
		applyCtx, cancel := context.WithTimeout(ctx, applyTimeout)
		res, err := s.gw.cfg.Apply.Apply(applyCtx, cmd)
		cancel()
		switch {
		case err == nil && cmd.Node == nil && res.Err != nil && res.Err.Code == fleet.CodeNotFound:
			// The cluster has no such node, and the edge will be asked to describe it. This hub's own
			// state does not tell: it may lag, and a placeholder would replace the description.
			cmd.Node = s.placeholderNode()
			continue
		case err == nil && (res.Err == nil || res.Err.Code != fleet.CodeConflict):
			return s.handleCommitResult(ctx, h, res)
		case fleet.CodeOf(err) == fleet.CodeInvalid:
			return s.refuseSession(syncproto.Refused{Code: fleet.CodeInvalid, Message: err.Error()})
		}
		s.log.Info("session not committed, trying again", "error", res.Failure(err))
		s.former.unasked = true // the answer about the former session is outdated
		if !pace.Rest(ctx, commitRetryDelay) {
			return nil
		}
	}
}

// askFormerAgain repeats the question whether the node's former session is over, which nobody could answer before.
// settled means that the session may be committed. It reads the node again, because this hub may have been cut off
// with an old state.
func (s *session) askFormerAgain(ctx context.Context, began time.Time) (refuse loopCall, settled bool) {
	node, known := s.gw.cfg.State.View().Node(s.node)
	if !known {
		s.former = formerFinding{}
		return nil, true
	}
	s.former = s.askFormer(ctx, node)
	if s.former.unasked && time.Since(began) > newcomerHoldTime {
		return s.refuseNewcomer(ctx, node, s.former), false
	}
	return s.refuseFor(ctx, node, s.former), !s.former.unasked
}

// handleCommitResult returns the call that opens a committed session for updates, or that passes the
// cluster's refusal on to the edge. nil: ctx ended.
func (s *session) handleCommitResult(ctx context.Context, h syncproto.Heartbeat, res state.Result) loopCall {
	opened := res.Session
	if res.Err == nil && opened != nil && s.waitForEpoch(ctx, opened.Epoch) != nil {
		return nil
	}
	view := s.gw.cfg.State.View()
	node, known := view.Node(s.node)
	if res.Err != nil {
		// An earlier try may have been committed although its answer was lost.
		if !known || !s.isSessionOf(node) {
			return s.refuseSession(refusalFromResult(res))
		}
		opened = &state.SessionResult{Epoch: node.Epoch, Status: node.Status, Applied: node.Applied, ChainHash: node.ChainHash}
	}
	if opened == nil || !known {
		return s.refuseSession(syncproto.Refused{Code: fleet.CodeInternal, Message: "the session was committed without an answer"})
	}
	pool, index, restored := node.NodePool, view.Index(), view.Restored().Index
	return func(time.Duration) []syncproto.Output {
		if s.machine.State() == syncproto.SessionEnded {
			return nil
		}
		s.opened, s.pool, s.status = true, pool, opened.Status
		s.readyProgress.resetProgress(time.Now(), opened.Applied)
		s.gw.registerSession(s, opened.Epoch)
		s.log.Info("session open", "epoch", opened.Epoch, "status", opened.Status, "applied", opened.Applied, "head", s.hello.Last)
		ack := syncproto.HeartbeatAck{
			Epoch: opened.Epoch, Status: opened.Status, Applied: opened.Applied,
			Index: index, Term: s.gw.cfg.Term(), ChainHash: opened.ChainHash,
			Restored: restored,
		}
		return s.firstAcknowledge(ctx, h, ack)
	}
}

// waitForEpoch waits until this hub's own state has applied the session's epoch. An older state would
// look to the edge like a cluster that was restored from a backup. It waits until ctx ends: an edge
// gives up a hub that lags for long.
func (s *session) waitForEpoch(ctx context.Context, epoch fleet.Epoch) error {
	for {
		watch := s.gw.cfg.State.Watch()
		if node, known := watch.Node(s.node); known && node.Epoch >= epoch {
			return nil
		}
		if err := watch.Changed(ctx); err != nil {
			return err
		}
	}
}

// isSessionOf reports whether a node's newest committed session is this one.
func (s *session) isSessionOf(n *fleet.Node) bool {
	return n.Hub == s.gw.cfg.Hub && n.Session == s.hello.Session && n.Instance == s.hello.Instance
}

func refusalFromResult(res state.Result) syncproto.Refused {
	r := syncproto.Refused{Code: res.Err.Code, Message: res.Err.Message, Hint: res.Err.Hint}
	if res.Session != nil {
		r.Session, r.Applied = res.Session.Session, res.Session.Applied
	}
	return r
}

// firstAcknowledge answers the first heartbeat with the epoch, starts the goroutine that sends
// desired state, and records the heartbeat.
func (s *session) firstAcknowledge(ctx context.Context, h syncproto.Heartbeat, ack syncproto.HeartbeatAck) []syncproto.Output {
	ack.TTL, ack.HubTime = s.gw.cfg.Beats.TTL(s.pool), s.gw.cfg.Now().UnixNano()
	ack.NeedNode, ack.CAs = s.mustDescribe(h), s.casIfChanged(h)
	s.gw.cfg.Beats.RecordHeartbeat(s.node, ack.Epoch, ack.TTL)
	out := s.machine.Acknowledge(ack)
	s.work.Go(func() error { s.desiredSender.runSendLoop(ctx, ack.Epoch); return nil })
	return out
}

// acknowledgeHeartbeat records and answers a heartbeat that is not the first one. hubs are the
// addresses that the edge is to dial from now on; nil: no change.
func (s *session) acknowledgeHeartbeat(h syncproto.Heartbeat, hubs []string) []syncproto.Output {
	node, ok := s.gw.cfg.State.View().Node(s.node)
	if !ok {
		return s.machine.Refuse(syncproto.Refused{Code: fleet.CodeNotFound, Message: "the cluster does not know the node any more"})
	}
	s.pool, s.status = node.NodePool, node.Status
	ack := syncproto.HeartbeatAck{
		Status: node.Status, TTL: s.gw.cfg.Beats.TTL(node.NodePool), HubTime: s.gw.cfg.Now().UnixNano(),
		Hubs: hubs, NeedNode: s.mustDescribe(h), Applied: node.Applied, CAs: s.casIfChanged(h),
	}
	if node.Status != fleet.NodeReady {
		ack.Reason = node.StatusDescription
	}
	s.gw.cfg.Beats.RecordHeartbeat(s.node, s.machine.Epoch(), ack.TTL)
	return s.machine.Acknowledge(ack)
}

// commitNodeAndAcknowledge commits the node description of a heartbeat. It returns what the session's loop then has to do:
// refuse the session if the cluster refuses the description, else acknowledge the heartbeat, also if the commit failed.
func (s *session) commitNodeAndAcknowledge(ctx context.Context, h syncproto.Heartbeat) loopCall {
	if refuse := s.commitDescription(ctx, h); refuse != nil {
		return refuse
	}
	return func(time.Duration) []syncproto.Output { return s.acknowledgeHeartbeat(h, s.hubsIfChanged()) }
}

// commitDescription commits the node description of a heartbeat (NodeRegister). It returns the call
// that refuses the session where the cluster refuses the description. A failed commit is logged only.
func (s *session) commitDescription(ctx context.Context, h syncproto.Heartbeat) loopCall {
	applyCtx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := s.gw.cfg.Apply.Apply(applyCtx, state.NodeRegister{
		Node: *s.nodeFromHeartbeat(h), EvalSeed: fleet.NewUUID(nil), Now: time.Now().UnixNano(),
	})
	switch {
	case err != nil:
		s.log.Warn("node's description not committed", "error", err)
	case res.Err != nil:
		return s.refuseSession(refusalFromResult(res))
	}
	return nil
}

// nodeFromHeartbeat returns the node description of a heartbeat with defaults filled in, nil for
// none. The id and the address are the connection's, whatever the edge says.
func (s *session) nodeFromHeartbeat(h syncproto.Heartbeat) *fleet.Node {
	if h.Node == nil {
		return nil
	}
	n := *h.Node
	n.ID = s.node
	n.Address = s.remoteAddr()
	if n.Name == "" {
		n.Name = fleet.Short(s.node)
	}
	if n.NodePool == "" {
		n.NodePool = fleet.DefaultPool
	}
	if n.DescriptionHash == "" {
		n.DescriptionHash = hex.EncodeToString(h.Hash)
	}
	return &n
}

// placeholderNode is the node of a session whose edge has not described itself yet.
func (s *session) placeholderNode() *fleet.Node {
	return &fleet.Node{ID: s.node, Name: fleet.Short(s.node), NodePool: fleet.DefaultPool, Address: s.remoteAddr()}
}

// mustDescribe reports whether the edge has to send its node description: the cluster has none, or
// one with another hash than this heartbeat's.
func (s *session) mustDescribe(h syncproto.Heartbeat) bool {
	node, ok := s.gw.cfg.State.View().Node(s.node)
	if !ok || node.DescriptionHash == "" {
		return true
	}
	return len(h.Hash) > 0 && node.DescriptionHash != string(h.Hash) && node.DescriptionHash != hex.EncodeToString(h.Hash)
}

// casIfChanged returns the CAs (DER) of which the edge is to accept hubs, unless it was told them in this session or
// knows them: its node says so, and its certificate is of the one that signs. Otherwise it returns nil.
func (s *session) casIfChanged(h syncproto.Heartbeat) [][]byte {
	if s.gw.cfg.CAs == nil {
		return nil
	}
	now := s.gw.cfg.CAs()
	if now == nil || s.cas == now {
		return nil
	}
	first := s.cas == nil
	s.cas = now
	if first && s.heldCAs(h) == now.Held {
		if chain := s.conn.State().PeerCertificates; len(chain) > 0 && bytes.Equal(chain[0].AuthorityKeyId, now.Signer) {
			return nil
		}
	}
	return now.Certs
}

// heldCAs returns what the edge says of the CAs that it has, in a heartbeat or before; "": nothing that is current.
func (s *session) heldCAs(h syncproto.Heartbeat) string {
	if h.Node != nil {
		return h.Node.Attributes[fleet.AttributeCAs]
	}
	node, ok := s.gw.cfg.State.View().Node(s.node)
	if !ok || s.mustDescribe(h) {
		return ""
	}
	return node.Attributes[fleet.AttributeCAs]
}

// hubsIfChanged returns the addresses that edges may dial if they differ from those last sent to this edge, and
// records them as sent. Otherwise it returns nil.
func (s *session) hubsIfChanged() []string {
	now := s.gw.cfg.Hubs()
	if slices.Equal(now, s.hubs) {
		return nil
	}
	s.hubs = now
	return now
}
