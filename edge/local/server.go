package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
)

// Agent is the edge behind the Server, as Client describes its methods. An alloc may be a unique prefix of an
// id.
type Agent interface {
	Status(ctx context.Context) (Status, error)
	History(ctx context.Context, alloc fleet.AllocID) ([]fleet.Transition, error)
	Services(ctx context.Context, namespace, name string) ([]Service, error)
	Checks(ctx context.Context, alloc fleet.AllocID) ([]Check, error)
	Logs(ctx context.Context, req LogRequest) (io.ReadCloser, error)
	Stop(ctx context.Context, req StopRequest) error
	Start(ctx context.Context, alloc fleet.AllocID, reason string) (Started, error)
	Restart(ctx context.Context, alloc fleet.AllocID, task, reason string) error
	Exec(ctx context.Context, req ExecRequest, x fleet.Exec) (code int, err error)
}

// shutdownTimeout bounds a pending request when the agent stops.
const shutdownTimeout = time.Second

// Server serves the local API.
type Server struct {
	path     string
	agent    Agent
	log      *slog.Logger
	listener net.Listener
}

// New makes the Server that serves on l, the socket at path. It starts no goroutine.
func New(path string, l net.Listener, agent Agent, log *slog.Logger) *Server {
	return &Server{path: path, agent: agent, log: log, listener: l}
}

// Listen makes the socket at path, which only its owner may use. It replaces an old socket, because the
// caller holds the data directory's lock.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	var l net.Listener
	// The socket must be private from its first moment: the data directory may be open to others.
	err := withPrivateMask(func() error {
		return withShortPath(path, func(short string) (err error) {
			l, err = net.Listen("unix", short)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it may have the short name
	return l, nil
}

// Run serves until ctx ends and then removes the socket. A request that is pending may take shutdownTimeout
// longer.
func (s *Server) Run(ctx context.Context) error {
	srv := &http.Server{
		Handler:           s.routeHandler(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withPeer,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	g, serving := errgroup.WithContext(ctx)
	g.Go(func() error {
		<-serving.Done()
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer done()
		if srv.Shutdown(grace) != nil {
			return srv.Close()
		}
		return nil
	})
	g.Go(func() error {
		if err := srv.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	err := g.Wait()
	if gone := os.Remove(s.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	if err != nil {
		return fmt.Errorf("serve %s: %w", s.path, err)
	}
	return nil
}

// Close releases the socket if Run was never called.
func (s *Server) Close() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}

// routeHandler returns the HTTP handler of the whole API.
func (s *Server) routeHandler() http.Handler {
	mux := http.NewServeMux()
	s.addRoute(mux, "GET /v1/status", fleet.SiteMayRead, s.jsonHandler(func(r *http.Request) (any, error) { return s.agent.Status(r.Context()) }))
	s.addRoute(mux, "GET /v1/history", fleet.SiteMayRead, s.jsonHandler(func(r *http.Request) (any, error) {
		ts, err := s.agent.History(r.Context(), allocParam(r))
		if ts == nil {
			ts = []fleet.Transition{}
		}
		return ts, err
	}))
	s.addRoute(mux, "GET /v1/services", fleet.SiteMayRead, s.jsonHandler(func(r *http.Request) (any, error) {
		return s.agent.Services(r.Context(), r.FormValue("namespace"), r.FormValue("name"))
	}))
	s.addRoute(mux, "GET /v1/checks", fleet.SiteMayRead, s.jsonHandler(func(r *http.Request) (any, error) { return s.agent.Checks(r.Context(), allocParam(r)) }))
	s.addRoute(mux, "GET /v1/logs", fleet.SiteMayRead, s.streamLogs)
	s.addRoute(mux, "POST /v1/exec", fleet.SiteMayExec, s.serveExec)
	s.addRoute(mux, "POST /v1/stop", fleet.SiteMayWrite, s.jsonHandler(func(r *http.Request) (any, error) {
		req := StopRequest{Alloc: allocParam(r), Reason: r.FormValue("reason")}
		for name, into := range map[string]*bool{"no_shutdown_delay": &req.NoShutdownDelay, "may_return": &req.MayReturn} {
			v := r.FormValue(name)
			if v == "" {
				continue
			}
			var err error
			if *into, err = strconv.ParseBool(v); err != nil {
				return nil, fleet.Errorf(fleet.CodeInvalid, "stop allocation %s: %s must be true or false, not %q", req.Alloc, name, v)
			}
		}
		return nil, s.agent.Stop(r.Context(), req)
	}))
	s.addRoute(mux, "POST /v1/start", fleet.SiteMayWrite, s.jsonHandler(func(r *http.Request) (any, error) {
		return s.agent.Start(r.Context(), allocParam(r), r.FormValue("reason"))
	}))
	s.addRoute(mux, "POST /v1/restart", fleet.SiteMayWrite, s.jsonHandler(func(r *http.Request) (any, error) {
		return nil, s.agent.Restart(r.Context(), allocParam(r), r.FormValue("task"), r.FormValue("reason"))
	}))
	s.routeStore(mux)
	s.routeAudit(mux)
	mux.HandleFunc("/", s.jsonHandler(func(r *http.Request) (any, error) {
		return nil, fleet.Errorf(fleet.CodeNotFound, "the local API has no %s %s", r.Method, r.URL.Path)
	}))
	return mux
}

// allocParam returns the allocation's id, or a prefix of it, that a request names.
func allocParam(r *http.Request) fleet.AllocID { return fleet.AllocID(r.FormValue("alloc")) }

// jsonHandler returns a handler that answers with the JSON of what ask returns; nil is an empty answer with
// status 204.
func (s *Server) jsonHandler(ask func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := ask(r)
		switch {
		case err != nil:
			s.writeError(w, err)
		case v == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			s.writeJSON(w, http.StatusOK, v)
		}
	}
}

// writeJSON answers with a status and a value as JSON. If the client is gone, nothing happens.
func (s *Server) writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.log.Debug("answer not written", "error", err)
	}
}

// httpCodes are the HTTP statuses of errors. Other codes are an internal server error.
var httpCodes = map[fleet.Code]int{
	fleet.CodeInvalid:     http.StatusBadRequest,
	fleet.CodeNotFound:    http.StatusNotFound,
	fleet.CodeConflict:    http.StatusConflict,
	fleet.CodeForbidden:   http.StatusForbidden,
	fleet.CodeUnsupported: http.StatusBadRequest,
	fleet.CodeUnavailable: http.StatusServiceUnavailable,
	fleet.CodeTimeout:     http.StatusGatewayTimeout,
}

// writeError answers with an error as JSON and the HTTP status of its code.
func (s *Server) writeError(w http.ResponseWriter, err error) {
	code := httpCodes[fleet.CodeOf(err)]
	if code == 0 {
		code = http.StatusInternalServerError
	}
	s.writeJSON(w, code, fleet.AsError(err))
}

// streamLogs answers with a task's output until that ends or the client is gone. It flushes before it waits for
// more.
func (s *Server) streamLogs(w http.ResponseWriter, r *http.Request) {
	req := LogRequest{Alloc: allocParam(r), Task: r.FormValue("task"), Stream: r.FormValue("stream"), Origin: r.FormValue("origin")}
	for _, p := range []struct {
		name  string
		parse func(string) error
	}{
		{"offset", func(v string) (err error) { req.Offset, err = strconv.ParseInt(v, 10, 64); return err }},
		{"follow", func(v string) (err error) { req.Follow, err = strconv.ParseBool(v); return err }},
	} {
		if v := r.FormValue(p.name); v != "" && p.parse(v) != nil {
			s.writeError(w, fleet.Errorf(fleet.CodeInvalid, "read logs: the value of %s is invalid: %q", p.name, v))
			return
		}
	}
	out, err := s.agent.Logs(r.Context(), req)
	if err != nil {
		s.writeError(w, err)
		return
	}
	defer out.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	buf := make([]byte, 16<<10)
	for {
		if err := flush.Flush(); err != nil {
			return // the client is gone
		}
		n, err := out.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// maxSocketPath is a length in bytes that every system accepts for the path of a socket.
const maxSocketPath = 100

// withShortPath calls use with a path of the socket that is short enough for the system. A long one is replaced
// by one below /proc/self/fd, which is valid during the call only.
func withShortPath(path string, use func(short string) error) error {
	if len(path) <= maxSocketPath {
		return use(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	return errors.Join(use(short), dir.Close())
}
