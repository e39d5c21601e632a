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

// desired is the journal as the allocations want it.
type desired struct{ j *journal.Journal }

func (d desired) Wants(ctx context.Context) (map[fleet.AllocID]allocs.Want, error) {
	held, err := d.j.Desired(ctx)
	if err != nil {
		return nil, err
	}
	wants := make(map[fleet.AllocID]allocs.Want, len(held.Allocs))
	for id, a := range held.Allocs {
		wants[id] = allocs.Want(a)
	}
	return wants, nil
}

func (d desired) Deliver(ctx context.Context, delivery syncproto.Desired) (missing []string, err error) {
	return d.j.PutDesired(ctx, delivery)
}

func (d desired) Adopt(ctx context.Context, spec syncproto.Desired) error {
	return d.j.Adopt(ctx, spec)
}

func (d desired) Stop(ctx context.Context, stop syncproto.DesiredStop, ts ...fleet.Transition) error {
	return d.j.Stop(ctx, stop, ts...)
}

func (d desired) KeepStopped(ctx context.Context, ids []fleet.AllocID, kept bool, ts ...fleet.Transition) error {
	return d.j.KeepStopped(ctx, ids, kept, ts...)
}

func (d desired) Remove(ctx context.Context, id fleet.AllocID) error { return d.j.Remove(ctx, id) }

// past is the journal as the allocations want it.
type past struct{ j *journal.Journal }

func (p past) States() map[fleet.AllocID]allocs.State { return allocStates(p.j.States()) }

func allocStates(held map[fleet.AllocID]journal.State) map[fleet.AllocID]allocs.State {
	states := make(map[fleet.AllocID]allocs.State, len(held))
	for id, s := range held {
		states[id] = allocs.State(s)
	}
	return states
}

func (p past) Acknowledged() fleet.Seq   { return p.j.Head().Acknowledged }
func (p past) Away() time.Duration       { return p.j.Away() }
func (p past) HubNow() (time.Time, bool) { return p.j.HubNow() }
func (p past) MarkEvery(d time.Duration) { p.j.MarkEvery(d) }

func (p past) Fenced() string {
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

// memory is where the link keeps what it remembers.
type memory struct{ e *Edge }

func (m memory) Load(ctx context.Context) (link.Remembered, error) {
	l, err := m.e.journal.Link(ctx)
	return link.Remembered(l), err
}

func (m memory) Keep(ctx context.Context, r link.Remembered, rows ...fleet.Transition) error {
	before, err := m.e.journal.Link(ctx)
	if err != nil {
		return err
	}
	var reconnected func(map[fleet.AllocID]journal.State) []fleet.Transition
	if r.Rejoined && !before.Rejoined {
		reconnected = func(states map[fleet.AllocID]journal.State) []fleet.Transition {
			return allocs.Reconnected(allocStates(states), m.e.now())
		}
	}
	if err := m.e.journal.PutLinkAnd(ctx, journal.Link(r), reconnected, rows...); err != nil {
		return err
	}
	if before.Fenced != r.Fenced {
		m.e.allocs.Nudge() // what was held back may start, or the other way round
	}
	return nil
}

func (m memory) Beat(ctx context.Context, hubTime int64) error {
	err := m.e.journal.Beat(ctx, hubTime)
	m.e.answered()
	return err
}

func (m memory) Away() time.Duration { return m.e.journal.Away() }

func (e *Edge) now() allocs.Moment {
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
		return l.e.files(ctx, req)
	case syncproto.RequestChecks:
		return l.e.checkResults(ctx, req.Alloc)
	case syncproto.RequestUsage:
		return l.e.usage(ctx, req.Alloc, req.Task)
	case syncproto.RequestCollect:
		return nothing(), l.e.allocs.Collect(ctx, req.Alloc)
	case syncproto.RequestMonitor:
		return l.e.monitor(ctx, req)
	case syncproto.RequestRestart:
		return nothing(), l.e.allocs.Order(ctx, allocs.Order{
			Alloc: req.Alloc, Task: req.Task, Everything: req.Everything, Why: "restarted by an operator",
		})
	case syncproto.RequestSignal:
		if req.Signal == "" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "signal allocation %s: no signal is named", fleet.Short(req.Alloc))
		}
		return nothing(), l.e.allocs.Order(ctx, allocs.Order{
			Alloc: req.Alloc, Task: req.Task, Signal: req.Signal, Why: "signalled by an operator",
		})
	}
	return nil, fleet.Errorf(fleet.CodeUnsupported, "this edge does not serve %q requests", req.Kind).
		WithHint("its release is older than the hub's")
}

// nothing follows a reply that says all there is to say.
func nothing() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
