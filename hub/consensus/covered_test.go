package consensus_test

import (
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"skerry/hub/consensus"
)

// A follower is not told to install a snapshot whose last entry is in its log; everything
// else goes to raft.
func TestCoveredSnapshotsAreNotInstalled(t *testing.T) {
	log := raft.NewInmemStore()
	if err := log.StoreLogs([]*raft.Log{{Index: 539, Term: 6}, {Index: 540, Term: 6}, {Index: 541, Term: 6}}); err != nil {
		t.Fatal(err)
	}
	requests := make(chan raft.RPC)
	rest := consensus.ServeRequests(t, requests, func() uint64 { return 7 }, log)
	for name, c := range map[string]struct {
		request any
		covered bool
	}{
		"last entry in the log":      {&raft.InstallSnapshotRequest{Term: 7, LastLogIndex: 539, LastLogTerm: 6}, true},
		"of a newer leader":          {&raft.InstallSnapshotRequest{Term: 8, LastLogIndex: 541, LastLogTerm: 6}, true},
		"of a former leader":         {&raft.InstallSnapshotRequest{Term: 6, LastLogIndex: 539, LastLogTerm: 6}, false},
		"another entry in its place": {&raft.InstallSnapshotRequest{Term: 7, LastLogIndex: 539, LastLogTerm: 5}, false},
		"before the log":             {&raft.InstallSnapshotRequest{Term: 7, LastLogIndex: 538, LastLogTerm: 6}, false},
		"behind the log":             {&raft.InstallSnapshotRequest{Term: 7, LastLogIndex: 542, LastLogTerm: 6}, false},
		"entries and no snapshot":    {&raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 539, PrevLogTerm: 6}, false},
	} {
		data, answers := strings.NewReader("the snapshot"), make(chan raft.RPCResponse, 1)
		requests <- raft.RPC{Command: c.request, Reader: data, RespChan: answers}
		select {
		case rpc := <-rest:
			if c.covered || rpc.Command != c.request || data.Len() == 0 {
				t.Errorf("%s: left to raft", name)
			}
		case answer := <-answers:
			said, ok := answer.Response.(*raft.InstallSnapshotResponse)
			if !c.covered || !ok || !said.Success || answer.Error != nil {
				t.Errorf("%s: answered %+v", name, answer)
			}
			if left, _ := io.ReadAll(data); len(left) > 0 {
				t.Errorf("%s: %d bytes are left on the stream", name, len(left))
			}
		}
	}
}
