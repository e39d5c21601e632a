package consensus

import (
	"context"
	"io"

	"github.com/hashicorp/raft"
)

// coveredSnapshots is a transport that acknowledges a snapshot without installing it if this hub's log has
// its last entry, as section 7 of Raft's paper says.
//
// A leader sends such a snapshot if it missed acknowledgements, for example because the follower was
// suspended. raft would install it, delete the entries after it while still counting them, and refuse the
// leader's next entries. The leader would then send the snapshot again, forever and without a pause.
type coveredSnapshots struct {
	*raft.NetworkTransport
	rest chan raft.RPC // requests that raft itself handles
}

// newCoveredSnapshots wraps raft's transport t. serveRequests must run for raft to receive requests.
func newCoveredSnapshots(t *raft.NetworkTransport) *coveredSnapshots {
	return &coveredSnapshots{NetworkTransport: t, rest: make(chan raft.RPC)}
}

// Consumer returns the requests that raft has to handle. It overrides the method of NetworkTransport.
func (t *coveredSnapshots) Consumer() <-chan raft.RPC { return t.rest }

// serveRequests answers snapshots that the log covers, and passes all other requests to raft, until ctx
// ends.
func (t *coveredSnapshots) serveRequests(ctx context.Context, requests <-chan raft.RPC, term func() uint64, log raft.LogStore) {
	for {
		select {
		case <-ctx.Done():
			return
		case rpc := <-requests:
			if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && req.Term >= term() && hasLastEntry(log, req) {
				_, err := io.Copy(io.Discard, rpc.Reader)
				rpc.Respond(&raft.InstallSnapshotResponse{Term: req.Term, Success: true}, err)
				continue
			}
			select {
			case t.rest <- rpc:
			case <-ctx.Done():
				return
			}
		}
	}
}

// hasLastEntry reports whether a log has the last entry of a snapshot. Then it has, or has applied, all
// entries that the snapshot covers.
func hasLastEntry(log raft.LogStore, req *raft.InstallSnapshotRequest) bool {
	var last raft.Log
	return log.GetLog(req.LastLogIndex, &last) == nil && last.Term == req.LastLogTerm
}
