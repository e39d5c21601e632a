package api

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// saveSnapshot answers with a snapshot of the whole state, whose digest is in the header Digest.
func (a *API) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r)
	if err == nil && !q.stale {
		err = a.cfg.Cluster.CatchUp(r.Context())
	}
	if err != nil {
		a.writeError(w, err)
		return
	}
	v := a.cfg.State.View()
	if err := a.sendSnapshot(w, v); err != nil {
		a.cfg.Log.Warn("snapshot not served", "error", err)
	}
}

// sendSnapshot writes the snapshot to a temporary file, then to the client: the digest in the header has to be known
// first.
func (a *API) sendSnapshot(w http.ResponseWriter, v *state.View) (err error) {
	f, err := os.CreateTemp("", "skerry-snapshot-")
	if err != nil {
		err = fmt.Errorf("save a snapshot: %w", err)
		a.writeError(w, err)
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	sum := sha256.New()
	size := int64(0)
	if err = v.Persist(io.MultiWriter(f, sum)); err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		a.writeError(w, err)
		return err
	}
	a.setAnswerHeaders(w, v.Index())
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Digest", "sha-256="+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	_, err = io.Copy(w, f)
	return err
}

// restoreSnapshot replaces the state of all hubs by the snapshot in the request's body. It first restores it into a
// copy, so that a bad snapshot is refused before anything changes.
func (a *API) restoreSnapshot(r *http.Request) (answer any, index fleet.Index, err error) {
	f, err := os.CreateTemp("", "skerry-restore-")
	if err != nil {
		return nil, 0, fmt.Errorf("restore a snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(r.Body, state.MaxSnapshot+1))
	switch {
	case err != nil:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: it was cut short after %d bytes: %v; nothing was changed", size, err)
	case size > state.MaxSnapshot:
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "restore a snapshot: it is larger than %d MiB; nothing was changed", state.MaxSnapshot>>20).
			WithHint("put back the data directories of all hubs")
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	force, err := queryFlag(r, "force", false)
	var done api.RestoreAnswer
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		done, err = a.rehearseRestore(f, force)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, a.cfg.State.View().Index(), err
	}
	if done.Index, err = a.cfg.Cluster.Restore(r.Context(), f, size, sum.Sum(nil)); err != nil {
		return nil, a.cfg.State.View().Index(), err
	}
	a.cfg.Log.Warn("a snapshot was restored", "entry", done.Index, "restored_to", done.RestoredTo, "bytes", size)
	return done, done.Index, nil
}

// rehearseRestore restores a snapshot into a copy of the state, and returns what the copy has. It changes nothing.
// Without force it fails if this hub lacks the key that decrypts the snapshot's variables, or that would encrypt others.
func (a *API) rehearseRestore(f io.Reader, force bool) (api.RestoreAnswer, error) {
	v, err := a.cfg.State.View().TryRestore(f, time.Now().UnixNano())
	if err == nil && !force {
		if err = a.cfg.Secrets.CheckKeys(v); err != nil {
			e := fleet.AsError(err)
			err = fleet.Errorf(e.Code, "restore a snapshot: %s", e.Message).
				WithHint("%s; --force restores the snapshot with variables that nobody can read until a hub has the key", e.Hint)
		}
	}
	if err != nil {
		e := fleet.AsError(err)
		return api.RestoreAnswer{}, fleet.Errorf(e.Code, "%s; nothing was changed", e.Message).WithHint("%s", e.Hint)
	}
	done := api.RestoreAnswer{RestoredTo: v.Restored().From}
	for range v.Jobs("*", "") {
		done.Jobs++
	}
	for range v.Nodes("") {
		done.Nodes++
	}
	return done, nil
}
