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

// maxListing is the largest answer of an edge to a list or stat request, in bytes.
const maxListing = 8 << 20

func (a *API) fileEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/client/fs/ls/{id}", inObjectNamespace("read-fs"), a.fileList},
		{"GET", "/v1/client/fs/stat/{id}", inObjectNamespace("read-fs"), a.fileStat},
		{"GET", "/v1/client/fs/cat/{id}", inObjectNamespace("read-fs"), a.fileRead},
		{"GET", "/v1/client/fs/readat/{id}", inObjectNamespace("read-fs"), a.fileReadAt},
		{"GET", "/v1/client/fs/stream/{id}", inObjectNamespace("read-fs"), a.fileStream},
	}
}

// askFile sends a request about a path of an allocation to its edge and returns the answer as a stream, and the
// request that was sent. change (nil: none) adjusts the request first. The caller closes the stream.
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

// fileList answers with the entries of a folder of an allocation.
func (a *API) fileList(w http.ResponseWriter, r *http.Request) {
	answerFile[[]fleet.FileInfo](a, w, r, syncproto.RequestList)
}

// fileStat answers with the name, size and kind of a file or folder of an allocation.
func (a *API) fileStat(w http.ResponseWriter, r *http.Request) {
	answerFile[fleet.FileInfo](a, w, r, syncproto.RequestStat)
}

// answerFile asks the edge for a T about the request's path, checks that the answer decodes, and answers with it.
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

// decodeAnswer decodes an edge's JSON answer of at most maxListing bytes. CodeFrameBad: it is no such answer.
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

// queryByteCount reads a parameter with a number of bytes; 0 if it is missing. A negative number is an error.
func queryByteCount(r *http.Request, name string) (int64, error) {
	n, err := queryOffset(r, name)
	if err == nil && n < 0 {
		err = fleet.Errorf(fleet.CodeInvalid, "read files: %s %d is not a number of bytes", name, n)
	}
	return n, err
}

// queryOffset reads a parameter with a number of bytes, which may be negative; 0 if it is missing.
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

// fileRead answers with the content of a file of an allocation.
func (a *API) fileRead(w http.ResponseWriter, r *http.Request) { a.fileBytes(w, r, nil) }

// fileReadAt answers with the part of a file that the parameters offset and limit describe.
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

// fileBytes answers with the bytes that the edge sends for the request, which change (nil: none) adjusts. If the
// edge fails midway, the connection is aborted, so that the client does not take the part for the whole.
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
		panic(http.ErrAbortHandler) // otherwise the client would take the part for the whole
	}
}

// fileStream streams a file of an allocation as JSON frames, and later additions to it until the client leaves. With
// follow=false the stream ends at the end of the file.
func (a *API) fileStream(w http.ResponseWriter, r *http.Request) {
	at, err := a.streamOffset(r)
	if err != nil {
		a.writeError(w, err)
		return
	}
	if _, err := needAlloc(a.cfg.State.View(), r); err != nil {
		a.writeError(w, err)
		return
	}
	r, stop := a.whileGranted(r)
	defer stop()
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

// streamOffset returns the offset from the start of the file at which a stream begins. With origin=end the parameter
// offset counts back from the end, and the edge is asked for the size.
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
