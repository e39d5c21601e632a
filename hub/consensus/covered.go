package consensus

import (
	"context"
	"io"

	"github.com/hashicorp/raft"
)

// coveredSnapshots is a transport that acknowledges a leader's snapshot without installing
// it where this hub's log has the snapshot's last entry, as Raft's paper (section 7) has it.
//
// A leader that missed acknowledgements, for the follower was asleep, sends such a snapshot.
// raft would install it, delete the entries behind it, go on to count them, and refuse what
// the leader sends next, which sends the snapshot again, without end and without a pause.
type coveredSnapshots struct {
	*raft.NetworkTransport
	rest chan raft.RPC
}

func newCoveredSnapshots(t *raft.NetworkTransport) *coveredSnapshots {
	return &coveredSnapshots{NetworkTransport: t, rest: make(chan raft.RPC)}
}

// Consumer gives raft what is left for it. It overrides that of the NetworkTransport.
func (t *coveredSnapshots) Consumer() <-chan raft.RPC { return t.rest }

// serveRequests takes the requests of other hubs until ctx ends.
func (t *coveredSnapshots) serveRequests(ctx context.Context, requests <-chan raft.RPC, term func() uint64, log raft.LogStore) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case rpc := <-requests:
			if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && req.Term >= term() && hasLastEntry(log, req) {
				_, err := io.Copy(io.Discard, rpc.Reader)
				rpc.Respond(&raft.InstallSnapshotResponse{Term: req.Term, Success: true}, err)
				continue
			}
			select {
			case t.rest <- rpc:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// hasLastEntry reports whether a log has the last entry of a snapshot, and so all that the
// snapshot was made of, or what came of it.
func hasLastEntry(log raft.LogStore, req *raft.InstallSnapshotRequest) bool {
	var last raft.Log
	return log.GetLog(req.LastLogIndex, &last) == nil && last.Term == req.LastLogTerm
}
