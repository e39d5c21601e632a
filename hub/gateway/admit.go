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
	// commitRetryDelay is how long after a session that could not be committed it is
	// tried again; the edge waits for three beats.
	commitRetryDelay = 250 * time.Millisecond
	// fenceTimeout bounds the record of what was refused.
	fenceTimeout = 5 * time.Second
)

// admitHello answers a Hello: who says it is a member, is the only one with that
// identity, and its journal continues what the cluster has, or is said to have lost
// rows: that one is told where to go on.
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

// refuseFor refuses what a finding forbids; nil: nothing.
func (s *session) refuseFor(ctx context.Context, node *fleet.Node, f formerFinding) loopCall {
	switch {
	case f.alive:
		return s.refuseClone(ctx, node)
	case f.wait > 0:
		return s.refuseNewcomer(ctx, node, f)
	}
	return nil
}

func (s *session) refuseSession(r syncproto.Refused) loopCall {
	s.log.Warn("session refused", "code", r.Code, "error", r.Message)
	s.gw.updateStats(func(st *Stats) { st.Refused++ })
	return func(time.Duration) []syncproto.Output { return s.machine.Refuse(r) }
}

// detectFork reports whether the journal that a Hello announces is not the one whose
// beginning the cluster has applied. One that ends before what is applied, or is
// empty, would number other rows alike, and they would pass for applied.
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

// recordFenceOnce commits what was refused, once for each process that tried.
func (s *session) recordFenceOnce(ctx context.Context, node *fleet.Node, code fleet.Code, rows [][]byte) {
	if !fencedFor(node, s.hello.Instance, code) {
		s.commitFence(ctx, code, rows)
	}
}

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

// handleHeartbeat answers a heartbeat: the first one commits the session.
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
		s.pendingDescription, h.Hash = &untold, nil // it is here: the edge need not say it again
	}
	return s.acknowledgeHeartbeat(h, s.hubsIfChanged())
}

// commitSession commits the session. While there is no leader it tries again: the edge gives up
// first.
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
		s.former.unasked = true // what was found out is old by now
		if !pace.Rest(ctx, commitRetryDelay) {
			return nil
		}
	}
}

// askFormerAgain asks what could not be asked before; settled says that the session may
// be committed. This hub may itself have been the one that was cut off, with an old
// picture of the node.
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

// handleCommitResult opens the way for updates, or refuses what the cluster refused.
func (s *session) handleCommitResult(ctx context.Context, h syncproto.Heartbeat, res state.Result) loopCall {
	opened := res.Session
	if res.Err == nil && opened != nil && s.waitForEpoch(ctx, opened.Epoch) != nil {
		return nil
	}
	view := s.gw.cfg.State.View()
	node, known := view.Node(s.node)
	if res.Err != nil {
		// An earlier try may have been committed without our hearing of it.
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

// waitForEpoch waits until this hub's state has the session. What it shows before is older than
// what its edge has seen, and would pass for a cluster that went back. A hub that lags
// for long is left: the edge gives up first.
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

// firstAcknowledge tells the edge its epoch and lets desired state flow.
func (s *session) firstAcknowledge(ctx context.Context, h syncproto.Heartbeat, ack syncproto.HeartbeatAck) []syncproto.Output {
	ack.TTL, ack.HubTime = s.gw.cfg.Beats.TTL(s.pool), s.gw.cfg.Now().UnixNano()
	ack.NeedNode = s.mustDescribe(h)
	s.gw.cfg.Beats.RecordHeartbeat(s.node, ack.Epoch, ack.TTL)
	out := s.machine.Acknowledge(ack)
	s.work.Go(func() error { s.desiredSender.runSendLoop(ctx, ack.Epoch); return nil })
	return out
}

// acknowledgeHeartbeat answers a later beat.
func (s *session) acknowledgeHeartbeat(h syncproto.Heartbeat, hubs []string) []syncproto.Output {
	node, ok := s.gw.cfg.State.View().Node(s.node)
	if !ok {
		return s.machine.Refuse(syncproto.Refused{Code: fleet.CodeNotFound, Message: "the cluster does not know the node any more"})
	}
	s.pool, s.status = node.NodePool, node.Status
	ack := syncproto.HeartbeatAck{
		Status: node.Status, TTL: s.gw.cfg.Beats.TTL(node.NodePool), HubTime: s.gw.cfg.Now().UnixNano(),
		Hubs: hubs, NeedNode: s.mustDescribe(h), Applied: node.Applied,
	}
	if node.Status != fleet.NodeReady {
		ack.Reason = node.StatusDescription
	}
	s.gw.cfg.Beats.RecordHeartbeat(s.node, s.machine.Epoch(), ack.TTL)
	return s.machine.Acknowledge(ack)
}

// commitNodeAndAcknowledge commits what the edge says of its machine, and acknowledges.
func (s *session) commitNodeAndAcknowledge(ctx context.Context, h syncproto.Heartbeat) loopCall {
	if refuse := s.commitDescription(ctx, h); refuse != nil {
		return refuse
	}
	return func(time.Duration) []syncproto.Output { return s.acknowledgeHeartbeat(h, s.hubsIfChanged()) }
}

// commitDescription returns a refusal, nil for none.
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

// nodeFromHeartbeat is the description that travelled with a beat, nil for none. What is
// the cluster's to say is not taken from it.
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

func (s *session) placeholderNode() *fleet.Node {
	return &fleet.Node{ID: s.node, Name: fleet.Short(s.node), NodePool: fleet.DefaultPool, Address: s.remoteAddr()}
}

// mustDescribe reports whether the cluster lacks the description that a beat
// names.
func (s *session) mustDescribe(h syncproto.Heartbeat) bool {
	node, ok := s.gw.cfg.State.View().Node(s.node)
	if !ok || node.DescriptionHash == "" {
		return true
	}
	return len(h.Hash) > 0 && node.DescriptionHash != string(h.Hash) && node.DescriptionHash != hex.EncodeToString(h.Hash)
}

// hubsIfChanged returns the addresses to dial where they are not those that the
// edge was told last.
func (s *session) hubsIfChanged() []string {
	now := s.gw.cfg.Hubs()
	if slices.Equal(now, s.hubs) {
		return nil
	}
	s.hubs = now
	return now
}
