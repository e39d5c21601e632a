package virtual

import (
	"context"
	"errors"

	"skerry/api"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// errNobody says that no hub that is up knows an edge.
var errNobody = errors.New("no hub knows it")

// DrainEdge empties an edge, and has it take work again when the fault is over. Nobody can
// where no hub leads for all of that time: then it does not hit. That it takes work again is
// asked for until a hub that leads takes it: other faults may go on for long, and none does
// beyond the schedule's end.
func (r *run) DrainEdge(ctx context.Context, edge string, f schedule.Fault) (engine.Active, error) {
	e := r.c.Edge(edge)
	trying, stop := context.WithTimeout(ctx, f.For)
	defer stop()
	asked := api.DrainRequest{DrainSpec: &api.DrainSpec{Deadline: f.Params.Deadline, IgnoreSystemJobs: f.Params.KeepSystem}}
	w := engine.Done(0, "")
	if r.drainUntilAcked(trying, e, asked) == nil {
		w = engine.Done(1, "")
	}
	w.Heal = func(ctx context.Context) error {
		ctx, stop := context.WithTimeout(ctx, max(0, r.s.Length-r.elapsedTime())+lastCalls)
		defer stop()
		if err := r.drainUntilAcked(ctx, e, api.DrainRequest{MarkEligible: true}); err != nil {
			r.recordHarnessFailure("have %s take work again: %v", e.Name, err)
		}
		return nil
	}
	return w, nil
}

// drainUntilAcked asks for a change of an edge's drain, one hub after the other, until it is
// acknowledged.
func (r *run) drainUntilAcked(ctx context.Context, e *Edge, req api.DrainRequest) error {
	for n := 0; ; n++ {
		h := r.c.Hubs[n%len(r.c.Hubs)]
		err := r.askDrain(ctx, h, e, req)
		if err == nil {
			return nil
		}
		if !engine.Pause(ctx, retryEvery) {
			return err
		}
	}
}

func (r *run) askDrain(ctx context.Context, h *Hub, e *Edge, req api.DrainRequest) error {
	id := r.nodeOf(e.Name)
	if id == "" {
		return errNobody
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := h.DrainNode(ctx, id, req)
	return err
}

// nodeOf is the node that an edge is, "" where no hub that is up knows it.
func (r *run) nodeOf(edge string) fleet.NodeID {
	for _, h := range r.c.Hubs {
		d := h.runningDaemon()
		if d == nil {
			continue
		}
		for n := range d.State().View().Nodes("") {
			if n.Name == edge {
				return n.ID
			}
		}
	}
	return ""
}
