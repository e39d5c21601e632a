package gateway

import (
	"context"

	"skerry/hub/state"
	"skerry/syncproto"
)

// endRevokedSessions ends the session of every node that is revoked, as soon as this
// hub's state says so, until ctx ends.
func (g *Gateway) endRevokedSessions(ctx context.Context) {
	for {
		watch := g.cfg.State.Watch()
		for r := range watch.Revocations() {
			g.mu.Lock()
			s := g.sessions[r.NodeID]
			g.mu.Unlock()
			if s != nil {
				g.endIfRevoked(s)
			}
		}
		if watch.Changed(ctx) != nil {
			return
		}
	}
}

// endIfRevoked ends a session whose node is revoked.
func (g *Gateway) endIfRevoked(s *session) {
	if refused, ok := s.revokedRefusal(); ok {
		s.endWithRefusal(refused)
	}
}

// revokedRefusal is the answer to an edge that is revoked.
func (s *session) revokedRefusal() (syncproto.Refused, bool) {
	r, ok := s.gw.cfg.State.View().Revocation(s.node)
	if !ok {
		return syncproto.Refused{}, false
	}
	e := state.RevokedError("serve an edge", r)
	return syncproto.Refused{Code: e.Code, Message: e.Message, Hint: e.Hint, RetryAfter: cloneRetry}, true
}
