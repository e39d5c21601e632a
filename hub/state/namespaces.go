package state

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/fleet/admission"
)

// NamespaceStore creates or replaces a namespace.
type NamespaceStore struct {
	command
	Namespace fleet.Namespace
}

// NamespaceDelete removes a namespace. It is refused (conflict) while one of its jobs is not dead, it has volumes or
// variables, or an edge may still run one of its allocations.
type NamespaceDelete struct {
	command
	Name string
}

var namespaceTable = table[fleet.Namespace]{
	name: "namespaces", key: func(r *fleet.Namespace) []byte { return key(r.Name) }, announced: true,
	records: []record[fleet.Namespace]{rowRecord[fleet.Namespace](80)},
}

// MaxNamespaces is how many namespaces a cluster may have.
const MaxNamespaces = 4096

// maxUsersShown is how many users of a namespace or node pool the refusal of its deletion names.
const maxUsersShown = 5

// namespaceStore applies the command NamespaceStore: it creates or replaces a namespace, after validating
// it.
func (t *tx) namespaceStore(c NamespaceStore) Result {
	next, k := c.Namespace, key(c.Namespace.Name)
	if err := admission.CheckNamespace(&next); err != nil {
		return Result{Err: fleet.AsError(err)}
	}
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	old := namespaceTable.currentRow(t, k)
	if old != nil {
		next.CreateIndex = old.CreateIndex
	}
	if old == nil && len(slices.Collect(namespaceTable.scanRows(t.base))) >= MaxNamespaces {
		return refusal(fleet.CodeConflict, "make namespace %s: there are %d already", next.Name, MaxNamespaces)
	}
	namespaceTable.putRow(t, &next)
	namespaceTable.markChanged(t)
	return Result{}
}

// namespaceDelete applies the command NamespaceDelete: it removes a namespace. It is refused while the
// namespace has live jobs or allocations, and for the default namespace.
func (t *tx) namespaceDelete(c NamespaceDelete) Result {
	k := key(c.Name)
	switch {
	case c.Name == fleet.DefaultNamespace:
		return refusal(fleet.CodeInvalid, "delete namespace %s: it always exists", c.Name)
	case namespaceTable.currentRow(t, k) == nil:
		return refusal(fleet.CodeNotFound, "delete namespace %s: there is no such namespace", c.Name)
	}
	if kept := t.namespaceUsers(c.Name); len(kept) > 0 {
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "delete namespace %s: it is in use: %s", c.Name, strings.Join(kept, ", ")).
			WithHint("stop its jobs, delete its volumes, purge its variables, and wait until their nodes have confirmed that the allocations have ended")}
	}
	namespaceTable.removeRow(t, k)
	namespaceTable.markChanged(t)
	return Result{}
}

// namespaceUsers describes up to maxUsersShown jobs that are not dead, or if there is none, volumes, or else variables,
// or else allocations whose end their edge has not confirmed. The namespace must not be deleted while there are any.
func (t *tx) namespaceUsers(ns string) []string {
	var out []string
	for row := range jobTable.scanPrefix(t.base, indexID, key(ns)) {
		if row.job.Status == fleet.JobStatusDead {
			continue
		}
		if len(out) == maxUsersShown {
			return append(out, "…")
		}
		out = append(out, fmt.Sprintf("job %s (%s)", row.job.ID, row.job.Status))
	}
	if len(out) > 0 {
		return out
	}
	for v := range volumeTable.scanRows(t.base) {
		if v.Namespace != ns {
			continue
		}
		if len(out) == maxUsersShown {
			return append(out, "…")
		}
		out = append(out, fmt.Sprintf("volume %s (%s)", v.Name, fleet.Short(v.ID)))
	}
	if len(out) > 0 {
		return out
	}
	for v := range variableTable.scanPrefix(t.base, indexID, key(ns)) {
		if len(out) == maxUsersShown {
			return append(out, "…")
		}
		out = append(out, "variable "+v.Path)
	}
	if len(out) > 0 {
		return out
	}
	for a := range allocTable.scanRows(t.base) {
		if a.Namespace != ns || !a.OccupiesNode() {
			continue
		}
		if len(out) == maxUsersShown {
			return append(out, "…")
		}
		out = append(out, fmt.Sprintf("allocation %s of job %s on node %s (%s)", fleet.Short(a.ID), a.JobID, fleet.Short(a.NodeID), a.ClientStatus))
	}
	return out
}

// checkJobNamespace returns an error if the job's namespace does not exist, or forbids something in the
// job.
func (t *tx) checkJobNamespace(job *fleet.Job) *fleet.Error {
	ns := t.findNamespace(job.Namespace)
	if ns == nil {
		return missingNamespaceError("register", job)
	}
	if err := admission.NamespaceAdmits(ns, job).Err(); err != nil {
		return fleet.AsError(err)
	}
	return nil
}

// missingNamespaceError says that the job's namespace does not exist; verb begins the message.
func missingNamespaceError(verb string, job *fleet.Job) *fleet.Error {
	return fleet.Errorf(fleet.CodeInvalid, "%s job %s: there is no namespace %q", verb, job.ID, job.Namespace).
		WithHint("skerry namespace apply makes one; skerry namespace list shows those that there are")
}

// findNamespace returns a namespace, or nil. The default namespace always exists.
func (t *tx) findNamespace(name string) *fleet.Namespace {
	if ns := namespaceTable.currentRow(t, key(name)); ns != nil {
		return ns
	}
	if name == fleet.DefaultNamespace {
		ns := builtinNamespace()
		return &ns
	}
	return nil
}

// Namespace returns a namespace; ok is false if there is none. fleet.DefaultNamespace always exists.
func (v *View) Namespace(name string) (*fleet.Namespace, bool) {
	if ns, ok := namespaceTable.watchRow(v, key(name)); ok {
		return ns, true
	}
	if name == fleet.DefaultNamespace {
		ns := builtinNamespace()
		return &ns, true
	}
	return nil, false
}

// Namespaces iterates over all namespaces by name, including the default one.
func (v *View) Namespaces() iter.Seq[*fleet.Namespace] {
	list := slices.Collect(namespaceTable.watchRows(v))
	i, found := slices.BinarySearchFunc(list, fleet.DefaultNamespace, func(n *fleet.Namespace, name string) int {
		return strings.Compare(n.Name, name)
	})
	if !found {
		builtin := builtinNamespace()
		list = slices.Insert(list, i, &builtin)
	}
	return slices.Values(list)
}

// builtinNamespace is the default namespace until somebody stores a description of it.
func builtinNamespace() fleet.Namespace {
	return fleet.Namespace{Name: fleet.DefaultNamespace, Description: "Default shared namespace"}
}
