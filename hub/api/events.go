package api

import (
	"net/http"
	"strconv"
	"time"

	"skerry/fleet"
	"skerry/hub/events"
)

func (a *API) eventRoutes() {
	a.mux.HandleFunc("GET /v1/event/stream", a.eventStream)
}

// eventStream serves what happens, as it happens, a line of JSON for each entry of
// the log that did something.
func (a *API) eventStream(w http.ResponseWriter, r *http.Request) {
	req, after, err := a.eventRequest(r)
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
	if err := a.events.Stream(r.Context(), req, after, sink); err != nil {
		a.cfg.Log.Info("event stream ended", "client", r.RemoteAddr, "error", err)
	}
}

func (a *API) eventRequest(r *http.Request) (events.Request, fleet.Index, error) {
	q, err := parseQuery(r)
	if err != nil {
		return events.Request{}, 0, err
	}
	if !q.stale {
		if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
			return events.Request{}, 0, err
		}
	}
	from := q.minIndex
	if s := r.URL.Query().Get("after"); s != "" {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil || from != 0 {
			return events.Request{}, 0, fleet.Errorf(fleet.CodeInvalid, "read the parameter after: %q is not a whole number, or index is there as well", s)
		}
		from = fleet.Index(n) + 1
	}
	req, err := events.NewRequest(r.URL.Query()["topic"], q.namespace, from)
	if err != nil {
		return req, 0, err
	}
	after, err := a.events.Position(req)
	return req, after, err
}

// slowSink writes lines at once, and gives up on a reader that does not take them.
type slowSink struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (s slowSink) Write(b []byte) (int, error) {
	// A writer without deadlines is one that never blocks for long.
	_ = s.rc.SetWriteDeadline(time.Now().Add(events.WriteTimeout))
	n, err := s.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, s.rc.Flush()
}
