package api

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"skerry/api"
	"skerry/fleet"
	"skerry/syncproto"
)

// maxListing bounds what an edge may answer a list or a stat with, in bytes.
const maxListing = 8 << 20

func (a *API) fileRoutes() {
	a.mux.HandleFunc("GET /v1/client/fs/ls/{id}", a.fileList)
	a.mux.HandleFunc("GET /v1/client/fs/stat/{id}", a.fileStat)
	a.mux.HandleFunc("GET /v1/client/fs/cat/{id}", a.fileRead)
	a.mux.HandleFunc("GET /v1/client/fs/readat/{id}", a.fileReadAt)
	a.mux.HandleFunc("GET /v1/client/fs/stream/{id}", a.fileStream)
}

// askFile opens what a request asks of a path, through the edge's own connection.
func (a *API) askFile(r *http.Request, kind string, change func(*syncproto.Request) error) (io.ReadCloser, syncproto.Request, error) {
	v := a.cfg.State.View()
	al, err := needAlloc(v, r)
	if err != nil {
		return nil, syncproto.Request{}, err
	}
	req := syncproto.Request{Kind: kind, Alloc: al.ID, Path: r.URL.Query().Get("path")}
	if req.Path == "" {
		req.Path = "/"
	}
	if change != nil {
		if err := change(&req); err != nil {
			return nil, req, err
		}
	}
	if err := reachable(v, al, "read files"); err != nil {
		return nil, req, err
	}
	out, err := a.cfg.Edges.Logs(r.Context(), al.NodeID, req)
	return out, req, err
}

func (a *API) fileList(w http.ResponseWriter, r *http.Request) {
	answerFile[[]fleet.FileInfo](a, w, r, syncproto.RequestList)
}

func (a *API) fileStat(w http.ResponseWriter, r *http.Request) {
	answerFile[fleet.FileInfo](a, w, r, syncproto.RequestStat)
}

// answerFile answers with what the edge says, once it is seen to be that.
func answerFile[T any](a *API, w http.ResponseWriter, r *http.Request, kind string) {
	out, _, err := a.askFile(r, kind, nil)
	if err != nil {
		a.writeError(w, err)
		return
	}
	defer out.Close()
	answer, err := decodeAnswer[T](out)
	a.setAnswerHeaders(w, a.cfg.State.View().Index())
	if err != nil {
		a.writeError(w, err)
		return
	}
	a.writeAnswer(w, r, answer)
}

func decodeAnswer[T any](from io.Reader) (T, error) {
	var answer T
	b, err := io.ReadAll(io.LimitReader(from, maxListing+1))
	if err != nil {
		return answer, err
	}
	if len(b) > maxListing || json.Unmarshal(b, &answer) != nil {
		return answer, fleet.Errorf(fleet.CodeFrameBad, "read files: the node's answer cannot be decoded")
	}
	return answer, nil
}

// queryByteCount reads a parameter that counts bytes.
func queryByteCount(r *http.Request, name string) (int64, error) {
	n, err := queryOffset(r, name)
	if err == nil && n < 0 {
		err = fleet.Errorf(fleet.CodeInvalid, "read files: %s %d is not a number of bytes", name, n)
	}
	return n, err
}

// queryOffset reads a parameter that counts bytes, in one direction or the other.
func queryOffset(r *http.Request, name string) (int64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fleet.Errorf(fleet.CodeInvalid, "read files: %s %q is not a number of bytes", name, s)
	}
	return n, nil
}

func (a *API) fileRead(w http.ResponseWriter, r *http.Request) { a.fileBytes(w, r, nil) }

func (a *API) fileReadAt(w http.ResponseWriter, r *http.Request) {
	a.fileBytes(w, r, func(req *syncproto.Request) (err error) {
		if req.Offset, err = queryOffset(r, "offset"); err != nil {
			return err
		}
		// Nomad's alloc fs -tail counts back from the end, which may be before the beginning,
		// and its limit of -1 is none.
		req.Offset = max(req.Offset, 0)
		req.Limit, err = queryOffset(r, "limit")
		req.Limit = max(req.Limit, 0)
		return err
	})
}

func (a *API) fileBytes(w http.ResponseWriter, r *http.Request, change func(*syncproto.Request) error) {
	out, req, err := a.askFile(r, syncproto.RequestRead, change)
	if err != nil {
		a.writeError(w, err)
		return
	}
	defer out.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	write := func(b []byte) error { _, err := w.Write(b); return err }
	if err := copyAndFlush(out, http.NewResponseController(w), write); err != nil {
		a.cfg.Log.Debug("file not read to its end", "alloc", req.Alloc, "error", err)
		panic(http.ErrAbortHandler) // or the client would take it for the whole
	}
}

// fileStream serves a file as frames, and what is written to it (not with
// follow=false).
func (a *API) fileStream(w http.ResponseWriter, r *http.Request) {
	at, err := a.streamOffset(r)
	if err != nil {
		a.writeError(w, err)
		return
	}
	out, req, err := a.askFile(r, syncproto.RequestStream, func(req *syncproto.Request) error {
		req.Offset = at
		if s := r.URL.Query().Get("follow"); s != "" {
			follow, err := strconv.ParseBool(s)
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "read files: follow %q is neither true nor false", s)
			}
			if !follow {
				req.Kind = syncproto.RequestRead
			}
		}
		return nil
	})
	if err != nil {
		a.writeError(w, err)
		return
	}
	defer out.Close()
	w.Header().Set("Content-Type", "application/json")
	frames := json.NewEncoder(w)
	emit := func(b []byte) error {
		frame := api.StreamFrame{Offset: at, Data: b, File: req.Path}
		at += int64(len(b))
		return frames.Encode(frame)
	}
	if err := copyAndFlush(out, http.NewResponseController(w), emit); err != nil {
		a.cfg.Log.Debug("file stream ended", "alloc", req.Alloc, "error", err)
	}
}

// streamOffset is where a stream begins, from the start of the file.
func (a *API) streamOffset(r *http.Request) (int64, error) {
	offset, err := queryByteCount(r, "offset")
	if err != nil {
		return 0, err
	}
	switch origin := r.URL.Query().Get("origin"); origin {
	case "", "start":
		return offset, nil
	case "end":
	default:
		return 0, fleet.Errorf(fleet.CodeInvalid, "read files: origin %q is neither start nor end", origin)
	}
	out, _, err := a.askFile(r, syncproto.RequestStat, nil)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	info, err := decodeAnswer[fleet.FileInfo](out)
	if err != nil {
		return 0, err
	}
	return max(info.Size-offset, 0), nil
}
