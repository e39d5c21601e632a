package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

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

// serveAudited serves a request, and appends it to the audit if it is a change, a command in a task, or refused: before
// anything of the answer is sent.
func (a *API) serveAudited(w http.ResponseWriter, r *http.Request) {
	e := api.AuditEntry{Verb: r.Method, Object: r.URL.Path, Namespace: r.URL.Query().Get("namespace"), Source: hostName(r.RemoteAddr)}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		e.Actor.Certificate = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	answer := &auditedAnswer{ResponseWriter: w}
	answer.taken = func() {
		taken := e
		taken.Verb, taken.Status = api.AuditExec, http.StatusSwitchingProtocols
		a.cfg.Audit.Append(taken)
	}
	audited := isAudited(r)
	answer.begin = func(status int) {
		if !audited && status != http.StatusForbidden && status != http.StatusUnauthorized {
			return
		}
		e.Status, e.Code = status, fleet.Code(answer.Header().Get(api.CodeHeader))
		if index, err := strconv.ParseUint(answer.Header().Get("X-Nomad-Index"), 10, 64); err == nil {
			e.Index = fleet.Index(index)
		}
		a.cfg.Audit.Append(e)
	}
	a.serveRequest(answer, r.WithContext(context.WithValue(r.Context(), auditKey{}, &e)))
	answer.beginOnce(http.StatusOK) // of an answer without a body
}

type auditKey struct{}

// noteActor has the audit's entry of a request say whose token it has; nil: nobody's.
func noteActor(r *http.Request, actor *access.Actor) {
	e, ok := r.Context().Value(auditKey{}).(*api.AuditEntry)
	if !ok || actor == nil {
		return
	}
	e.Actor.Accessor = actor.Accessor
	if w := actor.Workload; w != nil {
		e.Actor.Workload, e.Actor.AllocID = w.Subject, w.AllocID
	}
}

// isAudited reports whether a request is for a change, or reads a variable or a snapshot, which has the whole state. Some
// questions are too long for a GET, and change nothing.
func isAudited(r *http.Request) bool {
	path := r.URL.Path
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return path == "/v1/operator/snapshot" || strings.HasPrefix(path, "/v1/var/")
	case http.MethodDelete:
		return true
	}
	switch path {
	case "/v1/jobs/parse", "/v1/jobs/statuses", "/v1/validate/job", "/v1/search", "/v1/search/fuzzy":
		return false
	}
	return !strings.HasPrefix(path, "/v1/job/") || !strings.HasSuffix(path, "/plan")
}

// auditedAnswer notes the status of an answer. It calls begin (nil: nothing) before anything of the answer is sent, and taken
// when a websocket takes the connection over.
type auditedAnswer struct {
	http.ResponseWriter
	status int // 0: the answer has not begun
	begin  func(status int)
	taken  func()
}

// beginOnce notes the status, and calls begin, at the first call.
func (w *auditedAnswer) beginOnce(status int) {
	if w.status != 0 {
		return
	}
	if w.status = status; w.begin != nil {
		w.begin(status)
	}
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
	if err == nil {
		w.taken()
	}
	return conn, buffered, err
}

// Unwrap is for http.ResponseController.
func (w *auditedAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
