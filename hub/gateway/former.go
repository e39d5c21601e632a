package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

const (
	// cloneRetry keeps a machine with a stolen identity from asking all the time.
	cloneRetry = time.Minute
	// formerRetry is how often a newcomer asks again: the former hub may answer any time.
	formerRetry = 10 * time.Second
	// formerTimeout bounds asking the former hub, and the leader where that fails.
	formerTimeout = 5 * time.Second
	// newcomerHoldTime is how long a newcomer's session waits to be committed while neither the
	// former hub nor a leader can be asked. An election is over by then.
	newcomerHoldTime = 5 * time.Second
)

// Former is the answer of another hub, or of the leader, about a node's session on another hub.
type Former struct {
	// Answered says that the former hub was asked, and Alive that the edge answered there.
	Answered bool `cbor:"1,keyasint"`
	Alive    bool `cbor:"2,keyasint,omitempty"`
	// Silence is set if the former hub did not answer: the leader has not renewed its lease for at least that long.
	Silence time.Duration `cbor:"3,keyasint,omitempty"`
}

// formerFinding is the knowledge of a session about the node's former session.
type formerFinding struct {
	// checked is the epoch of the former session of another instance; 0: there is none.
	checked fleet.Epoch
	alive   bool          // the former session's machine lives
	unasked bool          // neither its hub nor the leader could be asked
	wait    time.Duration // above 0: after that time its hub has certainly ended the session
}

// askFormer finds out whether the node's committed session is over, where the Hello comes from
// another agent process (instance). The same process replaces its own older session at once.
//
// Invariants: silence of a hub proves nothing, as it may be cut off together with the living edge. A
// process that was once seen beside a living one stays a clone, or it would take over whenever the
// first one loses its link.
func (s *session) askFormer(ctx context.Context, node *fleet.Node) formerFinding {
	if fencedFor(node, s.hello.Instance, fleet.CodeCloned) && !node.Readmit {
		return formerFinding{alive: true}
	}
	if node.Epoch == 0 || node.Instance == s.hello.Instance || node.Instance == "" {
		return formerFinding{}
	}
	f := formerFinding{checked: node.Epoch}
	if node.SessionOver {
		return f
	}
	if node.Hub == s.gw.cfg.Hub {
		f.alive = s.gw.Probe(ctx, s.node)
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, formerTimeout)
	defer cancel()
	former, err := s.gw.cfg.Elsewhere.FormerSession(ctx, node.Hub, s.node)
	switch {
	case err != nil:
		f.unasked = true
		s.log.Info("former session not probed", "hub", node.Hub, "error", err)
	case former.Answered:
		f.alive = former.Alive
	default:
		f.wait = max(0, FormerWait-former.Silence)
	}
	return f
}

// fencedFor reports whether the node has a record that this process was refused with this code.
func fencedFor(node *fleet.Node, process fleet.InstanceID, code fleet.Code) bool {
	return slices.ContainsFunc(node.Fenced, func(f fleet.FencedSession) bool { return f.Instance == process && f.Code == code })
}

// refuseClone records the process as a clone of a living machine, and returns its refusal.
func (s *session) refuseClone(ctx context.Context, node *fleet.Node) loopCall {
	s.recordFenceOnce(ctx, node, fleet.CodeCloned, nil)
	return s.refuseSession(syncproto.Refused{
		Code:       fleet.CodeCloned,
		Message:    "another machine has the identity of node " + fleet.Short(s.node) + " and was connected when this one came",
		Hint:       "if the data directory was copied, give this machine an empty one and let it enrol; to replace the other machine by this one, stop the other and restart this agent",
		RetryAfter: cloneRetry,
	})
}

// refuseNewcomer returns the refusal of a process that must wait until the former session is certainly over: the edge
// tries again after RetryAfter. It records that the newcomer waits.
func (s *session) refuseNewcomer(ctx context.Context, node *fleet.Node, f formerFinding) loopCall {
	r := syncproto.Refused{
		Code: fleet.CodeFormerSession,
		Message: fmt.Sprintf("hub %s has the session of node %s's former agent process, and does not answer whether that session is over",
			node.Hub, fleet.Short(s.node)),
		Hint:       "if the agent was restarted, wait: it is admitted when that hub or the leader answers; if the data directory was copied, stop the copy",
		RetryAfter: formerRetry,
	}
	if !f.unasked {
		r.Hint = fmt.Sprintf("if the agent was restarted, wait: it is admitted when that hub answers, or in %s; "+
			"if the data directory was copied, stop the copy", f.wait.Round(time.Second))
		r.RetryAfter = min(f.wait, formerRetry)
		if node.Newcomer == nil || node.Newcomer.Instance != s.hello.Instance {
			s.commitFence(ctx, fleet.CodeFormerSession, nil)
		}
	}
	return s.refuseSession(r)
}
