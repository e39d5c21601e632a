package virtual

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/fleet"
	"skerry/hub"
	"skerry/syncproto"
)

// Observers are callbacks for events of a run. They are called while it runs, by any goroutine;
// each may be nil, and must not block.
type Observers struct {
	// Applied is called for every command that a hub applied.
	Applied func(hubName string, a hub.Applied)
	// Task is called when a task on a machine starts or ends, whatever its agent knows.
	Task func(edge string, e sim.Event)
	// Refused is called when a session or a message was refused.
	Refused func(check.Refused)
	// Dial is called when an edge begins a round of attempts to reach a hub.
	Dial func(edge string)
	// Received is called with each message of a hub that an edge receives.
	Received func(edge string, m syncproto.Message)
	// Answered is called with each answer of a hub to a change that a user asked for, and with each such request that got
	// none (a status of 0).
	Answered func(check.Answer)
	// Starting is called with the configuration of each task that starts.
	Starting func(edge string, cfg drivers.TaskConfig)
	// Rejected is called with each answer of a hub that is an error, and with its body.
	Rejected func(a check.Answer, body []byte)
}

// answerObserver returns what wraps the sender of requests to the hub of that name; nil without a callback for answers.
func (t Observers) answerObserver(name string) func(http.RoundTripper) http.RoundTripper {
	if t.Answered == nil && t.Rejected == nil {
		return nil
	}
	return func(sends http.RoundTripper) http.RoundTripper { return answerTap{sends, name, t} }
}

// answerTap tells of the answers that pass through it.
type answerTap struct {
	sends     http.RoundTripper
	hub       string
	observers Observers
}

// RoundTrip sends a request, and tells of its answer.
func (t answerTap) RoundTrip(req *http.Request) (*http.Response, error) {
	o, began := check.Answer{Hub: t.hub, Verb: req.Method, Object: req.URL.Path}, time.Now()
	resp, err := t.sends.RoundTrip(req)
	o.Took = time.Since(began)
	if err == nil {
		o.Status = resp.StatusCode
		if index, err := strconv.ParseUint(resp.Header.Get("X-Nomad-Index"), 10, 64); err == nil {
			o.Index = fleet.Index(index)
		}
	}
	if t.observers.Answered != nil && req.Method != http.MethodGet {
		t.observers.Answered(o)
	}
	if t.observers.Rejected != nil && err == nil && o.Status >= http.StatusBadRequest {
		resp.Body = &observedBody{ReadCloser: resp.Body, rejected: func(text []byte) { t.observers.Rejected(o, text) }}
	}
	return resp, err
}

// observedBody is the body of an answer. It calls rejected with what was read of it when it is closed.
type observedBody struct {
	io.ReadCloser
	text     []byte
	rejected func(text []byte)
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.text = append(b.text, p[:n]...)
	return n, err
}

func (b *observedBody) Close() error {
	b.rejected(b.text)
	return b.ReadCloser.Close()
}

// messageObserver returns the Received callback for the edge of that name; nil if there is none.
func (t Observers) messageObserver(name string) func(syncproto.Message) {
	if t.Received == nil {
		return nil
	}
	return func(m syncproto.Message) { t.Received(name, m) }
}

// appliedObserver returns the Applied callback for the hub of that name; nil if there is none.
func (t Observers) appliedObserver(name string) func(hub.Applied) {
	if t.Applied == nil {
		return nil
	}
	return func(a hub.Applied) { t.Applied(name, a) }
}

// taskObserver returns the Starting callback for the edge of that name; nil if there is none.
func (t Observers) taskObserver(name string) func(drivers.TaskConfig) {
	if t.Starting == nil {
		return nil
	}
	return func(cfg drivers.TaskConfig) { t.Starting(name, cfg) }
}

// newSimWorld returns a machine for simulated tasks of an edge. Its events go to the Task callback.
func (t Observers) newSimWorld(edge string) *sim.SimMachine {
	if t.Task == nil {
		return sim.NewSimMachine()
	}
	return sim.NewWatchedSimMachine(func(e sim.Event) { t.Task(edge, e) })
}

// Log messages of hubs and edges about refusals.
const (
	logSessionRefused = "session refused" // hub
	logSessionFenced  = "session fenced"  // hub
	logSessionOver    = "session over"    // edge
)

// refusals is a log handler that calls refused for each logged refusal. It passes all records on to
// the embedded Handler.
type refusals struct {
	slog.Handler
	who     string
	refused func(check.Refused)
	node    string // node id from WithAttrs
}

func (h refusals) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

// Handle reports a refusal and passes the record on.
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

// reportRefusal calls refused with the code, reason and node of a log record. It ignores records
// that only say that the link broke.
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
		return // the link broke; nothing was refused
	}
	if r.Message == logSessionOver { // an edge logs that a hub refused it
		o.By, o.From = "a hub", h.who
	}
	h.refused(o)
}

// WithAttrs also remembers the node id, for refusals logged with the result.
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

// observedLogger returns a logger that also calls the Refused callback for refusals that the
// daemon named who logs. Without that callback it returns log.
func (t Observers) observedLogger(who string, log *slog.Logger) *slog.Logger {
	if t.Refused == nil {
		return log
	}
	return slog.New(refusals{Handler: log.Handler(), who: who, refused: t.Refused})
}

// taskOf returns the allocation and the task of a TaskConfig.ID (ALLOC/TASK/ATTEMPT). ok is false
// for an id of another form.
func taskOf(id string) (check.TaskKey, bool) {
	parts := strings.Split(id, "/")
	if len(parts) != 3 {
		return check.TaskKey{}, false
	}
	return check.TaskKey{Alloc: fleet.AllocID(parts[0]), Task: parts[1]}, true
}
