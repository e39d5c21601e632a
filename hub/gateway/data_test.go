package gateway_test

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

const node3 = fleet.NodeID("33333333-3333-4333-8333-333333333333")

// dataEdge is the part of an edge that sends and takes data. It says what it was asked.
type dataEdge struct {
	*testEdge
	data     string // of every allocation; "": none
	cut      atomic.Bool
	notYet   atomic.Bool // it does not know the allocation yet
	requests chan string
}

// serveData answers requests until the connection ends.
func (e *dataEdge) serveData() {
	for {
		stream, err := e.conn.Accept(e.tb.Context())
		if err != nil {
			return
		}
		frames := syncproto.NewReader(stream)
		m, err := frames.Read()
		if err != nil {
			return
		}
		req, out := m.(syncproto.Request), syncproto.NewWriter(stream)
		said := req.Kind + " " + fleet.Short(req.Alloc)
		reply := syncproto.Reply{}
		switch {
		case e.notYet.Swap(false):
			reply.Error = fleet.Errorf(fleet.CodeNotFound, "not known yet")
		case req.Kind == syncproto.RequestData && e.data == "":
			reply.Error = fleet.Errorf(fleet.CodeNotFound, "no data")
		case req.Kind == syncproto.RequestNoData:
			said += fmt.Sprintf(" %s, wait %v", req.Reason, req.Wait)
		}
		if out.Write(reply) != nil {
			return
		}
		if reply.Error == nil {
			switch req.Kind {
			case syncproto.RequestData:
				_, _ = io.WriteString(stream, e.data) // the hub may have gone
			case syncproto.RequestTakeData:
				if e.cut.Swap(false) {
					said += " cut"
					stream.Abort()
				} else {
					said += " " + e.takeData(frames, out)
				}
			}
		}
		_ = stream.CloseWrite() // the hub may have gone
		select {
		case e.requests <- said:
		case <-e.tb.Context().Done():
			return
		}
	}
}

// takeData takes an archive that ends with a dot.
func (e *dataEdge) takeData(frames *syncproto.Reader, out *syncproto.Writer) string {
	if out.Write(syncproto.Reply{}) != nil {
		return "gone"
	}
	var text []byte
	for b := make([]byte, 1); ; text = append(text, b[0]) {
		if _, err := io.ReadFull(frames.Rest(), b); err != nil {
			return "cut after " + string(text)
		}
		if b[0] == '.' {
			_ = out.Write(syncproto.Reply{}) // the hub may have gone
			return string(text)
		}
	}
}

// mustBegin opens a session whose edge has data, or none.
func mustBegin(t *testing.T, h *hub, node fleet.NodeID, data string) *dataEdge {
	t.Helper()
	e := &dataEdge{testEdge: h.mustDial(t, node), data: data, requests: make(chan string, 16)}
	go e.serveData()
	e.openSession(1, fleet.InstanceID("agent-"+node))
	return e
}

func (e *dataEdge) next(want string) {
	e.tb.Helper()
	select {
	case got := <-e.requests:
		if !strings.Contains(got, want) {
			e.tb.Fatalf("%q, want %q", got, want)
		}
	case <-time.After(patience):
		e.tb.Fatalf("no request: want %q", want)
	}
}

// askForData asks the hub for data, which no edge may do, and expects no answer.
func (e *dataEdge) askForData(id fleet.AllocID) {
	e.tb.Helper()
	stream, err := e.conn.Open(e.tb.Context())
	if err == nil {
		err = syncproto.NewWriter(stream).Write(syncproto.Request{Kind: syncproto.RequestData, Alloc: id})
	}
	if err == nil {
		err = stream.SetReadDeadline(time.Now().Add(time.Second))
	}
	if err != nil {
		e.tb.Fatal(err)
	}
	if m, err := syncproto.NewReader(stream).Read(); err == nil {
		e.tb.Errorf("the hub answered %+v", m)
	}
}

// placeMoving places an allocation whose data moves with it.
func (h *hub) placeMoving(node fleet.NodeID, id, previous fleet.AllocID) {
	h.tb.Helper()
	h.mustApply(state.JobRegister{Now: time.Now().UnixNano(), Job: &fleet.Job{
		Namespace: fleet.DefaultNamespace, ID: "shop", Name: "shop", Type: fleet.JobTypeService, Datacenters: []string{"dc1"}, NodePool: fleet.DefaultPool, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1, EphemeralDisk: fleet.EphemeralDisk{SizeMB: 300, Migrate: true}, Tasks: []fleet.Task{{Name: "t", Driver: "raw_exec"}}}},
	}})
	stored, _ := h.View().Job(fleet.DefaultNamespace, "shop")
	h.mustPlan(node, fleet.Alloc{
		ID: id, Namespace: stored.Namespace, Name: "shop.g[0]", NodeID: node, JobID: stored.ID, Job: stored, JobVersion: stored.Version, JobHash: stored.SpecHash, TaskGroup: "g",
		PreviousAllocation: previous, DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
	})
}

// report applies rows of the edge.
func (e *dataEdge) report(first fleet.Seq, ts ...fleet.Transition) {
	e.tb.Helper()
	e.sendMessage(syncproto.StreamUpdates, e.newUpdates(first, ts...))
	expect[syncproto.Applied](e.testEdge, syncproto.StreamUpdates)
}

func ended(id fleet.AllocID) fleet.Transition {
	return fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientComplete}
}

// TestDataIsBrought: a replacement gets the data of its predecessor when that has ended, once. No other edge is sent any of
// it, whatever the other one holds.
func TestDataIsBrought(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	old, other := mustBegin(t, h, node1, "sales of June."), mustBegin(t, h, node3, "another's.")
	h.placeMoving(node1, alloc1, "")
	old.report(1, running(alloc1))
	target := mustBegin(t, h, node2, "")
	target.notYet.Store(true)
	h.placeMoving(node2, alloc2, alloc1)
	target.next("nodata") // it is not known yet
	target.next("nodata aaaaaaaa that allocation has not ended on edge edge-11111111, wait true")
	target.cut.Store(true)
	old.report(2, ended(alloc1))
	old.next("data aaaaaaaa")
	target.next("takedata aaaaaaaa cut")
	old.next("data aaaaaaaa")
	target.next("takedata aaaaaaaa sales of June")
	old.next("releasedata aaaaaaaa")
	other.askForData(alloc1)
	select {
	case got := <-old.requests:
		t.Errorf("another edge could ask: %s", got)
	case got := <-other.requests:
		t.Errorf("another edge was asked: %s", got)
	default:
	}
}

// TestDataThatNeverComes: the edge is told at once where the data is, or that it is no more.
func TestDataThatNeverComes(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	old := mustBegin(t, h, node1, "")
	h.placeMoving(node1, alloc1, "")
	old.report(1, running(alloc1))
	target := mustBegin(t, h, node2, "")
	h.placeMoving(node2, alloc2, alloc1)
	target.next("has not ended")
	h.mustApply(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node1, Epoch: h.mustNode(node1).Epoch, Reason: "missed"}}, Now: time.Now().UnixNano()})
	target.next("nodata aaaaaaaa it stays on edge edge-11111111, which is away since 20")

	const third, lost = fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000003"), fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000009")
	h.placeMoving(node2, third, lost)
	target.next("nodata aaaaaaaa the cluster does not know it any more, wait false")

	const emptied, fourth = fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000005"), fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000004")
	source := mustBegin(t, h, node3, "")
	h.placeMoving(node3, emptied, "")
	source.report(1, running(emptied), ended(emptied))
	h.placeMoving(node2, fourth, emptied)
	source.next("data aaaaaaaa")
	target.next("nodata aaaaaaaa edge edge-33333333 has no data of it any more, wait false")
}

// TestDataBehindOneThatNeverBegan: a predecessor that never began has no data, but the one before it.
func TestDataBehindOneThatNeverBegan(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	oldest, between := mustBegin(t, h, node1, "sales of May."), mustBegin(t, h, node3, "")
	const newest = fleet.AllocID("aaaaaaaa-0000-4000-8000-000000000003")
	h.placeMoving(node1, alloc1, "")
	oldest.report(1, running(alloc1), ended(alloc1))
	h.placeMoving(node3, alloc2, alloc1)
	oldest.next("data aaaaaaaa")
	between.next("takedata aaaaaaaa sales of May")
	oldest.next("releasedata aaaaaaaa")
	between.report(1, ended(alloc2))
	target := mustBegin(t, h, node2, "")
	h.placeMoving(node2, newest, alloc2)
	between.next("data aaaaaaaa")
	oldest.next("data aaaaaaaa")
	target.next("takedata aaaaaaaa sales of May")
}
