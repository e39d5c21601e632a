package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// serveVariables answers requests with variables, and passes each on.
func (w *testEdge) serveVariables(ctx context.Context, out chan<- syncproto.Request) {
	for {
		stream, err := w.conn.Accept(ctx)
		if err != nil {
			return
		}
		m, err := syncproto.NewReader(stream).Read()
		if err != nil {
			return
		}
		if err := syncproto.NewWriter(stream).Write(syncproto.Reply{}); err != nil {
			return
		}
		if err := stream.CloseWrite(); err != nil {
			return
		}
		select {
		case out <- m.(syncproto.Request):
		case <-ctx.Done():
			return
		}
	}
}

// TestVariablesAreDelivered: an edge gets the variables that its allocations may read, and no others, before it hears of
// the allocations. It gets changes, and is told of a deletion.
func TestVariablesAreDelivered(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	h.mustApply(state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k"}, Wrapped: []byte{1}, WrappedBy: "s"}})
	job := "nomad/jobs/job-" + fleet.Short(alloc1)
	store := func(path, value string) {
		t.Helper()
		h.mustApply(state.VariableStore{Namespace: fleet.DefaultNamespace, Path: path, Now: time.Now().UnixNano(), Sealed: state.SealedItems{KeyID: "k", Nonce: []byte{1}, Data: []byte(value)}})
	}
	store(job+"/g/t", "one")
	store("nomad/jobs/other", "another job's")
	store("app/db", "nobody's")
	w := h.mustDial(t, node1)
	requests := make(chan syncproto.Request)
	go w.serveVariables(t.Context(), requests)
	w.openSession(1, "agent-1")
	h.mustPlace(node1, alloc1)
	next := func(want string) {
		t.Helper()
		select {
		case req := <-requests:
			got := fmt.Sprint(req.Complete)
			for _, d := range req.Variables {
				items, err := syncproto.DecodeItems(d.Items)
				if err != nil && len(d.Items) > 0 {
					t.Fatal(err)
				}
				got += fmt.Sprintf(" %s:%s:%t", d.Path, items["k"], d.Deleted)
				if row, ok := h.Store.View().Variable(d.Namespace, d.Path); ok && (row.ModifyTime == 0 || d.ModifyTime != row.ModifyTime) {
					t.Errorf("%s was stored at %d, the edge is told %d", d.Path, row.ModifyTime, d.ModifyTime)
				}
			}
			if req.Kind != syncproto.RequestVariables || got != want {
				t.Fatalf("%s %s, want %s", req.Kind, got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no request: want %s", want)
		}
	}
	next("false " + job + "/g/t:one:false")
	if d := expect[syncproto.Desired](w, syncproto.StreamDesired); len(d.Run) != 1 {
		t.Fatalf("desired %+v", d)
	}
	store(job, "two")
	next("false " + job + ":two:false")
	store(job+"/g/t", "three")
	next("false " + job + "/g/t:three:false")
	h.mustApply(state.VariableDelete{Namespace: fleet.DefaultNamespace, Path: job, TellEdges: true})
	next("false " + job + "::true")
	store(job, "again")
	next("false " + job + ":again:false")
	// A hub that has lost a variable without a deletion, as by a restore, says nothing of it.
	h.mustApply(state.VariableDelete{Namespace: fleet.DefaultNamespace, Path: job})
	store(job+"/g/t", "four")
	next("false " + job + "/g/t:four:false")
	// An allocation that is to stop reads no further change.
	h.mustStop(alloc1, "stopped")
	expect[syncproto.Desired](w, syncproto.StreamDesired)
	store(job+"/g/t", "five")
	h.mustPlace(node1, alloc9)
	other := "nomad/jobs/job-" + fleet.Short(alloc9)
	store(other, "six")
	next("false " + other + ":six:false")
}
