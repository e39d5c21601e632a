package gateway

import (
	"context"
	"fmt"

	"skerry/fleet"
	"skerry/syncproto"
)

// canContinueJournal reports whether an edge whose journal is behind what is applied, or a fork of it,
// may go on from there: an operator said so, or it is proven that nothing is lost by it.
//
// The proof: it is the very process of the former session, so its memory went back together
// with its disk (a machine that was reverted to a snapshot); that session's machine does not
// answer any more; and the cluster has every row that was ever announced to it.
func (s *session) canContinueJournal(ctx context.Context, node *fleet.Node) bool {
	switch {
	case node.Readmit:
		return true
	case node.Instance != s.hello.Instance || node.Applied < node.JournalHead:
		return false
	case node.Hub == s.gw.cfg.Hub:
		return !s.gw.Probe(ctx, s.node)
	}
	ctx, cancel := context.WithTimeout(ctx, formerTimeout)
	defer cancel()
	former, err := s.gw.cfg.Elsewhere.FormerSession(ctx, node.Hub, s.node)
	return err == nil && former.Answered && !former.Alive
}

// putBackRefusal tells an edge to go on from where the cluster stands: it comes back with a Hello
// that says Lost, as after damage.
func putBackRefusal(node *fleet.Node) syncproto.Refused {
	return syncproto.Refused{
		Code: fleet.CodePutBack, Applied: node.Applied,
		Message: fmt.Sprintf("the data directory of node %s is an older copy: its journal goes on after row %d, which the cluster has",
			fleet.Short(node.ID), node.Applied),
	}
}

// forkHint says what to do about a journal that does not go on from what is applied.
func forkHint(node *fleet.Node) string {
	return fmt.Sprintf("was the data directory restored from a backup: skerry node readmit %s lets this machine go on. "+
		"Was it copied from a machine that lives: give this one an empty directory and let it enrol", fleet.Short(node.ID))
}
