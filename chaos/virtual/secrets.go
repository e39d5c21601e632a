package virtual

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/fleet"
	"skerry/hub"
	"skerry/hub/state"
	"skerry/internal/codec"
	"skerry/syncproto"
)

const (
	// searchEvery is the interval at which a run with access control searches its files for secrets in clear.
	searchEvery = 10 * time.Minute
	searches    = 100 // the maximum number of searches in a run
)

// observeVariables records the variables that the edge has, if they have changed since the last time in the life of its
// agent.
func (r *run) observeVariables(e *Edge) {
	read := e.variableReader()
	if read == nil || r.s.Secrets == 0 && !r.hasSecretJob() {
		return
	}
	values := map[string]int{}
	for _, j := range r.s.Jobs {
		for _, path := range []string{schedule.SecretPath(j.ID), schedule.GroupSecretPath(j.ID)} {
			if items, ok := read(fleet.DefaultNamespace, path); ok {
				values[path] = engine.SecretNumber(items)
			}
		}
	}
	r.mu.Lock()
	before, known := r.held[e.Name]
	r.held[e.Name] = values
	r.mu.Unlock()
	if !known || !maps.Equal(before, values) {
		r.judgeAndRecord(check.Observation{Held: &check.HeldVariables{Edge: e.Name, Values: values}})
	}
}

// hasSecretJob reports whether a job of the schedule reads variables.
func (r *run) hasSecretJob() bool {
	return slices.ContainsFunc(r.s.Jobs, func(j schedule.Job) bool { return j.Secret })
}

// forgetVariables has the next observation of an edge's variables and identities recorded even if they are as they were.
func (r *run) forgetVariables(edge string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, edge)
	delete(r.tokens, edge)
}

// variableReader returns how the variables of the running agent are read; nil: it is down.
func (e *Edge) variableReader() func(namespace, path string) (map[string]string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		return nil
	}
	return e.variable
}

// observeMessage records which variables a message to an edge has, has probes use its identities, and searches it for
// secrets that it must not have.
func (r *run) observeMessage(edge string, m syncproto.Message) {
	if !r.s.Access {
		return
	}
	var allowed []engine.SecretKind
	switch m := m.(type) {
	case syncproto.Request:
		allowed = r.observeRequest(edge, m)
	case syncproto.Desired, syncproto.Refused:
	default:
		return // it has no field for what hubs know of jobs
	}
	b, err := codec.Marshal(m)
	if err != nil {
		r.recordHarnessFailure("encode a message to %s: %v", edge, err)
		return
	}
	if kind := r.marks.Find(b, allowed...); kind != "" {
		r.judgeAndRecord(check.Observation{Search: &check.SecretSearch{Who: edge, Found: []string{fmt.Sprintf("a message of the type %s to it: %s", m.FrameType(), kind)}}})
	}
}

// observeRequest records which variables a request to an edge has, and has probes use its identities. It returns the kinds of
// secrets that the request may have.
func (r *run) observeRequest(edge string, req syncproto.Request) []engine.SecretKind {
	switch req.Kind {
	case syncproto.RequestVariables:
		d := check.DeliveredVariables{Edge: edge}
		for _, v := range req.Variables {
			if v.Namespace == fleet.DefaultNamespace && !v.Deleted {
				d.Paths = append(d.Paths, v.Path)
			}
		}
		r.judgeAndRecord(check.Observation{Delivered: &d})
		return []engine.SecretKind{engine.SecretVariable} // the edge keeps them for its tasks
	case syncproto.RequestIdentities:
		for _, d := range req.Identities {
			r.marks.AddIdentity(d.Token)
			if d.Expires > 0 {
				r.users.KeepIdentity(d.Alloc, d.Token, time.Unix(d.Expires, 0))
			}
		}
		return []engine.SecretKind{engine.SecretIdentity} // the edge keeps them for its tasks
	}
	return nil
}

// searchCommand searches a command that a hub applied for secrets, when the first hub applies it: the log has it for a short time.
func (r *run) searchCommand(name string, a hub.Applied) {
	if !r.s.Access || !r.isNewIndex(a.Index) {
		return
	}
	b, err := state.Encode(a.Command)
	if err != nil {
		r.recordHarnessFailure("encode entry %d: %v", a.Index, err)
		return
	}
	if kind := r.marks.Find(b); kind != "" {
		r.judgeAndRecord(check.Observation{Search: &check.SecretSearch{Who: name, Found: []string{fmt.Sprintf("entry %d of the log, a %s: %s", a.Index, state.KindOf(a.Command), kind)}}})
	}
}

// isNewIndex reports whether no hub has applied an entry before.
func (r *run) isNewIndex(index fleet.Index) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew := index > r.newest
	r.newest = max(r.newest, index)
	return isNew
}

// searchRefusal searches the error with which a hub answers a user. One about a variable's conflict shows the variable.
func (r *run) searchRefusal(a check.Answer, body []byte) {
	if !r.s.Access {
		return
	}
	var allowed []engine.SecretKind
	if a.Status == http.StatusConflict {
		allowed = append(allowed, engine.SecretVariable)
	}
	if kind := r.marks.Find(body, allowed...); kind != "" {
		r.judgeAndRecord(check.Observation{Search: &check.SecretSearch{Who: a.Hub, Found: []string{fmt.Sprintf("the error %d of %s %s: %s", a.Status, a.Verb, a.Object, kind)}}})
	}
}

// searchFiles searches all files of the run, and its history, for secrets in clear: the data of hubs and edges, copies of it, and
// logs. It leaves out secrets in the files that are there to have them.
func (r *run) searchFiles() {
	if !r.s.Access {
		return
	}
	r.marks.MarkFiles(r.Dir)
	o, err := r.marks.SearchFolder(r.Dir)
	if err != nil {
		r.recordHarnessFailure("search the files of the run: %v", err)
	}
	if kind := r.searchHistory(); kind != "" {
		o.Found = append(o.Found, fmt.Sprintf("the history: %s", kind))
	}
	r.judgeAndRecord(check.Observation{Search: &o})
}

// searchHistory returns the kind of a secret in what was written of the history so far; "": there is none.
func (r *run) searchHistory() engine.SecretKind {
	if r.searched == nil {
		return ""
	}
	if err := r.recorder.History.Flush(); err != nil {
		r.recordHarnessFailure("write the history: %v", err)
	}
	return r.searched.Found()
}

// observeIntruders records variables that probes wrote, by the states of the hubs.
func (r *run) observeIntruders() {
	for h, v := range r.c.runningViews() {
		for row := range v.Variables("*", check.IntruderMark) {
			r.judgeAndRecord(check.Observation{Probe: &check.Probe{Hub: h.Name, Token: "a probe's token", Attempt: "write the variable " + row.Path, Status: http.StatusOK}})
		}
	}
}
