package gateway

import (
	"context"
	"fmt"

	"skerry/fleet"
	"skerry/syncproto"
)

// canContinueJournal reports whether an edge whose journal is behind the applied rows, or a fork of them, may continue
// after the last applied row: an operator allowed it, or it is proven that the edge is no copy of a running one, and
// that no row is lost that it announced.
//
// The proof: it is the very process of the former session, so its memory went back together
// with its disk (a machine that was reverted to a snapshot); the machine of that session no
// longer answers; and the cluster has every row that a Hello announced. Rows that were recorded
// after the Hello and not sent are lost, and nobody knows of them.
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

// putBackRefusal tells an edge to number its next rows after the last one that the cluster applied.
// The edge then sends a Hello with Lost set, as after damage of its journal.
func putBackRefusal(node *fleet.Node) syncproto.Refused {
	return syncproto.Refused{
		Code: fleet.CodePutBack, Applied: node.Applied,
		Message: fmt.Sprintf("the data directory of node %s is an older copy: its journal must continue after row %d, the last one that the cluster has",
			fleet.Short(node.ID), node.Applied),
	}
}

// forkHint is the hint for an edge whose journal does not continue the applied rows.
func forkHint(node *fleet.Node) string {
	return fmt.Sprintf("if the data directory was restored from a backup, skerry node readmit %s lets this machine continue; "+
		"if it was copied from a machine that still runs, give this one an empty directory and let it enrol", fleet.Short(node.ID))
}
