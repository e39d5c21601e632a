package virtual

import (
	"context"
	"log/slog"
	"strings"

	"skerry/chaos/check"
	"skerry/drivers/sim"
	"skerry/fleet"
	"skerry/hub"
)

// Observers see a run while it goes on. Each may be nil, and must not block.
type Observers struct {
	// Applied is every command that a hub applied.
	Applied func(hubName string, a hub.Applied)
	// Task is the truth about tasks.
	Task func(edge string, e sim.Event)
	// Refused is a session or message that was refused.
	Refused func(check.Refused)
	// Dial is the beginning of an edge's attempt to reach any hub.
	Dial func(edge string)
}

func (t Observers) appliedObserver(name string) func(hub.Applied) {
	if t.Applied == nil {
		return nil
	}
	return func(a hub.Applied) { t.Applied(name, a) }
}

func (t Observers) newSimWorld(edge string) *sim.SimMachine {
	if t.Task == nil {
		return sim.NewSimMachine()
	}
	return sim.NewWatchedSimMachine(func(e sim.Event) { t.Task(edge, e) })
}

// What hubs and edges log when they refuse, or are refused.
const (
	logSessionRefused = "session refused" // hub
	logSessionFenced  = "session fenced"  // hub
	logSessionOver    = "session over"    // edge
)

// refusals is a log handler that tells of what was refused, and hands everything on.
type refusals struct {
	slog.Handler
	who     string
	refused func(check.Refused)
	node    string // of With
}

func (h refusals) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

func (h refusals) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case logSessionRefused, logSessionFenced, logSessionOver:
		h.reportRefusal(r)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h refusals) reportRefusal(r slog.Record) {
	o := check.Refused{By: h.who, Node: fleet.NodeID(h.node)}
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "code":
			o.Code = fleet.Code(a.Value.String())
		case "error":
			o.Reason = a.Value.String()
		case "node", "node_id":
			o.Node = fleet.NodeID(a.Value.String())
		}
		return true
	})
	if o.Code == "" || o.Code == fleet.CodeTimeout || o.Code == fleet.CodeUnavailable {
		return // the link broke; nobody said no
	}
	if r.Message == logSessionOver { // an edge was told
		o.By, o.From = "a hub", h.who
	}
	h.refused(o)
}

func (h refusals) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "node" || a.Key == "node_id" {
			h.node = a.Value.String()
		}
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h refusals) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// observedLogger is a machine's log, with the taps in it.
func (t Observers) observedLogger(who string, log *slog.Logger) *slog.Logger {
	if t.Refused == nil {
		return log
	}
	return slog.New(refusals{Handler: log.Handler(), who: who, refused: t.Refused})
}

// taskOf takes apart TaskConfig.ID, which names an attempt of a task.
func taskOf(id string) (check.TaskKey, bool) {
	parts := strings.Split(id, "/")
	if len(parts) != 3 {
		return check.TaskKey{}, false
	}
	return check.TaskKey{Alloc: fleet.AllocID(parts[0]), Task: parts[1]}, true
}
