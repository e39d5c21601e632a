package edge

import (
	"context"
	"io"
	"strings"
	"time"

	"skerry/edge/allocs"
	"skerry/edge/journal"
	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto"
)

// What follows lets rooms use each other that do not know each other.

// allocsDesired is the journal as the allocations want it.
type allocsDesired struct{ j *journal.Journal }

func (d allocsDesired) Wants(ctx context.Context) (map[fleet.AllocID]allocs.DesiredAlloc, error) {
	held, err := d.j.Desired(ctx)
	if err != nil {
		return nil, err
	}
	wants := make(map[fleet.AllocID]allocs.DesiredAlloc, len(held.Allocs))
	for id, a := range held.Allocs {
		wants[id] = allocs.DesiredAlloc(a)
	}
	return wants, nil
}

func (d allocsDesired) Deliver(ctx context.Context, delivery syncproto.Desired) (missing []string, err error) {
	return d.j.PutDesired(ctx, delivery)
}

func (d allocsDesired) Adopt(ctx context.Context, spec syncproto.Desired) error {
	return d.j.Adopt(ctx, spec)
}

func (d allocsDesired) Stop(ctx context.Context, stop syncproto.DesiredStop, ts ...fleet.Transition) error {
	return d.j.Stop(ctx, stop, ts...)
}

func (d allocsDesired) KeepStopped(ctx context.Context, ids []fleet.AllocID, kept bool, ts ...fleet.Transition) error {
	return d.j.KeepStopped(ctx, ids, kept, ts...)
}

func (d allocsDesired) Remove(ctx context.Context, id fleet.AllocID) error {
	return d.j.Remove(ctx, id)
}

// allocsJournal is the journal as the allocations want it.
type allocsJournal struct{ j *journal.Journal }

func (p allocsJournal) States() map[fleet.AllocID]allocs.State { return allocStates(p.j.States()) }

func allocStates(held map[fleet.AllocID]journal.State) map[fleet.AllocID]allocs.State {
	states := make(map[fleet.AllocID]allocs.State, len(held))
	for id, s := range held {
		states[id] = allocs.State(s)
	}
	return states
}

func (p allocsJournal) Acknowledged() fleet.Seq               { return p.j.Head().Acknowledged }
func (p allocsJournal) Away() time.Duration                   { return p.j.Away() }
func (p allocsJournal) HubNow() (time.Time, bool)             { return p.j.HubNow() }
func (p allocsJournal) SetCheckpointInterval(d time.Duration) { p.j.SetCheckpointInterval(d) }

func (p allocsJournal) Fenced() string {
	l, err := p.j.Link(context.Background())
	if err != nil {
		return ""
	}
	return l.Fenced
}

// linkJournal is the journal as the link wants it.
type linkJournal struct {
	*journal.Journal
	now func() allocs.Moment
}

func (l linkJournal) Head() link.Head { return link.Head(l.Journal.Head()) }

// Rebase also says the state of every allocation again: the cluster may have missed
// what led to it.
func (l linkJournal) Rebase(ctx context.Context, applied fleet.Seq, chain []byte) error {
	return l.Journal.Rebase(ctx, applied, chain, func(states map[fleet.AllocID]journal.State) []fleet.Transition {
		return allocs.Restatement(allocStates(states), l.now(), "said again: rows before it are lost")
	})
}

// linkMemory is where the link keeps what it remembers.
type linkMemory struct{ e *Edge }

func (m linkMemory) Load(ctx context.Context) (link.Remembered, error) {
	l, err := m.e.journal.Link(ctx)
	return link.Remembered(l), err
}

func (m linkMemory) Keep(ctx context.Context, r link.Remembered, rows ...fleet.Transition) error {
	before, err := m.e.journal.Link(ctx)
	if err != nil {
		return err
	}
	var reconnected func(map[fleet.AllocID]journal.State) []fleet.Transition
	if r.Rejoined && !before.Rejoined {
		reconnected = func(states map[fleet.AllocID]journal.State) []fleet.Transition {
			return allocs.Reconnected(allocStates(states), m.e.currentMoment())
		}
	}
	if err := m.e.journal.PutLinkAnd(ctx, journal.Link(r), reconnected, rows...); err != nil {
		return err
	}
	if before.Fenced != r.Fenced {
		m.e.allocs.TriggerReconcile() // what was held back may start, or the other way round
	}
	return nil
}

func (m linkMemory) NoteHeartbeat(ctx context.Context, hubTime int64) error {
	err := m.e.journal.NoteHeartbeat(ctx, hubTime)
	m.e.noteHeartbeatAck()
	return err
}

func (m linkMemory) Away() time.Duration { return m.e.journal.Away() }

func (e *Edge) currentMoment() allocs.Moment {
	return allocs.Moment{Boot: e.boot, Mono: e.journal.Mono(), Wall: e.cfg.Now()}
}

// linkEdge is the edge as the link wants it.
type linkEdge struct{ e *Edge }

func (l linkEdge) Describe() (hash []byte, node fleet.Node) {
	node = l.e.describer.Node()
	return []byte(node.DescriptionHash), node
}

func (l linkEdge) Desired() fleet.Index {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	return l.e.desired
}

func (l linkEdge) Deliver(ctx context.Context, d syncproto.Desired) (syncproto.Received, []fleet.AllocID, error) {
	missing, holdings, err := l.e.allocs.Deliver(ctx, d)
	if err != nil {
		return syncproto.Received{}, nil, err
	}
	l.e.mu.Lock()
	l.e.desired = d.Index
	l.e.mu.Unlock()
	return syncproto.Received{Index: d.Index, Missing: missing[:min(len(missing), syncproto.MaxMissing)]}, holdings, nil
}

func (l linkEdge) Restate(ctx context.Context) error { return l.e.allocs.Restate(ctx) }

func (l linkEdge) Answer(ctx context.Context, req syncproto.Request) (io.ReadCloser, error) {
	switch req.Kind {
	case syncproto.RequestLogs:
		return l.e.openLogs(ctx, req.Alloc, logRequest(req))
	case syncproto.RequestLogPieces:
		return l.e.openLogPieces(ctx, req)
	case syncproto.RequestList, syncproto.RequestStat, syncproto.RequestRead, syncproto.RequestStream:
		return l.e.openAllocFiles(ctx, req)
	case syncproto.RequestChecks:
		return l.e.checkResults(ctx, req.Alloc)
	case syncproto.RequestUsage:
		return l.e.resourceUsage(ctx, req.Alloc, req.Task)
	case syncproto.RequestCollect:
		return emptyOutput(), l.e.allocs.Collect(ctx, req.Alloc)
	case syncproto.RequestMonitor:
		return l.e.streamAgentLogs(ctx, req)
	case syncproto.RequestRestart:
		return emptyOutput(), l.e.allocs.Order(ctx, allocs.Order{
			Alloc: req.Alloc, Task: req.Task, Everything: req.Everything, Why: "restarted by an operator",
		})
	case syncproto.RequestSignal:
		if req.Signal == "" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "signal allocation %s: no signal is named", fleet.Short(req.Alloc))
		}
		return emptyOutput(), l.e.allocs.Order(ctx, allocs.Order{
			Alloc: req.Alloc, Task: req.Task, Signal: req.Signal, Why: "signalled by an operator",
		})
	}
	return nil, fleet.Errorf(fleet.CodeUnsupported, "this edge does not serve %q requests", req.Kind).
		WithHint("its release is older than the hub's")
}

// emptyOutput follows a reply that says all there is to say.
func emptyOutput() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
