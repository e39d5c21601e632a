package api

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"skerry/fleet"
)

// eventWriteTimeout is how long a reader of events may take for one line.
const eventWriteTimeout = 30 * time.Second

func (a *API) eventRoutes() {
	a.mux.HandleFunc("GET /v1/event/stream", a.eventStream)
}

// eventStream serves what happens, as it happens, a line of JSON for each entry of
// the log that did something.
func (a *API) eventStream(w http.ResponseWriter, r *http.Request) {
	after, stream, err := a.openEvents(r)
	if err != nil {
		a.writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	a.setAnswerHeaders(w, after)
	sink := slowSink{w, http.NewResponseController(w)}
	if err := sink.rc.Flush(); err != nil {
		a.writeError(w, err)
		return
	}
	if err := stream(r.Context(), sink); err != nil {
		a.cfg.Log.Info("event stream ended", "client", r.RemoteAddr, "error", err)
	}
}

// openEvents opens the stream that a request asks for.
func (a *API) openEvents(r *http.Request) (after fleet.Index, stream func(context.Context, io.Writer) error, err error) {
	q, err := parseQuery(r)
	if err != nil {
		return 0, nil, err
	}
	if !q.stale {
		if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
			return 0, nil, err
		}
	}
	from := q.minIndex
	if s := r.URL.Query().Get("after"); s != "" {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil || from != 0 {
			return 0, nil, fleet.Errorf(fleet.CodeInvalid, "read the parameter after: %q is not a whole number, or the parameter index is given too", s)
		}
		from = fleet.Index(n) + 1
	}
	return a.cfg.Events.Open(r.URL.Query()["topic"], q.namespace, from)
}

// slowSink writes lines at once, and gives up on a reader that does not take them.
type slowSink struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (s slowSink) Write(b []byte) (int, error) {
	// A writer without deadlines is one that never blocks for long.
	_ = s.rc.SetWriteDeadline(time.Now().Add(eventWriteTimeout))
	n, err := s.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, s.rc.Flush()
}
