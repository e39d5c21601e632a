package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"

	"skerry/api"
	"skerry/fleet"
	"skerry/syncproto"
)

// logChunk is the largest piece of output in one frame, in bytes.
const logChunk = 32 << 10

// streamTaskLogs streams a task's output from its edge as JSON frames, or with plain=true as text.
func (a *API) streamTaskLogs(w http.ResponseWriter, r *http.Request) {
	node, req, err := a.logRequest(r)
	if err != nil {
		a.writeError(w, err)
		return
	}
	r, stop := a.whileGranted(r)
	defer stop()
	plain, err := queryFlag(r, "plain", false)
	if err != nil {
		a.writeError(w, err)
		return
	}
	if !plain {
		pieces := req
		pieces.Kind = syncproto.RequestLogPieces
		out, err := a.cfg.Edges.Logs(r.Context(), node, pieces)
		if err == nil {
			defer out.Close()
			a.noteLogEnd(req, sendLogPieces(w, pieces, out))
			return
		}
		if fleet.CodeOf(err) != fleet.CodeUnsupported { // else the edge is of an older release
			a.writeError(w, err)
			return
		}
	}
	out, err := a.cfg.Edges.Logs(r.Context(), node, req)
	if err != nil {
		a.writeError(w, err)
		return
	}
	defer out.Close()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	emit := func(b []byte) error { _, err := w.Write(b); return err }
	if !plain {
		w.Header().Set("Content-Type", "application/json")
		frames, position := json.NewEncoder(w), a.logPosition(r, req)
		emit = func(b []byte) error {
			file, at := position.advanceBy(int64(len(b)))
			return frames.Encode(api.StreamFrame{Offset: at, Data: b, File: file})
		}
	}
	a.noteLogEnd(req, copyAndFlush(out, http.NewResponseController(w), emit))
}

// noteLogEnd logs why a stream of task output ended; nil: it ended as it should, and nothing is logged.
func (a *API) noteLogEnd(req syncproto.Request, err error) {
	if err != nil {
		a.cfg.Log.Debug("log stream ended", "alloc", req.Alloc, "task", req.Task, "error", err)
	}
}

// sendLogPieces copies the pieces of output that an edge sends to the client as frames, each with its file and
// offset, until the edge ends the stream.
func sendLogPieces(w http.ResponseWriter, req syncproto.Request, from io.Reader) error {
	w.Header().Set("Content-Type", "application/json")
	pieces, frames, rc := syncproto.NewReader(from), json.NewEncoder(w), http.NewResponseController(w)
	for {
		if err := rc.Flush(); err != nil {
			return err
		}
		m, err := pieces.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		piece, ok := m.(syncproto.LogPiece)
		if !ok {
			return fleet.Errorf(fleet.CodeFrameBad, "read logs: the node sent an unexpected frame of type %s", m.FrameType())
		}
		file := path.Join(logsFolder, fmt.Sprintf("%s.%s.%d", req.Task, req.Stream, piece.File))
		if err := frames.Encode(api.StreamFrame{Offset: piece.Offset, Data: piece.Data, File: file}); err != nil {
			return err
		}
	}
}

// copyAndFlush passes each piece that it reads to emit and flushes it to the client, until the stream ends.
func copyAndFlush(from io.Reader, rc *http.ResponseController, emit func([]byte) error) error {
	if err := rc.Flush(); err != nil {
		return err
	}
	buf := make([]byte, logChunk)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := emit(buf[:n]); err != nil {
				return err
			}
			if err := rc.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// logRequest reads the requested task and output from the parameters. It returns the node and the request for its
// edge, or an error if the parameters are wrong or the node is unreachable.
func (a *API) logRequest(r *http.Request) (fleet.NodeID, syncproto.Request, error) {
	v := a.cfg.State.View()
	al, err := needAlloc(v, r)
	if err != nil {
		return "", syncproto.Request{}, err
	}
	p := r.URL.Query()
	req := syncproto.Request{Kind: syncproto.RequestLogs, Alloc: al.ID, Stream: p.Get("type"), Origin: p.Get("origin")}
	if req.Task, err = taskOf(al, p.Get("task")); err != nil {
		return "", req, err
	}
	switch req.Stream {
	case "":
		req.Stream = "stdout"
	case "stdout", "stderr":
	default:
		return "", req, fleet.Errorf(fleet.CodeInvalid, "read logs: type %q is neither stdout nor stderr", req.Stream)
	}
	switch req.Origin {
	case "":
		req.Origin = "start"
	case "start", "end":
	default:
		return "", req, fleet.Errorf(fleet.CodeInvalid, "read logs: origin %q is neither start nor end", req.Origin)
	}
	if s := p.Get("offset"); s != "" {
		if req.Offset, err = strconv.ParseInt(s, 10, 64); err != nil || req.Offset < 0 {
			return "", req, fleet.Errorf(fleet.CodeInvalid, "read logs: offset %q is not a number of bytes", s)
		}
	}
	if s := p.Get("follow"); s != "" {
		if req.Follow, err = strconv.ParseBool(s); err != nil {
			return "", req, fleet.Errorf(fleet.CodeInvalid, "read logs: follow %q is neither true nor false", s)
		}
	}
	return al.NodeID, req, reachable(v, al, "read logs")
}
