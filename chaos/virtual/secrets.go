package virtual

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/fleet"
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

// observeMessage records which variables a message to an edge has, has probes use its identities, and searches other
// messages for secrets.
func (r *run) observeMessage(edge string, m syncproto.Message) {
	if !r.s.Access {
		return
	}
	if req, ok := m.(syncproto.Request); ok && req.Kind == syncproto.RequestVariables {
		d := check.DeliveredVariables{Edge: edge}
		for _, v := range req.Variables {
			if v.Namespace == fleet.DefaultNamespace && !v.Deleted {
				d.Paths = append(d.Paths, v.Path)
			}
		}
		r.judgeAndRecord(check.Observation{Delivered: &d})
		return
	}
	if req, ok := m.(syncproto.Request); ok && req.Kind == syncproto.RequestIdentities {
		for _, d := range req.Identities {
			if d.Expires > 0 {
				r.users.KeepIdentity(d.Alloc, d.Token, time.Unix(d.Expires, 0))
			}
		}
	}
	switch m.(type) {
	case syncproto.Desired, syncproto.Request:
	default:
		return // it has no field for what hubs know of jobs
	}
	b, err := codec.Marshal(m)
	if err != nil {
		r.recordHarnessFailure("encode a message to %s: %v", edge, err)
		return
	}
	if hasSecret(b) {
		r.judgeAndRecord(check.Observation{Search: &check.SecretSearch{Who: edge, Found: []string{fmt.Sprintf("a message of the type %s to it", m.FrameType())}}})
	}
}

// hasSecret reports whether bytes have a secret in clear.
func hasSecret(b []byte) bool {
	for _, mark := range engine.SecretMarks() {
		if bytes.Contains(b, []byte(mark)) {
			return true
		}
	}
	return false
}

// searchFiles searches all files of the run for secrets in clear: the data of hubs and edges, copies of it, and logs. It
// leaves out what tasks render into their folders for secrets.
func (r *run) searchFiles() {
	if !r.s.Access {
		return
	}
	o := check.SecretSearch{}
	err := filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && isTaskSecrets(r.Dir, path) {
			if os.IsNotExist(err) {
				return nil // it was removed meanwhile
			}
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		o.Files++
		if hasSecret(b) {
			name, _ := filepath.Rel(r.Dir, path)
			o.Found = append(o.Found, name)
		}
		return nil
	})
	if err != nil {
		r.recordHarnessFailure("search the files of the run: %v", err)
	}
	r.judgeAndRecord(check.Observation{Search: &o})
}

// isTaskSecrets reports whether a folder below root is that for the secrets of a task: MEMBER/allocs/ALLOC/TASK/secrets.
func isTaskSecrets(root, path string) bool {
	name, err := filepath.Rel(root, path)
	parts := strings.Split(name, string(filepath.Separator))
	return err == nil && len(parts) == 5 && parts[1] == "allocs" && parts[4] == "secrets"
}

// observeIntruders records variables that probes wrote, by the states of the hubs.
func (r *run) observeIntruders() {
	for h, v := range r.c.runningViews() {
		for row := range v.Variables("*", check.IntruderMark) {
			r.judgeAndRecord(check.Observation{Probe: &check.Probe{Hub: h.Name, Token: "a probe's token", Attempt: "write the variable " + row.Path, Status: http.StatusOK}})
		}
	}
}
