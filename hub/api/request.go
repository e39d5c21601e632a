package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// answerPiece is about how many bytes of a list are written at once.
const answerPiece = 64 << 10

// query has the parameters that all reads share.
type query struct {
	namespace string // fleet.DefaultNamespace where none is named; "*" is all
	prefix    string
	minIndex  fleet.Index
	wait      time.Duration
	stale     bool
}

// parseQuery reads the parameters that all reads share, and fills in their defaults.
func parseQuery(r *http.Request) (query, error) {
	p := r.URL.Query()
	q := query{namespace: requestNamespace(r), prefix: p.Get("prefix"), wait: DefaultWait, stale: p.Has("stale")}
	if s := p.Get("index"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return q, fleet.Errorf(fleet.CodeInvalid, "read the parameter index: %q is not a whole number", s)
		}
		q.minIndex = fleet.Index(n)
	}
	if s := p.Get("wait"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return q, fleet.Errorf(fleet.CodeInvalid, "read the parameter wait: %q is not a duration", s).
				WithHint("write it like 30s or 5m")
		}
		q.wait = min(d, MaxWait)
	}
	return q, nil
}

// requestNamespace returns the namespace that a request names, or the default one.
func requestNamespace(r *http.Request) string {
	return cmp.Or(r.URL.Query().Get("namespace"), fleet.DefaultNamespace)
}

// queryFlag reads a boolean parameter; absent is its value if it is missing.
func queryFlag(r *http.Request, name string, absent bool) (bool, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return absent, nil
	}
	on, err := strconv.ParseBool(s)
	if err != nil {
		return false, fleet.Errorf(fleet.CodeInvalid, "read the parameter %s: %q is neither true nor false", name, s)
	}
	return on, nil
}

// checkIndex reads the parameter cas (check and set): the ModifyIndex that an object must still have for the change
// to happen. given is false if it is missing.
func checkIndex(r *http.Request) (index uint64, given bool, err error) {
	s := r.URL.Query().Get("cas")
	if s == "" {
		return 0, false, nil
	}
	if index, err = strconv.ParseUint(s, 10, 64); err != nil {
		return 0, false, fleet.Errorf(fleet.CodeInvalid, "read the parameter cas: %q is not a whole number", s).
			WithHint("give the ModifyIndex of the object that you change, or leave cas out")
	}
	return index, true, nil
}

// readFunc answers a read from a view. index is the newest change of the objects that it read, for blocking queries.
type readFunc func(v *state.View, r *http.Request, q query) (answer any, index fleet.Index, err error)

// readHandler serves f as a read: it waits until this hub has caught up with the leader (not with stale), or with
// the parameter index until the answer is newer than that index.
func (a *API) readHandler(f readFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := parseQuery(r)
		if err != nil {
			a.writeError(w, err)
			return
		}
		if !q.stale && q.minIndex == 0 {
			if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
				a.writeError(w, err)
				return
			}
		}
		answer, index, err := a.readBlocking(f, r, q)
		a.setAnswerHeaders(w, index)
		if err != nil {
			a.writeError(w, err)
			return
		}
		if p, ok := answer.(pageOfItems); ok {
			answer = p.answer
			if p.next != "" {
				w.Header().Set(api.NextTokenHeader, p.next)
			}
		}
		a.writeAnswer(w, r, answer)
	}
}

// readBlocking calls f once or, if q.minIndex is not 0, after each change until its index exceeds q.minIndex, its
// object appears or disappears, or the wait ends. Up to a sixteenth of the wait is added at random, so that waiting
// clients do not all return at once.
func (a *API) readBlocking(f readFunc, r *http.Request, q query) (any, fleet.Index, error) {
	if q.minIndex == 0 {
		v := a.cfg.State.View()
		if err := a.renewGrant(r, grantOf(r), v); err != nil { // what it has caught up with may be the end of the token
			return nil, 0, err
		}
		answer, index, err := f(v, r, q)
		return answer, max(index, v.Restored().Index), err
	}
	ctx, cancel := context.WithTimeout(r.Context(), q.wait+rand.N(q.wait/16+1))
	defer cancel()
	for missed, again := false, false; ; again = true {
		v := a.cfg.State.Watch()
		if err := a.renewGrant(r, grantOf(r), v); err != nil {
			return nil, 0, err
		}
		answer, index, err := f(v, r, q)
		// Objects of a restored snapshot have their former indexes. A client that saw later
		// ones has to learn of the restore, and must not see the index go back.
		index = max(index, v.Restored().Index)
		// A client may wait for an object that does not exist yet. When one appears or
		// disappears, the index may stay the same: for a list it is that of the listed objects.
		missing := fleet.CodeOf(err) == fleet.CodeNotFound
		if err != nil && !missing || index > q.minIndex || again && missing != missed {
			return answer, index, err
		}
		missed = missing
		if v.Changed(ctx) != nil {
			if err := a.renewGrant(r, grantOf(r), a.cfg.State.View()); err != nil { // it may have expired meanwhile
				return nil, 0, err
			}
			return answer, index, cmp.Or(r.Context().Err(), err)
		}
	}
}

// readObject serves a read of one object, which find returns and f answers with. If find fails, the answer has the
// index of the object's table.
func readObject[T any](
	a *API, table string, find func(*state.View, *http.Request) (T, error),
	f func(v *state.View, r *http.Request, q query, object T) (answer any, index fleet.Index, err error),
) http.HandlerFunc {
	return a.readHandler(func(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
		object, err := find(v, r)
		if err != nil {
			return nil, v.TableIndex(table), err
		}
		return f(v, r, q, object)
	})
}

// writeHandler serves f, which makes a change and returns the answer and the index of its log entry. It also serves
// requests about this hub that need no view. Changes have no body here: one that says something is refused.
func (a *API) writeHandler(f func(r *http.Request) (answer any, index fleet.Index, err error)) http.HandlerFunc {
	return a.bodyHandler(func(r *http.Request) (any, fleet.Index, error) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if err := a.optionalBody(r, &struct{}{}); err != nil {
				return nil, 0, err
			}
		}
		return f(r)
	})
}

// bodyHandler is writeHandler for an f that reads the request's body.
func (a *API) bodyHandler(f func(r *http.Request) (answer any, index fleet.Index, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, index, err := f(r)
		a.setAnswerHeaders(w, index)
		if err != nil {
			a.writeError(w, err)
			return
		}
		a.writeAnswer(w, r, answer)
	}
}

// writeBody serves a change whose parameters are in the request's JSON body. A missing body is an error.
func writeBody[T any](a *API, f func(r *http.Request, req T) (answer any, index fleet.Index, err error)) http.HandlerFunc {
	return a.bodyHandler(func(r *http.Request) (any, fleet.Index, error) {
		var req T
		if err := a.decodeBody(r, &req); err != nil {
			return nil, 0, err
		}
		return f(r, req)
	})
}

// writeOptionalBody is writeBody for requests whose body may be missing; req then has its zero value.
func writeOptionalBody[T any](a *API, f func(r *http.Request, req T) (answer any, index fleet.Index, err error)) http.HandlerFunc {
	return a.bodyHandler(func(r *http.Request) (any, fleet.Index, error) {
		var req T
		if err := a.optionalBody(r, &req); err != nil {
			return nil, 0, err
		}
		return f(r, req)
	})
}

// commitAnswer commits a command through the leader, and makes the answer from its result.
func commitAnswer[T any](a *API, r *http.Request, c state.Command, answer func(state.Result) T) (any, fleet.Index, error) {
	res, err := a.commitCommand(r.Context(), c)
	if err != nil {
		return nil, res.Index, err
	}
	return answer(res), res.Index, nil
}

// indexAnswer makes an answer that has only the index of the log entry.
func indexAnswer(res state.Result) api.IndexAnswer { return api.IndexAnswer{Index: res.Index} }

// commitCommand commits a command through the leader and waits for its result. A command that was committed but
// refused is an error, too.
func (a *API) commitCommand(ctx context.Context, c state.Command) (state.Result, error) {
	res, err := a.cfg.Cluster.Apply(ctx, c)
	return res, res.Failure(err)
}

// decodeBody decodes the request's JSON body into v. A missing body, an unknown key and a body for another namespace
// or region are errors.
func (a *API) decodeBody(r *http.Request, v any) error {
	empty, err := a.readBody(r, v)
	if empty {
		return fleet.Errorf(fleet.CodeInvalid, "read the request's body: it is empty")
	}
	return err
}

// optionalBody is decodeBody for requests whose body may be missing. Clients with chunked bodies do not announce
// that they send none.
func (a *API) optionalBody(r *http.Request, v any) error {
	_, err := a.readBody(r, v)
	return err
}

// readBody decodes the request's JSON body of at most MaxBody bytes into v, and checks its keys. empty: there is no
// body.
func (a *API) readBody(r *http.Request, v any) (empty bool, err error) {
	b, err := readBytes(r)
	if err != nil {
		return false, err
	}
	if len(b) == 0 {
		return true, nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		var e *fleet.Error
		if errors.As(err, &e) {
			return false, e
		}
		return false, fleet.Errorf(fleet.CodeInvalid, "read the request's body: %s", notJSON(err))
	}
	keys, err := readBodyKeys(r.URL.Path, b, v)
	if err != nil {
		return false, err
	}
	return false, cmp.Or(a.checkScope(r, keys), keys.refuseRepeated(), keys.refuseUnknown())
}

// readBytes returns the request's body of at most MaxBody bytes.
func readBytes(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the request's body: %v", err)
	}
	if len(b) > MaxBody {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the request's body: it is larger than %d MiB", MaxBody>>20)
	}
	return b, nil
}

// notJSON returns why a body could not be decoded, in words of JSON instead of Go.
func notJSON(err error) string {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return err.Error()
	}
	at := kind.Field
	if at == "" {
		at = "the whole"
	}
	return fmt.Sprintf("%s has the wrong type: JSON %s at byte %d", at, kind.Value, kind.Offset)
}

// setAnswerHeaders sets the headers that Nomad's clients read: the index, and whether this hub knows a leader.
func (a *API) setAnswerHeaders(w http.ResponseWriter, index fleet.Index) {
	_, known := a.cfg.Cluster.Leader()
	h := w.Header()
	h.Set("X-Nomad-Index", strconv.FormatUint(uint64(max(index, 1)), 10))
	h.Set("X-Nomad-KnownLeader", strconv.FormatBool(known))
	h.Set("X-Nomad-LastContact", "0")
}

// writeAnswer writes the answer as JSON, indented if the request has the parameter pretty.
func (a *API) writeAnswer(w http.ResponseWriter, r *http.Request, answer any) {
	if _, none := answer.(noAnswer); none {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	indent := ""
	if r.URL.Query().Has("pretty") {
		indent = "    "
	}
	if err := writeJSON(w, answer, indent); err != nil {
		a.cfg.Log.Debug("answer not written", "path", r.URL.Path, "error", err)
	}
}

// writeJSON writes an answer as JSON. It writes a shownList item by item: the text of a whole list may need more memory
// than a hub has.
func writeJSON(w io.Writer, answer any, indent string) error {
	list, isList := answer.(interface{ eachItem(yield func(any) bool) })
	if !isList {
		enc := json.NewEncoder(w)
		enc.SetIndent("", indent)
		return enc.Encode(answer)
	}
	line, encode := "", json.Marshal
	if indent != "" {
		line, encode = "\n", func(item any) ([]byte, error) { return json.MarshalIndent(item, indent, indent) }
	}
	out, before, end := bufio.NewWriterSize(w, answerPiece), "["+line, "[]\n"
	for item := range list.eachItem {
		b, err := encode(item)
		if err != nil {
			return err
		}
		out.WriteString(before + indent)
		if _, err := out.Write(b); err != nil {
			return err
		}
		before, end = ","+line, line+"]\n"
	}
	out.WriteString(end)
	return out.Flush()
}

// writeError answers with an error's HTTP status, code, hint and text.
func (a *API) writeError(w http.ResponseWriter, err error) {
	e := fleet.AsError(err)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e = fleet.Errorf(fleet.CodeTimeout, "%s", err.Error())
	}
	a.writeErrorAs(w, api.Status(e.Code), e)
}

// writeErrorAs answers with an error and the given HTTP status. It logs internal errors.
func (a *API) writeErrorAs(w http.ResponseWriter, status int, e *fleet.Error) {
	if status == http.StatusInternalServerError && e.Code == fleet.CodeInternal {
		a.cfg.Log.Error("request failed", "error", e)
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set(api.CodeHeader, string(e.Code))
	if e.Hint != "" {
		h.Set(api.HintHeader, e.Hint)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, e.Error()) // an error means that the client has left
}
