package api

import (
	"errors"
	"net/http"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/admission"
	"skerry/hub/state"
)

func (a *API) variableEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/vars", filteredAnswer, a.readHandler(a.listVariables)},
		{"GET", "/v1/var/{path...}", onVariable("read"), a.readHandler(a.readVariable)},
		{writes, "/v1/var/{path...}", onVariable("write"), a.variableHandler(a.changeVariable)},
		{"DELETE", "/v1/var/{path...}", onVariable("destroy"), a.variableHandler(a.deleteVariable)},
	}
}

// listVariables lists the variables of a namespace by namespace and path, without their items.
func (a *API) listVariables(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	order := func(m fleet.VariableMeta) string { return m.Namespace + "\x00" + m.Path }
	metas := mapItems(v.Variables(q.namespace, q.prefix), func(row *state.Variable) fleet.VariableMeta { return row.WithoutID() })
	answer, err := page(r, metas, order, unchangedItem[fleet.VariableMeta])
	return answer, v.TableIndex("variables"), err
}

// readVariable answers with a variable and its items.
func (a *API) readVariable(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	path := r.PathValue("path")
	if err := admission.CheckVariablePath(path); err != nil {
		return nil, 0, err
	}
	if err := grantOf(r).checkNamedObject(object{acl.KindVariables, q.namespace, path}); err != nil {
		return nil, 0, err
	}
	row, ok := v.Variable(q.namespace, path)
	if !ok {
		return nil, v.TableIndex("variables"), fleet.Errorf(fleet.CodeNotFound, "variable not found: there is no variable %s in namespace %s", path, q.namespace)
	}
	items, err := a.cfg.Secrets.Decrypt(row)
	return fleet.Variable{VariableMeta: row.VariableMeta, Items: items}, row.ModifyIndex, err
}

// variableConflict is the refusal of a change, with the variable as it is.
type variableConflict struct {
	refusal  *fleet.Error
	variable fleet.Variable
}

func (c *variableConflict) Error() string { return c.refusal.Error() }
func (c *variableConflict) Unwrap() error { return c.refusal }

// variableHandler is writeHandler for changes of variables: the answer to a refused one has the variable, as in Nomad.
func (a *API) variableHandler(f func(r *http.Request) (any, fleet.Index, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, index, err := f(r)
		a.setAnswerHeaders(w, index)
		var conflict *variableConflict
		switch {
		case errors.As(err, &conflict):
			h := w.Header()
			h.Set("Content-Type", "application/json")
			h.Set(api.CodeHeader, string(conflict.refusal.Code))
			h.Set(api.MessageHeader, conflict.refusal.Message)
			if conflict.refusal.Hint != "" {
				h.Set(api.HintHeader, conflict.refusal.Hint)
			}
			w.WriteHeader(http.StatusConflict)
			a.writeAnswer(w, r, conflict.variable)
		case err != nil:
			a.writeError(w, err)
		default:
			a.writeAnswer(w, r, answer)
		}
	}
}

// conflictOf returns err, with the variable as it is if err is a conflict. It leaves out the ID of the variable's lock,
// which only the holder may know.
func (a *API) conflictOf(r *http.Request, ns, path string, res state.Result, err error) error {
	if fleet.CodeOf(err) != fleet.CodeConflict {
		return err
	}
	if waited := a.cfg.State.WaitIndex(r.Context(), res.Index); waited != nil {
		return waited
	}
	c := &variableConflict{refusal: fleet.AsError(err), variable: fleet.Variable{VariableMeta: fleet.VariableMeta{Namespace: ns, Path: path}, Items: fleet.VariableItems{}}}
	row, ok := a.cfg.State.View().Variable(ns, path)
	if !ok {
		return c
	}
	c.variable.VariableMeta = row.WithoutID()
	if !mayReadVariable(r, ns, path) {
		return c
	}
	if items, err := a.cfg.Secrets.Decrypt(row); err == nil {
		c.variable.Items = items
	}
	return c
}

// variableRequest reads the variable in the body of a request to change it. Namespace and path are those of the
// request, which the body may only repeat.
func (a *API) variableRequest(r *http.Request) (fleet.Variable, error) {
	var v fleet.Variable
	if err := a.decodeBody(r, &v); err != nil {
		return v, err
	}
	path, ns := r.PathValue("path"), r.URL.Query().Get("namespace")
	if v.Path != "" && v.Path != path {
		return v, fleet.Errorf(fleet.CodeInvalid, "change variable %s: the body has the path %q", path, v.Path).WithHint("leave Path out of the body, or repeat it")
	}
	if v.Namespace != "" && ns != "" && v.Namespace != ns {
		return v, fleet.Errorf(fleet.CodeInvalid, "change variable %s: the body has the namespace %q, the request %q", path, v.Namespace, ns).
			WithHint("leave Namespace out of the body, or repeat it")
	}
	v.Path = path
	if v.Namespace == "" {
		v.Namespace = requestNamespace(r)
	}
	if err := admission.CheckVariablePath(path); err != nil {
		return v, err
	}
	if err := grantOf(r).checkNamedObject(object{acl.KindVariables, v.Namespace, path}); err != nil {
		return v, err
	}
	return v, admission.CheckVariableItems(path, v.Items)
}

// changeVariable stores a variable, or acquires, renews or releases its lock, as the parameters say.
func (a *API) changeVariable(r *http.Request) (any, fleet.Index, error) {
	v, err := a.variableRequest(r)
	if err != nil {
		return nil, 0, err
	}
	change := a.storeVariable
	named := 0
	for name, f := range map[string]func(*http.Request, fleet.Variable) (any, fleet.Index, error){
		"lock-acquire": a.lockVariable, "lock-renew": a.renewVariable, "lock-release": a.releaseVariable,
	} {
		if r.URL.Query().Has(name) {
			change = f
			named++
		}
	}
	if named > 1 || named == 1 && r.URL.Query().Has("cas") {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "change variable %s: more than one of cas, lock-acquire, lock-renew and lock-release is given", v.Path).
			WithHint("give one of them")
	}
	return change(r, v)
}

// storeVariable creates or replaces a variable.
func (a *API) storeVariable(r *http.Request, v fleet.Variable) (any, fleet.Index, error) {
	if len(v.Items) == 0 {
		return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store variable %s: it has no Items", v.Path).WithHint("give at least one item, or delete the variable")
	}
	index, check, err := checkIndex(r)
	if err != nil {
		return nil, 0, err
	}
	lockID := ""
	if v.Lock != nil {
		lockID = v.Lock.ID
		if row, ok := a.cfg.State.View().Variable(v.Namespace, v.Path); lockID == "" && *v.Lock != (fleet.VariableLock{}) && (!ok || row.Lock == nil) {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "store variable %s: the body has a Lock, and the request acquires none", v.Path).
				WithHint("acquire it with the parameter lock-acquire, or leave Lock out of the body")
		}
	}
	return a.commitItems(r, v, func(s state.SealedItems) state.Command {
		return state.VariableStore{
			Namespace: v.Namespace, Path: v.Path, Sealed: s, Check: check, CheckIndex: fleet.Index(index), LockID: lockID, Now: a.cfg.Now().UnixNano(),
		}
	})
}

// lockVariable acquires the lock of a variable, which it creates if there is none.
func (a *API) lockVariable(r *http.Request, v fleet.Variable) (any, fleet.Index, error) {
	lock := fleet.VariableLock{}
	if v.Lock != nil {
		lock = *v.Lock
	}
	if err := admission.CheckVariableLock(v.Path, &lock); err != nil {
		return nil, 0, err
	}
	lock.ID = a.cfg.NewID()
	return a.commitItems(r, v, func(s state.SealedItems) state.Command {
		return state.VariableLock{Namespace: v.Namespace, Path: v.Path, Lock: lock, Sealed: s, KeepItems: len(v.Items) == 0, Now: a.cfg.Now().UnixNano()}
	})
}

// commitItems commits a command with the encrypted items of a variable, and answers with the variable.
func (a *API) commitItems(r *http.Request, v fleet.Variable, command func(state.SealedItems) state.Command) (any, fleet.Index, error) {
	res, err := a.cfg.Secrets.Commit(r.Context(), v.Namespace, v.Path, v.Items, command)
	if err != nil {
		return nil, res.Index, a.conflictOf(r, v.Namespace, v.Path, res, err)
	}
	return a.changedVariable(r, v, res)
}

// changedVariable answers with a variable as an entry of the log left it.
func (a *API) changedVariable(r *http.Request, v fleet.Variable, res state.Result) (any, fleet.Index, error) {
	if err := a.cfg.State.WaitIndex(r.Context(), res.Index); err != nil {
		return nil, res.Index, err
	}
	row, ok := a.cfg.State.View().Variable(v.Namespace, v.Path)
	if !ok {
		return nil, res.Index, fleet.Errorf(fleet.CodeConflict, "read variable %s: it was changed, and removed again by somebody else", v.Path)
	}
	if !mayReadVariable(r, v.Namespace, v.Path) {
		return fleet.Variable{VariableMeta: row.VariableMeta, Items: v.Items}, res.Index, nil // what the request has sent
	}
	items, err := a.cfg.Secrets.Decrypt(row)
	return fleet.Variable{VariableMeta: row.VariableMeta, Items: items}, res.Index, err
}

// mayReadVariable reports whether a request that changes a variable may also read its items.
func mayReadVariable(r *http.Request, ns, path string) bool {
	return actorOf(r).ACL.Allows(acl.Requirement{Kind: acl.KindVariables, Name: ns, Path: path, Capability: acl.Read})
}

// heldLock returns the ID of the lock in the body of a request to renew or release it.
func heldLock(v fleet.Variable, verb string) (string, error) {
	if v.Lock == nil || v.Lock.ID == "" {
		return "", fleet.Errorf(fleet.CodeInvalid, "%s the lock of variable %s: the body has no Lock.ID", verb, v.Path).
			WithHint("give the ID that the acquisition of the lock was answered with")
	}
	return v.Lock.ID, nil
}

// renewVariable starts the TTL of a variable's lock again. It makes no entry of the log.
func (a *API) renewVariable(r *http.Request, v fleet.Variable) (any, fleet.Index, error) {
	id, err := heldLock(v, "renew")
	if err == nil {
		err = a.cfg.Locks.RenewLock(r.Context(), v.Namespace, v.Path, id)
	}
	now := a.cfg.State.View()
	if err != nil {
		return nil, now.Index(), a.conflictOf(r, v.Namespace, v.Path, state.Result{}, err)
	}
	if row, ok := now.Variable(v.Namespace, v.Path); ok {
		v.VariableMeta = row.VariableMeta
	}
	return v.VariableMeta, now.Index(), nil
}

// releaseVariable releases the lock of a variable.
func (a *API) releaseVariable(r *http.Request, v fleet.Variable) (any, fleet.Index, error) {
	id, err := heldLock(v, "release")
	if err != nil {
		return nil, 0, err
	}
	res, err := a.commitCommand(r.Context(), state.VariableUnlock{Namespace: v.Namespace, Path: v.Path, LockID: id, Now: a.cfg.Now().UnixNano()})
	if err != nil {
		return nil, res.Index, a.conflictOf(r, v.Namespace, v.Path, res, err)
	}
	return a.changedVariable(r, v, res)
}

// deleteVariable removes a variable, if there is one.
func (a *API) deleteVariable(r *http.Request) (any, fleet.Index, error) {
	path, ns := r.PathValue("path"), requestNamespace(r)
	if err := grantOf(r).checkNamedObject(object{acl.KindVariables, ns, path}); err != nil {
		return nil, 0, err
	}
	if err := a.optionalBody(r, &struct{}{}); err != nil { // it has none
		return nil, 0, err
	}
	index, check, err := checkIndex(r)
	if err != nil {
		return nil, 0, err
	}
	res, err := a.commitCommand(r.Context(), state.VariableDelete{Namespace: ns, Path: path, Check: check, CheckIndex: fleet.Index(index), TellEdges: true})
	if err != nil {
		return nil, res.Index, a.conflictOf(r, ns, path, res, err)
	}
	return indexAnswer(res), res.Index, nil
}
