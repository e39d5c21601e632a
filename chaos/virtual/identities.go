package virtual

import (
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
	"skerry/edge/identities"
)

// observeIdentities records the identities of tasks that the edge has, if they have changed since the last time in the life
// of its agent.
func (r *run) observeIdentities(e *Edge) {
	keeper := e.identityKeeper()
	if keeper == nil || !r.hasIdentityJob() {
		return
	}
	ends := map[check.TaskKey]time.Duration{}
	held := keeper.Held("")
	for _, d := range held {
		if d.Expires > 0 {
			ends[check.TaskKey{Alloc: d.Alloc, Task: d.Task}] = time.Unix(d.Expires, 0).Sub(r.began)
		}
	}
	r.mu.Lock()
	before, known := r.tokens[e.Name]
	r.tokens[e.Name] = ends
	r.mu.Unlock()
	if !known || !maps.Equal(before, ends) {
		for _, d := range held { // the edge may have signed it itself
			if token, _, ok := keeper.Token(d.Alloc, d.Task, d.Name); ok {
				r.marks.AddIdentity(token)
			}
		}
		r.judgeAndRecord(check.Observation{Identity: &check.HeldIdentities{Edge: e.Name, Ends: ends}})
	}
}

// hasIdentityJob reports whether a task of the schedule has an identity.
func (r *run) hasIdentityJob() bool {
	return slices.ContainsFunc(r.s.Jobs, func(j schedule.Job) bool { return j.Identity > 0 })
}

// identityKeeper returns the keeper of the running agent's identities; nil: it is down.
func (e *Edge) identityKeeper() *identities.Keeper {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		return nil
	}
	return e.tokens
}
