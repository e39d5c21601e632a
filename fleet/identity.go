package fleet

import (
	"slices"
	"strings"
	"time"
)

// DefaultIdentity is the name of the identity that every task has, and
// DefaultAudience whom it is for.
const (
	DefaultIdentity = "default"
	DefaultAudience = "nomadproject.io"
)

// AttributeIdentities is the attribute of nodes whose edge gives tasks their identities. Those of older releases lack it.
const AttributeIdentities = "skerry.identities"

// OfflineIdentities is the value of AttributeIdentities of edges that renew offline identities themselves. Those of older
// releases have another one.
const OfflineIdentities = "2"

// WorkloadIdentity is a signed token that says who a task or a service is.
type WorkloadIdentity struct {
	Name         string
	Audience     []string
	ChangeMode   string
	ChangeSignal string
	Env          bool
	File         bool
	Filepath     string
	ServiceName  string
	TTL          time.Duration
	ExtraClaims  []string
	// Offline lets the edge of the task sign a new token with its own key while no hub is in reach.
	Offline bool `json:",omitempty"`
}

// FilePath is the path of the file with the token below the task's folder, where File is set.
func (w *WorkloadIdentity) FilePath() string {
	switch {
	case w.Filepath != "":
		return w.Filepath
	case w.Name == DefaultIdentity:
		return "secrets/nomad_token"
	}
	return "secrets/nomad_" + w.Name + ".jwt"
}

// ExposedIdentities returns the identities whose tokens the task gets in files, the default one first.
func (t *Task) ExposedIdentities() []WorkloadIdentity {
	var all []WorkloadIdentity
	if t.Identity != nil {
		all = append(all, *t.Identity)
	}
	all = append(all, t.Identities...)
	return slices.DeleteFunc(all, func(w WorkloadIdentity) bool { return !w.File })
}

// DeliveredIdentities returns the identities whose tokens an edge needs: those in files of the task, and the one for Vault.
func (t *Task) DeliveredIdentities() []WorkloadIdentity {
	all := t.ExposedIdentities()
	if t.Vault != nil && !slices.ContainsFunc(all, func(w WorkloadIdentity) bool { return w.Name == VaultIdentity }) {
		all = append(all, t.vaultIdentity())
	}
	return all
}

// HasIdentities reports whether an edge needs the token of an identity for a task of the group.
func (g *TaskGroup) HasIdentities() bool {
	return slices.ContainsFunc(g.Tasks, func(t Task) bool { return len(t.DeliveredIdentities()) > 0 })
}

// HasOfflineIdentities reports whether the edge of the group may sign the token of an identity of a task itself.
func (g *TaskGroup) HasOfflineIdentities() bool {
	return slices.ContainsFunc(g.Tasks, func(t Task) bool {
		return slices.ContainsFunc(t.DeliveredIdentities(), func(w WorkloadIdentity) bool { return w.Offline })
	})
}

// JobOfIdentity is the job that the identities of an allocation name: a child of a periodic or parameterized job has those
// of its parent.
func (a *Alloc) JobOfIdentity() JobID {
	if a.Job != nil && a.Job.ParentID != "" {
		return a.Job.ParentID
	}
	return a.JobID
}

// IdentitySubject is the subject of a token, in Nomad's form.
func (a *Alloc) IdentitySubject(task, identity string) string {
	region := DefaultRegion
	if a.Job != nil && a.Job.Region != "" {
		region = a.Job.Region
	}
	return strings.Join([]string{region, a.Namespace, string(a.JobOfIdentity()), a.TaskGroup, task, identity}, ":")
}
