package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/access"
)

// Audit keeps what was asked of this hub.
type Audit interface {
	// Append writes an entry; the audit numbers and dates it.
	Append(api.AuditEntry)
	// Copy writes the lines of the entries after a number.
	Copy(w io.Writer, after uint64) error
}

// auditEndpoints serve the audit.
func (a *API) auditEndpoints() []endpoint {
	return []endpoint{{"GET", "/v1/operator/audit", managementOnly, a.readAudit}}
}

// readAudit streams this hub's audit: JSON lines, as the files have them.
func (a *API) readAudit(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Audit == nil {
		a.writeError(w, fleet.Errorf(fleet.CodeUnsupported, "read the audit: this hub keeps none"))
		return
	}
	var after uint64
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			a.writeError(w, fleet.Errorf(fleet.CodeInvalid, "read the parameter after: %q is not the number of an entry", text))
			return
		}
	}
	w.Header().Set("Content-Type", "application/jsonl")
	if err := a.cfg.Audit.Copy(w, after); err != nil {
		a.cfg.Log.Warn("audit not sent", "error", err) // most likely the client has left
	}
}

// auditRule says whether the requests for a route are in the audit.
type auditRule uint8

const (
	auditRefusals auditRule = iota // only refused requests
	auditRequests                  // all requests
	auditExec                      // all requests, with the verb EXEC
)

// auditRules has the routes that are exceptions: other requests are in the audit if their method is one of changes. The
// routes are those of serveEndpoints. A route of GET also serves HEAD.
var auditRules = map[string]auditRule{
	"GET /v1/operator/snapshot": auditRequests, // it has the whole state
	"GET /v1/var/{path...}":     auditRequests, // it has secrets

	// These change or start something, though they are asked for by GET.
	"GET /v1/client/gc":                   auditRequests,
	"GET /v1/client/allocation/{id}/gc":   auditRequests,
	"GET /v1/client/allocation/{id}/exec": auditExec,
	"GET /v1/job/{id}/action":             auditExec,
	"/debug/pprof/":                       auditRequests,
	"/debug/pprof/profile":                auditRequests,
	"/debug/pprof/symbol":                 auditRequests,
	"/debug/pprof/trace":                  auditRequests,

	// These questions are too long for a GET. They change nothing.
	"PUT /v1/jobs/parse": auditRefusals, "POST /v1/jobs/parse": auditRefusals,
	"PUT /v1/jobs/statuses": auditRefusals, "POST /v1/jobs/statuses": auditRefusals,
	"PUT /v1/job/{id}/plan": auditRefusals, "POST /v1/job/{id}/plan": auditRefusals,
	"PUT /v1/validate/job": auditRefusals, "POST /v1/validate/job": auditRefusals,
	"PUT /v1/search": auditRefusals, "POST /v1/search": auditRefusals,
	"PUT /v1/search/fuzzy": auditRefusals, "POST /v1/search/fuzzy": auditRefusals,
}

// applyAuditRule returns the handler of a route, which first applies the route's rule to the request's entry.
func applyAuditRule(route string, serve http.HandlerFunc) http.HandlerFunc {
	rule, listed := auditRules[route]
	if !listed {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if answer := auditedAnswerOf(r); answer != nil {
			answer.audited = rule != auditRefusals
			if rule == auditExec {
				answer.entry.Verb = api.AuditExec
			}
		}
		serve(w, r)
	}
}

// serveAudited serves a request, and appends it to the audit if its route's rule says so or if it is refused: before
// anything of the answer is sent.
func (a *API) serveAudited(w http.ResponseWriter, r *http.Request) {
	e := api.AuditEntry{Verb: r.Method, Object: r.URL.Path, Namespace: r.URL.Query().Get("namespace"), Source: hostName(r.RemoteAddr)}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		e.Actor.Certificate = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	answer := &auditedAnswer{ResponseWriter: w, audit: a.cfg.Audit, entry: e, audited: isChange(r.Method)}
	a.serveRequest(answer, r.WithContext(context.WithValue(r.Context(), auditKey{}, answer)))
	if !answer.hijacked {
		answer.beginOnce(http.StatusOK) // of an answer without a body
	}
}

// isChange reports whether a method is one of changes.
func isChange(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

type auditKey struct{}

// auditedAnswerOf returns the answer that appends a request to the audit; nil: the hub keeps no audit.
func auditedAnswerOf(r *http.Request) *auditedAnswer {
	answer, _ := r.Context().Value(auditKey{}).(*auditedAnswer)
	return answer
}

// noteActor has the audit's entry of a request say whose token it has, and the roles of that; nil: nobody's.
func noteActor(r *http.Request, actor *access.Actor) {
	answer := auditedAnswerOf(r)
	if answer == nil || actor == nil {
		return
	}
	answer.entry.Actor.Accessor, answer.entry.Actor.Roles = actor.Accessor, actor.Roles
	if w := actor.Workload; w != nil {
		answer.entry.Actor.Workload, answer.entry.Actor.AllocID = w.Subject, w.AllocID
	}
}

// noteExec appends the result of a request for a command to the audit, once a websocket has taken the connection over;
// before that, the answer is the result. nil: the command is handed to its node.
func noteExec(r *http.Request, err error) {
	answer := auditedAnswerOf(r)
	if answer == nil || !answer.hijacked {
		return
	}
	e := answer.entry
	e.Status, e.Code = http.StatusSwitchingProtocols, fleet.CodeOf(err)
	if err != nil {
		e.Status = api.Status(e.Code)
	}
	answer.audit.Append(e)
}

// auditedAnswer notes the status of an answer. It appends the entry of the request to the audit before anything of the
// answer is sent.
type auditedAnswer struct {
	http.ResponseWriter
	status   int   // 0: the answer has not begun
	audit    Audit // nil: only the status is of interest
	entry    api.AuditEntry
	audited  bool // false: only if the request is refused
	hijacked bool // by a websocket, whose handler calls noteExec
}

// beginOnce notes the status at the first call, and appends the entry if the request has to be in the audit.
func (w *auditedAnswer) beginOnce(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if w.audit == nil || !w.audited && status != http.StatusForbidden && status != http.StatusUnauthorized {
		return
	}
	e := w.entry
	e.Status, e.Code = status, fleet.Code(w.Header().Get(api.CodeHeader))
	if index, err := strconv.ParseUint(w.Header().Get("X-Nomad-Index"), 10, 64); err == nil {
		e.Index = fleet.Index(index)
	}
	w.audit.Append(e)
}

// WriteHeader begins the answer, unless the status is one before it.
func (w *auditedAnswer) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.beginOnce(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write begins an answer without a status of its own.
func (w *auditedAnswer) Write(b []byte) (int, error) {
	w.beginOnce(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Flush sends what was written.
func (w *auditedAnswer) Flush() {
	w.beginOnce(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush() // the next write fails, too
}

// Hijack gives the connection to a websocket.
func (w *auditedAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = err == nil
	return conn, buffered, err
}

// Unwrap is for http.ResponseController.
func (w *auditedAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
