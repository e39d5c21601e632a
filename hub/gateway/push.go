package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// maxQuestions bounds the unanswered questions of an edge.
const maxQuestions = 16

// desiredSender sends an edge its desired state, on its own goroutine, so that a large desired state
// on a slow link delays no heartbeat. It also ends the session when the node in the replicated state
// is revoked, has a newer session, or missed its deadline.
type desiredSender struct {
	s                 *session
	stream            chan *transport.Stream // the desired stream, once
	orphans           []fleet.AllocID        // of an incomplete list of holdings; owned by runSendLoop
	unrecordedOrphans []fleet.AllocID        // not committed yet; owned by runSendLoop

	mu        sync.Mutex
	questions []question
	received  fleet.Index // newest that the edge journaled in this session
	wake      context.CancelFunc
	woken     bool // by wakeLoop, and not seen yet
}

// question is a question of an edge about its desired state: about allocations that it holds and that no frame named,
// for missing job bodies, or for everything again.
type question struct {
	held    []fleet.AllocID
	more    bool // another question continues held
	missing []string
	again   bool
}

func newDesiredSender(s *session) *desiredSender {
	return &desiredSender{s: s, stream: make(chan *transport.Stream, 1), wake: func() {}}
}

// queueQuestion queues a question for runSendLoop. It ends the session of an edge that has maxQuestions
// unanswered ones.
func (p *desiredSender) queueQuestion(q question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.questions) == maxQuestions {
		p.s.endWithRefusal(syncproto.Refused{Code: fleet.CodeUnavailable, Message: "too many questions about the desired state at once"})
		return
	}
	p.questions = append(p.questions, q)
	p.wake()
}

func (p *desiredSender) recordReceived(index fleet.Index) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.received = max(p.received, index)
}

// runSendLoop sends changes of the desired state and answers to questions until the session ends.
func (p *desiredSender) runSendLoop(ctx context.Context, epoch fleet.Epoch) {
	var stream *transport.Stream
	select {
	case stream = <-p.stream:
	case <-ctx.Done():
		return
	}
	out := syncproto.NewWriter(stream)
	told := newDesiredProgress(p.s.node, p.s.hello.Desired == 0, p.s.log)
	variables, identities, codes := newVariableSender(p.s), newIdentitySender(p.s), newSiteCodeSender(p.s)
	neighbours, data := newNeighbourSender(p.s), newDataMover(p.s, p.wakeLoop)
	for ctx.Err() == nil {
		watch := p.s.gw.cfg.State.Watch()
		watch.DesiredIndex(p.s.node)
		node, ok := watch.Node(p.s.node)
		if !ok {
			p.s.endWithRefusal(syncproto.Refused{Code: fleet.CodeNotFound, Message: "the cluster does not know the node any more"})
			return
		}
		if r, ok := p.s.revokedRefusal(); ok { // the revocation has also made this epoch outdated
			p.s.endWithRefusal(r)
			return
		}
		if r, over := superseded(node, epoch); over {
			p.s.endWithRefusal(r)
			return
		}
		// The edge has the variables and the identities of an allocation before it hears of the allocation.
		wait := identities.sendDue(ctx)
		if variables.sendChanges(ctx, watch) {
			wait = shorter(wait, recordRetryDelay)
		}
		if codes.sendChanges(ctx, watch, node) {
			wait = shorter(wait, recordRetryDelay)
		}
		if neighbours.sendChanges(ctx, watch, node) {
			wait = shorter(wait, recordRetryDelay)
		}
		for _, f := range p.framesToSend(ctx, told, node) {
			if err := p.sendIfAllowed(ctx, out, f); err != nil {
				return // the session is over, or will notice that the stream has ended
			}
		}
		wait = shorter(wait, data.moveDue(ctx, watch))
		p.waitForChange(ctx, watch.Changed, wait)
	}
}

// wakeLoop has runSendLoop look again.
func (p *desiredSender) wakeLoop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.woken = true
	p.wake()
}

// superseded reports whether a session of this epoch has to end, and returns its refusal: the node
// has a newer session, or missed its deadline and needs a new one.
func superseded(node *fleet.Node, epoch fleet.Epoch) (syncproto.Refused, bool) {
	switch {
	case node.Epoch > epoch:
		return staleEpoch(node.ID), true
	case node.Epoch == epoch && (node.Status == fleet.NodeDisconnected || node.Status == fleet.NodeDown):
		return syncproto.Refused{
			Code:    fleet.CodeNodeNotReady,
			Message: "the node is " + string(node.Status) + ": this session missed its deadline",
			Hint:    "a new session brings it back",
		}, true
	}
	return syncproto.Refused{}, false
}

// framesToSend returns the frames for all changes and queued questions. It commits orphans that the
// edge named.
func (p *desiredSender) framesToSend(ctx context.Context, told *desiredProgress, node *fleet.Node) []syncproto.Desired {
	p.mu.Lock()
	questions, received := p.questions, max(p.received, min(node.Received, p.s.hello.Desired))
	p.questions = nil
	p.mu.Unlock()
	view := p.s.gw.cfg.State.View()
	var out []syncproto.Desired
	for _, q := range questions {
		if q.again {
			told.resetToFull()
			received = 0
		}
	}
	out = append(out, told.nextFrames(view, received)...)
	for _, q := range questions {
		out = append(out, told.missingBodyFrames(view, q.missing)...)
		frames, orphans := told.answerHoldings(view, q.held)
		out = append(out, frames...)
		p.orphans = append(p.orphans, orphans...)
		if !q.more && len(p.orphans) > 0 {
			p.unrecordedOrphans, p.orphans = p.orphans, nil
		}
	}
	if len(p.unrecordedOrphans) > 0 && p.recordOrphans(ctx, node, p.unrecordedOrphans) {
		p.unrecordedOrphans = nil
	}
	for i := range out {
		out[i].Term = p.s.gw.cfg.Term()
		if cluster, ok := view.Cluster(); ok {
			out[i].Cluster = cluster.ID
		}
	}
	return out
}

// recordOrphans commits the ids of allocations that an edge holds and the cluster does not know. The
// edge keeps them until an operator decides. false: not committed.
func (p *desiredSender) recordOrphans(ctx context.Context, node *fleet.Node, orphans []fleet.AllocID) (noted bool) {
	if slices.Equal(node.Orphans, orphans) {
		return true
	}
	p.s.log.Warn("edge holds allocations that the cluster does not know", "count", len(orphans), "allocs", fleet.ShortList(orphans))
	return p.s.commitResyncNote(ctx, state.NodeResync{
		NodeID: node.ID, Epoch: node.Epoch, Orphans: orphans, Now: time.Now().UnixNano(),
		Reason: fmt.Sprintf("keeps %d allocations that the cluster does not know: %s", len(orphans), fleet.ShortList(orphans)),
	})
}

var errEnded = errors.New("the session has ended")

// sendIfAllowed writes a frame if the session's machine permits it. errEnded: the session is over.
func (p *desiredSender) sendIfAllowed(ctx context.Context, out *syncproto.Writer, f syncproto.Desired) error {
	allowed := make(chan bool, 1)
	asked := p.s.callInLoop(ctx, func(time.Duration) []syncproto.Output {
		steps := p.s.machine.Desire(f)
		allowed <- len(steps) == 1 && steps[0].Send != nil
		return steps
	})
	if !asked || !<-allowed {
		return errEnded
	}
	return out.Write(f)
}

// recordRetryDelay is the pause before orphans that could not be committed are tried again.
const recordRetryDelay = 10 * time.Second

// waitForChange waits until changed returns, a question is queued, ctx ends, or wait (0: no time) is over. With
// uncommitted orphans it waits recordRetryDelay at most.
func (p *desiredSender) waitForChange(ctx context.Context, changed func(context.Context) error, wait time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(p.unrecordedOrphans) > 0 {
		wait = shorter(wait, recordRetryDelay)
	}
	if wait > 0 {
		defer time.AfterFunc(wait, cancel).Stop()
	}
	p.mu.Lock()
	p.wake = cancel
	asked := len(p.questions) > 0 || p.woken
	p.woken = false
	p.mu.Unlock()
	if !asked {
		_ = changed(ctx) // its error only says that ctx ended, which the caller checks
	}
}
